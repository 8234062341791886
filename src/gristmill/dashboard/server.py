"""The HTTP server of the live page: a thread for each request, all of them in the background of the run."""

from __future__ import annotations

import secrets
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, urlsplit

from gristmill import fast_json
from gristmill.dashboard.access import Access, Verdict, is_loopback
from gristmill.dashboard.feed import Cursor, Feed
from gristmill.dashboard.samples import SampleReader, SamplesError
from gristmill.errors import PlanError
from gristmill.logs import logger

PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    **{
        f"/{name}.js": (f"{name}.js", "text/javascript; charset=utf-8")
        for name in ("app", "chart", "charts", "dom", "flow", "format", "panels", "samples")
    },
}
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
JSON = "application/json"
MOST_CONNECTIONS = 64
REQUEST_TIMEOUT_S = 10.0
SEND_TIMEOUT_S = 20.0
"""After this time without progress, a browser that does not read its events is disconnected."""
HEARTBEAT_S = 10.0
AT_ONCE = 1 << 16


class Server(ThreadingHTTPServer):
    """Serves one run until `close`."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 32

    def __init__(self, host: str, port: int, feed: Feed, samples: SampleReader) -> None:
        family, address = _resolve(host, port)
        self.address_family = family
        self.feed = feed
        self.samples = samples
        self._closing = False
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        try:
            super().__init__(address, Handler)
        except OSError as error:
            raise PlanError(_not_bound(host, port, error)) from None
        bound = self.socket.getsockname()
        token = None if is_loopback(bound[0]) else secrets.token_urlsafe(24)
        self.access = Access(token, bound[1], host)
        self._any = bound[0] in ("0.0.0.0", "::")
        self._thread = threading.Thread(target=self._serve, name="gristmill-dashboard", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The address of the page, with the token if there is one."""
        host = socket.gethostname() if self._any else self.access.host
        place = f"http://{f'[{host}]' if ':' in host else host}:{self.access.port}/"
        return place if self.access.token is None else f"{place}?token={self.access.token}"

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            with suppress(OSError):  # it is set already on some systems
                self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # Without the name lookup of HTTPServer.server_bind, which may take seconds.
        socket_address = self.server_address
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(socket_address)
        self.server_address = self.socket.getsockname()

    def _serve(self) -> None:
        while not self._closing:
            self.handle_request()

    def close(self) -> None:
        """Stop listening, and disconnect the browsers that are still reading."""
        if self._closing:
            return
        self._closing = True
        address = self.socket.getsockname()
        local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address[0], address[0])
        with suppress(OSError):  # wakes the thread that waits for requests
            socket.create_connection((local, address[1]), timeout=1).close()
        self._thread.join(timeout=2)
        self.server_close()
        with self._lock:
            left = list(self._open)
        for connection in left:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Refuse a connection if there are too many, before a thread is started for it."""
        with self._lock:
            if self._closing or len(self._open) >= MOST_CONNECTIONS:
                return False
            self._open.add(request)
            return True

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error of the page, but not that a browser has gone."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            logger.warning(f"the live page could not answer a request: {type(error).__name__}: {error}")


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    try:
        if not host.strip():
            raise OSError("the name is empty")
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise PlanError(
            f"the live page cannot be served at {host!r}: {error}. "
            "Give --dashboard-host an address of this machine, such as 0.0.0.0, or leave it out to use 127.0.0.1."
        ) from None
    family, _, _, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    return family, address


def _not_bound(host: str, port: int, error: OSError) -> str:
    where = f"the live page cannot be served at {host} port {port}: {error.strerror or error}."
    return f"{where} Choose another port with --dashboard-port, or leave it out to use any free port."


@cache
def _file(name: str) -> bytes:
    return (resources.files("gristmill.dashboard") / "page" / name).read_bytes()


class Handler(BaseHTTPRequestHandler):
    """Answers one request and closes the connection."""

    server: Server
    timeout = REQUEST_TIMEOUT_S
    protocol_version = "HTTP/1.1"
    server_version = "gristmill"
    sys_version = ""

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: the terminal shows the run."""

    def do_GET(self) -> None:
        self.close_connection = True
        given = self.headers.get
        verdict = self.server.access.verdict(
            self.path, given("Host", ""), given("Cookie", ""), given("Authorization", "")
        )
        if verdict is Verdict.WRONG_HOST:
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "This page answers only to the names of this machine.")
        elif verdict is Verdict.NO_TOKEN:
            self._refuse(HTTPStatus.UNAUTHORIZED, "Open the whole URL that the run printed: it ends with a token.")
        elif verdict is Verdict.SET_COOKIE:
            self._set_cookie()
        elif self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin") and not self._is_navigation():
            self._refuse(HTTPStatus.FORBIDDEN, "Another site asked for this.")
        else:
            self._answer()

    def _is_navigation(self) -> bool:
        """Whether the browser opens the page, by a link on another site for one."""
        return self.headers.get("Sec-Fetch-Mode") == "navigate" and urlsplit(self.path).path == "/"

    def _answer(self) -> None:
        url = urlsplit(self.path)
        if url.path in PAGE:
            name, kind = PAGE[url.path]
            self._send(_file(name), kind)
        elif url.path == "/state.json":
            self._send(self.server.feed.state(), JSON)
        elif url.path == "/events":
            self._events()
        elif url.path == "/samples":
            self._samples(url.query)
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "There is no such page.")

    def _samples(self, query: str) -> None:
        try:
            asked = parse_qs(query, max_num_fields=20)
            phase, stage = int(asked.get("phase", ["-1"])[0]), int(asked["stage"][0])
            found = self.server.samples.of(phase, stage)
        except (KeyError, ValueError):
            self._refuse(HTTPStatus.BAD_REQUEST, "Ask for /samples?phase=0&stage=1: numbers from 0.")
        except SamplesError as error:
            self._refuse(error.status, str(error))
        else:
            self._send(fast_json.dumps(found), JSON)

    def _events(self) -> None:
        """Send what is new to this browser whenever it is ready for more, until the run has ended."""
        feed, cursor = self.server.feed, Cursor()
        with self._counted(feed):
            self.connection.settimeout(SEND_TIMEOUT_S)
            self._head(HTTPStatus.OK, {"Content-Type": "text/event-stream"})
            self._write(b"retry: 2000\n\n")
            sent_at = 0.0
            while not feed.has_ended:
                now = time.monotonic()
                if feed.has_news(cursor):
                    self._write(b"data: " + feed.news(cursor) + b"\n\n")
                    sent_at = now
                elif now - sent_at > HEARTBEAT_S:
                    self._write(b":\n\n")
                    sent_at = now
                feed.wait_for_end(feed.pause_s())
            self._write(b"data: " + feed.news(cursor) + b"\n\nevent: end\ndata: {}\n\n")

    @contextmanager
    def _counted(self, feed: Feed) -> Iterator[None]:
        feed.opened()
        try:
            yield
        finally:
            feed.closed()

    def _write(self, data: bytes) -> None:
        """Send data in parts: each has the whole time limit."""
        for start in range(0, len(data), AT_ONCE):
            self.wfile.write(data[start : start + AT_ONCE])

    def _set_cookie(self) -> None:
        access = self.server.access
        cookie = f"{access.cookie}={access.token}; Path=/; HttpOnly; SameSite=Lax"
        self._head(HTTPStatus.SEE_OTHER, {"Location": "/", "Set-Cookie": cookie, "Content-Length": "0"})

    def _refuse(self, status: HTTPStatus, words: str) -> None:
        self._send(f"{words}\n".encode(), "text/plain; charset=utf-8", status)

    def _send(self, content: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._head(status, {"Content-Type": kind, "Content-Length": str(len(content))})
        self._write(content)

    def _head(self, status: HTTPStatus, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, **HEADERS, "Connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()
