"""Continuous batching: a thread that keeps the slots of a model full while requests wait."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from gristmill.lazy import np
from gristmill.llm.errors import LLMError, Refused, TryAgain, Unusable
from gristmill.llm.local.grammar import ConstrainedAnswer, Grammars
from gristmill.llm.local.sampling import Settings
from gristmill.llm.local.slots import SlotModel

if TYPE_CHECKING:
    from concurrent.futures import Future

PROMPT_TOKENS = 8192
"""The most tokens of prompts that are read together, padding included."""


@dataclass
class LocalRequest:
    """One request to the engine."""

    prompt: list[int]
    most: int
    """The most tokens of the answer."""
    settings: Settings
    schema: Mapping[str, Any] | None
    future: Future[list[int]]
    tokens: list[int] = field(default_factory=list)
    answer: ConstrainedAnswer | None = None
    is_complete: bool = False
    """Whether the model ended the answer, and not the limit."""


class LocalEngine:
    """Runs requests on a model. `submit` may be called by any thread."""

    def __init__(self, slots: SlotModel, tokenizer: Any, ends: frozenset[int]) -> None:
        self.slots = slots
        self._tokenizer = tokenizer
        self._ends = ends
        self._grammars: Grammars | None = None
        self._waiting: deque[LocalRequest] = deque()
        self._running: dict[int, LocalRequest] = {}
        self._free = list(range(slots.slots - 1, -1, -1))
        self._changed = threading.Condition()
        self._is_closed = False
        self.steps = self.slot_steps = 0
        """Steps so far, and how many slots were used in them together."""
        self._thread = threading.Thread(target=self._run, name="gristmill-llm-engine", daemon=True)
        self._thread.start()

    def submit(self, job: LocalRequest) -> None:
        """Begin a request as soon as a slot is free. Its future gets the tokens of the answer."""
        if len(job.prompt) + job.most > self.slots.longest:
            most = f"{len(job.prompt):,} tokens of the prompt and {job.most:,} of the answer"
            raise Refused(f"{most} are more than the {self.slots.longest:,} of the model's slots")
        with self._changed:
            if self._is_closed:
                raise Unusable("the model is closed")
            self._waiting.append(job)
            self._changed.notify()

    def close(self) -> None:
        """Stop. Requests that are under way fail."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._waiting or self._running or self._is_closed):
                    self._changed.wait()
                if self._is_closed:
                    break
                new = self._next_jobs()
            self._guarded(partial(self._begin, new), new)
            if self._running:
                self._guarded(self._step, list(self._running.values()))
        for job in [*self._running.values(), *self._waiting]:
            _fail(job, Unusable("the model is closed"))

    def _guarded(self, call: Callable[[], None], jobs: list[LocalRequest]) -> None:
        """Run a part of the loop. An error fails the requests that it was about, and the thread continues."""
        try:
            call()
        except Exception as error:
            failure = error if isinstance(error, LLMError) else TryAgain(f"{type(error).__name__}: {error}")
            for job in jobs:
                _fail(job, failure)
            for slot in [slot for slot, job in self._running.items() if job in jobs]:
                self._release(slot)

    def _next_jobs(self) -> list[LocalRequest]:
        """Requests that wait, for the slots that are free, as many as are read together."""
        jobs: list[LocalRequest] = []
        longest = 0
        while self._waiting and len(jobs) < len(self._free):
            longest = max(longest, len(self._waiting[0].prompt))
            if jobs and longest * (len(jobs) + 1) > PROMPT_TOKENS:
                break
            job = self._waiting.popleft()
            if not job.future.cancelled():
                jobs.append(job)
        return jobs

    def _begin(self, jobs: list[LocalRequest]) -> None:
        begun: dict[int, LocalRequest] = {}
        for job in jobs:
            try:
                job.answer = None if job.schema is None else self._constrained(job.schema)
            except LLMError as error:
                _fail(job, error)
                continue
            slot = self._free.pop()
            self._running[slot] = begun[slot] = job
            self.slots.set(slot, job.settings)
        if begun:
            self._constrain(begun)
            self.slots.begin(list(begun), [job.prompt for job in begun.values()])
            self._take(begun)

    def _step(self) -> None:
        self._constrain(self._running)
        self.slots.step(max(len(job.prompt) + len(job.tokens) for job in self._running.values()))
        self.steps += 1
        self.slot_steps += len(self._running)
        self._take(self._running)

    def _constrained(self, schema: Mapping[str, Any]) -> ConstrainedAnswer:
        if self._grammars is None:
            self._grammars = Grammars(self._tokenizer, self.slots.vocabulary, min(self._ends))
        return self._grammars.answer(schema)

    def _constrain(self, jobs: Mapping[int, LocalRequest]) -> None:
        sampler = self.slots.sampler
        sampler.is_constrained = any(job.answer is not None for job in self._running.values())
        limited = [(slot, job) for slot, job in jobs.items() if job.answer is not None]
        if not limited:
            return
        import torch

        masks = np.zeros((len(limited), -(-self.slots.vocabulary // 32)), np.int32)
        for mask, (_, job) in zip(masks, limited, strict=True):
            assert job.answer is not None
            job.answer.fill(mask)
        sampler.allow(torch.tensor([slot for slot, _ in limited], device=self.slots.device), masks)

    def _take(self, jobs: Mapping[int, LocalRequest]) -> None:
        """Take the new token of each slot, and free those whose answer is complete."""
        tokens = self.slots.tokens.tolist()
        for slot, job in list(jobs.items()):
            token = tokens[slot]
            is_end = False
            if job.answer is not None:
                token = job.answer.accept(token, job.most - len(job.tokens) - 1)
                is_end = job.answer.is_complete
                if token != tokens[slot]:
                    self.slots.tokens[slot] = token
            is_end = is_end or token in self._ends
            job.tokens.append(token)
            job.is_complete = is_end
            if is_end or len(job.tokens) >= job.most or job.future.cancelled():
                self._release(slot)
                if not job.future.done():
                    job.future.set_result(job.tokens)

    def _release(self, slot: int) -> None:
        del self._running[slot]
        self._free.append(slot)
        self.slots.sampler.clear(slot)


def _fail(job: LocalRequest, error: Exception) -> None:
    if not job.future.done():
        job.future.set_exception(error)
