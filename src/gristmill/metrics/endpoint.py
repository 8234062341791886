"""An HTTP server for metrics, in threads of its own. It answers scrapes from what it was given last."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn
from typing import Any

from gristmill.errors import PlanError
from gristmill.logs import logger
from gristmill.metrics.openmetrics import OPENMETRICS_TYPE, PLAIN_TYPE, wants_openmetrics

_SLOW_CLIENT_S = 10.0
"""A client that sends or takes nothing for so long is cut off."""
_LAST_ANSWERS_S = 1.0
"""How long answers that are being sent may take once the server closes."""

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
        """Stop serving. Answers that are being sent get a moment to end."""
        self._server.stop()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingMixIn, HTTPServer):
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
        try:
            family, *_, address = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)[0]
            return cls(family, address, render)
        except socket.gaierror as error:
            raise PlanError(
                f"{where}: the host is not known ({error.strerror}). Name an address of this machine."
            ) from None
        except OverflowError:
            raise PlanError(f"{where}: a port is a number from 0 to 65535; {what_to_do}.") from None
        except OSError as error:
            raise PlanError(f"{where}: {error.strerror}; {what_to_do}.") from None

    def server_bind(self) -> None:
        # HTTPServer looks up the name of the host here, which may take seconds.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "", self.server_address[1]

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


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _SLOW_CLIENT_S
    server_version = "gristmill"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        is_scrape = path == "/metrics" and with_body
        self.server.begin_answer()
        try:
            if path == "/metrics":
                openmetrics = wants_openmetrics(self.headers.get("Accept", ""))
                body = self.server.render(openmetrics).encode()
                self._send(200, OPENMETRICS_TYPE if openmetrics else PLAIN_TYPE, body, with_body)
            elif path == "/":
                self._send(200, "text/plain; charset=utf-8", _INDEX, with_body)
            else:
                self._send(404, "text/plain; charset=utf-8", b"not found: the metrics are at /metrics\n", with_body)
        except OSError:
            is_scrape = False  # the client is gone
        finally:
            self.server.end_answer(is_scrape)

    def _send(self, status: int, kind: str, body: bytes, with_body: bool) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""
