"""The profile store: one file of JSON lines, one line for each measured run. See docs/guides/plan.md.

The file is only ever appended to, one line per write under a lock, or replaced as a whole. A line that cannot be read,
such as the last one of a process that was killed, is skipped.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gristmill.pipeline.profiles.measured import MachineKind, MeasureError, RunMeasure

VARIABLE = "GRISTMILL_PROFILE_STORE"
"""The environment variable with the path of the store, or "off"."""
OFF = "off"
MOST_BYTES = 4 << 20
"""Beyond this size the store is pruned to half of it."""
MOST_LINE = 256 << 10
PER_KEY = 4
"""Runs of one pipeline on one kind of machine that are kept when the store is pruned."""
_LOCK_S = 0.5


class StoreError(Exception):
    """The store cannot be used. The message says what is wrong, where, and what to do."""


@dataclass(frozen=True)
class Found:
    """The contents of a store."""

    runs: list[RunMeasure]
    """In the order in which they were stored."""
    damaged: int = 0
    """Lines that cannot be read."""


def store_path() -> Path | None:
    """Return the path of the store; None if it is switched off."""
    given = os.environ.get(VARIABLE)
    if given == OFF:
        return None
    if given:
        return Path(given)
    base = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return Path(base) / "gristmill" / "profiles.jsonl"


class ProfileStore:
    """A store in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, run: RunMeasure) -> None:
        """Append a run. Raise `StoreError` if that is not possible."""
        line = json.dumps(run.to_dict(), separators=(",", ":"), ensure_ascii=True).encode() + b"\n"
        if len(line) > MOST_LINE:
            raise StoreError(f"{self.path}: the measurements of {run.name!r} take {len(line):,} bytes: not stored")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._locked():
                self._append(line)
                if self.path.stat().st_size > MOST_BYTES:
                    self._prune()
        except OSError as error:
            raise StoreError(
                f"the profile store {self.path} cannot be written: {error.strerror or error}. "
                f"Set {VARIABLE} to another file, or to 'off'"
            ) from None

    def read(self) -> Found:
        """Return all runs. A store that does not exist is empty. Raise `StoreError` if it cannot be read."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return Found([])
        except OSError as error:
            raise StoreError(
                f"the profile store {self.path} cannot be read: {error.strerror or error}. "
                f"Set {VARIABLE} to another file, or to 'off'"
            ) from None
        runs, damaged = [], 0
        for number, line in enumerate(content.split(b"\n"), 1):
            if not line.strip():
                continue
            try:
                runs.append(RunMeasure.of(json.loads(line), f"{self.path}:{number}"))
            except (MeasureError, ValueError, RecursionError):
                damaged += 1
        return Found(runs, damaged)

    def newest(self, key: str, machine: MachineKind | None) -> RunMeasure | None:
        """Return the newest run of a pipeline, on one kind of machine if that is given.

        A whole run counts more than a sample, whichever is newer.
        """
        runs = [run for run in self.read().runs if run.key == key and machine in (None, run.machine)]
        return max(runs, key=lambda run: (not run.sampled, run.at), default=None)

    def _append(self, line: bytes) -> None:
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line  # a process was killed while it wrote the last line
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def _prune(self) -> None:
        """Keep the newest runs of each pipeline and kind of machine, in half of the size."""
        seen: Counter[tuple[str, MachineKind]] = Counter()
        kept: list[bytes] = []
        left = MOST_BYTES // 2
        for run in reversed(self.read().runs):
            seen[run.key, run.machine] += 1
            line = json.dumps(run.to_dict(), separators=(",", ":")).encode() + b"\n"
            if seen[run.key, run.machine] <= PER_KEY and len(line) <= left:
                kept.append(line)
                left -= len(line)
        descriptor, name = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.writelines(reversed(kept))
            os.replace(name, self.path)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes from writing. The lock is a file of its own, because pruning replaces the store."""
        descriptor = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            until = time.monotonic() + _LOCK_S
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.01)
            yield
        finally:
            os.close(descriptor)
