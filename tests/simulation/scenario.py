"""Random pipelines on random clusters with random faults: one for each seed, small enough to read and to shrink."""

from __future__ import annotations

import random
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from typing import Any

from gristmill.scheduling import events as e
from gristmill.scheduling.events import NodeJoined
from gristmill.scheduling.placement import misfit
from gristmill.scheduling.settings import UNIT, SchedulerConfig, StepSpec
from gristmill.scheduling.simulator.faults import Faults
from gristmill.scheduling.simulator.model import SECOND, StepModel
from tests.simulation.world import CheckedWorld

__all__ = [
    "Faults",
    "NodeJoined",
    "Scenario",
    "SchedulerConfig",
    "StepModel",
    "StepSpec",
    "play",
    "random_scenario",
    "show",
]

GB = 1 << 30
_SHOULD_END_US = 20_000 * SECOND
_EVENTS = 60_000
_WORKERS = 20_000
TOO_MANY_FAULTS = 1000
"""More than a scenario can have: a fault every 0.2 s for 60 s. No task may be quarantined because of them."""


@dataclass
class Scenario:
    """A run to play. Its text (`show`) can be pasted to play it again."""

    seed: int
    steps: list[StepSpec]
    models: list[StepModel]
    nodes: list[NodeJoined]
    config: SchedulerConfig
    sources: int = 20
    items: int = 1
    source_bytes: int = 1000
    lag_us: int = 0
    start_us: int = 1000
    faults: Faults = field(default_factory=Faults)
    late_nodes: list[tuple[int, NodeJoined]] = field(default_factory=list)
    """(when, node that joins then)"""
    interrupt_us: int | None = None
    """When the user interrupts the run."""
    check_every: int = 13
    """Invariants are checked after every so many events, and at the end."""

    def world(self) -> CheckedWorld:
        world = CheckedWorld(
            self.steps,
            [replace(model) for model in self.models],
            self.sources,
            config=self.config,
            nodes=self.nodes,
            seed=self.seed,
            items=self.items,
            lag_us=self.lag_us,
            start_us=self.start_us,
            source_bytes=self.source_bytes,
            check_every=self.check_every,
            faults=self.faults,
        )
        for at, node in self.late_nodes:
            world.after(at, node)
        if self.interrupt_us is not None:
            world.after(self.interrupt_us, e.Interrupted())
        return world


def play(scenario: Scenario, world: CheckedWorld | None = None) -> CheckedWorld:
    """Run it to its end and check everything; raises if anything is wrong."""
    world = world or scenario.world()
    world.run(limit_us=_SHOULD_END_US, limit=_EVENTS).assert_nothing_lost(scenario.interrupt_us is not None)
    assert world.scheduler.state.next_worker < _WORKERS, "workers are started without end"
    return world


def random_scenario(seed: int) -> Scenario:
    """The scenario of a seed."""
    r = random.Random(seed)
    sources = r.randrange(5, 41)
    nodes = _nodes(r)
    steps: list[StepSpec] = []
    models: list[StepModel] = []
    width = 1.0
    for i in range(r.choice([1, 2, 2, 3, 3, 4, 5])):
        spec = _step(r, i)
        while misfit(spec, [(n.cpu, n.memory, n.gpus) for n in nodes]):
            spec = _step(r, i)
        most = 400 / sources / width
        fan_out = r.choice([x for x in (1, 1, 1, 1, 1, 0.5, 0.9, 1.3, 2, 2.5, 5, 12, 20) if x <= max(1, most)])
        if r.random() < 0.03:
            fan_out = 0
        width = max(width, width * fan_out)
        steps.append(spec)
        models.append(_model(r, fan_out, sources, spec.slices, crowded=width > 4))
    faults = _losses(random.Random(f"losses {seed}"), _faults(r))
    return Scenario(
        seed,
        steps,
        models,
        nodes,
        SchedulerConfig(
            budget=r.choice([1, 1 << 18, 1 << 20, 1 << 20, 1 << 22, 1 << 24, 1 << 30]),
            autoscale_interval_us=r.choice([180 * SECOND, 20 * SECOND]),
            plan_at_once=r.choice([256, 256, 0]),
            batch_mode=r.random() < 0.12,
            ignore_failures=True,
            shared_lifetime_us=r.choice([None, None, 10 * SECOND]),
            shared_restart_interval_us=r.choice([0, 0, 5 * SECOND]),
            prefetch_us=r.choice([20_000, 20_000, 1_000_000]),
            # Workers that crash at random in a setup are no reason to give up.
            setup_attempts=3 if not (faults.crash_every_s or faults.oom_every_s) else 1000,
            isolated_kills=TOO_MANY_FAULTS,
        ),
        sources,
        items=r.choice([1, 1, 1, 4, 7]),
        source_bytes=r.choice([100, 1000, 50_000, 400_000]),
        lag_us=r.choice([0, 0, 2000, 100_000]),
        start_us=r.choice([0, 1000, 500_000]),
        faults=faults,
        late_nodes=[(r.randrange(30 * SECOND), _node(r, 20 + k)) for k in range(r.choice([0, 0, 0, 1, 2]))],
        check_every=r.choice([1] + [7] * 3 + [17] * 12),
    )


def _nodes(r: random.Random) -> list[NodeJoined]:
    return [_node(r, k) for k in range(r.choice([1, 1, 2, 3, 4]))]


def _node(r: random.Random, number: int) -> NodeJoined:
    gpus = r.choice([0, 0, 1, 2, 4])
    gpu_memory = r.choice([16, 80]) * GB
    return NodeJoined(
        number,
        r.choice([1, 2, 2, 4, 8]) * UNIT,
        r.choice([4, 8, 16]) * GB,
        (gpu_memory,) * gpus,
        r.choice(["", "", "fast", "slow"]),
    )


