"""Run an asynchronous stage on tasks, several at a time: the part of a worker that is the same on every backend."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import aclosing
from typing import Any

from gristmill.backends.accounting import Documents, StageAccounting, StageCall
from gristmill.backends.stage_errors import StageError, stage_error
from gristmill.stages.core import ProcessingStage
from gristmill.tasks import Task

_END = object()


class AsyncUnit(StageAccounting):
    """One unit of a step with an asynchronous stage, with an account of its own.

    Ids, counts and the account of documents are those of a `StepRunner`, but for the time that the stage was busy,
    which units in flight share. What the stage raises is a `StageError`; `CancelledError` passes through.
    """

    def __init__(self, stage: ProcessingStage[Any, Any], documents: Documents | None = None) -> None:
        super().__init__([stage], documents)

    async def outputs(self, task: Task[Any]) -> AsyncGenerator[Task[Any], None]:
        """Yield what the stage makes of a task, as it is asked for."""
        excluded = self.documents.excluded() if self.documents is not None else None
        self._excluded = excluded
        ident = task.task_id
        try:
            self.counts[0].tasks_in += 1
            self.counts[0].items_in += task.num_items
            call = self._call(0, task)
            result = await self._guard(self._processed(task))
            if isinstance(result, AsyncIterator):
                async with aclosing(self._stream(ident, result, call)) as outputs:
                    async for output in outputs:
                        yield output
            else:
                for output in self._outputs(0, ident, result, call):
                    yield output
            if excluded is not None:
                self._write_excluded(excluded)
        except (StageError, CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # properties of tasks are the user's code too
            raise stage_error(0, error) from None

    async def _processed(self, task: Task[Any]) -> Any:
        result: Any = self.stages[0].process(task)
        return await result if isinstance(result, Awaitable) else result

    @staticmethod
    async def _guard(call: Awaitable[Any]) -> Any:
        """Wait for code of the stage."""
        try:
            return await call
        except CancelledError:
            raise
        except BaseException as error:  # whatever a stage raises is its failure
            raise stage_error(0, error) from None

    async def _stream(self, ident: str, result: AsyncIterator[Any], call: StageCall) -> AsyncGenerator[Task[Any], None]:
        stage = self.stages[0]
        if not stage.streams_async():
            raise StageError(0, f"TypeError: '{stage.name}' returned an async generator, but streams_async() is False")
        self.streams = True
        produced = 0
        try:
            while (output := await self._guard(anext(result, _END))) is not _END:
                if not isinstance(output, Task):
                    raise self._contract(0, f"returned several things, one of them a {type(output).__name__}")
                call.result(output)
                output.task_id = f"{ident}.{produced}"
                produced += 1
                self.counts[0].tasks_out += 1
                self.counts[0].items_out += output.num_items
                yield output
        finally:
            if isinstance(result, AsyncGenerator):
                await result.aclose()
        call.end()
        self.counts[0].tasks_done += 1
        self.counts[0].dropped += not produced
