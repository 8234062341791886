"""The server of the live page, without a browser."""

import json
import socket
import threading
from contextlib import ExitStack

import pytest
from tests.dashboard.made import decisions, moment, plan
from tests.dashboard.runs import Control, Sleep, get, get_json, running, wait_until

from gristmill.backends.local import LocalExecutor
from gristmill.cli.main import main
from gristmill.dashboard import server as module
from gristmill.dashboard.attachment import open_dashboard
from gristmill.dashboard.server import PAGE
from gristmill.errors import PipelineFailed, PlanError
from gristmill.metrics.history import History
from gristmill.metrics.observer import Observers
from gristmill.pipeline import Pipeline
from gristmill.pipeline.monitoring import DashboardOptions, Outcome


@pytest.fixture
def control(tmp_path):
    return Control(tmp_path, one=0.01, two=0.03)


def two_stages(control, **arguments) -> Pipeline:
    return Pipeline("two", stages=[Sleep("one", control.folder), Sleep("two", control.folder, **arguments)])


@pytest.fixture
def opened():
    """Open the page of a run that does not happen: it and what reports to it."""
    with ExitStack() as stack:

        def open_one(host="127.0.0.1", port=0, show_text=True):
            history = History()
            dashboard = open_dashboard(stack, history, "made", None, host, port, show_text)
            reports = Observers((history, dashboard))
            reports.begin(plan("s0"))
            return dashboard, reports

        yield open_one


def port_of(url: str) -> int:
    return int(url.split(":")[2].split("/")[0])


class Events:
    """A client that reads events."""

    has_end = False

    def __init__(self, url: str, receive_buffer: int = 0) -> None:
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(60)
        self.socket.connect(("127.0.0.1", port_of(url)))
        self.socket.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.file = self.socket.makefile("rb")

    def __iter__(self):
        for line in self.file:
            if line.startswith(b'data: {"state'):
                yield json.loads(line[6:])
            elif line == b"event: end\n":
                self.has_end = True

    def close(self):
        self.file.close()
        self.socket.close()


def test_a_run_is_followed_from_the_first_event_to_the_last(control):
    with running(two_stages(control), control.numbers(), stop=control.stopped.set) as run:
        events = iter(Events(run.url))
        first = next(events)
        assert first["state"]["status"] == "running"
        seen = [first]
        while not (now := seen[-1]["state"]["now"]) or now["steps"][1]["tasks_done"] < 20:
            seen.append(next(events))
        control.stopped.set()
        seen += events
    assert run.errors == []
    done = [one["state"]["now"]["steps"][1]["tasks_done"] for one in seen if one["state"]["now"]]
    assert done == sorted(done) and len(set(done)) > 2
    last = seen[-1]["state"]
    assert last["status"] == "finished" and last["wall_s"] > 0
    assert last["now"]["steps"][0]["tasks_done"] == last["now"]["steps"][1]["tasks_done"] > 20
    with pytest.raises(ConnectionRefusedError):
        get(run.url)


def test_the_state_is_also_one_file(control):
    with running(two_stages(control), control.numbers(), stop=control.stopped.set) as run:
        wait_until(lambda: (get_json(f"{run.url}state.json")["now"] or {}).get("steps"))
        state = get_json(f"{run.url}state.json")
        assert state["pipeline"] == "two" and state["phase"] == 0 and len(state["now"]["steps"]) == 2


def test_two_runs_have_pages_of_their_own(tmp_path):
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    a, b = Control(tmp_path / "a", one=0.01, two=0.01), Control(tmp_path / "b", one=0.01, two=0.01)
    second = Pipeline("second", stages=[Sleep("one", b.folder)])
    with (
        running(two_stages(a), a.numbers(), stop=a.stopped.set) as run,
        running(second, b.numbers(), stop=b.stopped.set) as other,
    ):
        assert run.url != other.url
        assert get_json(f"{run.url}state.json")["pipeline"] == "two"
        assert get_json(f"{other.url}state.json")["pipeline"] == "second"
        assert get_json(f"{run.url}state.json")["run"] != get_json(f"{other.url}state.json")["run"]


