"""Read loads from JSON, and nodes from their short form."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gristmill.scheduling.files import read_json
from gristmill.scheduling.load import GB as GB
from gristmill.scheduling.load import Load as Load
from gristmill.scheduling.load import NodeModel as NodeModel
from gristmill.scheduling.load import SpeedChange as SpeedChange
from gristmill.scheduling.load import StageModel as StageModel

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_T = TypeVar("_T", bound="DataclassInstance")
_MOST = 1e9
_STATED = ("optimum_inputs_per_s", "share_of_optimum")
"""Figures that a load may state and that the simulation does not need."""


class LoadError(ValueError):
    """A load cannot be read."""


def read_load(source: Load | Mapping[str, Any] | str | Path) -> Load:
    """Return a load from a mapping or a JSON file with one load; ``file.json#name`` takes one of several."""
    if isinstance(source, Load):
        return source
    if isinstance(source, Mapping):
        return _load(source, "the load")
    loads = read_loads(source)
    if len(loads) != 1:
        names = ", ".join(load.name for load in loads)
        raise LoadError(f"{source} holds {len(loads)} loads; choose one with '{source}#NAME': {names}")
    return loads[0]


def read_loads(source: str | Path) -> list[Load]:
    """Return all loads of a JSON file, which holds one or a list of them; ``file.json#name`` takes that one."""
    path, _, name = str(source).partition("#")
    content = read_json(path, LoadError)
    entries = content if isinstance(content, list) else [content]
    loads = [_load(entry, f"{path}: load {i}") for i, entry in enumerate(entries, 1)]
    if not loads:
        raise LoadError(f"{path} holds no load")
    if name:
        chosen = [load for load in loads if load.name == name]
        if not chosen:
            raise LoadError(f"{path} has no load '{name}'; it has: {', '.join(load.name for load in loads)}")
        return chosen[:1]
    return loads


_ABOVE_ZERO = {
    (NodeModel, "cpus"),
    (NodeModel, "cpu_speed"),
    (NodeModel, "gpu_speed"),
    (StageModel, "mean_s"),
    (SpeedChange, "mean_factor"),
    (Load, "tick_s"),
    (Load, "autoscale_interval_s"),
}
_FROM_ONE = {"batch_size", "inputs", "workers"}
_NODES = re.compile(r"(?:(\d+)x)?(\d+(?:\.\d+)?)c(?:(\d+)g(?!b))?(?:(\d+(?:\.\d+)?)gb)?", re.IGNORECASE)


def parse_nodes(text: str) -> tuple[NodeModel, ...]:
    """Nodes in short form.

    >>> len(parse_nodes("8x96c8g,2x64c")), parse_nodes("96c8g")[0].gpus
    (10, 8)
    >>> parse_nodes("48c256gb")[0].memory_gb
    256.0
    """
    nodes: list[NodeModel] = []
    for part in text.split(","):
        match = _NODES.fullmatch(part.strip())
        count = int(match[1] or 1) if match else 0
        if match is None or not 0 < count <= 100_000 or float(match[2]) <= 0:
            raise LoadError(
                f"{part.strip()!r} is not a number of nodes; write 8x96c8g for 8 nodes of 96 CPUs and 8 GPUs, and "
                "8x96c8g512gb if they have 512 GB of memory each"
            )
        nodes += [NodeModel(float(match[2]), int(match[3] or 0), float(match[4] or 0))] * count
    return tuple(nodes)


def on_nodes(load: Load, nodes: Sequence[NodeModel]) -> Load:
    """Return the same job on other nodes, without the best time that the load stated."""
    return replace(load, nodes=tuple(nodes), ideal_s=0.0)


