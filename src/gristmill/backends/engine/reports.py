"""Messages of workers, turned into events for the scheduler and entries in the account of the run."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gristmill.backends.engine import protocol as wp
from gristmill.backends.engine.payload import Payload, size_of
from gristmill.backends.engine.run import RunParts
from gristmill.ledger.run import UnderWay
from gristmill.scheduling import events as e

_REPORTED_DEATHS = 20


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


class PayloadStore(ABC):
    """Where the data of each live task is."""

    driver_source: Any = None
    """The source of small payloads that the driver itself put."""

    def __init__(self, inline: int) -> None:
        self.refs: dict[int, wp.TaskInput] = {}
        """Live tasks, each as the input of a step. What the source of a payload is differs between backends."""
        self._inline = inline

    def label(self, task: int) -> str:
        """The id of a live task, as users see it."""
        return self.refs[task].label

    def put(self, task: int, label: str, parts: list[Any]) -> int:
        """Keep a payload of the driver's own; its size."""
        size = size_of(parts)
        if size <= self._inline:
            self.refs[task] = wp.TaskInput(task, label, b"".join(parts), self.driver_source, 0, size)
        else:
            self.put_large(task, label, parts, size)
        return size

    def payload(self, task: int) -> Payload:
        """The data of a live task."""
        ref = self.refs[task]
        return ref.payload if ref.payload is not None else self.read(ref)

    @abstractmethod
    def put_large(self, task: int, label: str, parts: list[Any], size: int) -> None:
        """Keep a payload of the driver's own that is too large for messages."""

    @abstractmethod
    def read(self, ref: wp.TaskInput) -> Payload:
        """The bytes of a payload that is not with the driver."""

    @abstractmethod
    def add(self, task: int, w: Any, output: wp.TaskOutput) -> bool:
        """Keep the payload of a task that a worker made. Return whether it can be lost with a node."""

    @abstractmethod
    def take(self, w: Any, offset: int, length: int, wanted: bool) -> Payload | None:
        """Take a payload that a worker made out of the store; its bytes if they are wanted."""

    @abstractmethod
    def input_for(self, w: Any, data: int) -> wp.TaskInput:
        """Return a live task as an input for a worker."""

    @abstractmethod
    def release(self, task: int) -> None:
        """Release the data of a task: nothing needs it any more."""