def _step(r: random.Random, i: int) -> StepSpec:
    gpu = r.choice([0] * 6 + [UNIT // 4, UNIT // 2, UNIT, 2 * UNIT])
    return StepSpec(
        f"s{i}",
        cpu=r.choice([UNIT, UNIT, UNIT // 2, 2 * UNIT, 0 if gpu else UNIT]),
        gpu=gpu,
        gpu_memory=0 if gpu else r.choice([0] * 8 + [5 * GB, 12 * GB, 40 * GB]),
        memory=r.choice([0] * 5 + [GB, 3 * GB, 7 * GB]),
        batch_size=r.choice([1, 1, 1, 2, 3, 8]),
        workers=r.choice([None] * 8 + [1, 2, 3]),
        dedicated=r.random() < 0.15,
        has_setup=r.random() < 0.35,
        node_setup=r.random() < 0.15,
        max_attempts=r.choice([3, 3, 2, 5]),
        slices=r.random() < 0.85,
        timeout_us=10 * SECOND,
        lifetime_us=r.choice([None, None, None, 8 * SECOND]),
        restart_interval_us=r.choice([0, 3 * SECOND]),
    )


def _model(r: random.Random, fan_out: float, sources: int, slices: bool, crowded: bool) -> StepModel:
    return StepModel(
        r.choice([1000, SECOND // 20] if crowded else [1000, SECOND // 10, SECOND // 2, SECOND, 3 * SECOND]),
        fan_out=fan_out,
        out_bytes=r.choice([100, 10_000, 100_000, 300_000]),
        setup_us=r.choice([0, SECOND // 10, 2 * SECOND]),
        chunk=r.choice([0, 1, 4]) if fan_out >= 2 else 0,
        poison=some_bad(r, sources, slices),
        raises=some_bad(r, sources, slices),
        flaky=some_bad(r, sources, slices),
        hangs=frozenset() if crowded else some_bad(r, sources, slices, 0.08),
        failing_setups=r.choice([0, 0, 0, 0, 1, 2]),
        cv=r.choice([None, None, 0.0, 1.0]),
        setup_spread=r.choice([0.0, 0.5]),
        changes=((r.randrange(1, 20), r.choice([0.2, 4.0])),) if r.random() < 0.1 else (),
        speeds={"fast": 2.0, "slow": 0.5},
    )


def some_bad(r: random.Random, sources: int, slices: bool, chance: float = 0.2) -> frozenset[str]:
    """Now and then a bad source task, or, where a step finds it, a bad item of one."""
    if r.random() > chance:
        return frozenset()
    parts = ["", "", "#0", "#3"] if slices else [""]
    return frozenset(str(r.randrange(sources)) + r.choice(parts) for _ in range(r.choice([1, 1, 2])))


def _faults(r: random.Random) -> Faults:
    if r.random() < 0.1:
        return Faults()

    def rate(chance: float, *values: float) -> float:
        return r.choice(values) if r.random() < chance else 0.0

    unused = r.random() < 0.4
    r.choice((0, 1, 2))
    faults = Faults(
        crash_every_s=rate(0.25, 2, 10, 30),
        kill_every_s=rate(0.25, 1, 5, 20),
        oom_every_s=rate(0.2, 0.5, 2, 10),
        node_loss_every_s=rate(0.25, 8, 20, 60),
        node_back_s=r.choice([0.5, 3.0, 20.0]),
        slow_workers=rate(0.2, 0.2),
        slow_tasks=rate(0.2, 0.05),
        slow_factor=r.choice([3.0, 8.0]),
    )
    # Draws that faults of earlier versions needed: a seed keeps giving the same pipeline.
    for count in (3, 3, 4, 3) if unused else ():
        r.randrange(count)
    r.randrange(2)
    rate(0.15, 5, 20)
    return replace(faults, until_s=r.choice([30.0, 60.0]))


def _losses(r: random.Random, faults: Faults) -> Faults:
    """With data that can be lost, and nodes that change in size, in some of the scenarios."""
    if r.random() < 0.5:
        faults = replace(
            faults,
            losable=r.choice([0.3, 0.8, 1.0]),
            data_loss_every_s=r.choice([0, 0.2, 0.5, 1, 3]),
            node_loss_every_s=faults.node_loss_every_s or r.choice([0, 5, 15]),
        )
    if r.random() < 0.25:
        faults = replace(faults, resize_every_s=r.choice([2, 10]), resized_s=r.choice([1.0, 5.0, 15.0]))
    return replace(faults, until_s=faults.until_s or 30.0)


def show(value: Any) -> str:
    """Return the text that makes a value, without fields that have their default."""
    if is_dataclass(value) and not isinstance(value, type):
        parts = []
        for f in fields(value):
            x = getattr(value, f.name)
            default = f.default_factory() if f.default_factory is not MISSING else f.default
            if default is MISSING or x != default:
                parts.append(f"{f.name}={show(x)}")
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, list):
        return f"[{', '.join(map(show, value))}]"
    kind: Any = type(value)
    if isinstance(value, tuple) and kind is not tuple:  # a NamedTuple
        plain, named = kind._field_defaults, zip(kind._fields, value, strict=True)
        parts = [f"{name}={show(x)}" for name, x in named if name not in plain or x != plain[name]]
        return f"{kind.__name__}({', '.join(parts)})"
    if isinstance(value, tuple):
        return f"({', '.join(map(show, value))}{',' if len(value) == 1 else ''})"
    return repr(value)
