"""Which blocks of a run are done, remembered in the output folder so that the next run goes on from there."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from gristmill.errors import OutputChanged
from gristmill.ledger.entry import Entry
from gristmill.ledger.sides import EXCLUDED, QUARANTINE
from gristmill.storage import Folder

RUN = "_gristmill/run.json"
LEDGER = "_gristmill/ledger.json"
COMMITS = "_gristmill/commits"
_FLUSH_S = 0.5
_COMPACT = 64
"""Files of commits beyond which a run that resumes puts them into one."""


class CommitLog:
    """The blocks of one output folder that are done, each with its account.

    A commit is a line in one of the files in ``_gristmill/commits``; a file is written whole or not at all, so this
    works where nothing can be appended to. A driver that is killed loses at most the commits of the last half second:
    those blocks are done again, to the same bytes.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._waiting: list[bytes] = []
        self._flushed_at = time.monotonic()
        self._run = uuid.uuid4().hex[:8]
        self._files = 0

    def open(self, fingerprint: Mapping[str, Any], fresh: bool = False) -> Iterator[tuple[int, Entry]]:
        """Begin, or go on with what is there: the blocks that are done.

        `OutputChanged` if what is there was made by something else.
        """
        if fresh:
            self.clear()
        before = self._read_json(RUN)
        if before is None:
            self.folder.write(RUN, orjson.dumps(fingerprint, option=orjson.OPT_INDENT_2))
            return
        changes = differences(before, fingerprint)
        if changes:
            listed = "".join(f"\n    {change}" for change in changes[:10])
            more = f"\n    and {len(changes) - 10} more" if len(changes) > 10 else ""
            raise OutputChanged(
                f"{self.folder.url} holds the output of another run:{listed}{more}\n"
                "Start over with --fresh, or run(fresh=True), which removes what is there; or write to another folder."
            )
        names = self.folder.names(COMMITS)
        lines: list[bytes] = []
        for name in names:
            for line in self.folder.read(f"{COMMITS}/{name}").splitlines(keepends=True):
                commit = orjson.loads(line)
                yield commit["block"], Entry.of_plain(commit)
                if len(names) > _COMPACT:
                    lines.append(line)
        if len(names) > _COMPACT:
            self._write(lines)
            for name in names:
                self.folder.remove(f"{COMMITS}/{name}")

    def clear(self) -> None:
        """Remove what an earlier run has left: what its log names and what it keeps beside that."""
        if not self.folder.exists(RUN):
            return
        for name in (EXCLUDED, QUARANTINE, *(x for x in self.folder.names() if x.startswith("part-"))):
            self.folder.remove(name)
        self.folder.remove("_gristmill")

    def add(self, block: int, entry: Entry) -> None:
        self._waiting.append(_line(block, entry))

    def flush(self, now: bool = False) -> None:
        """Write what waits, if it is time."""
        if self._waiting and (now or time.monotonic() - self._flushed_at >= _FLUSH_S):
            self._write(self._waiting)
            self._waiting = []
            self._flushed_at = time.monotonic()

    def finish(self, ledger: Mapping[str, Any]) -> None:
        self.folder.write(LEDGER, orjson.dumps(ledger, option=orjson.OPT_INDENT_2))

    def _write(self, lines: list[bytes]) -> None:
        self._files += 1
        self.folder.write(f"{COMMITS}/{time.time_ns()}-{self._run}-{self._files:06d}.jsonl", b"".join(lines))

    def _read_json(self, name: str) -> Any:
        try:
            return orjson.loads(self.folder.read(name))
        except FileNotFoundError:
            return None
        except orjson.JSONDecodeError as error:
            raise OutputChanged(f"{self.folder.path(name)} cannot be read: {error}") from None


def _line(block: int, entry: Entry) -> bytes:
    return orjson.dumps({"block": block, **entry.plain()}) + b"\n"


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What two fingerprints differ in, in words."""
    found = []
    if before.get("gristmill") != now.get("gristmill"):
        found.append(f"it was made by gristmill {before.get('gristmill')}, this is {now.get('gristmill')}")
    old, new = before.get("stages", []), now.get("stages", [])
    for number, (a, b) in enumerate(zip(old, new, strict=False), 1):
        if a != b:
            found.append(f"stage {number} was {_short(a)}, now it is {_short(b)}")
    if len(old) != len(new):
        found.append(f"it had {len(old)} stages, now there are {len(new)}")
    then, today = dict(before.get("inputs", [])), dict(now.get("inputs", []))
    found += [f"input {name} is gone" for name in then if name not in today]
    found += [f"input {name} is new" for name in today if name not in then]
    found += [f"input {name} has changed" for name in then if name in today and then[name] != today[name]]
    if not found and before.get("blocks") != now.get("blocks"):
        found.append("the input is cut into other blocks")
    return found


def _short(stage: Any) -> str:
    text = orjson.dumps(stage).decode()
    return text if len(text) < 300 else text[:300] + " ..."
