"""From what is known of the steps and the nodes to who should work where."""

from gristmill.scheduling.planning.packing import FOREVER
from gristmill.scheduling.planning.problem import Hand, Load, Plan, Problem, SharedLoad, Site
from gristmill.scheduling.planning.solver import finish_us, solve

__all__ = ["FOREVER", "Hand", "Load", "Plan", "Problem", "SharedLoad", "Site", "finish_us", "solve"]
