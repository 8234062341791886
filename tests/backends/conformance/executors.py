"""The executors that the conformance suite runs on. One more is one more line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from gristmill.backends.base import Executor
from gristmill.backends.capabilities import can


@dataclass(frozen=True)
class Kind:
    """An executor as the suite knows it: its column of `gristmill.backends.capabilities`, and how it is made."""

    name: str
    home: str
    """``module:class``."""
    options: Mapping[str, Any]
    needs: tuple[str, ...] = ()
    """Packages that it needs; it is skipped without them."""
    other: Mapping[str, Any] = field(default_factory=dict)
    """Options that a run or two are made with, so that they are seen to work."""

    @property
    def uses_ray(self) -> bool:
        return "ray" in self.needs

    def can(self, feature: str) -> bool:
        return can(self.name, feature)

    def missing(self) -> list[str]:
        return [name for name in self.needs if find_spec(name) is None]

    def make(self, **options: Any) -> Executor:
        module, _, name = self.home.partition(":")
        kind: Callable[..., Executor] = getattr(import_module(module), name)
        return kind(config={**self.options, **options})


BATCH = {"execution_mode": "batch"}
KINDS = [
    Kind("local", "gristmill.backends.local:LocalExecutor", {"view": "off", "num_cpus": 4, "num_gpus": 2}, other=BATCH),
    Kind("ray", "gristmill.backends.ray:RayExecutor", {"view": "off"}, ("ray",)),
    Kind("ray_data", "gristmill.backends.ray_data:RayDataExecutor", {}, ("ray",)),
    Kind("xenna", "gristmill.backends.xenna:XennaExecutor", {"logging_interval": 600}, ("ray", "cosmos_xenna"), BATCH),
]
