"""Answers by the key of their request, in a SQLite file that survives `kill -9` and that several processes share."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from gristmill.llm.errors import Unusable
from gristmill.llm.requests import Answer

FILE = "requests.sqlite"
_BUSY_S = 60.0
_CACHE_KB = 8192
_TABLES = """
CREATE TABLE IF NOT EXISTS answers
    (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, answer BLOB NOT NULL, crc INTEGER NOT NULL, at INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS spent
    (one INTEGER PRIMARY KEY CHECK (one = 1), tokens INTEGER NOT NULL, cost REAL NOT NULL);
INSERT OR IGNORE INTO spent VALUES (1, 0, 0);
"""
_INSERT = "INSERT OR REPLACE INTO answers (key, answer, crc, at) VALUES (?, ?, ?, ?)"
_SPEND = "UPDATE spent SET tokens = tokens + ?, cost = cost + ?"


@dataclass(frozen=True)
class CacheState:
    """The contents of a cache."""

    answers: int
    size: int
    """Bytes of the file that are used."""
    tokens: int
    cost: float
    """In the currency of the prices."""


class RequestCache:
    """A cache, open in one process.

    `get` reads directly. `put` waits until the answer is committed, by a thread that commits all waiting answers
    together. Committed answers survive the death of the process; `sync` makes them survive that of the machine.
    """

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, FILE)
        try:
            os.makedirs(folder, exist_ok=True)
            self._reads = _connected(self.path)
            self._writes = _connected(self.path)
        except (sqlite3.Error, OSError) as error:
            raise _unusable(self.path, error) from None
        self._thread = ThreadPoolExecutor(1, "gristmill-llm-cache")
        self._waiting: list[tuple[tuple[Any, ...], tuple[int, float], asyncio.Future[None]]] = []
        self._is_writing = False
        self._writing: asyncio.Task[None] | None = None
        self._unsynced = 0

    def get(self, key: bytes) -> Answer | None:
        """Return the answer to a request; None if there is none, or if it is damaged."""
        try:
            row = self._reads.execute("SELECT answer, crc FROM answers WHERE key = ?", (key,)).fetchone()
        except sqlite3.Error as error:
            raise _unusable(self.path, error) from None
        if row is None or zlib.crc32(row[0]) != row[1]:
            return None
        return Answer.of_stored(row[0])

    async def put(self, key: bytes, answer: Answer, cost: float = 0.0) -> None:
        """Store an answer, and what it cost in millionths. Return when it is committed."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        stored = answer.stored()
        row = (key, stored, zlib.crc32(stored), int(time.time()))
        self._waiting.append((row, (answer.input_tokens + answer.output_tokens, cost), future))
        if not self._is_writing:
            self._is_writing = True
            self._writing = loop.create_task(self._write_all())
        await future

    async def spend(self, answer: Answer, cost: float) -> None:
        """Note the price of an answer that is not stored."""
        spent = [(answer.input_tokens + answer.output_tokens, cost)]
        await asyncio.get_running_loop().run_in_executor(self._thread, self._commit, [], spent)

    async def _write_all(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                rows, spent = [row for row, *_ in batch], [one for _, one, _ in batch]
                await loop.run_in_executor(self._thread, self._commit, rows, spent)
                error = None
            except (sqlite3.Error, OSError) as raised:
                error = _unusable(self.path, raised)
            for *_, future in batch:
                if not future.done():
                    future.set_result(None) if error is None else future.set_exception(error)
        self._is_writing = False

    def _commit(self, rows: Sequence[tuple[Any, ...]], spent: Sequence[tuple[int, float]]) -> None:
        with self._writes:
            self._writes.execute("BEGIN IMMEDIATE")
            self._writes.executemany(_INSERT, rows)
            self._writes.execute(_SPEND, (sum(one for one, _ in spent), sum(cost for _, cost in spent)))
        self._unsynced += len(spent)

    async def sync(self) -> None:
        """Return when all committed answers are on the disk."""
        if self._unsynced:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._sync)

    def _sync(self) -> None:
        unsynced, self._unsynced = self._unsynced, 0
        if not unsynced:
            return
        # SQLite's locks in WAL mode are on other files, so that closing a descriptor of the log loses none.
        for path in (self.path + "-wal", os.path.dirname(self.path)):
            with _Descriptor(path) as fd:
                if fd is not None:
                    os.fsync(fd)

    def spent(self) -> tuple[int, float]:
        """Return the tokens and the cost, in millionths, of all calls of all runs with this cache."""
        tokens, cost = self._reads.execute("SELECT tokens, cost FROM spent").fetchone()
        return int(tokens), float(cost)

    def state(self) -> CacheState:
        """Describe the contents."""
        (answers,) = self._reads.execute("SELECT COUNT(*) FROM answers").fetchone()
        tokens, cost = self.spent()
        return CacheState(answers, _used_bytes(self._reads), tokens, cost / 1e6)

    def prune(self, most_bytes: int | None = None, older_than_s: float | None = None) -> int:
        """Remove answers that are too old, then the oldest ones until the file is small enough. Return how many.

        Not to be called while a run uses the cache: it would request them again.
        """
        total = self._writes.execute("SELECT COUNT(*) FROM answers").fetchone()[0]
        if older_than_s is not None:
            with self._writes:
                self._writes.execute("DELETE FROM answers WHERE at < ?", (int(time.time() - older_than_s),))
        while most_bytes is not None and (used := _used_bytes(self._writes)) > most_bytes:
            count = self._writes.execute("SELECT COUNT(*) FROM answers").fetchone()[0]
            if not count:
                break
            some = max(1, int(count * min(1.0, 1 - most_bytes / used)))
            with self._writes:
                order = "SELECT id FROM answers ORDER BY id LIMIT ?"
                self._writes.execute(f"DELETE FROM answers WHERE id IN ({order})", (some,))
        removed: int = total - self._writes.execute("SELECT COUNT(*) FROM answers").fetchone()[0]
        if removed:
            self._writes.execute("VACUUM")
            self._writes.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return removed

    def close(self) -> None:
        """Finish what is being written, and close the file."""
        self._thread.shutdown(wait=True)
        self._reads.close()
        self._writes.close()


class _Descriptor:
    """A file or folder opened to be synced; None if it is not there."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd: int | None = None

    def __enter__(self) -> int | None:
        try:
            self._fd = os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        return self._fd

    def __exit__(self, *_: object) -> None:
        if self._fd is not None:
            os.close(self._fd)


def _connected(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
    mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    if mode != "wal":
        raise OSError(f"the file system does not allow SQLite's WAL mode (it is {mode!r}); name a local folder")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute(f"PRAGMA cache_size=-{_CACHE_KB}")
    connection.executescript(_TABLES)
    return connection


def _used_bytes(connection: sqlite3.Connection) -> int:
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def _unusable(path: str, error: Exception) -> Unusable:
    return Unusable(
        f"the request cache {path} cannot be used: {error}. Move the file away to begin with an empty one, or name "
        "another folder in 'cache'."
    )
