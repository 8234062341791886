"""Random loads, the same from a seed on every machine, so that the policy is not tuned to a few known loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, fsum
from typing import TypeVar

from gristmill.scheduling.simulator.draws import exp, ln, mix, uniform
from gristmill.scheduling.simulator.loads import Load, NodeModel, SpeedChange, StageModel

MAX_TASKS = 60_000
"""Of all stages together, so that a load is simulated in seconds."""
_TASKS = (3_000.0, 55_000.0)
_MIN_INPUTS = 40
_SECONDS = (350.0, 3_300.0)
"""The makespan at the throughput that is estimated here; a better plan may be a little faster."""
_IN_ROW = 20
"""Tasks that one worker of any stage could serve in that time; half of that if there would be too many tasks."""
_ROUNDS = 8
_MAX_CPUS = 1500
_MOST_PER_INPUT = 30.0
"""Tasks of a stage for each input, at most; at least the reciprocal."""

_GPU_SHARES = (0.25, 0.5, 1.0, 1.0, 2.0)
_T = TypeVar("_T")


class _Dice:
    """Draws one after another from a key."""

    def __init__(self, key: int) -> None:
        self.key = key

    def share(self) -> float:
        self.key = mix(self.key, 11)
        return uniform(self.key)

    def among(self, choices: Sequence[_T]) -> _T:
        return choices[int(self.share() * len(choices))]

    def whole(self, low: int, high: int) -> int:
        return low + int(self.share() * (high - low + 1))

    def log(self, low: float, high: float) -> float:
        """Each order of magnitude is as likely as the other."""
        return exp(ln(low) + self.share() * (ln(high) - ln(low)))


def random_load(seed: int) -> Load:
    """The load of a seed: a cluster, a pipeline that fits it, and inputs for 5 to 60 minutes at the best throughput.

    1 to 40 nodes of up to 3 kinds that differ in CPUs, GPUs and speed; 2 to 15 stages, up to 4 of them with GPUs;
    setups of 0 to 300 s, 0.1 to 20 outputs per input, coefficients of variation of 0 to 1; in one load of five some
    stage becomes faster or slower on the way. All stages can have a worker at the same time.

    >>> load = random_load(7)
    >>> 2 <= len(load.stages) <= 15, load == random_load(7)
    (True, True)
    """
    dice = _Dice(mix(mix(0, seed), 20_240_601))
    nodes = _nodes(dice)
    stages = _stages(dice, nodes)
    while _throughput(nodes, stages) == 0:
        stages = _stages(dice, nodes)
    stages = _with_work(dice, nodes, stages)
    return _with_size(dice, f"random_{seed}", nodes, stages)


def _nodes(dice: _Dice) -> tuple[NodeModel, ...]:
    number = round(dice.log(0.6, 40.49)) or 1
    kinds = min(number, dice.among((1, 1, 2, 3)))
    nodes: list[NodeModel] = []
    for kind in range(kinds):
        left = number - len(nodes)
        n = left if kind == kinds - 1 else dice.whole(1, left - (kinds - 1 - kind))
        cpus = dice.among((4, 8, 16, 32, 48, 64, 96, 128))
        while cpus > 4 and cpus * number > _MAX_CPUS:
            cpus //= 2
        gpus = dice.among((0, 1, 2, 4, 8, 8)) if cpus > 4 else dice.among((0, 1))
        speeds = (1.0, 1.0) if kind == 0 else (dice.among((0.5, 0.8, 1.0, 1.5)), dice.among((0.4, 1.0, 1.0, 2.5)))
        nodes += [NodeModel(float(cpus), gpus, cpu_speed=speeds[0], gpu_speed=speeds[1])] * n
    return tuple(nodes)


def _stages(dice: _Dice, nodes: Sequence[NodeModel]) -> list[StageModel]:
    """Stages without service times."""
    number = dice.whole(2, 15)
    most_gpus = max(node.gpus for node in nodes)
    with_gpu = dice.whole(0, min(4, number)) if most_gpus else 0
    gpu_at = {dice.whole(0, number - 1) for _ in range(with_gpu)}
    stages: list[StageModel] = []
    per_input = 1.0
    for i in range(number):
        gpus = min(dice.among(_GPU_SHARES), float(most_gpus)) if i in gpu_at else 0.0
        cpus = dice.among((1.0, 1.0, 2.0, 4.0)) if gpus else dice.among((0.25, 0.5, 1.0, 1.0, 1.0, 1.0, 2.0, 4.0, 8.0))
        outputs = round(dice.log(0.1, 20.0), 2) if dice.share() < 0.4 else 1.0
        if not 1 / _MOST_PER_INPUT <= per_input * outputs <= _MOST_PER_INPUT:
            outputs = 1.0
        per_input *= outputs
        long = round(dice.log(5.0, 300.0), 1)
        short = round(dice.log(0.5, 30.0), 1) if dice.share() < 0.6 else 0.0
        stages.append(
            StageModel(
                f"{'gpu' if gpus else 'cpu'}{i}",
                cpus,
                gpus,
                cv=round(dice.share(), 2) if dice.share() < 0.9 else 0.0,
                setup_s=long if gpus else short,
                outputs_per_input=outputs,
                output_mb=dice.among((0.1, 1.0, 1.0, 10.0)),
            )
        )
    return stages


def _with_work(dice: _Dice, nodes: Sequence[NodeModel], stages: Sequence[StageModel]) -> list[StageModel]:
    """The stages with service times that are right in proportion: each wants some share of its resource."""
    cpus, gpus = sum(node.cpus for node in nodes), sum(node.gpus for node in nodes)
    made = []
    for stage, per_input in zip(stages, _per_input(stages), strict=True):
        workers = gpus / stage.gpus if stage.gpus else cpus / (stage.cpus or 1.0)
        made.append(replace(stage, mean_s=dice.log(0.02, 1.0) * workers / per_input))
    return made


def _with_size(dice: _Dice, name: str, nodes: tuple[NodeModel, ...], stages: Sequence[StageModel]) -> Load:
    """The load with service times and inputs such that it lasts minutes and has thousands of tasks."""
    per_input = _per_input(stages)
    seconds = dice.log(*_SECONDS)
    inputs = round(max(dice.log(*_TASKS) / fsum(per_input), _MIN_INPUTS))
    factors = [1.0] * len(stages)
    turn = 1.0
    if dice.share() < 0.2:
        turn = 0.25 + 0.45 * dice.share()
        for _ in range(dice.whole(1, 2)):
            factors[dice.whole(0, len(stages) - 1)] = round(dice.log(0.2, 5.0), 2)
    # Service times scale with seconds / inputs. More inputs make tasks short against the whole; where there may be no
    # more of them, the stages with the longest tasks get shorter ones.
    for _ in range(_ROUNDS):
        pace = _pace(nodes, stages, factors, turn)
        longest = max(stage.mean_s * max(1.0, by) for stage, by in zip(stages, factors, strict=True))
        inputs = round(min(max(inputs, longest / pace * _IN_ROW), _TASKS[1] / fsum(per_input)))
        scale = seconds / (inputs * pace)
        most = seconds / _IN_ROW * 2 / scale
        if longest <= most * 1.01:
            break
        stages = [
            replace(stage, mean_s=min(stage.mean_s, most / max(1.0, by)))
            for stage, by in zip(stages, factors, strict=True)
        ]
    final = tuple(replace(stage, mean_s=_three_digits(stage.mean_s * scale)) for stage in stages)
    changes = tuple(
        SpeedChange(stage.name, round(turn * inputs * x), by)
        for stage, x, by in zip(stages, per_input, factors, strict=True)
        if by != 1
    )
    return Load(nodes, final, inputs, name, changes)


def _pace(nodes: Sequence[NodeModel], stages: Sequence[StageModel], factors: Sequence[float], turn: float) -> float:
    """Seconds for each input, if the service times are multiplied by the factors after a share of the inputs."""
    changed = [replace(stage, mean_s=stage.mean_s * by) for stage, by in zip(stages, factors, strict=True)]
    return turn / _throughput(nodes, stages) + (1 - turn) / _throughput(nodes, changed)


def _per_input(stages: Sequence[StageModel]) -> list[float]:
    """Tasks of each stage for one input."""
    found = [1.0]
    for stage in stages[:-1]:
        found.append(found[-1] * stage.outputs_per_input)
    return found


def _three_digits(x: float) -> float:
    return float(f"{x:.3g}")


@dataclass(slots=True)
class _FreeNode:
    """The free capacity of a node. All needs are multiples of a quarter, so the arithmetic is exact."""

    node: NodeModel
    cpus: float
    gpus: list[float]

    def take(self, stage: StageModel, wanted: int) -> int:
        """Place up to ``wanted`` workers and return how many fit."""
        n = min(wanted, int(self.cpus / stage.cpus))
        if stage.gpus >= 1:
            whole = int(stage.gpus)
            free = [i for i, share in enumerate(self.gpus) if share == 1]
            n = min(n, len(free) // whole)
            for i in free[: n * whole]:
                self.gpus[i] = 0.0
        elif stage.gpus:
            left = n
            for i in sorted(range(len(self.gpus)), key=lambda i: (self.gpus[i], i)):
                here = min(left, int(self.gpus[i] / stage.gpus))
                self.gpus[i] -= here * stage.gpus
                left -= here
            n -= left
        self.cpus -= n * stage.cpus
        return n


def _throughput(nodes: Sequence[NodeModel], stages: Sequence[StageModel]) -> float:
    """About the best steady throughput in inputs/s; 0 if the stages cannot all have a worker at the same time.

    A simple estimate on purpose: the loads of the seeds must stay what they are when the bounds learn more.
    """
    needs = [x * stage.mean_s for stage, x in zip(stages, _per_input(stages), strict=True)]
    low, high = 0.0, 1.0
    if not _holds(nodes, stages, needs, 0.0):
        return 0.0
    while _holds(nodes, stages, needs, high):
        low, high = high, 4 * high
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if _holds(nodes, stages, needs, middle) else (low, middle)
    return low


def _holds(nodes: Sequence[NodeModel], stages: Sequence[StageModel], needs: Sequence[float], rate: float) -> bool:
    """Whether the nodes hold the workers for a throughput, and one of each stage in any case."""
    free = [_FreeNode(node, node.cpus, [1.0] * node.gpus) for node in nodes]
    for i in sorted(range(len(stages)), key=lambda i: (-stages[i].gpus, -stages[i].cpus, i)):
        stage, left = stages[i], rate * needs[i]
        missing = True
        # CPU stages leave the nodes with GPUs to those that need them.
        for node in free if stage.gpus else sorted(free, key=lambda x: x.node.gpus):
            speed = node.node.gpu_speed if stage.gpus else node.node.cpu_speed
            n = node.take(stage, ceil(left / speed) if left > 0 else int(missing))
            missing = missing and not n
            left -= n * speed
            if left <= 0 and not missing:
                break
        if missing or left > 1e-9:
            return False
    return True
