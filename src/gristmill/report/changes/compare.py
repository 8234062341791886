"""Compare what two runs have recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gristmill import fast_json
from gristmill.ledger.dropped import output_of_run
from gristmill.report.build import recorded
from gristmill.report.changes.sides import changed_sides
from gristmill.report.page.account import gone, in_order, wall_of
from gristmill.report.place import Data
from gristmill.report.record import cut
from gristmill.report.steps import steps_of

LONGEST = 200
HASHES = ("code", "code_parts", "hash", "files", "revision")
"""Keys of described stages whose values are hashes and stamps."""
ABSENT = "(none)"
MISSING, PRESENT = "not there", "there"


def compared(one: str, other: str, id_field: str = "id") -> Data:
    """Return the comparison of the runs with these output folders. Raise `PlanError` if one is not of a run."""
    folders = output_of_run(one), output_of_run(other)
    a, b = (recorded(folder) for folder in folders)
    same_input = _read_the_same(a, b)
    return {
        "runs": [_head(folder.name, data) for folder, data in zip(folders, (a, b), strict=True)],
        "configuration": list(_configuration(a, b)),
        "input": list(_input(a, b)),
        "versions": list(_versions(a, b)),
        "documents": list(_documents(a, b)),
        "speed": list(_speed(a, b)),
        "sides": changed_sides(folders, (a, b), same_input, id_field),
    }


def _head(output: str, data: Data) -> Data:
    return {"output": output, "name": data.get("name", ""), "state": data.get("state"), "started": data.get("started")}


def _stages(data: Data) -> dict[str, Data]:
    return {str(stage.get("name")): stage for stage in data.get("stages") or ()}


def _configuration(a: Data, b: Data) -> Iterator[Data]:
    """Yield the arguments of stages that differ, and stages that only one of the runs has."""
    first, second = _stages(a), _stages(b)
    for name in dict.fromkeys([*first, *second]):
        if name not in first or name not in second:
            there = [MISSING if name not in side else PRESENT for side in (first, second)]
            yield {"stage": name, "key": "", "a": there[0], "b": there[1]}
            continue
        values = dict(flat(first[name])), dict(flat(second[name]))
        for key in dict.fromkeys([*values[0], *values[1]]):
            was, now = (side.get(key, ABSENT) for side in values)
            if was == now:
                continue
            if key.rpartition(".")[2] in HASHES:
                was, now = "its code or its files", "are different"
            yield {"stage": name, "key": key, "a": _shown(was), "b": _shown(now)}
    if [*first] != [*second] and sorted(first) == sorted(second):
        yield {"stage": "order of stages", "key": "", "a": ", ".join(first), "b": ", ".join(second)}


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a described stage by path. Rules are named by their class.

    >>> list(flat({"rules": [{"class": "WordCountFilter", "arguments": {"min_words": 5}}]}))
    [('rules.WordCountFilter.min_words', 5)]
    """
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key in HASHES:
                yield f"{path}.{key}".lstrip("."), fast_json.dumps(inner).decode()
            elif key == "recipe":  # changes of a recipe are in its rules
                yield key, inner.get("name") if isinstance(inner, Mapping) else inner
            elif key in ("arguments", "attributes"):  # no name of the user
                yield from flat(inner, path)
            elif not (key in ("class", "name") and path.rpartition(".")[2] == value.get("class")) and key != "name":
                yield from flat(inner, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list) and value and all(isinstance(one, Mapping) and "class" in one for one in value):
        seen: dict[str, int] = {}
        for one in value:
            name = str(one["class"])
            seen[name] = seen.get(name, 0) + 1
            inner = {key: part for key, part in one.items() if key != "class"}
            own = f"{path}.{name}" if seen[name] == 1 else f"{path}.{name}({seen[name]})"
            yield from flat(inner, own) if any(flat(inner)) else iter([(own, "")])
    else:
        yield path, value


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else fast_json.dumps(value).decode()
    return cut(text, LONGEST)


def _read_the_same(a: Data, b: Data) -> bool:
    """Return whether both runs read the same documents: the same files, with the same reader."""
    readers = [next(iter(data.get("stages") or ()), None) for data in (a, b)]
    hashes = [(data.get("inputs") or {}).get("hash") for data in (a, b)]
    return None not in hashes and hashes[0] == hashes[1] and readers[0] == readers[1]


