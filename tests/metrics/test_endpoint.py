"""The server of metrics: what it answers, bad clients, and its end."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from gristmill.errors import PlanError
from gristmill.metrics.endpoint import MetricsEndpoint
from gristmill.metrics.openmetrics import OPENMETRICS_TYPE, PLAIN_TYPE


def text_of(openmetrics: bool) -> str:
    return "open\n" if openmetrics else "plain ü\n"


@pytest.fixture
def serve() -> Iterator[Callable[..., MetricsEndpoint]]:
    opened: list[MetricsEndpoint] = []

    def make(host: str = "127.0.0.1", port: int = 0, render: Callable[[bool], str] = text_of) -> MetricsEndpoint:
        opened.append(MetricsEndpoint(host, port, render))
        return opened[-1]

    yield make
    for endpoint in opened:
        endpoint.close()


def get(endpoint: MetricsEndpoint, path: str = "/metrics", accept: str = "") -> tuple[str, str]:
    request = urllib.request.Request(f"http://{endpoint.address}{path}", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def connection(endpoint: MetricsEndpoint) -> socket.socket:
    host, _, port = endpoint.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def scrapes_are(endpoint: MetricsEndpoint, number: int) -> None:
    """Wait until so many scrapes are counted: an answer is counted after it was sent."""
    until = time.monotonic() + 60
    while endpoint.scrapes < number and time.monotonic() < until:
        time.sleep(0.01)
    assert endpoint.scrapes == number


def test_both_formats_are_served(serve: Callable[..., MetricsEndpoint]) -> None:
    endpoint = serve()
    assert get(endpoint) == (PLAIN_TYPE, "plain ü\n")
    assert get(endpoint, accept="application/openmetrics-text") == (OPENMETRICS_TYPE, "open\n")
    assert get(endpoint, "/metrics?a=b")[1] == "plain ü\n"
    scrapes_are(endpoint, 3)


def test_other_paths_say_where_the_metrics_are(serve: Callable[..., MetricsEndpoint]) -> None:
    endpoint = serve()
    assert "/metrics" in get(endpoint, "/")[1]
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(endpoint, "/other")
    assert endpoint.scrapes == 0


def test_a_request_for_the_head_gets_no_body(serve: Callable[..., MetricsEndpoint]) -> None:
    endpoint = serve()
    client = http.client.HTTPConnection(endpoint.address, timeout=60)
    client.request("HEAD", "/metrics")
    answer = client.getresponse()
    assert (answer.status, answer.read(), endpoint.scrapes) == (200, b"", 0)
    assert answer.headers["Content-Length"] == str(len("plain ü\n".encode()))
    client.close()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n", b"405"),
        (b"nonsense\r\n\r\n", b"405"),
        (b"GET\r\n\r\n", b"404"),
        (b"GET /metrics\r\n\r\n", b"200"),
        (b"GET /metrics HTTP/1.1\nACCEPT:text/plain\n\n", b"200"),
        (b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 20_000 + b"\r\n", b"431"),
        (b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n", b"4"),
        (b"\x00\xff\xfe\r\n\r\n", b"405"),
    ],
)
def test_strange_requests_get_an_answer(serve: Callable[..., MetricsEndpoint], request_: bytes, status: bytes) -> None:
    endpoint = serve()
    with connection(endpoint) as client:
        client.sendall(request_)
        client.shutdown(socket.SHUT_WR)
        answer = b""
        with contextlib.suppress(ConnectionResetError):  # what was not read of the request
            while part := client.recv(1 << 16):
                answer += part
    assert answer.startswith(b"HTTP/1.0 " + status) or (not answer and len(request_) > 5000)
    assert get(endpoint)[1] == "plain ü\n"


def test_a_port_that_is_taken_is_an_error_that_says_what_to_do(serve: Callable[..., MetricsEndpoint]) -> None:
    port = int(serve().address.rpartition(":")[2])
    with pytest.raises(PlanError) as raised:
        serve(port=port)
    assert str(raised.value) == (
        f"metrics cannot be served at 127.0.0.1:{port}: Address already in use; choose another port with "
        "--metrics-port, or 0 for any free one."
    )


@pytest.mark.parametrize(
    ("host", "port", "problem"),
    [
        ("no.such.host.invalid", 0, "the host is not known"),
        ("a" * 300, 0, "the host is not known"),
        ("a" * 300, 0, "the host is not known"),
        ("192.0.2.1", 0, "Cannot assign requested address"),
        ("127.0.0.1", 70_000, "a port is a number from 0 to 65535"),
        ("127.0.0.1", -1, "a port is a number from 0 to 65535"),
    ],
)
def test_an_address_that_cannot_be_used_is_an_error(host: str, port: int, problem: str) -> None:
    with pytest.raises(PlanError, match=f"metrics cannot be served at {host}:{port}: {problem}"):
        MetricsEndpoint(host, port, text_of)


def test_it_listens_on_loopback_only_unless_asked(serve: Callable[..., MetricsEndpoint]) -> None:
    assert serve().address.startswith("127.0.0.1:")
    everywhere = serve("0.0.0.0")
    assert everywhere.address.startswith("0.0.0.0:")
    everywhere.close()


def test_a_client_that_sends_nothing_delays_no_other_client_and_not_the_end(
    serve: Callable[..., MetricsEndpoint],
) -> None:
    endpoint = serve()
    silent, rude = connection(endpoint), connection(endpoint)
    rude.sendall(b"\x16\x03\x01 no HTTP\r\n\r\n")
    assert get(endpoint)[1] == "plain ü\n"
    silent.setblocking(False)
    with pytest.raises(BlockingIOError):  # it was not cut off first
        silent.recv(1)
    endpoint.close()
    silent.close()
    rude.close()


def test_a_client_that_disconnects_is_no_error(
    serve: Callable[..., MetricsEndpoint], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    go = threading.Event()

    def slow(openmetrics: bool) -> str:
        assert go.wait(60)
        return "x" * (8 << 20)

    endpoint = serve(render=slow)
    client = connection(endpoint)
    client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
    client.close()
    go.set()
    assert len(get(endpoint)[1]) == 8 << 20
    scrapes_are(endpoint, 1)
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("slow_client", [False, True])
def test_the_end_waits_for_an_answer_that_is_being_made(
    serve: Callable[..., MetricsEndpoint], slow_client: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made in the thread of the server, or in one of its own for a client that sends its request in parts."""
    monkeypatch.setattr("gristmill.metrics.endpoint._LAST_ANSWERS_S", 60.0)
    began, go = threading.Event(), threading.Event()

    def slow(openmetrics: bool) -> str:
        began.set()
        assert go.wait(60)
        return "late\n"

    endpoint = serve(render=slow)
    client = connection(endpoint)
    client.sendall(b"GET /metrics HTTP/1.1\r\n")
    if slow_client:
        with contextlib.suppress(urllib.error.HTTPError):
            get(endpoint, "/other")  # the server has left the first client to another thread
    client.sendall(b"\r\n")
    assert began.wait(60)
    threading.Timer(0.1, go.set).start()
    endpoint.close()
    scrapes_are(endpoint, 1)
    assert client.recv(1 << 16).endswith(b"late\n")
    client.close()


