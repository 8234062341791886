"""Stages with an asynchronous `process`, as authors write them and as code calls them that is not asynchronous."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gristmill.stages.asynchronous import BlockingStage, results_of
from gristmill.stages.core import CompositeStage, ProcessingStage
from gristmill.stages.function_definitions import processing_stage
from gristmill.stages.resources import Resources
from gristmill.tasks import DocumentBatch, Task


class Fetch(ProcessingStage[Task, DocumentBatch]):
    max_in_flight = 8

    async def process(self, task: Task) -> Task:
        self.loop = asyncio.get_running_loop()
        await asyncio.sleep(0)
        return task


class Stream(ProcessingStage[Task, Task]):
    async def process(self, task: Task) -> AsyncIterator[Task]:
        try:
            for i in range(task.data):
                await asyncio.sleep(0)
                yield Task(i)
        finally:
            self.closed = True


class Plain(ProcessingStage[Task, Task]):
    def process(self, task: Task) -> Task:
        return task


class OnGpus(ProcessingStage[Task, Task]):
    """Asynchronous if it has a GPU."""

    resources = Resources(gpus=1)
    resources_without_gpu = Resources()
    max_in_flight = 4

    def runs_async(self) -> bool:
        return self.resources.requires_gpu

    def process(self, task: Task) -> Any:
        return self._later(task) if self.runs_async() else task

    async def _later(self, task: Task) -> Task:
        return task


class Both(CompositeStage[Task, Task]):
    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        return [Plain(), Fetch()]


def test_a_stage_is_asynchronous_if_its_process_is():
    assert [s.runs_async() for s in (Fetch(), Stream(), Plain())] == [True, True, False]
    assert [s.streams_async() for s in (Fetch(), Stream(), Plain())] == [False, True, False]
    assert [s.fans_out() for s in (Fetch(), Stream(), Plain())] == [False, True, False]
    assert (Fetch().max_in_flight, Plain().max_in_flight) == (8, 1)
    assert pickle.loads(pickle.dumps(Fetch().with_(max_in_flight=3))).max_in_flight == 3


def test_a_stage_may_decide_by_its_resources():
    stage = OnGpus()
    assert stage.runs_async() and not stage.with_(resources=stage.resources_without_gpu).runs_async()


def test_a_function_may_be_asynchronous():
    @processing_stage(max_in_flight=5)
    async def fetch(task: DocumentBatch) -> Task:
        return task

    @processing_stage
    async def stream(task: DocumentBatch) -> AsyncIterator[Task]:
        yield task

    assert fetch.runs_async() and fetch.max_in_flight == 5 and not fetch.streams_async() and not fetch.fans_out()
    assert stream.runs_async() and stream.streams_async() and stream.fans_out()
    assert fetch.input_type() is DocumentBatch and fetch.output_type() is stream.output_type() is Task


def test_in_a_composite_it_is_for_the_stages_that_run_asynchronously():
    assert [s.max_in_flight for s in Both().with_(max_in_flight=3).flatten()] == [1, 3]
    assert [s.max_in_flight for s in Both().with_({"Plain": {"max_in_flight": 3}}).flatten()] == [3, 8]


# Called from code that is not asynchronous -----------------------------------------------------------------------


def test_the_results_of_any_stage_are_a_list():
    task = Task(3)
    assert results_of(Plain(), task) == results_of(Fetch(), task) == [task]
    assert [t.data for t in results_of(Stream(), task)] == [0, 1, 2]


def test_a_task_that_fails_raises_and_the_next_one_works():
    @processing_stage
    async def fussy(task: Task) -> Task | None:
        await asyncio.sleep(0)
        if task.data == 1:
            raise ValueError("one")
        return None

    blocking = BlockingStage(fussy)
    with pytest.raises(ValueError, match="one"):
        blocking.process(Task(1))
    assert blocking.process(Task(2)) is None
    blocking.close()


def test_all_calls_are_made_in_one_event_loop():
    stage = Fetch()
    blocking = BlockingStage(stage)
    blocking.process(Task(1))
    first = stage.loop
    blocking.process(Task(1))
    assert stage.loop is first and not first.is_closed()
    blocking.close()
    assert first.is_closed()


def test_a_generator_makes_tasks_as_they_are_asked_for_and_is_closed():
    stage = Stream()
    blocking = BlockingStage(stage)
    tasks: Any = blocking.process(Task(1000))
    assert next(tasks).data == 0
    tasks.close()
    assert stage.closed
    blocking.close()


def test_where_an_event_loop_runs_another_thread_makes_the_calls():
    async def notebook() -> list[Task]:
        return results_of(Fetch(), Task(7)) + results_of(Stream(), Task(2))

    before = threading.active_count()
    assert [t.data for t in asyncio.run(notebook())] == [7, 0, 1]
    assert threading.active_count() == before