def _input(a: Data, b: Data) -> Iterator[Data]:
    inputs = [data.get("inputs") or {} for data in (a, b)]
    if inputs[0].get("hash") == inputs[1].get("hash"):
        return
    for name, key in (("files", "files"), ("first file", "names")):
        values = [one.get(key) for one in inputs]
        shown = [_shown(value[0] if isinstance(value, list) and value else value) for value in values]
        if shown[0] != shown[1]:
            yield {"name": name, "a": shown[0], "b": shown[1]}
    yield {"name": "contents", "a": str(inputs[0].get("hash"))[:12], "b": str(inputs[1].get("hash"))[:12]}


def _versions(a: Data, b: Data) -> Iterator[Data]:
    sides = [{"gristmill": data.get("gristmill"), **(data.get("versions") or {}), **_machine(data)} for data in (a, b)]
    for name in dict.fromkeys([*sides[0], *sides[1]]):
        was, now = (side.get(name) for side in sides)
        if was != now and None not in (was, now):
            yield {"name": name, "a": _shown(was), "b": _shown(now)}


def _machine(data: Data) -> Data:
    machine = data.get("machine") or {}
    executor = data.get("executor") or {}
    options = {f"executor option {name}": value for name, value in (executor.get("options") or {}).items()}
    return {"executor": executor.get("name"), "CPUs": machine.get("cpus"), "system": machine.get("system"), **options}


def _documents(a: Data, b: Data) -> Iterator[Data]:
    """Yield the rows of both funnels: read, each stage and reason, quarantine, kept."""
    documents = [data.get("documents") or {} for data in (a, b)]
    yield _row("read", "", *(one.get("read") for one in documents))
    reasons = [{(str(stage), str(why)): int(n) for stage, why, n in one.get("dropped") or ()} for one in documents]
    stages = in_order(in_order(list(dict.fromkeys(stage for side in reasons for stage, _ in side)), b), a)
    for stage in stages:
        of_stage = [{why: n for (name, why), n in side.items() if name == stage} for side in reasons]
        yield _row(stage, "", *(-sum(side.values()) for side in of_stage))
        whys = dict.fromkeys([*of_stage[0], *of_stage[1]])
        for why in sorted(whys, key=lambda why: -max(side.get(why, 0) for side in of_stage)):
            if [*whys] != [stage]:
                yield _row(stage, why, *(-side.get(why, 0) for side in of_stage))
    for name, sign in (("made", 1), ("merged", -1)):
        values = [sign * int(one.get(name) or 0) for one in documents]
        if any(values):
            yield _row(name, "", *values)
    errored = [gone(one)[1] for one in documents]
    if any(errored):
        yield _row("quarantine", "", *(-n for n in errored))
    yield _row("kept", "", *(one.get("kept") for one in documents))


def _row(stage: str, reason: str, a: int | None, b: int | None) -> Data:
    return {"stage": stage, "reason": reason, "a": a, "b": b}


def _speed(a: Data, b: Data) -> Iterator[Data]:
    """Yield times, rates and memory, and the time of each stage."""
    sides = [dict(_figures(data)) for data in (a, b)]
    for name in dict.fromkeys([*sides[0], *sides[1]]):
        yield {"name": name, "a": sides[0].get(name), "b": sides[1].get(name)}


def _figures(data: Data) -> Iterator[tuple[str, float]]:
    wall = wall_of(data)
    if wall:
        yield "wall time, s", wall
        documents = data.get("documents") or {}
        read = int(documents.get("read") or 0)
        if read and not documents.get("resumed"):
            yield "documents per second", read / wall
    if data.get("cpu_s"):
        yield "CPU time, s", float(data["cpu_s"])
    if data.get("peak_memory_bytes"):
        yield "memory at most, MB", int(data["peak_memory_bytes"]) / (1 << 20)
    stages: Sequence[Data] = [stage for step in steps_of(data) for stage in step.accounts]
    for stage in stages:
        yield f"work in {stage.get('name')}, s", float(stage.get("busy_s") or 0)
