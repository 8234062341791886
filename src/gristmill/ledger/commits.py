"""Which blocks of a run are done, remembered in the output folder so that the next run resumes from there."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from gristmill import fast_json
from gristmill.errors import OutputChanged, OutputDamaged, not_writable
from gristmill.ledger.differences import differences, listed, new_inputs
from gristmill.ledger.entry import Entry
from gristmill.ledger.lines import DamagedLine, commits_in, line_of, whole
from gristmill.ledger.lock import FolderLock
from gristmill.ledger.names import OutputNames
from gristmill.storage import Folder
from gristmill.tasks import Written

RUN = "_gristmill/run.json"
LEDGER = "_gristmill/ledger.json"
COMMITS = "_gristmill/commits"
PHASES = "_gristmill/phases"
"""What a run in several phases keeps of each of them, in folders 1, 2, ..."""
DECIDED = "decided.json"
"""In the folder of a phase: it is done."""
FORMAT = 2
"""Of the log. The first format had no checksums."""
START_OVER = "Start over with --fresh, or run(fresh=True), which removes what is there; or write to another folder."
_FLUSH_S = 0.5
_LINES_PER_FILE = 10_000
"""In files that a run which resumes puts together."""


class CommitLog:
    """The blocks of one output folder that are done, each with its account.

    A commit is a line in one of the files in ``_gristmill/commits``; a file is written whole or not at all, so this
    works where nothing can be appended to. It names all files of the block, with size and checksum. Those are made
    durable before the commit is, and the commit before anything else counts on it. This is done in a thread, about
    every half second: a disk takes milliseconds for each file, and neither workers nor the scheduler wait for it. A
    driver that is killed loses the commits of about the last half second: those blocks are done again, to the same
    bytes.

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
        """What run.json of this run holds."""
        self._lock = FolderLock(folder)
        self._thread: ThreadPoolExecutor | None = None
        self._under_way: Future[None] | None = None

    # The lock -----------------------------------------------------------------------------------------------------

    def lock(self) -> None:
        """One run at a time: where the system has locks, that is on this machine, another one is refused."""
        self._lock.acquire()

    def close(self) -> None:
        """Let another run write here."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        self._lock.release()

    def refuse(self) -> None:
        """Close, and leave nothing in the folder that was not there: the run does not start."""
        self._lock.undo()
        self.close()

    # What is there ------------------------------------------------------------------------------------------------

    def run_json(self) -> dict[str, Any] | None:
        """What the output is a function of; None if no run was here. `OutputDamaged` if it cannot be read."""
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
        """Whether a run with this fingerprint was here; False if none was, `OutputChanged` if it was another."""
        before = self.run_json()
        if before is None:
            return False
        self.check_same(before, fingerprint)
        return True

    def check_same(self, before: Mapping[str, Any], fingerprint: Mapping[str, Any]) -> None:
        """`OutputChanged` if what `run_json` gave is of a run with another fingerprint."""
        self.check_format(before)
        if changes := self._compared(differences, before, fingerprint):
            raise self.changed(changes)

    def new_inputs(self, before: Mapping[str, Any], fingerprint: Mapping[str, Any]) -> list[str]:
        """The files that the input has now and had not before, if nothing else differs."""
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
        """`OutputChanged` if the log is of another version of gristmill."""
        if before.get("format") != FORMAT:
            raise OutputChanged(
                f"{self.title} was written by a version of gristmill whose log this one cannot read (format "
                f"{before.get('format', 1)}, not {FORMAT}): it has no checksums of the files.\n{START_OVER}"
            )

    def changed(self, changes: Sequence[str], advice: str = START_OVER) -> OutputChanged:
        return OutputChanged(f"{self.title} holds the output of another run:{listed(changes)}\n{advice}")

    def damaged(self, name: str, words: str) -> OutputDamaged:
        """The error for a file of the log that is not what was written."""
        remedy = "restore it"
        if name.startswith(COMMITS):
            remedy += ", or remove it and the blocks that it names are done again"
        return OutputDamaged(
            f"{self.folder.path(name)} is damaged: {words}. Nothing was removed or started.\n"
            f"If you have a copy of this file, {remedy}. Otherwise start over with --fresh, or run(fresh=True), which "
            "removes the output; or write to another folder."
        )

    def commits(self) -> Iterator[tuple[int, Entry, bytes]]:
        """All commits: block, entry, line. `OutputDamaged` where a file is not what was written."""
        for name in self.folder.names(COMMITS):
            path = f"{COMMITS}/{name}"
            try:
                yield from commits_in(self.folder.read(path))
            except DamagedLine as error:
                raise self.damaged(path, str(error)) from None

    def files(self) -> dict[str, int]:
        """The names of all files that committed blocks have written, and how many documents each is counted for."""
        return {name: documents for _, entry, _ in self.commits() for name, documents, *_ in entry.files}

    def lost_commits(self, blocks: int) -> str:
        """Say in words how many of these ``blocks`` done by a run have no commit any more; empty if all have."""
        lost = blocks - len({block for block, _, _ in self.commits()})
        return f"the commits of {lost:,} of {blocks:,} blocks are missing in {self.folder.path(COMMITS)}" * (lost > 0)

    # Writing ------------------------------------------------------------------------------------------------------

    def add(self, block: int, entry: Entry) -> None:
        self._waiting.append(line_of(block, entry))
        self._written += [name for name, *_ in entry.files]

    def flush(self, now: bool = False) -> None:
        """Write what waits, if it is time: in a thread, or with ``now`` before this returns.

        What went wrong in the thread is raised by the next call, as a `PlanError`.
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
        """Note what the output is a function of, and by which mark its unfinished files are known."""
        self.folder.mark = mark or self._run
        output = {"extension": self.names.extension, "blocks": self.names.blocks}
        self._noted = {**fingerprint, "format": FORMAT, "mark": self.folder.mark, "output": output}
        self._write_noted()

    def resume_run(self, run: dict[str, Any]) -> None:
        """Keep run.json as `run_json` gave it: this run resumes that one."""
        self.folder.mark = str(run.get("mark", ""))
        self._noted = run

    def restore_run(self) -> bool:
        """Write run.json again if something removed it during the run. Returns whether it was missing."""
        if not self._noted or self.folder.exists(RUN):
            return False
        self._write_noted()
        return True

    def _write_noted(self) -> None:
        self.folder.write(RUN, fast_json.dumps(self._noted, option=fast_json.OPT_INDENT_2), durable=True)

    def rewrite(self, but: Collection[int] = (), written: Mapping[str, Written] | None = None) -> None:
        """Put all commits into few files, without those of some blocks, and with files as they are ``written`` now."""
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
