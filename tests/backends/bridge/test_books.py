"""From what workers report to the ledger and the record of a run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from gristmill.backends.base import Plan, Step
from gristmill.backends.bridge.books import Books, kept_up_to_date
from gristmill.backends.bridge.clerk import Clerk, News
from gristmill.backends.bridge.reports import Report
from gristmill.backends.bridge.unit import StepBench
from gristmill.backends.engine.outputs import KeptOutputs
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
    return Report(step, (label,), 0, tuple((x, 1) for x in made), counts, {}, 10, True)


def news(*reports: Report, fatal: str = "") -> News:
    return News(list(reports), [], [], [], 0, 0, fatal)


def test_a_block_is_done_when_all_that_became_of_it_is():
    ledger = RunLedger()
    books = Books(plan_of(Pass(), Pass(), ledger=ledger), ignore_failures=False)
    books.begin("4")
    books.take(news(ended(0, "4", "4.0", "4.1")))
    books.take(news(ended(1, "4.0", "4.0")))
    assert not ledger.blocks
    books.take(news(ended(1, "4.1")))
    assert ledger.blocks == {4}


def test_what_did_not_end_was_cancelled_and_the_account_balances():
    books = Books(plan_of(Pass(), Pass()), ignore_failures=False)
    for label in "012":
        books.begin(label)
    books.take(news(ended(0, "0", "0"), ended(0, "1", "1"), ended(1, "0", "0")))
    record = books.record(KeptOutputs(False, True))
    RunResult(record).check()
    first, second = (step.stages[0] for step in record.steps)
    assert (first.tasks_in, first.tasks_done, first.tasks_cancelled) == (3, 2, 1)
    assert (second.tasks_in, second.tasks_done, second.tasks_cancelled) == (2, 1, 1)


def test_a_run_that_ends_without_some_of_its_tasks_is_an_error():
    books = Books(plan_of(Pass()), ignore_failures=True)
    books.begin("0")
    with pytest.raises(PipelineError, match="1 tasks of which nothing was heard"):
        books.check_complete()
    books.take(news(ended(0, "0", "0")))
    books.check_complete()
    books.take(news(fatal="no weights"))
    with pytest.raises(PipelineError, match="no weights"):
        books.check_complete()


@pytest.mark.parametrize("ignore", [True, False])
def test_a_task_that_failed_is_in_the_record_and_its_block_done_only_if_that_is_ignored(ignore):
    ledger = RunLedger()
    plan = plan_of(Fails(), ledger=ledger)
    books = Books(plan, ignore)
    books.begin("0")
    clerk = Clerk(b"", [2])
    bench = StepBench(StepRunner([Fails()], None, plan.documents()[0]), 0, 2, clerk)
    assert not list(bench.run([("0", b"".join(pack(Task(data=1))))]))
    books.take(clerk.news())
    record = books.record(KeptOutputs(True, True))
    RunResult(record).check()
    (failure,) = record.failures
    assert (failure.task_id, failure.stage, failure.error) == ("0", "Fails", "ValueError: never")
    assert record.steps[0].stages[0].tasks_failed == record.failures_total == 1
    assert ledger.blocks == ({0} if ignore else set()) and ledger.undone == (not ignore)


def wait_for(condition: Callable[[], object]) -> None:
    until = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)


def test_the_books_follow_the_clerk_and_say_when_they_cannot():
    clerk = Clerk(b"", [1])
    books = Books(plan_of(Pass()), ignore_failures=False)
    clerk.fail("the first reason")
    clerk.fail("the second")
    with kept_up_to_date(books, clerk.news):
        wait_for(lambda: books.fatal)
    assert books.fatal == "the first reason"

    asked = threading.Event()

    def gone() -> News:
        asked.set()
        raise ConnectionError("the clerk is gone")

    with pytest.raises(ConnectionError), kept_up_to_date(books, gone):
        assert asked.wait(300)
