"""`RayClient` with real clusters: what it starts, what it attaches to, and that nothing is left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from gristmill.core import clusters, head_node
from gristmill.core.client import RayClient, RayClientError

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
    pytest.mark.timeout(600),  # a busy machine takes a minute to start Ray
]

Processes = Callable[[Path], list[str]]
START = """
import sys
from gristmill.core.client import RayClient

client = RayClient(num_cpus=1, address="local", include_dashboard=False).start()
print("up", flush=True)
sys.stdin.read()
"""
COUNT = "import ray; ray.init(logging_level='error', log_to_driver=False); print(len(ray.nodes()))"


def ray_variables() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key.startswith("RAY_")}


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def python(code: str, **changes: str | None) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in (os.environ | changes).items() if value is not None}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def cluster(ray_home: Path, leftovers: Callable[[], list[str]]) -> Iterator[RayClient]:
    """A cluster of its own, although there is the address of a dead one."""
    (ray_home / "ray").mkdir()
    (ray_home / "ray" / "ray_current_cluster").write_text(f"127.0.0.1:{free_port()}")
    before = ray_variables()
    client = RayClient(num_cpus=2, num_gpus=1, object_store_memory="100MB", resources={"mill": 3})
    with client:
        assert client.started
        yield client
    assert (client.started, client.at) == (False, None)
    assert ray_variables() == before
    assert leftovers(0) == []


def test_it_has_the_resources_asked_for_and_runs_a_task(cluster: RayClient) -> None:
    ray.init(logging_level="error", log_to_driver=False)
    try:
        there = ray.cluster_resources()
        assert (there["CPU"], there["GPU"], there["mill"]) == (2, 1, 3)
        assert there["object_store_memory"] == 100 * 2**20
        assert ray.get(ray.remote(lambda: "ground").remote()) == "ground"
    finally:
        ray.shutdown()


def test_it_listens_on_loopback_only(cluster: RayClient, ray_home: Path, processes: Processes) -> None:
    listening = set()
    for line in processes(ray_home):
        try:
            for connection in psutil.Process(int(line.split()[0])).net_connections():
                if connection.status == psutil.CONN_LISTEN:
                    listening.add(connection.laddr)
        except psutil.NoSuchProcess:
            pass
    assert cluster.at in {f"127.0.0.1:{place.port}" for place in listening}
    assert {place.ip for place in listening} <= {"127.0.0.1", "::ffff:127.0.0.1"}


def test_a_second_client_attaches_and_stops_nothing(cluster: RayClient) -> None:
    with RayClient(num_cpus=64) as second:
        assert (second.at, second.started) == (cluster.at, False)
    assert os.environ["RAY_ADDRESS"] == cluster.at
    attach = f"from gristmill.core.client import RayClient; RayClient().start(); {COUNT}"
    assert python(attach, RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=None).stdout.strip() == "1"


def test_the_cluster_of_the_last_ray_start_is_found(cluster: RayClient, ray_home: Path, monkeypatch) -> None:
    (ray_home / "ray" / "ray_current_cluster").write_text(str(cluster.at))
    monkeypatch.delenv("RAY_ADDRESS")
    with RayClient() as second:
        assert (second.at, second.started) == (cluster.at, False)
        assert os.environ["RAY_ADDRESS"] == cluster.at
    assert "RAY_ADDRESS" not in os.environ


def test_connecting_fails_without_the_token(cluster: RayClient, monkeypatch) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    monkeypatch.delenv("RAY_AUTH_MODE")
    with pytest.raises(RayClientError, match=r"RAY_ADDRESS is 127.*cannot be used: .*token"):
        RayClient().start()


def test_ray_follows_variables_that_change_after_it_was_imported() -> None:
    """Ray's ``ray.init`` turns tokens on in the whole process, and a later cluster may have none."""
    code = """
import os
from ray._raylet import AuthenticationMode, get_authentication_mode
from gristmill.core.environment import reread_environment
for mode in ("token", "disabled", "token"):
    os.environ["RAY_AUTH_MODE"] = mode
    reread_environment()
    print(get_authentication_mode() == AuthenticationMode.TOKEN)
"""
    assert python(code, RAY_AUTH_MODE=None).stdout.split() == ["True", "False", "True"]


def test_two_clusters_at_once_and_one_of_them_without_a_token(cluster: RayClient, ray_home: Path, monkeypatch) -> None:
    first = cluster.at
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    port = free_port()
    with RayClient(num_cpus=1, address="local", ray_port=port, include_dashboard=False) as other:
        assert other.started and other.at == f"127.0.0.1:{port}" != first
        assert python(COUNT, RAY_AUTH_TOKEN=None).stdout.strip() == "1"
        assert len(list(ray_home.glob("gm-ray-*"))) == 2
    assert not clusters.listens(f"127.0.0.1:{port}")
    assert len(list(ray_home.glob("gm-ray-*"))) == 1
    monkeypatch.undo()
    assert python(COUNT).stdout.strip() == "1"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda s: s.name)