class Reports(ABC):
    """Turns messages of workers into events. How messages arrive is up to the backend."""

    def __init__(self, parts: RunParts, store: PayloadStore) -> None:
        self.plan = parts.plan
        self.ledger = parts.plan.ledger
        self.state = parts.scheduler.state
        self.store = store
        self.outputs = parts.outputs
        self.account = parts.account
        self.view = parts.view
        self.events: list[e.Event] = []
        """Events that the scheduler has not received yet."""
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
        """Seconds from the command to start a worker until it runs, without its setup and the loading of stages."""
        self.leaves = Mean()
        """Seconds from the command to leave until a worker is gone."""
        self._deaths = 0

    @abstractmethod
    def listen(self, until: float) -> None:
        """Wait for messages, at most until then (`time.monotonic`)."""

    @abstractmethod
    def send(self, all_freed: bool = False) -> None:
        """Send what waits for workers. ``all_freed``: report freed payloads too, however few they are."""

    @abstractmethod
    def close(self) -> None:
        """Receive no more messages."""

    def now(self) -> int:
        """Microseconds since the run began."""
        return (time.perf_counter_ns() - self.begun) // 1000

    def take_events(self) -> list[e.Event]:
        """Return the events that the scheduler has not received yet. They are not kept."""
        events, self.events = self.events, []
        return events

    def new_task(self) -> int:
        self.next_task += 1
        return self.next_task - 1

    def take(self, w: wp.WorkerHandle, message: wp.FromWorker) -> None:
        match message:
            case wp.Finished() | wp.Emitted():
                self._take_unit(w, message)
            case wp.UnitProgress():
                if self.ledger is not None:
                    self.ledger.under_way[w.id] = UnderWay(*message)
            case wp.Failed(unit, stage, error, detail, busy_us, counts):
                self.forget_progress(w)
                self.note_error(unit, stage, detail, counts)
                del self.running[w.id, unit]
                self.events.append(e.UnitFailed(w.id, unit, error, busy_us))
            case wp.Ready(setup_us):
                if w.step >= 0:
                    self.account.set_up(w.step)
                self.starts.add(self.since(w) - setup_us / 1e6)
                self.events.append(e.WorkerReady(w.id, setup_us))
            case wp.StepReady(step, setup_us):
                self.account.set_up(step)
                self.events.append(e.StepSetUp(w.id, step, setup_us))
            case wp.StepNotReady(step, stage, error, detail):
                w.setup_failed = True
                self.account.set_up(step, stage)
                name = self.plan.steps[step].stages[stage].name
                self.events.append(e.SetupFailed(w.id, step, f"{name}: {error}\n{detail}".strip()))
            case wp.Left(steps, errors):
                w.left = True
                for step in steps:
                    self.account.torn_down(step)
                for text in errors:
                    self.view.message(f"worker {w.id}: {text}")
            case wp.NodeReady(step, error):
                w.left = True
                self.events.append(e.NodeSetupFailed(w.node, step, error) if error else e.NodeSetUp(w.node, step))
            case wp.Returned(units):
                self._take_returned(w, units)
            case wp.RunBroken(error):
                self.broken = self.broken or error

    def _take_returned(self, w: wp.WorkerHandle, units: Sequence[int]) -> None:
        for unit in units:
            self.running.pop((w.id, unit), None)
        self.events.append(e.UnitsReturned(w.id, tuple(units)))

    def _take_unit(self, w: wp.WorkerHandle, x: wp.Finished | wp.Emitted) -> None:
        unit, busy_us, counts, entries, outputs = x
        if self.ledger is not None:
            self.ledger.under_way.pop(w.id, None)
            self.ledger.add(entries)
        if type(x) is wp.Finished:
            step = self.running.pop((w.id, unit))
            made = self._take_outputs(w, step, outputs)
            self.account.add_last(step, unit, counts)
            self.events.append(e.UnitFinished(w.id, unit, made, busy_us))
        else:
            step = self.running[w.id, unit]
            made = self._take_outputs(w, step, outputs)
            self.account.add_part(step, unit, counts)
            self.events.append(e.UnitEmitted(w.id, unit, made, busy_us))

    def forget_progress(self, w: wp.WorkerHandle) -> None:
        """Drop the progress of a worker's unit: the unit was reported, or the worker is gone."""
        if self.ledger is not None:
            self.ledger.under_way.pop(w.id, None)

    def since(self, w: wp.WorkerHandle) -> float:
        """Seconds since the command to start or stop a worker, or since it could start."""
        return self.now() / 1e6 - max(self.loaded_s, (w.ordered_ns - self.begun) / 1e9)

    def note_error(self, unit: int, stage: int, detail: str, counts: Any) -> None:
        tasks = self.state.tasks
        if unit not in tasks:
            return  # the run is being stopped
        of_data = self.errors.setdefault(tasks[unit].data, {})
        for split in [x for x in of_data if x not in tasks]:
            del of_data[split]
        of_data[unit] = (stage, detail, counts)

    def _take_outputs(self, w: wp.WorkerHandle, step: int, outputs: tuple[wp.TaskOutput, ...]) -> tuple[e.Output, ...]:
        made = []
        last = step == len(self.plan.steps) - 1
        if last and outputs:
            self.last_output_s = self.now() / 1e6
            if self.first_output_s is None:
                self.first_output_s = self.last_output_s
        for x in outputs:
            ident = self.new_task()
            if last:
                payload: Payload | None = x.payload
                if payload is None and x.length:
                    payload = self.store.take(w, x.offset, x.length, self.outputs.wanted)
                if payload is not None and self.outputs.wanted:
                    self.outputs.add(x.label, payload)
                made.append(e.Output(ident, 0, x.items, x.parent))
            else:
                if self.ledger is not None:
                    self.ledger.begin(x.label)
                losable = self.store.add(ident, w, x)
                made.append(e.Output(ident, x.length, x.items, x.parent, x.divisible, losable))
        return tuple(made)

    def died(
        self,
        w: wp.WorkerHandle,
        cause: e.Death,
        detail: str,
        task: int | None = None,
        stage: int | None = None,
        setting_up: int | None = None,
        begun: tuple[int, ...] | None = None,
    ) -> None:
        """Report the death of a worker, in a stage of ``task`` or while it set up the step ``setting_up``.

        ``begun`` are the units that a worker with several in flight had begun, if it is known.
        """
        step = self.running.get((w.id, task)) if task is not None else None
        if task is not None and step is not None and stage is not None:
            self.note_error(task, min(stage, len(self.plan.steps[step].stages) - 1), "", [])
        for unit in begun or ():
            if (w.id, unit) in self.running:
                step = w.step
                self.note_error(unit, 0, "", [])
        self._show_death(w.id, cause, detail, step)
        self.events.append(e.WorkerDied(w.id, cause, task, setting_up, detail, begun))

    def has_left(self, w: wp.WorkerHandle) -> None:
        """Report that a worker has exited as it was asked to, or after a setup that failed."""
        if w.stop_by:
            self.leaves.add(self.since(w))
        self.events.append(e.WorkerLeft(w.id))

    def forget_units(self, w: wp.WorkerHandle) -> None:
        for key in [key for key in self.running if key[0] == w.id]:
            del self.running[key]

    def _show_death(self, ident: int, cause: e.Death, detail: str, step: int | None) -> None:
        self._deaths += 1
        if self._deaths > _REPORTED_DEATHS:
            return
        doing = f" while running '{self.plan.steps[step].name}'" if step is not None else ""
        more = "; further deaths are not reported" if self._deaths == _REPORTED_DEATHS else ""
        self.view.message(f"worker {ident} {cause.value} ({detail}){doing}{more}")
