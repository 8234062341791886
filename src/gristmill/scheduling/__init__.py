"""The pure scheduling core: events in, commands out.

Nothing here does IO (but for reading the profile or load that a user names), reads a clock, starts a thread or imports
another part of gristmill. Time is integer microseconds, memory integer bytes, CPUs and GPUs are integer millionths.
"""

from gristmill.scheduling.scheduler import Scheduler
from gristmill.scheduling.settings import SchedulerConfig, StepSpec

__all__ = ["Scheduler", "SchedulerConfig", "StepSpec"]