def _load(entry: Any, where: str) -> Load:
    if not isinstance(entry, Mapping):
        raise LoadError(f"{where} must be an object with nodes, stages and inputs")
    name = str(entry.get("name", "load"))
    where = f"{where} ('{name}')" if "name" in entry else where
    _only_known(entry, Load, where, _STATED)
    for key, kind in (("nodes", NodeModel), ("stages", StageModel), ("changes", SpeedChange)):
        for x, at in _entries(entry, key, where, optional=key == "changes"):
            _only_known(x, kind, at)
    nodes = tuple(_read(NodeModel, x, at) for x, at in _entries(entry, "nodes", where))
    stages = tuple(
        _read(StageModel, x, at, name=str(x.get("name", f"stage{i}")))
        for i, (x, at) in enumerate(_entries(entry, "stages", where))
    )
    names = [stage.name for stage in stages]
    if len(set(names)) < len(names):
        raise LoadError(f"{where}: two stages have the same name")
    for stage in stages:
        if stage.gpus > 1 and stage.gpus != int(stage.gpus):
            raise LoadError(f"{where}: '{stage.name}' wants {stage.gpus:g} GPUs; above one it must be a whole number")
    changes = tuple(
        _read(SpeedChange, x, at, stage=str(x.get("stage", "")))
        for x, at in _entries(entry, "changes", where, optional=True)
    )
    for change in changes:
        if change.stage not in names:
            raise LoadError(f"{where}: a change names the stage '{change.stage}'; there is {', '.join(names)}")
    return _read(Load, entry, where, nodes=nodes, stages=stages, name=name, changes=changes)


def _read(kind: type[_T], entry: Mapping[str, Any], where: str, **known: Any) -> _T:
    """Return a record with the values of an entry; ``known`` values are taken as they are."""
    values = dict(known)
    for f in fields(kind):
        if f.name in known or (f.type == "int | None" and entry.get(f.name) is None):
            continue
        if f.type == "bool":
            values[f.name] = _flag(entry, f.name, where)
            continue
        default = None if f.default is MISSING or f.name == "mean_s" else f.default
        if f.type == "float":
            values[f.name] = _number(entry, f.name, where, default, above=(kind, f.name) in _ABOVE_ZERO)
        else:
            values[f.name] = _whole(entry, f.name, where, default, low=f.name in _FROM_ONE)
    return kind(**values)


def _entries(
    entry: Mapping[str, Any], key: str, where: str, optional: bool = False
) -> list[tuple[Mapping[str, Any], str]]:
    value = entry.get(key, [])
    if not isinstance(value, Sequence) or isinstance(value, str) or not (value or optional):
        raise LoadError(f"{where}: '{key}' must be a list that is not empty")
    rows = []
    for i, x in enumerate(value, 1):
        if not isinstance(x, Mapping):
            raise LoadError(f"{where}: {key} {i} must be an object")
        rows.append((x, f"{where}: {key} {i}"))
    return rows


def _only_known(entry: Mapping[str, Any], kind: type[DataclassInstance], where: str, more: Sequence[str] = ()) -> None:
    known = [*(f.name for f in fields(kind)), *more]
    for key in entry:
        if key not in known:
            near = get_close_matches(str(key), known, 1)
            hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(known)}"
            raise LoadError(f"{where}: '{key}' is not known; {hint}")


def _flag(entry: Mapping[str, Any], key: str, where: str) -> bool:
    value = entry.get(key, False)
    if not isinstance(value, bool):
        raise LoadError(f"{where}: '{key}' must be true or false, not {value!r}")
    return value


def _whole(entry: Mapping[str, Any], key: str, where: str, default: int | None = None, low: int = 0) -> int:
    value = _number(entry, key, where, default, low)
    if value != int(value):
        raise LoadError(f"{where}: '{key}' is {value:g}; it must be a whole number")
    return int(value)


def _number(
    entry: Mapping[str, Any], key: str, where: str, default: float | None = None, low: float = 0.0, above: bool = False
) -> float:
    value = entry.get(key, default)
    if value is None:
        raise LoadError(f"{where}: '{key}' is missing")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise LoadError(f"{where}: '{key}' must be a number, not {value!r}")
    if value > _MOST:
        raise LoadError(f"{where}: '{key}' is {value:g}; that is more than can be simulated")
    if value < low or (above and value == low):
        raise LoadError(f"{where}: '{key}' is {value:g}; it must be {'above' if above else 'at least'} {low:g}")
    return value
