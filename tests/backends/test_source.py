"""Initial tasks that come slowly, fail or block."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from gristmill.backends.engine.source import TaskSource, ThreadedSource, source_of
from gristmill.errors import PipelineFailed
from gristmill.stages.core import ProcessingStage
from gristmill.tasks import Task


@dataclass
class Numbers(Task[Any]):
    data: Any = None


class Note(ProcessingStage[Numbers, Numbers]):
    """Leaves a file for each task that came through, or fails."""

    max_attempts = 1

    def __init__(self, folder: Any, fail: bool = False) -> None:
        self.folder = folder
        self.fail = fail

    def process(self, task: Numbers) -> Numbers:
        if self.fail:
            raise ValueError("bad")
        (self.folder / str(task.data)).touch()
        return task


def wait_for(condition: Callable[[], Any], seconds: float = 300.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.01)


def source_threads() -> list[str]:
    return [x.name for x in threading.enumerate() if x.name == "gristmill-source"]


def test_work_continues_while_the_source_is_slow(run, tmp_path):
    def source():  # type: ignore[no-untyped-def]
        for i in range(3):
            yield Numbers(data=i)
            wait_for((tmp_path / str(i)).exists)

    assert [x.data for x in run([Note(tmp_path)], source())] == [0, 1, 2]
    assert not source_threads()


def test_a_failure_ends_a_run_whose_source_blocks(run, tmp_path):
    free = threading.Event()

    def source():  # type: ignore[no-untyped-def]
        yield Numbers(data=0)
        free.wait()  # for ever, if the run waited for it

    with pytest.raises(PipelineFailed, match="ValueError: bad"):
        run([Note(tmp_path, fail=True)], source())
    free.set()
    wait_for(lambda: not source_threads())


def test_an_iterator_is_never_ahead_of_what_was_asked_for():
    taken = itertools.count()
    source = ThreadedSource((Numbers(data=next(taken)) for _ in itertools.count()), None)
    try:
        for order, after in ((3, 3), (5, 8)):
            source.ask(order)
            wait_for(lambda: source.due() <= time.monotonic())
            wait_for(lambda x=order: len(source._given) == x)
            answer = source.answer(lambda label, task: (label, task.data))
            assert answer == ([(str(i), i) for i in range(after - order, after)], True)
            assert source.answer(lambda label, task: label) is None
    finally:
        source.close()
    wait_for(lambda: not source_threads())
    assert next(taken) == 8, "it has taken more than was asked for"


def test_the_end_and_the_error_come_with_the_next_answer():
    def source():  # type: ignore[no-untyped-def]
        yield Numbers()
        raise KeyError("no more")

    for tasks, more, error in ((iter([Numbers()]), False, None), (source(), True, KeyError)):
        with_thread = ThreadedSource(tasks, None)
        with_thread.ask(10)
        wait_for(lambda x=with_thread: x._ended)
        answer = with_thread.answer(lambda label, task: label)
        assert answer == (["0"], more)
        assert (type(with_thread.error) if with_thread.error else None) is error
        with_thread.close()


@pytest.mark.parametrize("kind", [list, tuple])
def test_what_cannot_block_needs_no_thread(kind):
    source = source_of(kind([Numbers(), Numbers()]))
    assert type(source) is TaskSource and source.fileno() is None
    source.ask(5)
    assert source.answer(lambda label, task: label) == (["0", "1"], False)