def test_the_end_does_not_wait_for_a_scrape_that_hangs(serve: Callable[..., MetricsEndpoint]) -> None:
    """A client that never takes its answer, and connections that wait to be accepted."""
    endpoint = serve(render=lambda openmetrics: "x" * (64 << 20))
    clients = [connection(endpoint) for _ in range(8)]
    for client in clients:
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
    closing = threading.Thread(target=endpoint.close)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()
    with pytest.raises(OSError):
        get(endpoint)
    for client in clients:
        client.close()


def test_scrapes_at_the_same_time_as_the_end_get_a_whole_answer_or_none(
    serve: Callable[..., MetricsEndpoint],
) -> None:
    endpoint = serve(render=lambda openmetrics: "x" * 1_000_000)
    over = threading.Event()
    bodies: list[int] = []

    def scrape() -> None:
        while not over.is_set():
            try:
                bodies.append(len(get(endpoint)[1]))
            except (OSError, http.client.HTTPException):
                continue

    threads = [threading.Thread(target=scrape) for _ in range(4)]
    for thread in threads:
        thread.start()
    while len(bodies) < 20:
        pass
    endpoint.close()
    over.set()
    for thread in threads:
        thread.join(60)
    assert set(bodies) == {1_000_000}


def test_waiting_for_a_scrape_ends_with_the_next_one_or_after_its_time(serve: Callable[..., MetricsEndpoint]) -> None:
    endpoint = serve()
    get(endpoint)
    assert not endpoint.wait_for_scrape(0.05)
    threading.Timer(0.1, get, (endpoint,)).start()
    assert endpoint.wait_for_scrape(60)


def test_an_error_of_ours_is_logged_and_the_server_continues(
    serve: Callable[..., MetricsEndpoint], caplog: pytest.LogCaptureFixture
) -> None:
    broken = [True]

    def render(openmetrics: bool) -> str:
        if broken:
            broken.clear()
            raise ValueError("a bug")
        return "fine\n"

    endpoint = serve(render=render)
    with pytest.raises((OSError, http.client.HTTPException)):
        get(endpoint)
    assert get(endpoint)[1] == "fine\n"
    assert "a request for metrics failed" in caplog.text
