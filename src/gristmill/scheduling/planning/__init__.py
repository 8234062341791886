"""Plan how many workers each step should have, and where, from what is known of steps and nodes."""

from gristmill.scheduling.planning.packing import FOREVER
from gristmill.scheduling.planning.problem import PlacedWorker, Problem, SharedDemand, Site, StaffingPlan, StepDemand
from gristmill.scheduling.planning.solver import finish_us, solve

__all__ = [
    "FOREVER",
    "PlacedWorker",
    "Problem",
    "SharedDemand",
    "Site",
    "StaffingPlan",
    "StepDemand",
    "finish_us",
    "solve",
]
