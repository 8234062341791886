"""Describe how the fingerprints of two runs differ. Only a run that finds the output of an earlier one needs this."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gristmill import fast_json
from gristmill.ledger.fingerprints import CODE, CODE_PARTS

_LONGEST = 120
_MOST_PLACES = 3
_CHANGED = "has changed"
_LIMIT = re.compile(r"stage 1 '[^']*', arguments\.limit ")


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return a line for each difference of two fingerprints."""
    found = []
    if before.get("gristmill") != now.get("gristmill"):
        found.append(f"it was made by gristmill {before.get('gristmill')}, this is {now.get('gristmill')}")
    old, new = before.get("stages", []), now.get("stages", [])
    for number, (a, b) in enumerate(zip(old, new, strict=False), 1):
        found += [f"stage {number}{change}" for change in _leaves(a, b)]
    if len(old) != len(new):
        found.append(f"it had {len(old)} stages, now there are {len(new)}")
    inputs = list(_files(_inputs(before), _inputs(now)))
    if any(_LIMIT.match(change) for change in found):
        inputs = [(name, change) for name, change in inputs if change == _CHANGED]  # others are read for that reason
    found += [f"input {name} {change}" for name, change in inputs]
    if not found and before.get("segments") != now.get("segments"):
        found.append("the input is cut into other blocks")
    return found


def new_inputs(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the new input files if nothing else differs, otherwise none."""
    old = _inputs(before)
    new = [name for name in _inputs(now) if name not in old]
    known = [pair for pair in now.get("inputs", []) if pair[0] in old]
    segments = now.get("segments", [])[: len(before.get("segments", []))]
    same = not differences(before, {**now, "inputs": known, "segments": segments})
    return new if same else []


def _inputs(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    return {pair[0]: pair[1:] for pair in fingerprint.get("inputs", [])}


def _files(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield changed files by name, each with its change."""
    for name in dict.fromkeys([*then, *now]):
        if then.get(name) != now.get(name):
            yield name, "is gone" if name not in now else "is new" if name not in then else _CHANGED


def _by_name(stamps: list[list[Any]]) -> dict[str, list[Any]]:
    """Group stamps by name: files of two folders may have the same one."""
    found: dict[str, list[Any]] = {}
    for name, *stamp in stamps:
        found.setdefault(name, []).append(stamp)
    return found


def _leaves(a: Any, b: Any, place: str = "") -> Iterator[str]:
    """Yield where two descriptions differ, as deep as both have a value, and how."""
    if a == b:
        return
    name = a.get("name") if isinstance(a, dict) else None
    if isinstance(a, dict) and isinstance(b, dict) and a.get("class") == b.get("class") and name == b.get("name"):
        here = f" {name!r}" if isinstance(name, str) and not place else ""
        for key in dict.fromkeys([*a, *b]):
            if key == "files" and ("arguments" in a or "attributes" in a):  # stamps of the files that arguments name
                old, new = a.get(key, {}), b.get(key, {})
                for argument in old:  # one that named no file before may be written by the run itself
                    stamps = [_by_name(one.get(argument, [])) for one in (old, new)]
                    for name, change in _files(*stamps):
                        yield f"{place}{here}: file {name} of {argument} {change}"
            elif key in (CODE, "hash") and a.get(key) != b.get(key):
                yield f"{place}{here}: {_changed_code(a, b)}"
            elif key not in (CODE, CODE_PARTS, "hash"):
                yield from _leaves(a.get(key), b.get(key), f"{place}{here}{'.' if place else ', '}{key}")
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from _leaves(x, y, f"{place}.{i}")
    elif not place and name is not None and isinstance(b, dict) and b.get("name") not in (None, name):
        yield f" was {name!r}, now it is {b['name']!r}"
    else:
        yield f"{place} was {_short(a)}, now it is {_short(b)}"


def _changed_code(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """Name the functions and constants in which the code of a stage differs."""
    if CODE in a and str(a.get("class")).startswith("gristmill."):
        return "gristmill's own code of it has changed: the version that began the run can finish it"
    old, new = a.get(CODE_PARTS) or {}, b.get(CODE_PARTS) or {}
    places = [name for name, change in _files(old, new) if change == _CHANGED]
    places = places or [f"{name} ({change})" for name, change in _files(old, new)]
    if not places:
        return "its code, or data that its code holds, has changed"
    more = f" and {len(places) - _MOST_PLACES} more" if len(places) > _MOST_PLACES else ""
    return f"its code has changed in {', '.join(places[:_MOST_PLACES])}{more}"


def _short(value: Any) -> str:
    text = fast_json.dumps(value).decode()
    return text if len(text) < _LONGEST else text[:_LONGEST] + " ..."
