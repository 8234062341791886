"""Make a failing scenario as small as possible while it still fails, and print its last steps."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e
from gristmill.scheduling.simulator.faults import Faults
from gristmill.scheduling.simulator.model import StepModel
from tests.simulation.scenario import TOO_MANY_FAULTS, Scenario, play, random_scenario, show

Draw = Callable[[int], Scenario]
"""Makes the scenario of a seed."""
_TRACED = 40
_OTHER_SEEDS = 3


@dataclass(frozen=True, slots=True)
class Failure:
    """The error of a scenario."""

    kind: str
    """The same for failures that differ only in their numbers."""
    error: str
    story: tuple[str, ...] = ()
    """The last events and commands."""


def failure_of(scenario: Scenario, traced: int = 0) -> Failure | None:
    """Play a scenario. Return how it fails, with the last ``traced`` events and commands, or None."""
    lines: deque[str] = deque(maxlen=traced)
    world = scenario.world()
    if traced:
        handle = world.handle

        def handle_and_trace(events: Sequence[e.Event]) -> list[c.Command]:
            lines.extend(f"{world.now / 1e6:12.6f}  {_words(event)}" for event in events if not _is_dull(event))
            commands = handle(events)
            lines.extend(f"{'':12}      -> {_words(command)}" for command in commands)
            return commands

        world.handle = handle_and_trace  # type: ignore[method-assign]
    try:
        play(scenario, world)
    except Exception as error:  # whatever a bug raises is what is looked for
        return Failure(_kind(error), f"{type(error).__name__}: {error}", tuple(lines))
    return None


def _kind(error: Exception) -> str:
    first = re.split(r"[\n\[(]", str(error))[0]
    return f"{type(error).__name__}: {re.sub(r'-?[0-9][0-9.]*', 'N', first)[:90].strip(' :')}"


def _is_dull(event: e.Event) -> bool:
    return isinstance(event, e.Tick)


def _words(value: Any) -> str:
    text = show(value)
    return text if len(text) < 300 else text[:300] + " ..."


def shrink(scenario: Scenario, failure: Failure, limit_s: float = 30.0) -> tuple[Scenario, Failure]:
    """The smallest scenario found that fails in the same way."""
    deadline = time.monotonic() + limit_s
    found = failure
    again = True
    while again:
        again = False
        for smaller in _smaller(scenario):
            if time.monotonic() > deadline:
                return scenario, found
            for seed in range(scenario.seed, scenario.seed + _OTHER_SEEDS):
                smaller.seed = seed
                failed = failure_of(smaller)
                if failed is not None and failed.kind == failure.kind:
                    break
            else:
                continue
            scenario, found, again = smaller, failed, True
            break
    return scenario, found


def _smaller(x: Scenario) -> Iterator[Scenario]:
    """Yield scenarios without a part of this one, the largest parts first."""
    for n in sorted({1, x.sources // 4, x.sources // 2, x.sources - 1}):
        if 0 < n < x.sources:
            yield replace(x, sources=n)
    for i in range(len(x.steps)):
        if len(x.steps) > 1:
            yield replace(x, steps=x.steps[:i] + x.steps[i + 1 :], models=x.models[:i] + x.models[i + 1 :])
    for i in range(len(x.nodes)):
        if len(x.nodes) > 1:
            yield replace(x, nodes=x.nodes[:i] + x.nodes[i + 1 :])
    if x.interrupt_us is not None:
        yield replace(x, interrupt_us=None)
    if x.late_nodes:
        yield replace(x, late_nodes=[])
    yield from _plainer(x, "faults", x.faults, Faults())
    for i, model in enumerate(x.models):
        plain = StepModel(service_us=model.service_us)
        for name in _differences(model, plain):
            models = list(x.models)
            models[i] = replace(model, **{name: getattr(plain, name)})
            yield replace(x, models=models)
    for i, spec in enumerate(x.steps):
        plain_spec = type(spec)(spec.name, timeout_us=spec.timeout_us)
        if spec.in_flight:
            plain_spec = replace(plain_spec, in_flight=2, streams=spec.streams, dedicated=True)
        for name in _differences(spec, plain_spec):
            steps = list(x.steps)
            steps[i] = replace(spec, **{name: getattr(plain_spec, name)})
            yield replace(x, steps=steps)
    plain_config = type(x.config)(budget=1 << 30, ignore_failures=True, isolated_kills=TOO_MANY_FAULTS)
    yield from _plainer(x, "config", x.config, plain_config)
    defaults = Scenario(x.seed, x.steps, x.models, x.nodes, x.config)
    for name in ("items", "source_bytes", "lag_us", "start_us"):
        if getattr(x, name) != getattr(defaults, name):
            yield replace(x, **{name: getattr(defaults, name)})
    if x.check_every != 1:
        yield replace(x, check_every=1)


def _plainer(x: Scenario, part: str, value: Any, plain: Any) -> Iterator[Scenario]:
    for name in _differences(value, plain):
        yield replace(x, **{part: replace(value, **{name: getattr(plain, name)})})


def _differences(value: Any, plain: Any) -> list[str]:
    return [f.name for f in fields(value) if getattr(value, f.name) != getattr(plain, f.name)]


def report(
    seed: int,
    failure: Failure,
    limit_s: float = 30.0,
    scenario: Scenario | None = None,
    draw: Draw = random_scenario,
) -> str:
    """Return what is needed to fix a failure: seed, error, how to replay it, and the trace of a smaller run."""
    small, found = shrink(scenario or draw(seed), failure, limit_s)
    option = "" if draw is random_scenario else " --in-flight"
    traced = failure_of(small, _TRACED) or found
    return "\n".join(
        [
            f"seed {seed} fails: {failure.error}",
            f"replay: python -m tests.simulation.campaign{option} --seed {seed} --trace",
            "",
            f"The last of a smaller run that fails with {traced.error}",
            *traced.story,
            "",
            "To play the smaller run, paste:",
            "from tests.simulation.scenario import *",
            f"play({show(small)})",
        ]
    )
