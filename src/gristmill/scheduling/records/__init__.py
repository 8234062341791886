"""The records that the scheduler keeps: tasks, workers, nodes and steps."""

from gristmill.scheduling.records.steps import StepQueue, StepRec
from gristmill.scheduling.records.tasks import IllegalTransition, SlicedTask, TaskMove, TaskRec, TaskState, Unit
from gristmill.scheduling.records.workers import IdleDeaths, NodeRec, WorkerGroup, WorkerMove, WorkerRec, WorkerState

__all__ = [
    "IdleDeaths",
    "IllegalTransition",
    "NodeRec",
    "SlicedTask",
    "StepQueue",
    "StepRec",
    "TaskMove",
    "TaskRec",
    "TaskState",
    "Unit",
    "WorkerGroup",
    "WorkerMove",
    "WorkerRec",
    "WorkerState",
]
