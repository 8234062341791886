"""An HTTP server for metrics, in threads of its own. It answers scrapes from what it was given last."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Callable
from socketserver import StreamRequestHandler, TCPServer, ThreadingMixIn
from typing import Any

from gristmill.errors import PlanError
from gristmill.logs import logger
from gristmill.metrics.openmetrics import OPENMETRICS_TYPE, PLAIN_TYPE, wants_openmetrics

_SLOW_CLIENT_S = 10.0
"""A client that sends or takes nothing for so long is cut off."""
_LAST_ANSWERS_S = 1.0
"""How long answers that are being sent may take once the server closes."""

_MOST_HEADERS = 100
_LONGEST_LINE = 8192
_TEXT_TYPE = "text/plain; charset=utf-8"
_INDEX = b"gristmill: the metrics of this run are at /metrics\n"

Render = Callable[[bool], str]
"""Returns the metrics as text, in OpenMetrics if the argument is True."""


class MetricsEndpoint:
    """Serves ``/metrics`` from its creation to `close`."""

    def __init__(self, host: str, port: int, render: Render) -> None:
        """Raise `PlanError` if the address cannot be used."""
        self._server = _Server.open(host, port, render)
        self._thread = threading.Thread(target=self._server.serve, name="gristmill-metrics", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Host and port, as in a URL."""
        host, port = self._server.server_address[:2]
        host = host if isinstance(host, str) else host.decode()
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def scrapes(self) -> int:
        """How often the metrics were read."""
        return self._server.scrapes

    @property
    def scraped_at(self) -> float:
        """When the metrics were read last (`time.monotonic`); 0 if they never were."""
        return self._server.scraped_at

    def wait_for_scrape(self, seconds: float) -> bool:
        """Wait until the metrics that are served from now on were read. Return whether that was in time."""
        with self._server.answered:
            after = self._server.scrapes + self._server.busy  # answers that are being sent may hold older metrics
            return self._server.answered.wait_for(lambda: self._server.scrapes > after, seconds)

    def close(self) -> None:
        """Stop serving. Answers that are being sent get a moment to end. More calls do nothing."""
        if not self._thread.is_alive():
            return
        self._server.stop()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingMixIn, TCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 32

    def __init__(self, family: socket.AddressFamily, address: tuple[Any, ...], render: Render) -> None:
        self.address_family = family
        self.render = render
        self.scrapes = 0
        self.scraped_at = 0.0
        self.answered = threading.Condition()
        self.busy = 0
        self._stopping = False
        super().__init__(address, _Handler)

    @classmethod
    def open(cls, host: str, port: int, render: Render) -> _Server:
        where = f"metrics cannot be served at {host}:{port}"
        what_to_do = "choose another port with --metrics-port, or 0 for any free one"
        if not 0 <= port <= 65535:
            raise PlanError(f"{where}: a port is a number from 0 to 65535; {what_to_do}.")
        try:
            family, *_, address = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)[0]
            return cls(family, address, render)
        except socket.gaierror as error:
            raise PlanError(
                f"{where}: the host is not known ({error.strerror}). Name an address of this machine."
            ) from None
        except OSError as error:
            raise PlanError(f"{where}: {error.strerror}; {what_to_do}.") from None

    def serve(self) -> None:
        """Answer until `stop`. Nothing is polled."""
        while not self._stopping:
            self.handle_request()

    def stop(self) -> None:
        self._stopping = True
        host, port = self.socket.getsockname()[:2]
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1.0):
            pass  # wakes the thread, which waits for a connection
        with self.answered:
            self.answered.wait_for(lambda: not self.busy, _LAST_ANSWERS_S)

    def begin_answer(self) -> None:
        with self.answered:
            self.busy += 1

    def end_answer(self, is_scrape: bool) -> None:
        with self.answered:
            self.busy -= 1
            if is_scrape:
                self.scrapes += 1
                self.scraped_at = time.monotonic()
            self.answered.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that disconnects is no error. Anything else is a bug: it is logged and does not stop the run."""
        if not isinstance(sys.exception(), OSError):
            logger.error("a request for metrics failed", exc_info=True)


class _Handler(StreamRequestHandler):
    """Answers one request. It reads no more of HTTP than it needs: the classes of `http.server` cost twice as much."""

    server: _Server
    timeout = _SLOW_CLIENT_S

    def handle(self) -> None:
        is_scrape = False
        self.server.begin_answer()
        try:
            is_scrape = self._answer()
        except OSError:
            pass  # the client is gone, or too slow
        finally:
            self.server.end_answer(is_scrape)

    def _answer(self) -> bool:
        """Answer the request. Return whether the metrics were read."""
        method, _, rest = self._line().partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        accept = ""
        for _ in range(_MOST_HEADERS):
            name, _, value = self._line().partition(":")
            if not name:
                break
            if name.lower() == "accept":
                accept = value.strip()
        else:
            self._send("431 Request Header Fields Too Large", _TEXT_TYPE, b"", True)
            return False
        if method not in ("GET", "HEAD"):
            self._send("405 Method Not Allowed", _TEXT_TYPE, b"only GET and HEAD are answered\n", True)
            return False
        with_body = method == "GET"
        if path == "/metrics":
            openmetrics = wants_openmetrics(accept)
            body = self.server.render(openmetrics).encode()
            self._send("200 OK", OPENMETRICS_TYPE if openmetrics else PLAIN_TYPE, body, with_body)
            return with_body
        if path == "/":
            self._send("200 OK", _TEXT_TYPE, _INDEX, with_body)
        else:
            self._send("404 Not Found", _TEXT_TYPE, b"not found: the metrics are at /metrics\n", with_body)
        return False

    def _line(self) -> str:
        """Return a line of the request; empty after the last header and at the end."""
        return self.rfile.readline(_LONGEST_LINE).decode("latin-1").rstrip("\r\n")

    def _send(self, status: str, kind: str, body: bytes, with_body: bool) -> None:
        head = (
            f"HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        self.connection.sendall(head.encode() + (body if with_body else b""))
