"""Asynchronous stages called by code that is not: one task at a time, in an event loop of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gristmill.stages.core import ProcessingStage, Result
from gristmill.tasks import Task

_END = object()


class BlockingStage:
    """An asynchronous stage with a `process` that returns when the task is done.

    All calls run in one event loop, so the stage can keep connections between them. `close` ends the loop. If the
    calling thread runs an event loop itself, as in a notebook, the calls run in another thread.
    """

    def __init__(self, stage: ProcessingStage[Any, Any]) -> None:
        self._stage = stage
        self._runner = asyncio.Runner()
        self._thread: ThreadPoolExecutor | None = None

    def process(self, task: Task[Any]) -> Result:
        result: Any = self._stage.process(task)
        if isinstance(result, AsyncIterator):
            return self._each(result)
        return self._run(_awaited(result)) if isinstance(result, Awaitable) else result

    def _each(self, tasks: AsyncIterator[Task[Any]]) -> Iterator[Task[Any]]:
        try:
            while (task := self._run(_next_of(tasks))) is not _END:
                yield task
        finally:
            self._run(_closed(tasks))

    def _run(self, call: Coroutine[Any, Any, Any]) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._runner.run(call)
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "gristmill-async-stage")
        return self._thread.submit(self._runner.run, call).result()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.submit(self._runner.close).result()
            self._thread.shutdown()
        else:
            self._runner.close()


async def _awaited(result: Awaitable[Any]) -> Any:
    return await result


async def _next_of(tasks: AsyncIterator[Task[Any]]) -> Any:
    return await anext(tasks, _END)


async def _closed(tasks: AsyncIterator[Task[Any]]) -> None:
    if isinstance(tasks, AsyncGenerator):
        await tasks.aclose()


def results_of(stage: ProcessingStage[Any, Any], task: Task[Any]) -> list[Task[Any]]:
    """Return all that a stage makes of a task, whether it runs asynchronously or not."""
    if not stage.runs_async():
        return _listed(stage.process(task))
    blocking = BlockingStage(stage)
    try:
        return _listed(blocking.process(task))
    finally:
        blocking.close()


def _listed(result: Any) -> list[Task[Any]]:
    return [result] if isinstance(result, Task) else list(result or ())
