"""One Ray for all tests of a process, on loopback, with what each executor asks of a cluster."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.backends.conformance.executors import KINDS, Kind

from gristmill.backends.xenna.executor import ENVIRONMENT
from gristmill.core.environment import reread_environment


@pytest.fixture(autouse=True)
def nothing_stays_behind() -> None:
    """Ray lives longer than a test here."""


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadscope``, run the tests of a file with the same executor in one process: they share runs.

    `xdist_group` would do that, but pytest-xdist 3.8 does not see it with pytest 9.2.
    """
    if config.getvalue("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    names = {kind.name for kind in KINDS}

    class ByExecutor(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file, _, test = nodeid.partition("::")
            return " ".join([file, *sorted(names & set(re.split(r"[\[\]-]", test)))])

    return ByExecutor(config, log)


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """Four CPUs and two GPUs that are only declared."""
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'gristmill[ray]'")
    before = dict(os.environ)
    os.environ.update(ENVIRONMENT)
    from tests.backends.slow_starts import start_ray

    reread_environment()
    has_xenna = not next(kind for kind in KINDS if kind.name == "xenna").missing()
    try:
        start_ray(
            num_cpus=4,
            num_gpus=2,
            object_store_memory=200 << 20,
            include_dashboard=has_xenna,
            dashboard_host="127.0.0.1",
            _node_ip_address="127.0.0.1",
            namespace="conformance",
        )
        yield
    finally:
        ray.shutdown()
        os.environ.clear()
        os.environ.update(before)
        reread_environment()


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each executor in turn."""
    kind: Kind = request.param
    if missing := kind.missing():
        pytest.skip(f"{kind.name} needs {' and '.join(missing)}, which is not installed")
    if kind.uses_ray:
        request.getfixturevalue("ray_session")
    return kind
