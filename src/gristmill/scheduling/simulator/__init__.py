"""Whole clusters in virtual time: the real scheduler, random numbers and faults from seeds."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gristmill.scheduling.simulator.faults import FaultError, Faults
    from gristmill.scheduling.simulator.loads import LoadError, read_load, read_loads
    from gristmill.scheduling.simulator.result import SimulationResult
    from gristmill.scheduling.simulator.simulation import check, profile_of, simulate

__all__ = [
    "FaultError",
    "Faults",
    "LoadError",
    "SimulationResult",
    "check",
    "profile_of",
    "read_load",
    "read_loads",
    "simulate",
]

_MODULES = {
    "faults": ("FaultError", "Faults"),
    "loads": ("LoadError", "read_load", "read_loads"),
    "result": ("SimulationResult",),
    "simulation": ("check", "profile_of", "simulate"),
}


def __getattr__(name: str) -> Any:
    # `RunResult.load()` imports `loads` alone.
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