def test_a_port_that_is_taken_is_an_error_before_the_run(control, tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        made = []
        tasks = (made.append(1) for _ in range(3))
        with pytest.raises(PlanError) as raised:
            two_stages(control).run(LocalExecutor({"view": "off"}), tasks, dashboard=DashboardOptions(port=port))
        words = str(raised.value)
        assert str(port) in words and "in use" in words and "--dashboard-port" in words
        assert made == [], "nothing was started"
        main(["init", str(tmp_path / "new")])
        capsys.readouterr()
        target = str(tmp_path / "new" / "pipeline.yaml")
        assert main(["run", target, "--dashboard-port", str(port)]) == 1
        assert "in use" in capsys.readouterr().err
        assert not list((tmp_path / "new").glob("*/_gristmill"))


@pytest.mark.parametrize("host", ["", "no-such-host.invalid", "203.0.113.7", "a" * 300])
def test_a_host_that_is_not_this_machine_is_a_clear_error(opened, host):
    with pytest.raises(PlanError, match=r"the live page cannot be served at .*--dashboard-"):
        opened(host)


def test_the_command_prints_the_address_and_serves_the_page(tmp_path, capsys):
    main(["init", str(tmp_path)])
    target = str(tmp_path / "pipeline.yaml")
    assert main(["run", target, "--dashboard", "--no-dashboard-text", "--view", "off"]) == 0
    assert "gristmill: watch the run at http://127.0.0.1:" in capsys.readouterr().err
    with pytest.raises(SystemExit) as raised:
        main(["run", target, "--dashboard-port", "70000"])
    assert raised.value.code == 2
    assert main(["run", target, "--no-dashboard-text"]) == 2
    assert "--dashboard" in capsys.readouterr().err


def test_a_failed_run_shows_its_error(control):
    with running(two_stages(control, fails_on=3), control.numbers(), stop=control.stopped.set) as run:
        events = Events(run.url)
        last = list(events)[-1]
        assert events.has_end, "browsers are not to connect again"
    assert isinstance(run.errors[0], PipelineFailed)
    assert last["state"]["status"] == "failed" and "ValueError: <script>" in last["state"]["error"]
    assert "\u202e" not in json.dumps(last, ensure_ascii=False)


# Requests -----------------------------------------------------------------------------------------------------------


def test_every_answer_forbids_scripts_and_frames_of_others(opened):
    dashboard, _ = opened()
    for path in (*PAGE, "/state.json", "/nothing", "/samples?stage=0", "/samples?stage=x"):
        status, headers, _ = get(dashboard.url.rstrip("/") + path)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy and headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
        assert status == {"/nothing": 404, "/samples?stage=0": 404, "/samples?stage=x": 400}.get(path, 200)


def test_files_are_only_those_of_the_page(opened):
    dashboard, _ = opened()
    for path in ("/../server.py", "/%2e%2e/server.py", "//etc/passwd", "/page/index.html", "/server.py"):
        assert get(dashboard.url.rstrip("/") + path)[0] == 404


def test_a_name_that_was_rebound_to_loopback_is_refused(opened):
    dashboard, _ = opened()
    for path in ("", "state.json", "events", "samples?stage=0"):
        assert get(dashboard.url + path, {"Host": "evil.example"})[0] == 421
        assert get(dashboard.url + path, {"Host": ""})[0] == 421
    assert get(dashboard.url, {"Host": "localhost:1"})[0] == 200


def test_another_site_may_link_to_the_page_and_read_nothing(opened):
    dashboard, _ = opened()
    other = {"Sec-Fetch-Site": "cross-site"}
    assert get(dashboard.url + "state.json", other)[0] == 403
    assert get(dashboard.url + "events", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"})[0] == 403
    assert get(dashboard.url, {**other, "Sec-Fetch-Mode": "navigate"})[0] == 200


def test_beyond_loopback_the_page_asks_for_the_token(opened):
    dashboard, _ = opened("0.0.0.0")
    base, _, token = dashboard.url.partition("?token=")
    assert len(token) >= 30
    local = f"http://127.0.0.1:{port_of(base)}/"
    for path in ("", "state.json", "events", "app.js", "samples?stage=0", "?token=", f"?token={token[:-1]}"):
        status, _, body = get(local + path)
        assert status == 401 and token.encode() not in body
    status, headers, _ = get(f"{local}?token={token}")
    assert (status, headers["location"]) == (303, "/")
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie
    assert get(f"{local}state.json", {"Cookie": cookie.partition(";")[0]})[0] == 200
    assert get(f"{local}state.json", {"Authorization": f"Bearer {token}"})[0] == 200


@pytest.mark.parametrize(
    "request_line", [b"\x16\x03\x01\x02\x00garbage", b"GET\r\n\r\n", b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n"]
)
def test_what_is_no_request_does_not_stop_the_server(opened, request_line):
    dashboard, _ = opened()
    with socket.create_connection(("127.0.0.1", port_of(dashboard.url)), timeout=30) as client:
        client.sendall(request_line)
        client.shutdown(socket.SHUT_WR)
        client.recv(4096)
    assert get(dashboard.url)[0] == 200


# Browsers that are slow, gone or many -------------------------------------------------------------------------------


def test_a_browser_that_does_not_read_blocks_no_other_and_is_sent_the_latest_when_it_does(opened):
    dashboard, reports = opened()
    slow = Events(dashboard.url, receive_buffer=2048)
    quick = iter(Events(dashboard.url))
    next(quick)
    for n in range(4_000):  # far more than the buffers of a connection hold, if each moment were sent
        reports.update(moment(n / 2, {"items_done": n}, decisions=decisions(n, n)))
    while next(quick)["state"]["now"]["steps"][0]["items_done"] != 3_999:
        pass
    received = []
    for one in slow:
        received.append(one["state"]["now"]["steps"][0]["items_done"] if one["state"]["now"] else -1)
        if received[-1] == 3_999:
            break
    assert len(received) < 1_000, "what it missed was not queued"
    slow.close()


def test_a_vanished_browser_is_forgotten(opened):
    dashboard, reports = opened()
    gone = Events(dashboard.url)
    next(iter(gone))
    threads = threading.active_count()
    gone.close()

    def is_forgotten():
        reports.update(moment(1, {}))
        return threading.active_count() < threads

    wait_until(is_forgotten)
    assert get(dashboard.url)[0] == 200


def test_too_many_connections_are_refused_and_the_page_recovers(opened, monkeypatch):
    monkeypatch.setattr(module, "MOST_CONNECTIONS", 5)
    dashboard, _ = opened()
    open_ones = [Events(dashboard.url) for _ in range(5)]
    for one in open_ones:
        next(iter(one))
    with pytest.raises(OSError):
        get(dashboard.url)
    for one in open_ones:
        one.close()
    dashboard._feed.message()

    def answers():
        dashboard._feed.message()
        try:
            return get(dashboard.url)[0] == 200
        except OSError:
            return False

    wait_until(answers)


def test_the_end_does_not_wait_for_a_browser_that_never_reads(opened):
    dashboard, reports = opened()
    stuck = Events(dashboard.url, receive_buffer=2048)
    for n in range(3_000):
        reports.update(moment(n, {"items_done": n}, decisions=decisions(n, n)))
    ended = threading.Thread(target=dashboard.end, args=(Outcome(None, None),))
    ended.start()
    ended.join(60)
    assert not ended.is_alive()
    wait_until(lambda: not any(t.name.startswith("gristmill-dashboard") for t in threading.enumerate()))
    stuck.close()


def test_a_client_in_the_middle_of_a_request_does_not_hold_up_the_end(opened, monkeypatch):
    monkeypatch.setattr(module.Handler, "timeout", 600)  # it is not disconnected because it is slow
    dashboard, _ = opened()
    with socket.create_connection(("127.0.0.1", port_of(dashboard.url))) as client:
        client.sendall(b"GET /state.js")
        wait_until(lambda: dashboard._server._open, "the connection")
        dashboard.end(Outcome(None, None))
        client.settimeout(60)
        assert client.recv(100) == b"", "it was disconnected"
    with pytest.raises(ConnectionRefusedError):
        get(dashboard.url)


def test_the_port_is_free_again_after_the_run(control):
    with running(two_stages(control), control.numbers(), stop=control.stopped.set) as run:
        port = port_of(run.url)
        wait_until(lambda: (get_json(f"{run.url}state.json")["now"] or {}).get("steps"))
    with socket.create_server(("127.0.0.1", port)):
        pass
