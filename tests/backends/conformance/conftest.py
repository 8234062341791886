"""One Ray for all tests of a module, on loopback, with what each executor asks of a cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.backends.conformance.executors import KINDS, Kind

from gristmill.backends.xenna.executor import ENVIRONMENT
from gristmill.core.environment import reread_environment


@pytest.fixture(autouse=True)
def nothing_stays_behind() -> None:
    """Ray lives longer than a test here; `ray_session` looks at what stays behind."""


@pytest.fixture(scope="module")
def ray_session() -> Iterator[None]:
    """Four CPUs and two GPUs that are only declared."""
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'gristmill[ray]'")
    before = dict(os.environ)
    os.environ.update(ENVIRONMENT)
    from tests.backends.slow_starts import allow_slow_starts

    allow_slow_starts()
    reread_environment()
    has_xenna = not next(kind for kind in KINDS if kind.name == "xenna").missing()
    try:
        ray.init(
            address="local",
            num_cpus=4,
            num_gpus=2,
            object_store_memory=200 << 20,
            include_dashboard=has_xenna,
            dashboard_host="127.0.0.1",
            _node_ip_address="127.0.0.1",
            log_to_driver=False,
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
