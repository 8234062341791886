"""Which blocks of a run are done, remembered in the output folder so that the next run goes on from there."""

from __future__ import annotations

import fcntl
import os
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, takewhile
from typing import Any

from gristmill import fast_json
from gristmill.errors import OutputChanged
from gristmill.ledger.entry import Entry
from gristmill.ledger.sides import EXCLUDED, QUARANTINE, records_name
from gristmill.storage import TEMPORARY, Folder
from gristmill.tasks import Written
from gristmill.tasks.names import block_of_file

RUN = "_gristmill/run.json"
LEDGER = "_gristmill/ledger.json"
COMMITS = "_gristmill/commits"
LOCK = "_gristmill/lock"
PHASES = "_gristmill/phases"
"""What a run in several phases keeps of each of them, in folders 1, 2, ..."""
DECIDED = "decided.json"
"""In the folder of a phase: it is done."""
_FLUSH_S = 0.5
_OF_PHASE = re.compile(r"\.phase\d+\.")
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
        self._held: int | None = None

    def open(self, fingerprint: Mapping[str, Any], fresh: bool = False) -> Iterator[tuple[int, Entry]]:
        """Begin, or go on with what is there: the blocks that are done.

        `OutputChanged` if what is there was made by something else.
        """
        self.lock()
        if fresh:
            self.clear()
        if not self.is_of(fingerprint):
            self.check_unused()
            self.folder.write(RUN, fast_json.dumps(fingerprint, option=fast_json.OPT_INDENT_2))
            return
        there = self.folder.sizes()
        done: set[int] = set()
        names = self.folder.names(COMMITS)
        lines: list[bytes] = []
        for name in names:
            for line in self.folder.read(f"{COMMITS}/{name}").splitlines(keepends=True):
                commit = fast_json.loads(line)
                entry = Entry.of_plain(commit)
                if any(file and there.get(file) != size for file, _, size in entry.files):
                    continue  # what it has written is gone or damaged: it is done again
                done.add(commit["block"])
                yield commit["block"], entry
                lines.append(line)
        self._remove_rest(done)
        if len(names) > _COMPACT:
            self._write(lines)
            for name in names:
                self.folder.remove(f"{COMMITS}/{name}")

    def files(self) -> dict[str, int]:
        """The names of all files that committed blocks have written, and how many documents each is counted for."""
        found: dict[str, int] = {}
        for name in self.folder.names(COMMITS):
            for line in self.folder.read(f"{COMMITS}/{name}").splitlines():
                found.update((file, documents) for file, documents, *_ in fast_json.loads(line)["files"])
        return found

    def is_of(self, fingerprint: Mapping[str, Any]) -> bool:
        """Whether a run with this fingerprint was here; False if none was, `OutputChanged` if it was another."""
        before = self._read_json(RUN)
        if before is None:
            return False
        changes = differences(before, fingerprint)
        if changes:
            listed = "".join(f"\n    {change}" for change in changes[:10])
            more = f"\n    and {len(changes) - 10} more" if len(changes) > 10 else ""
            raise OutputChanged(
                f"{self.folder.url} holds the output of another run:{listed}{more}\n"
                "Start over with --fresh, or run(fresh=True), which removes what is there; or write to another folder."
            )
        return True

    def lock(self) -> None:
        """One run at a time: where the system has locks, that is on this machine, another one is refused."""
        if not self.folder.is_local:
            return
        os.makedirs(self.folder.path("_gristmill"), exist_ok=True)
        self._held = os.open(self.folder.path(LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise OutputChanged(f"another run is writing to {self.folder.url}: wait for it, or stop it.") from None
        except OSError:
            pass  # a file system without locks

    def close(self) -> None:
        """Let another run write here."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def check_unused(self, others: Sequence[str] = ()) -> None:
        """Nothing may be there that would be taken for a part of the output, as ``others`` would that are there."""
        self.folder.remove(COMMITS)  # of a run that was being removed
        parts = [*(name for name in self.folder.names() if block_of_file(name) is not None), *others]
        if parts:
            raise OutputChanged(
                f"{self.folder.url} holds {parts[0]}"
                + (f" and {len(parts) - 1} more" if len(parts) > 1 else "")
                + ", but no log of a run that wrote it.\nRemove them, or write to another folder."
            )

    def _remove_rest(self, done: set[int] | None) -> None:
        """Remove what was written for blocks that were not committed: the next attempt may be cut differently.

        What phases before have left beside the output is of other blocks, and stays; with None all goes.
        """
        for sub in ("", EXCLUDED, QUARANTINE):
            for name in self.folder.names(sub, unfinished=True):
                block = block_of_file(name.removeprefix(TEMPORARY))
                if block is None or (done is not None and _OF_PHASE.search(name)):
                    continue
                if done is None or block not in done or name.startswith(TEMPORARY):
                    self.folder.remove(f"{sub}/{name}" if sub else name)

    def clear(self) -> None:
        """Remove what an earlier run has written: first that it did, at last what it was."""
        self._clear_phases()
        if not self.folder.exists(RUN):
            return
        self.folder.remove(COMMITS)
        self.folder.remove(LEDGER)
        self._remove_rest(None)
        self.folder.remove(RUN)

    def _clear_phases(self) -> None:
        phases = list(takewhile(self.folder.exists, (f"{PHASES}/{n}" for n in count(1))))
        for phase in phases:  # the records are of use to who reads this
            self.folder.remove(f"{phase}/{DECIDED}")
        for n in range(len(phases), 0, -1):  # the last first: they are counted from the first on
            self.folder.remove(records_name(n))
            self.folder.remove(phases[n - 1])

    def add(self, block: int, entry: Entry) -> None:
        self._waiting.append(_line(block, entry))

    def flush(self, now: bool = False) -> None:
        """Write what waits, if it is time."""
        if self._waiting and (now or time.monotonic() - self._flushed_at >= _FLUSH_S):
            self._write(self._waiting)
            self._waiting = []
            self._flushed_at = time.monotonic()

    def restamp(self, written: Mapping[str, Written]) -> None:
        """Note that files of committed blocks were written again: their commits are replaced."""
        names = self.folder.names(COMMITS)
        lines: list[bytes] = []
        for name in names:
            for line in self.folder.read(f"{COMMITS}/{name}").splitlines():
                commit = fast_json.loads(line)
                entry = Entry.of_plain(commit)
                entry.files = [
                    (file, rows, written[file].size if file in written else size) for file, rows, size in entry.files
                ]
                lines.append(_line(commit["block"], entry))
        self._write(lines)
        for name in names:
            self.folder.remove(f"{COMMITS}/{name}")

    def finish(self, ledger: Mapping[str, Any]) -> None:
        self.folder.write(LEDGER, fast_json.dumps(ledger, option=fast_json.OPT_INDENT_2))

    def _write(self, lines: list[bytes]) -> None:
        self._files += 1
        self.folder.write(f"{COMMITS}/{time.time_ns()}-{self._run}-{self._files:06d}.jsonl", b"".join(lines))

    def _read_json(self, name: str) -> Any:
        try:
            return fast_json.loads(self.folder.read(name))
        except FileNotFoundError:
            return None
        except fast_json.JSONDecodeError as error:
            raise OutputChanged(f"{self.folder.path(name)} cannot be read: {error}") from None


def phase_name(file: str, number: int) -> str:
    """What a file that a phase has put beside its documents is called beside the output."""
    stem, dot, end = file.partition(".")
    return f"{stem}.phase{number}{dot}{end}"


def _line(block: int, entry: Entry) -> bytes:
    return fast_json.dumps({"block": block, **entry.plain()}) + b"\n"


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What two fingerprints differ in, in words."""
    found = []
    if before.get("gristmill") != now.get("gristmill"):
        found.append(f"it was made by gristmill {before.get('gristmill')}, this is {now.get('gristmill')}")
    old, new = before.get("stages", []), now.get("stages", [])
    for number, (a, b) in enumerate(zip(old, new, strict=False), 1):
        found += [f"stage {number}{change}" for change in _leaves(a, b)]
    if len(old) != len(new):
        found.append(f"it had {len(old)} stages, now there are {len(new)}")
    inputs = dict(before.get("inputs", [])), dict(now.get("inputs", []))
    found += [f"input {name} {change}" for name, change in _files(*inputs)]
    if not found and before.get("blocks") != now.get("blocks"):
        found.append("the input is cut into other blocks")
    return found


def _files(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names, and what became of them, of files that are not as they were."""
    for name in dict.fromkeys([*then, *now]):
        if then.get(name) != now.get(name):
            yield name, "is gone" if name not in now else "is new" if name not in then else "has changed"


def _by_name(stamps: list[list[Any]]) -> dict[str, list[Any]]:
    """Files of two folders may have the same name."""
    found: dict[str, list[Any]] = {}
    for name, *stamp in stamps:
        found.setdefault(name, []).append(stamp)
    return found


def _leaves(a: Any, b: Any, place: str = "") -> Iterator[str]:
    """Where two descriptions differ, as far down as both have something, and how."""
    if a == b:
        return
    name = a.get("name") if isinstance(a, dict) else None
    if isinstance(a, dict) and isinstance(b, dict) and a.get("class") == b.get("class") and name == b.get("name"):
        here = f" {name!r}" if isinstance(name, str) and not place else ""
        for key in dict.fromkeys([*a, *b]):
            if key == "files" and ("arguments" in a or "attributes" in a):  # those that they name, by stamps
                old, new = a.get(key, {}), b.get(key, {})
                for argument in old:  # one that named no file before may be written by the run itself
                    stamps = [_by_name(one.get(argument, [])) for one in (old, new)]
                    for name, change in _files(*stamps):
                        yield f"{place}{here}: file {name} of {argument} {change}"
                continue
            yield from _leaves(a.get(key), b.get(key), f"{place}{here}{'.' if place else ', '}{key}")
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from _leaves(x, y, f"{place}.{i}")
    else:
        yield f"{place} was {_short(a)}, now it is {_short(b)}"


def _short(value: Any) -> str:
    text = fast_json.dumps(value).decode()
    return text if len(text) < 120 else text[:120] + " ..."
