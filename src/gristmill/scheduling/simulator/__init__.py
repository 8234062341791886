"""Whole clusters in virtual time: the real scheduler, seeded chance and seeded faults."""

from gristmill.scheduling.simulator.loads import LoadError, read_load, read_loads
from gristmill.scheduling.simulator.result import SimulationResult
from gristmill.scheduling.simulator.simulate import simulate

__all__ = ["LoadError", "SimulationResult", "read_load", "read_loads", "simulate"]
