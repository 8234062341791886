"""Faults of a virtual cluster: how often they happen, and to which workers, nodes and tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from gristmill.scheduling.events import Death, Event, NodeJoined
from gristmill.scheduling.simulator.draws import mix, uniform
from gristmill.scheduling.simulator.model import SECOND, Job, StepModel, VirtualWorker

if TYPE_CHECKING:
    from gristmill.scheduling.simulator.world import World


class FaultError(ValueError):
    """Faults cannot be read. The message names the field."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Times are seconds, shares from 0 to 1. What is 0 does not happen."""

    crash_every_s: float = 0.0
    """A worker crashes, but not while it runs a suspected unit, which would be quarantined for it."""
    kill_every_s: float = 0.0
    """A worker is killed from outside."""
    oom_every_s: float = 0.0
    """A worker runs out of memory; only while several run something, for a task that runs alone has enough."""
    node_loss_every_s: float = 0.0
    node_back_s: float = 30.0
    """A lost node joins again after this time."""
    slow_workers: float = 0.0
    slow_tasks: float = 0.0
    slow_factor: float = 4.0
    """Stragglers: the share of workers and of tasks that take so many times as long."""
    setup_failures: float = 0.0
    """Share of setups that raise."""
    poison: float = 0.0
    raising: float = 0.0
    hanging: float = 0.0
    """Shares of source tasks that kill their worker, raise, or never end, each at one step."""
    timeout_s: float = 600.0
    """A task that takes longer is ended; used only where tasks hang."""
    losable: float = 0.0
    """Share of outputs that lie on the node which made them, and are lost with it."""
    data_loss_every_s: float = 0.0
    """A node stays but loses such data, all or some of it."""
    resize_every_s: float = 0.0
    resized_s: float = 10.0
    """Others take much of a node, or all of it, for so long."""
    until_s: float = 0.0
    """No crash, kill or loss after this time; 0: faults never end."""

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
                raise FaultError(f"faults: {f.name} must be a number that is not negative, not {value!r}")
            if f.name in _SHARES and value > 1:
                raise FaultError(f"faults: {f.name} is a share of all and cannot be {value:g}")


_SHARES = ("slow_workers", "slow_tasks", "setup_failures", "poison", "raising", "hanging", "losable")


def read_faults(source: Faults | Mapping[str, Any] | None) -> Faults:
    """Faults from a mapping of the names above.

    >>> read_faults({"kill_every_s": 20}).kill_every_s
    20
    """
    if source is None:
        return Faults()
    if isinstance(source, Faults):
        return source
    if not isinstance(source, Mapping):
        raise FaultError(f"faults must be a mapping or Faults, not {type(source).__name__}")
    known = [f.name for f in fields(Faults)]
    for name in source:
        if name not in known:
            raise FaultError(f"faults: '{name}' is not known; there is {', '.join(known)}")
    return Faults(**source)


def bad_tasks(faults: Faults, models: list[StepModel], sources: int, seed: int) -> list[StepModel]:
    """Return the models with bad source tasks, chosen at random."""
    chosen: dict[str, list[set[str]]] = {kind: [set() for _ in models] for kind in ("poison", "raises", "hangs")}
    for number in range(sources):
        draw = uniform(mix(mix(seed, 3_000_017), number))
        step = mix(mix(seed, 3_000_029), number) % len(models)
        for kind, share in (("poison", faults.poison), ("raises", faults.raising), ("hangs", faults.hanging)):
            if 0 <= draw < share:
                chosen[kind][step].add(str(number))
            draw -= share
    return [
        replace(model, **{kind: getattr(model, kind) | sets[i] for kind, sets in chosen.items()})
        for i, model in enumerate(models)
    ]


class Injector:
    """Causes faults in a world, at seeded times."""

    def __init__(self, world: World, faults: Faults, nodes: list[NodeJoined]) -> None:
        self.world, self.faults, self.nodes = world, faults, nodes
        self.hit: set[tuple[int, str, int]] = set()
        """(step, label, item) of work during which a worker died."""
        for every_s, what in (
            (faults.crash_every_s, self._crash),
            (faults.kill_every_s, self._kill),
            (faults.oom_every_s, self._out_of_memory),
            (faults.node_loss_every_s, self._lose_node),
            (faults.data_loss_every_s, self._lose_data),
            (faults.resize_every_s, self._resize),
        ):
            if every_s:
                self._again(round(every_s * SECOND), what)

    @property
    def active(self) -> bool:
        return not self.faults.until_s or self.world.now < self.faults.until_s * SECOND

    def slowness(self, worker: int, key: int) -> float:
        """Return the factor on the service time of a task."""
        f = self.faults
        slow = uniform(mix(mix(self.world.seed, 3_000_047), worker)) < f.slow_workers
        return f.slow_factor if slow or uniform(mix(key, 3_000_059)) < f.slow_tasks else 1.0

    def _again(self, every: int, what: Callable[[], Event | list[Event] | None]) -> None:
        def happen(world: World) -> Event | list[Event] | None:
            if not self.active:
                return None
            self._again(every, what)
            return what()

        self.world.after(every // 2 + self.world.random.randrange(every + 1), happen)

    def _standing(self) -> list[tuple[int, VirtualWorker]]:
        return [(i, w) for i, w in self.world.workers.items() if not w.stopping]

    def _crash(self) -> None:
        here = [(i, w) for i, w in self._standing() if not _work(w) & self.hit and not self._is_alone(i, w)]
        self._end(here, Death.CRASHED)

    def _is_alone(self, worker: int, w: VirtualWorker) -> bool:
        """Whether a worker runs a suspected unit: after a crash it would be quarantined."""
        known = self.world.scheduler.state.workers.get(worker)
        running = {job.key for job in jobs_of(w)}
        return known is not None and any(unit.isolated and unit.key in running for unit in known.assigned)

    def _kill(self) -> None:
        self._end(self._standing(), Death.KILLED)

    def _end(self, workers: list[tuple[int, VirtualWorker]], cause: Death) -> None:
        if workers:
            self.world.die(self.world.random.choice(workers)[0], cause)

    def died(self, w: VirtualWorker) -> None:
        """Note that a worker died: what it was running is suspected from now on."""
        if self.faults.crash_every_s:
            self.hit |= _work(w)

    def _out_of_memory(self) -> None:
        running = [(i, w) for i, w in self._standing() if jobs_of(w)]
        if sum(len(jobs_of(w)) for _, w in running) > 1:
            self._end(running, Death.OUT_OF_MEMORY)

    def _lose_data(self) -> list[Event] | None:
        return self.world.losses.store_lost() or None

    def _resize(self) -> Event | None:
        here = list(self.world.nodes.values())
        if not here:
            return None
        node = self.world.random.choice(here)

        def restore(world: World) -> Event | None:
            return world.losses.restore(node) if world.nodes.get(node.node) is node else None

        self.world.after(round(self.faults.resized_s * SECOND), restore)
        return self.world.losses.resize(node)

    def _lose_node(self) -> Event | list[Event] | None:
        here = [n for n in self.nodes if n.node in self.world.nodes]
        if not here:
            return None
        node = self.world.random.choice(here)
        self.world.after(round(self.faults.node_back_s * SECOND), node)
        return self.world.lose(node.node)


def jobs_of(w: VirtualWorker) -> list[Job]:
    """Return the units that a worker runs."""
    return [w.current] if w.current is not None else list(w.running.values())


def _work(w: VirtualWorker) -> set[tuple[int, str, int]]:
    return {(job.step, d.label, item) for job in jobs_of(w) for d in job.data for item in d.items}
