"""The log of done blocks in the output folder, from which the next run resumes."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from gristmill import fast_json
from gristmill.errors import OutputChanged, OutputDamaged, not_writable
from gristmill.ledger.entry import Entry
from gristmill.ledger.fingerprints import listed
from gristmill.ledger.lines import DamagedLine, commits_in, line_of, whole
from gristmill.ledger.lock import FolderLock
from gristmill.ledger.names import OutputNames
from gristmill.storage import Folder
from gristmill.tasks import Written

RUN = "_gristmill/run.json"
LEDGER = "_gristmill/ledger.json"
COMMITS = "_gristmill/commits"
PHASES = "_gristmill/phases"
"""The folders 1, 2, ... of the phases of a run."""
DECIDED = "decided.json"
"""In the folder of a phase that is done."""
FORMAT = 2
"""The format of the log. The first one had no checksums."""
START_OVER = "Start over with --fresh, or run(fresh=True), which removes what is there; or write to another folder."
_FLUSH_S = 0.5
_LINES_PER_FILE = 10_000
"""In files that a resumed run merges."""


class CommitLog:
    """The blocks of one output folder that are done, each with its account.

    A commit is a line in one of the files in ``_gristmill/commits``; a file is written whole or not at all, so this
    works on storages without append. It names all files of the block, with size and checksum. The files are made
    durable before the commit, and the commit before anything depends on it. A thread does this about every half
    second, because a disk takes milliseconds for each file. A driver that is killed loses the commits of about the
    last half second: those blocks are done again, to the same bytes.

    ``title`` is the output folder, for messages; the folder of a phase is inside it.
    """

    def __init__(self, folder: Folder, names: OutputNames | None = None, title: str = "") -> None:
        self.folder = folder
        self.names = names or OutputNames("")
        self.title = title or folder.url
        self._waiting: list[bytes] = []
        self._written: list[str] = []
        """Files of the commits that wait."""
        self._flushed_at = time.monotonic()
        self._run = uuid.uuid4().hex[:8]
        self._files = 0
        self._noted: dict[str, Any] = {}
        """The content of run.json."""
        self._lock = FolderLock(folder)
        self._thread: ThreadPoolExecutor | None = None
        self._under_way: Future[None] | None = None

    # The lock -----------------------------------------------------------------------------------------------------

    def lock(self) -> None:
        """Refuse other runs in this folder until `close`, if it is on this machine."""
        self._lock.acquire()

    def close(self) -> None:
        """Let another run write here."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        self._lock.release()

    def refuse(self) -> None:
        """Close, and remove what the lock has made: the run does not start."""
        self._lock.undo()
        self.close()

    # What is there ------------------------------------------------------------------------------------------------

    def run_json(self) -> dict[str, Any] | None:
        """Return the fingerprint of the run that was here, or None. Raise `OutputDamaged` if it cannot be read."""
        try:
            found = fast_json.loads(self.folder.read(RUN))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except fast_json.JSONDecodeError:
            found = None
        if not isinstance(found, dict):
            raise self.damaged(RUN, "it is not what a run wrote")
        return found

    def is_of(self, fingerprint: Mapping[str, Any]) -> bool:
        """Return whether a run with this fingerprint was here. Raise `OutputChanged` if it was another run."""
        before = self.run_json()
        if before is None:
            return False
        self.check_same(before, fingerprint)
        return True

    def check_same(self, before: Mapping[str, Any], fingerprint: Mapping[str, Any]) -> None:
        """Raise `OutputChanged` if a result of `run_json` has another fingerprint."""
        self.check_format(before)
        from gristmill.ledger.differences import differences  # a first run does not need it

        if changes := self._compared(differences, before, fingerprint):
            raise self.changed(changes)

    def new_inputs(self, before: Mapping[str, Any], fingerprint: Mapping[str, Any]) -> list[str]:
        """Return the files that are new in the input, if nothing else differs."""
        from gristmill.ledger.differences import new_inputs

        return self._compared(new_inputs, before, fingerprint)

    def _compared(
        self,
        compare: Callable[[Mapping[str, Any], Mapping[str, Any]], list[str]],
        before: Mapping[str, Any],
        now: Mapping[str, Any],
    ) -> list[str]:
        try:
            return compare(before, now)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            raise self.damaged(RUN, "it is not what a run wrote") from None

    def check_format(self, before: Mapping[str, Any]) -> None:
        """Raise `OutputChanged` if the log has the format of another version of gristmill."""
        if before.get("format") != FORMAT:
            raise OutputChanged(
                f"{self.title} was written by a version of gristmill whose log this one cannot read (format "
                f"{before.get('format', 1)}, not {FORMAT}): it has no checksums of the files.\n{START_OVER}"
            )

    def changed(self, changes: Sequence[str], advice: str = START_OVER) -> OutputChanged:
        return OutputChanged(f"{self.title} holds the output of another run:{listed(changes)}\n{advice}")

    def damaged(self, name: str, words: str) -> OutputDamaged:
        """Return the error for a damaged file of the log."""
        remedy = "restore it"
        if name.startswith(COMMITS):
            remedy += ", or remove it and the blocks that it names are done again"
        return OutputDamaged(
            f"{self.folder.path(name)} is damaged: {words}. Nothing was removed or started.\n"
            f"If you have a copy of this file, {remedy}. Otherwise start over with --fresh, or run(fresh=True), which "
            "removes the output; or write to another folder."
        )

    def commits(self) -> Iterator[tuple[int, Entry, bytes]]:
        """Yield all commits: block, entry, line. Raise `OutputDamaged` at a damaged file."""
        for name in self.folder.names(COMMITS):
            path = f"{COMMITS}/{name}"
            try:
                yield from commits_in(self.folder.read(path))
            except DamagedLine as error:
                raise self.damaged(path, str(error)) from None

    def files(self) -> dict[str, int]:
        """Return the files that committed blocks have written, each with its number of documents."""
        return {name: documents for _, entry, _ in self.commits() for name, documents, *_ in entry.files}

    def lost_commits(self, blocks: int) -> str:
        """Describe how many of ``blocks`` done blocks have lost their commit; empty if none."""
        lost = blocks - len({block for block, _, _ in self.commits()})
        return f"the commits of {lost:,} of {blocks:,} blocks are missing in {self.folder.path(COMMITS)}" * (lost > 0)

    # Writing ------------------------------------------------------------------------------------------------------

    def add(self, block: int, entry: Entry) -> None:
        self._waiting.append(line_of(block, entry))
        self._written += [name for name, *_ in entry.files]

    def flush(self, now: bool = False) -> None:
        """Write waiting commits if it is time: in a thread, or with ``now`` before this returns.

        An error in the thread is raised by the next call, as a `PlanError`.
        """
        under_way = self._under_way
        if under_way is not None and (now or under_way.done()):
            self._under_way = None
            with self._plain_errors():
                under_way.result()
        if not self._waiting or self._under_way is not None:
            return
        if not now and time.monotonic() - self._flushed_at < _FLUSH_S:
            return
        lines, self._waiting = self._waiting, []
        files, self._written = self._written, []
        self._flushed_at = time.monotonic()
        if now:
            with self._plain_errors():
                self._commit(lines, files)
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="gristmill-commits")
        self._under_way = self._thread.submit(self._commit, lines, files)

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise not_writable(self.title, error) from error

    def _commit(self, lines: Sequence[bytes], files: Sequence[str]) -> None:
        self.folder.sync(files)
        self._write(lines)

    def _write(self, lines: Sequence[bytes]) -> None:
        self._files += 1
        name = f"{COMMITS}/{time.time_ns()}-{self._run}-{self._files:06d}.jsonl"
        self.folder.write(name, whole(lines), durable=True)

    def write_run(self, fingerprint: Mapping[str, Any], mark: str = "") -> None:
        """Write run.json: the fingerprint, and the mark in the names of unfinished files."""
        self.folder.mark = mark or self._run
        output = self.names.plain()
        self._noted = {**fingerprint, "format": FORMAT, "mark": self.folder.mark, "output": output}
        self._write_noted()

    def resume_run(self, run: dict[str, Any]) -> None:
        """Resume the run of this run.json, which stays as it is."""
        self.folder.mark = str(run.get("mark", ""))
        self._noted = run

    def restore_run(self) -> bool:
        """Write run.json again if it was removed during the run. Return whether it was missing."""
        if not self._noted or self.folder.exists(RUN):
            return False
        self._write_noted()
        return True

    def _write_noted(self) -> None:
        self.folder.write(RUN, fast_json.dumps(self._noted, option=fast_json.OPT_INDENT_2), durable=True)

    def rewrite(self, but: Collection[int] = (), written: Mapping[str, Written] | None = None) -> None:
        """Merge commits into few files, without the blocks ``but``, with new stamps of files ``written`` again."""
        names = self.folder.names(COMMITS)
        lines: list[bytes] = []
        for block, entry, line in self.commits():
            if block not in but:
                lines.append(line_of(block, entry) if entry.replace_files(written or {}) else line)
            if len(lines) >= _LINES_PER_FILE:
                self._write(lines)
                lines = []
        if lines:
            self._write(lines)
        for name in names:
            self.folder.remove(f"{COMMITS}/{name}")

    def finish(self, ledger: Mapping[str, Any]) -> None:
        self.folder.write(LEDGER, fast_json.dumps(ledger, option=fast_json.OPT_INDENT_2), durable=True)
