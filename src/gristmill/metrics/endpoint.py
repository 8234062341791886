"""An HTTP server for metrics, in a thread of its own. It answers scrapes from what it was given last.

It reads no more of HTTP than it needs, and starts a thread only for a client that is slow: with the servers of the
standard library a scrape costs the process twice as much.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

from gristmill.errors import PlanError
from gristmill.logs import logger
from gristmill.metrics.openmetrics import OPENMETRICS_TYPE, PLAIN_TYPE, wants_openmetrics

_PATIENCE_S = 0.05
"""A client that is not done after so long continues in a thread of its own,"""
_SLOW_CLIENT_S = 10.0
"""and is cut off if it sends or takes nothing for so long."""
_LAST_ANSWERS_S = 1.0
"""How long answers that are being sent may take once the server closes."""
_LONGEST_REQUEST = 1 << 16
_MOST_WAITING = 32

_TEXT_TYPE = "text/plain; charset=utf-8"
_INDEX = b"gristmill: the metrics of this run are at /metrics\n"

Render = Callable[[bool], str]
"""Returns the metrics as text, in OpenMetrics if the argument is True."""


class MetricsEndpoint:
    """Serves ``/metrics`` from its creation to `close`."""

    def __init__(self, host: str, port: int, render: Render) -> None:
        """Raise `PlanError` if the address cannot be used."""
        self._render = render
        self._socket = _listening(host, port)
        self._changed = threading.Condition()
        self._stopping = False
        self._busy = 0
        """Requests that are being answered."""
        self._scrapes = 0
        self._scraped_at = 0.0
        self._thread = threading.Thread(target=self._serve, name="gristmill-metrics", daemon=True)
        self._thread.start()
        self.address = _address(self._socket)
        """Host and port, as in a URL."""

    @property
    def scrapes(self) -> int:
        """How often the metrics were read."""
        return self._scrapes

    @property
    def scraped_at(self) -> float:
        """When the metrics were read last (`time.monotonic`); 0 if they never were."""
        return self._scraped_at

    def wait_for_scrape(self, seconds: float) -> bool:
        """Wait until the metrics that are served from now on were read. Return whether that was in time."""
        with self._changed:
            after = self._scrapes + self._busy  # answers that are being sent may hold older metrics
            return self._changed.wait_for(lambda: self._scrapes > after, seconds)

    def close(self) -> None:
        """Stop serving. Answers that are being sent get a moment to end. More calls do nothing."""
        if self._stopping:
            return
        self._stopping = True
        host, port = self._socket.getsockname()[:2]
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1.0):
            pass  # wakes the thread, which waits for a connection
        self._thread.join()
        self._socket.close()
        with self._changed:
            self._changed.wait_for(lambda: not self._busy, _LAST_ANSWERS_S)

    def _serve(self) -> None:
        """Answer until `close`. Nothing is polled."""
        while not self._stopping:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                time.sleep(_PATIENCE_S)  # a client that is gone already, or no descriptor is free
                continue
            with self._changed:
                self._busy += 1
            client = _Client(connection, self._render)
            if not self._advance(client, _PATIENCE_S):
                threading.Thread(target=self._advance, args=(client, _SLOW_CLIENT_S), daemon=True).start()

    def _advance(self, client: _Client, patience_s: float) -> bool:
        """Serve a client. Return False if it is not done, because it takes longer than ``patience_s``."""
        try:
            is_done = client.advance(patience_s)
        except OSError:  # it is gone
            is_done = True
        except Exception:  # a bug, which must not stop the metrics, nor the run
            logger.error("a request for metrics failed", exc_info=True)
            is_done = True
        if is_done or patience_s == _SLOW_CLIENT_S:
            client.close()
            with self._changed:
                self._busy -= 1
                if client.has_scraped:
                    self._scrapes += 1
                    self._scraped_at = time.monotonic()
                self._changed.notify_all()
        return is_done


class _Client:
    """One connection: a request is received, then an answer is sent."""

    def __init__(self, connection: socket.socket, render: Render) -> None:
        self.has_scraped = False
        """The metrics were sent."""
        self._connection = connection
        self._render = render
        self._request = b""
        self._answer: memoryview | None = None
        self._is_scrape = False

    def advance(self, patience_s: float) -> bool:
        """Continue. Return whether it is done, or False if the client sends or takes nothing for so long.

        Raise `OSError` if it is gone.
        """
        self._connection.settimeout(patience_s)
        try:
            if self._answer is None:
                self._receive()
                self._answer = memoryview(self._answer_to(self._request))
            while self._answer:
                self._answer = self._answer[self._connection.send(self._answer) :]
        except TimeoutError:
            return False
        self.has_scraped = self._is_scrape
        return True

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.close()

    def _receive(self) -> None:
        """Receive the request up to the empty line after its headers."""
        while b"\r\n\r\n" not in self._request and b"\n\n" not in self._request:
            part = self._connection.recv(_LONGEST_REQUEST)
            self._request += part
            if not part or len(self._request) > _LONGEST_REQUEST:
                return

    def _answer_to(self, request: bytes) -> bytes:
        if not request:
            return b""  # a connection that was closed at once
        first, *headers = request.decode("latin-1").splitlines()
        method, _, rest = first.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if len(request) > _LONGEST_REQUEST:
            return _response("431 Request Header Fields Too Large", _TEXT_TYPE, b"too long\n")
        if method not in ("GET", "HEAD"):
            return _response("405 Method Not Allowed", _TEXT_TYPE, b"only GET and HEAD are answered\n")
        with_body = method == "GET"
        if path == "/metrics":
            accept = next((x[7:] for x in headers if x[:7].lower() == "accept:"), "")
            openmetrics = wants_openmetrics(accept.strip())
            self._is_scrape = with_body
            kind = OPENMETRICS_TYPE if openmetrics else PLAIN_TYPE
            return _response("200 OK", kind, self._render(openmetrics).encode(), with_body)
        if path == "/":
            return _response("200 OK", _TEXT_TYPE, _INDEX, with_body)
        return _response("404 Not Found", _TEXT_TYPE, b"not found: the metrics are at /metrics\n", with_body)


def _response(status: str, kind: str, body: bytes, with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Raise `PlanError` if the address cannot be used."""
    where = f"metrics cannot be served at {host}:{port}"
    what_to_do = "choose another port with --metrics-port, or 0 for any free one"
    if not 0 <= port <= 65535:
        raise PlanError(f"{where}: a port is a number from 0 to 65535; {what_to_do}.")
    try:
        family, *_, address = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError) as error:
        words = error.strerror if isinstance(error, OSError) else str(error)
        raise PlanError(f"{where}: the host is not known ({words}). Name an address of this machine.") from None
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_MOST_WAITING)
    except OSError as error:
        listening.close()
        raise PlanError(f"{where}: {error.strerror}; {what_to_do}.") from None
    return listening


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