def test_an_owner_that_ends_during_the_start_leaves_nothing(
    ray_home: Path, processes: Processes, how: signal.Signals
) -> None:
    own = ray_home / how.name
    own.mkdir()
    environment = os.environ | {"RAY_TMPDIR": str(own)}
    process = subprocess.Popen([sys.executable, "-c", START], env=environment, stdin=subprocess.PIPE, stdout=-1)
    assert process.stdin and process.stdout
    with process, process.stdin, process.stdout:
        until = time.monotonic() + 300
        while not any("gcs_server" in line for line in processes(own)) and time.monotonic() < until:
            time.sleep(0.02)
        process.send_signal(how)
        assert process.wait(300) != 0
        assert process.stdout.read() == b""
    until = time.monotonic() + 120
    while (left := processes(own) + list(own.iterdir())) and time.monotonic() < until:
        time.sleep(0.1)
    assert left == []


def test_a_taken_port_is_an_error_before_anything_starts(ray_home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(RayClientError, match=f"ray_port {port} is taken"):
            RayClient(ray_port=port, address="local").start()


def test_the_error_contains_the_reason_that_ray_did_not_start(
    ray_home: Path, leftovers: Callable[[], list[str]]
) -> None:
    before = leftovers(0)
    with pytest.raises(RayClientError, match=r"^Ray did not start: ValueError: .*object store memory"):
        RayClient(object_store_memory=1000, address="local").start()
    assert leftovers(0) == before
    assert os.environ.get("RAY_ADDRESS") is None or before


def commands_with(text: str) -> list[str]:
    """The commands of processes that name this text. Other clusters of this module have other folders."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in command:
            found.append(command)
    return found


def test_a_folder_with_a_long_path_holds_the_cluster_and_nothing_else_is_left(ray_home: Path, monkeypatch) -> None:
    """The path of a socket has at most 107 bytes."""
    links = ray_home / "links"
    links.mkdir()
    monkeypatch.setattr("gristmill.core.head_node._LINKS", str(links))
    long = ray_home / ("long-" * 15) / ("path-" * 15)
    with RayClient(num_cpus=1, address="local", object_store_memory="100MB", ray_temp_dir=str(long)):
        ((folder,), (link,)) = (list(long.iterdir()), list(links.iterdir()))
        assert link.resolve() == folder
        assert any(path.name.startswith("session_") for path in folder.iterdir())
        assert python(COUNT).stdout.strip() == "1"
        assert commands_with(str(links))
    until = time.monotonic() + 300
    while commands_with(str(links)) and time.monotonic() < until:
        time.sleep(0.1)
    assert commands_with(str(links)) == []
    assert list(long.iterdir()) == [] and list(links.iterdir()) == []


def test_a_folder_that_is_short_enough_needs_no_link(ray_home: Path, monkeypatch) -> None:
    monkeypatch.setattr("gristmill.core.head_node._LINKS", str(ray_home / "nowhere"))
    made = Path(head_node.make_folder(str(ray_home)))
    assert made.parent == ray_home and not made.is_symlink()
    made.rmdir()
    with pytest.raises(RayClientError, match="too long for Ray's sockets"):
        head_node.make_folder(str(ray_home / ("x" * 60)))
    assert list((ray_home / ("x" * 60)).iterdir()) == []


def test_an_address_that_does_not_answer_is_an_error(monkeypatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{free_port()}")
    with pytest.raises(RayClientError, match="nothing answers there"):
        RayClient().start()
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:8265")
    with pytest.raises(RayClientError, match="ray job submit"):
        RayClient().start()


def test_a_server_that_is_no_cluster_is_neither_waited_for_nor_used(ray_home: Path, monkeypatch) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(RayClientError, match="nothing answers there"):
            RayClient().start()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"num_cpus": -1}, "num_cpus is a whole number"),
        ({"num_gpus": 0.5}, "num_gpus is a whole number"),
        ({"ray_port": 80}, "ray_port is a port from 1024"),
        ({"object_store_memory": "much"}, "object_store_memory: 'much' is not a size"),
        ({"resources": {"GPU": 1}}, "'GPU' has an argument of its own"),
        ({"resources": {"mill": "x"}}, "'mill' is a number"),
        ({"address": "somewhere"}, "address is host:port"),
        ({"start_timeout_s": 0}, "start_timeout_s is a number above 0"),
    ],
)
def test_arguments_that_make_no_sense(arguments: dict, says: str) -> None:
    with pytest.raises(RayClientError, match=says):
        RayClient(**arguments)
