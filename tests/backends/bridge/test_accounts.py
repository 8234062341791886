"""From what workers report to the ledger and the record of a run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from gristmill.backends.base import Plan, Step
from gristmill.backends.bridge.accounts import RunAccounts, following
from gristmill.backends.bridge.collector import Collector, CollectorUpdate, PackedTask, Report
from gristmill.backends.bridge.unit import UnitRunner
from gristmill.backends.engine.account import KeptOutputs
from gristmill.backends.engine.payload import pack
from gristmill.backends.step_runner import StepRunner
from gristmill.errors import PipelineError
from gristmill.ledger.run import RunLedger
from gristmill.pipeline.result import RunResult
from gristmill.stages.core import ProcessingStage
from gristmill.tasks import Task


class Pass(ProcessingStage[Task, Task]):
    def process(self, task: Any) -> Any:
        return task


class Fails(Pass):
    def process(self, task: Any) -> Any:
        raise ValueError("never")


def plan_of(*stages: ProcessingStage[Any, Any], ledger: RunLedger | None = None) -> Plan:
    return Plan("p", tuple(Step((stage,)) for stage in stages), ledger)


def ended(step: int, label: str, *made: str) -> Report:
    counts = [(1, 1, 1, len(made), len(made), not made, 10)]
    return Report(step, (label,), 0, made, counts, {}, 10, True)


def update(*reports: Report, fatal: str = "") -> CollectorUpdate:
    return CollectorUpdate(list(reports), [], [], [], 0, 0, fatal)


def test_a_block_is_done_when_all_tasks_that_came_from_it_are():
    ledger = RunLedger()
    accounts = RunAccounts(plan_of(Pass(), Pass(), ledger=ledger), ignore_failures=False)
    accounts.begin("4")
    accounts.add(update(ended(0, "4", "4.0", "4.1")))
    accounts.add(update(ended(1, "4.0", "4.0")))
    assert not ledger.blocks
    accounts.add(update(ended(1, "4.1")))
    assert ledger.blocks == {4}


def test_tasks_that_did_not_end_count_as_cancelled_and_the_account_balances():
    accounts = RunAccounts(plan_of(Pass(), Pass()), ignore_failures=False)
    for label in "012":
        accounts.begin(label)
    accounts.add(update(ended(0, "0", "0"), ended(0, "1", "1"), ended(1, "0", "0")))
    record = accounts.record(KeptOutputs(False, True))
    RunResult(record).check()
    first, second = (step.stages[0] for step in record.steps)
    assert (first.tasks_in, first.tasks_done, first.tasks_cancelled) == (3, 2, 1)
    assert (second.tasks_in, second.tasks_done, second.tasks_cancelled) == (2, 1, 1)


def test_a_run_that_ends_before_some_of_its_tasks_is_an_error():
    accounts = RunAccounts(plan_of(Pass()), ignore_failures=True)
    accounts.begin("0")
    with pytest.raises(PipelineError, match="1 tasks never reported a result"):
        accounts.check_complete()
    accounts.add(update(ended(0, "0", "0")))
    accounts.check_complete()
    accounts.add(update(fatal="no weights"))
    with pytest.raises(PipelineError, match="no weights"):
        accounts.check_complete()


@pytest.mark.parametrize("ignore", [True, False])
def test_a_task_that_failed_is_in_the_record_and_its_block_done_only_if_that_is_ignored(ignore):
    ledger = RunLedger()
    plan = plan_of(Fails(), ledger=ledger)
    accounts = RunAccounts(plan, ignore)
    accounts.begin("0")
    collector = Collector(b"", [2])
    units = UnitRunner(StepRunner([Fails()], None, plan.documents()[0]), 0, 2, collector)
    assert not list(units.run([PackedTask("0", b"".join(pack(Task(data=1))))]))
    accounts.add(collector.take_update())
    record = accounts.record(KeptOutputs(True, True))
    RunResult(record).check()
    (failure,) = record.failures
    assert (failure.task_id, failure.stage, failure.error) == ("0", "Fails", "ValueError: never")
    assert record.steps[0].stages[0].tasks_failed == record.failures_total == 1
    assert ledger.blocks == ({0} if ignore else set()) and ledger.undone == (not ignore)


def wait_for(condition: Callable[[], object]) -> None:
    until = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < until, "timed out"
        time.sleep(0.02)


def test_the_accounts_follow_the_collector_and_raise_its_errors():
    collector = Collector(b"", [1])
    accounts = RunAccounts(plan_of(Pass()), ignore_failures=False)
    collector.fail("the first reason")
    collector.fail("the second")
    with following(accounts, collector.take_update):
        wait_for(lambda: accounts.fatal)
    assert accounts.fatal == "the first reason"

    asked = threading.Event()

    def gone() -> CollectorUpdate:
        asked.set()
        raise ConnectionError("the collector is gone")

    with pytest.raises(ConnectionError), following(accounts, gone):
        assert asked.wait(300)
