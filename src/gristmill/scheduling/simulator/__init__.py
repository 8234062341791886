"""Whole clusters in virtual time: the real scheduler, random numbers and faults from seeds.

The names are imported when they are used. A run imports nothing of this package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gristmill.scheduling.simulator.faults import FaultError, Faults
    from gristmill.scheduling.simulator.loads import LoadError, read_load, read_loads
    from gristmill.scheduling.simulator.result import SimulationResult
    from gristmill.scheduling.simulator.simulation import check, profile_of, simulate

_MODULES = {
    "FaultError": "faults",
    "Faults": "faults",
    "LoadError": "loads",
    "SimulationResult": "result",
    "check": "simulation",
    "profile_of": "simulation",
    "read_load": "loads",
    "read_loads": "loads",
    "simulate": "simulation",
}

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


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return vars(importlib.import_module(f"{__name__}.{_MODULES[name]}"))[name]
