"""What workers say, as events for the scheduler and entries in the account of the run."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

from gristmill.backends.base import Plan
from gristmill.backends.engine.account import RunAccount
from gristmill.backends.engine.outputs import KeptOutputs
from gristmill.backends.engine.protocol import FromWorker, Message
from gristmill.ledger.run import UnderWay
from gristmill.metrics.view import View
from gristmill.scheduling import events as e
from gristmill.scheduling.state import State

_TOLD_DEATHS = 20


@dataclass
class Mean:
    """A mean that grows."""

    total: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.total += value
        self.count += 1

    @property
    def value(self) -> float:
        return max(0.0, self.total / self.count) if self.count else 0.0


class WorkerHandle(Protocol):
    """What the driver knows of any worker, from the order to start it until its end is known."""

    id: int
    step: int
    node: int
    ordered_ns: int
    """When (`time.perf_counter_ns`) it was told to start, or to stop."""
    said_bye: bool
    setup_failed: bool
    outbox: list[Message]
    """What it is to be told."""


class PayloadStore(ABC):
    """Where the data of each live task is."""

    @abstractmethod
    def label(self, task: int) -> str:
        """The id of a live task, as people see it."""

    @abstractmethod
    def put(self, task: int, label: str, parts: list[Any]) -> int:
        """Keep a payload of the driver's own; its size."""

    @abstractmethod
    def add(self, task: int, label: str, w: Any, payload: bytes | None, offset: int, length: int) -> bool:
        """Note a payload that a worker made; whether it lies where it can be lost."""

    @abstractmethod
    def take(self, w: Any, offset: int, length: int, wanted: bool) -> bytes | bytearray | None:
        """Take a payload that a worker made out of the store; its bytes if they are wanted."""

    @abstractmethod
    def input_for(
        self, w: Any, task: int, data: int, start: int, stop: int, skip: int, wanted: tuple[int, ...]
    ) -> tuple[Any, ...]:
        """A task as a worker is told of it (`ToWorker.RUN`)."""

    @abstractmethod
    def payload(self, task: int) -> bytes | bytearray:
        """The data of a live task."""

    @abstractmethod
    def release(self, task: int) -> None:
        """The data of a task is needed no more."""


