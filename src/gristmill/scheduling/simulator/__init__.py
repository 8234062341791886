"""Whole clusters in virtual time: the real scheduler, random numbers and faults from seeds."""

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