class Reports(ABC):
    """Makes events of what workers say. How it is heard is up to the backend."""

    def __init__(
        self, plan: Plan, state: State, store: PayloadStore, outputs: KeptOutputs, account: RunAccount, view: View
    ) -> None:
        self.plan = plan
        self.ledger = plan.ledger
        self.state = state
        self.store = store
        self.outputs = outputs
        self.account = account
        self.view = view
        self.events: list[e.Event] = []
        """What the scheduler has not been told yet."""
        self.errors: dict[int, dict[int, tuple[int, str, Any]]] = {}
        """Of the last failed attempt, by data and then by unit, a slice of it perhaps: stage, traceback, counts."""
        self.running: dict[tuple[int, int], int] = {}
        """The step of each unit in a worker."""
        self.next_task = 0
        self.broken = ""
        """Why the run cannot continue: no worker can be started, or the code of a stage is wrong."""
        self.begun = time.perf_counter_ns()
        self.first_output_s: float | None = None
        self.last_output_s: float | None = None
        self.loaded_s = 0.0
        self.loaded = False
        self.starts = Mean()
        """Seconds from the order to start a worker until it is there, without its setup and the loading of stages."""
        self.leaves = Mean()
        """Seconds from the order to leave until a worker is gone."""
        self._deaths = 0

    @abstractmethod
    def listen(self, until: float) -> None:
        """Wait for news, at the longest until then (`time.monotonic`)."""

    @abstractmethod
    def send(self, all_freed: bool = False) -> None:
        """Send what waits for workers; with ``all_freed`` also what they need not know yet."""

    @abstractmethod
    def close(self) -> None:
        """Hear nothing more."""

    def now(self) -> int:
        """Microseconds since the run began."""
        return (time.perf_counter_ns() - self.begun) // 1000

    def new_task(self) -> int:
        self.next_task += 1
        return self.next_task - 1

    def take(self, w: WorkerHandle, message: Message) -> None:
        kind = message[0]
        if kind == FromWorker.PROGRESS:
            if self.ledger is not None:
                self.ledger.under_way[w.id] = UnderWay(*message[1:])
            return
        if kind in (FromWorker.FINISHED, FromWorker.EMITTED, FromWorker.FAILED):
            self.forget_progress(w)
        if kind == FromWorker.FINISHED:
            _, unit, outputs, busy_us, counts, entries = message
            step = self.running.pop((w.id, unit))
            if self.ledger is not None:
                self.ledger.add(entries)
            made = self._take_outputs(w, step, outputs)
            self.account.add_last(step, unit, counts)
            self.events.append(e.UnitFinished(w.id, unit, made, busy_us))
        elif kind == FromWorker.EMITTED:
            _, unit, outputs, busy_us, counts, entries = message
            step = self.running[w.id, unit]
            if self.ledger is not None:
                self.ledger.add(entries)
            made = self._take_outputs(w, step, outputs)
            self.account.add_part(step, unit, counts)
            self.events.append(e.UnitEmitted(w.id, unit, made, busy_us))
        elif kind == FromWorker.FAILED:
            _, unit, stage, error, detail, busy_us, counts = message
            self.note_error(unit, stage, detail, counts)
            del self.running[w.id, unit]
            self.events.append(e.UnitFailed(w.id, unit, error, busy_us))
        elif kind == FromWorker.READY:
            if w.step >= 0:
                self.account.set_up(w.step)
            self.starts.add(self.since(w) - message[1] / 1e6)
            self.events.append(e.WorkerReady(w.id, message[1]))
        elif kind == FromWorker.STEP_SET_UP:
            self.account.set_up(message[1])
            self.events.append(e.StepSetUp(w.id, message[1], message[2]))
        elif kind == FromWorker.SETUP_FAILED:
            _, step, stage, error, detail = message
            w.setup_failed = True
            self.account.set_up(step, stage)
            name = self.plan.steps[step].stages[stage].name
            self.events.append(e.SetupFailed(w.id, step, f"{name}: {error}\n{detail}".strip()))
        elif kind == FromWorker.BYE:
            w.said_bye = True
            for step in message[1]:
                self.account.torn_down(step)
            for text in message[2]:
                self.view.message(f"worker {w.id}: {text}")
        elif kind == FromWorker.NODE_SET_UP:
            _, step, error = message
            w.said_bye = True
            self.events.append(e.NodeSetupFailed(w.node, step, error) if error else e.NodeSetUp(w.node, step))
        elif kind == FromWorker.BROKEN:
            self.broken = self.broken or message[1]

    def forget_progress(self, w: WorkerHandle) -> None:
        """The unit of a worker was reported, or the worker is gone: what it told of its progress is out of date."""
        if self.ledger is not None:
            self.ledger.under_way.pop(w.id, None)

    def since(self, w: WorkerHandle) -> float:
        """Seconds since a worker was told to start or stop, or since it could."""
        return self.now() / 1e6 - max(self.loaded_s, (w.ordered_ns - self.begun) / 1e9)

    def note_error(self, unit: int, stage: int, detail: str, counts: Any) -> None:
        tasks = self.state.tasks
        if unit not in tasks:
            return  # the run is being stopped
        of_data = self.errors.setdefault(tasks[unit].data, {})
        for split in [x for x in of_data if x not in tasks]:
            del of_data[split]
        of_data[unit] = (stage, detail, counts)

    def _take_outputs(self, w: WorkerHandle, step: int, outputs: list[Any]) -> tuple[e.Output, ...]:
        made = []
        last = step == len(self.plan.steps) - 1
        if last and outputs:
            self.last_output_s = self.now() / 1e6
            if self.first_output_s is None:
                self.first_output_s = self.last_output_s
        for parent, label, items, divisible, payload, offset, length in outputs:
            ident = self.new_task()
            if last:
                if payload is None and length:
                    payload = self.store.take(w, offset, length, self.outputs.wanted)
                if payload is not None and self.outputs.wanted:
                    self.outputs.add(label, payload)
                made.append(e.Output(ident, 0, items, parent))
            else:
                if self.ledger is not None:
                    self.ledger.begin(label)
                losable = self.store.add(ident, label, w, payload, offset, length)
                made.append(e.Output(ident, length, items, parent, divisible, losable))
        return tuple(made)

    def tell_death(self, ident: int, cause: e.Death, detail: str, task: int | None, step: int | None) -> None:
        self._deaths += 1
        if self._deaths > _TOLD_DEATHS:
            return
        doing = f" while running '{self.plan.steps[step].name}'" if task is not None and step is not None else ""
        more = "; further deaths are not told here" if self._deaths == _TOLD_DEATHS else ""
        self.view.message(f"worker {ident} {cause.value} ({detail}){doing}{more}")
