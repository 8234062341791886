"""The comparison of an output with its log: checksums of all files, and counts with the records in files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, takewhile
from tarfile import TarError
from typing import Any, BinaryIO, cast

from gristmill import fast_json
from gristmill.errors import OutputDamaged, PlanError
from gristmill.images.shards import samples_in
from gristmill.ledger.commits import COMMITS, DECIDED, LEDGER, PHASES, RUN, CommitLog
from gristmill.ledger.dropped import SHARD, output_of_run
from gristmill.ledger.entry import Entry
from gristmill.ledger.excluded import records_name
from gristmill.ledger.files import FileSizes, Stamp, difference, in_threads
from gristmill.ledger.lock import is_locked
from gristmill.ledger.names import PLACES, OutputNames, is_record, is_temporary, phase_name
from gristmill.stages.text.io.compression import Damaged, decompressed
from gristmill.storage import Folder


@dataclass
class Verified:
    """The result of `verify_output`."""

    url: str
    problems: list[str] = field(default_factory=list)
    """A line for each missing, damaged or unexpected file."""
    blocks: int = 0
    all_blocks: int = 0
    files: int = 0
    bytes: int = 0
    documents: int = 0
    unfinished: int = 0
    """Files of blocks that an unfinished run has not done: the next run replaces them."""

    def summary(self) -> str:
        state = "" if self.blocks == self.all_blocks else f" (of {self.all_blocks:,}; the run is not finished)"
        outcome = _n(len(self.problems), "problem") if self.problems else "everything is as it was written"
        left = f"; {_n(self.unfinished, 'file')} of unfinished blocks: the next run replaces them"
        return (
            f"{self.url}: {_n(self.blocks, 'block')}{state}, {_n(self.files, 'file')}, {_n(self.bytes, 'byte')}, "
            f"{_n(self.documents, 'document')} kept: {outcome}"
            f"{left if self.unfinished else ''}"
        )


def _n(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def verify_output(output: str) -> Verified:
    """Compare the files of an output with its log. Raise `PlanError` without a log, or while a run writes there."""
    folder = output_of_run(output)
    log = CommitLog(folder)
    if is_locked(folder):
        raise PlanError(f"a run is writing to {output}: verify it when the run has ended.")
    found = Verified(folder.url)
    before = _state(folder)
    try:
        _Check(log, found).all()
    except OutputDamaged as error:  # the log itself is damaged
        found.problems.append(str(error).partition("\n")[0])
    if found.problems and (is_locked(folder) or _state(folder) != before):
        raise PlanError(f"a run wrote to {output} while it was verified: verify it again when the run has ended.")
    return found


def _state(folder: Folder) -> tuple[object, ...]:
    """Return values that change when a run writes to an output."""
    return folder.sizes("_gristmill"), folder.sizes(COMMITS), folder.exists(f"{PHASES}/1")


class _Check:
    def __init__(self, log: CommitLog, found: Verified) -> None:
        self.log = log
        self.folder = log.folder
        self.found = found
        self.named: set[str] = set()
        self.done: set[int] = set()
        """The blocks that are in the log of the output."""

    def all(self) -> None:
        run = self.log.run_json()
        total = Entry()
        names, mark = OutputNames(""), ""
        if run is not None:
            names, self.found.all_blocks, mark = _output_of(self.log, run)
            total = self._log(names)
            self._ledger(total)
        elif self.folder.names(COMMITS) or self.folder.exists(LEDGER):  # otherwise a run stopped in its first phase
            self.found.problems.append(f"missing: {RUN}, which describes the run")
        for number in takewhile(lambda n: self.folder.exists(f"{PHASES}/{n}"), count(1)):
            self._phase(number)
        self._unexpected(names, mark)
        self.found.documents = total.kept

    def _log(self, names: OutputNames) -> Entry:
        """Check the blocks of the log; return the sum of their entries."""
        total = Entry()
        for block, entry, _ in self.log.commits():
            if block in self.done:
                continue
            self.done.add(block)
            self._entry(block, entry, names)
            total.add(entry)
            total.files.clear()
        self.found.blocks += len(self.done)
        self._files(self.folder, _stamps(self.log))
        return total

    def _entry(self, block: int, entry: Entry, names: OutputNames) -> None:
        """Check that the counts of a block agree with each other and with those of its files."""
        if words := entry.imbalance():
            self.found.problems.append(f"damaged: the commit of block {block}: {words}")
        kept = [rows for name, rows, *_ in entry.files if names.block_of("", name) is not None]
        if kept and sum(kept) != entry.kept:
            self.found.problems.append(
                f"damaged: the commit of block {block}: {entry.kept:,} documents kept, {sum(kept):,} in its files"
            )

    def _files(self, folder: Folder, files: Iterable[tuple[Stamp, int | None]]) -> None:
        sizes = FileSizes(folder)

        def compare(one: tuple[Stamp, int | None]) -> str:
            stamp, rows = one
            words = difference(folder, sizes, stamp, contents=True)
            if words:
                return words
            try:
                there = None if rows is None else records_in(folder, stamp.name)
            except (Damaged, TarError, OSError, ValueError) as error:
                return f"{stamp.name} is damaged: {error}"
            if there is None or there == rows:
                return ""
            return f"{stamp.name} is damaged: it holds {there:,} records, the log counts {rows:,}"

        for (stamp, _), words in in_threads(compare, files):
            self.found.files += 1
            self.found.bytes += stamp.size
            if folder is self.folder:
                self.named.add(stamp.name)
            if words:
                kind = "missing" if words.endswith("is missing") else "damaged"
                place = "" if folder is self.folder else folder.path()[len(self.folder.path()) :].strip("/") + "/"
                self.found.problems.append(f"{kind}: {place}{words}")

    def _ledger(self, total: Entry) -> None:
        """Check the ledger, which is written when a run has ended, against the commits."""
        if not self.folder.exists(LEDGER) or self.folder.exists(f"{PHASES}/1"):
            return  # the ledger of a run in phases sums several logs
        try:
            ledger = Entry.of_plain({**fast_json.loads(self.folder.read(LEDGER))["total"], "files": []})
        except (fast_json.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError):
            self.found.problems.append(f"damaged: {LEDGER} is not what a run wrote")
            return
        if ledger != total and self.found.blocks == self.found.all_blocks:
            self.found.problems.append(f"damaged: {LEDGER} does not agree with the commits")

    def _phase(self, number: int) -> None:
        """Check the files of a phase: its records, and those that it put beside the output."""
        folder, records = self.folder.sub(f"{PHASES}/{number}"), self.folder.sub(records_name(number))
        log = CommitLog(folder, title=self.folder.url)
        _output_of(log, log.run_json())
        try:
            decided = fast_json.loads(folder.read(DECIDED))
            stamps = [Stamp(*one) for one in decided["records"]], [Stamp(*one) for one in decided["kept"]]
            is_cleared, is_spooled = bool(decided.get("cleared")), bool(decided["spooled"])
            blocks = int(decided["ledger"]["blocks"])
        except FileNotFoundError:  # the phase is not done: the next run checks it
            if self.folder.exists(LEDGER):
                self.found.problems.append(f"missing: {PHASES}/{number}/{DECIDED}, which is written before a run ends")
            return
        except (fast_json.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError):
            self.found.problems.append(f"damaged: {PHASES}/{number}/{DECIDED} is not what a run wrote")
            return
        if lost := log.lost_commits(blocks):
            self.found.problems.append(f"missing: {lost}")
        self._files(records, ((stamp, None) for stamp in stamps[0]))
        self._files(folder, ((stamp, None) for stamp in stamps[1]))
        known = {stamp.name for stamp in stamps[0]}
        self.found.problems += [
            f"unexpected: {records_name(number)}/{name}"
            for name in records.names()
            if is_record(name) and name not in known
        ]
        stamps_of_log = list(_stamps(log, _SIDES)) if is_cleared else []
        if not is_cleared:
            self._files(folder, ((stamp, None) for stamp, _ in _stamps(log)))
        elif is_spooled:
            beside = ((Stamp(_beside(s.name, number), s.size, s.checksum), rows) for s, rows in stamps_of_log)
            self._files(self.folder, beside)

    def _unexpected(self, names: OutputNames, mark: str) -> None:
        """Find files that have names of the run and are in no log. A stopped run may leave some."""
        is_unfinished = not self.folder.exists(LEDGER) and self.found.blocks < self.found.all_blocks
        unexpected: list[str] = []
        if names.extension:
            for name, block in names.found_in(self.folder):
                if name in self.named:
                    continue
                if is_unfinished and block < self.found.all_blocks and block not in self.done:
                    self.found.unfinished += 1
                else:
                    unexpected.append(name)
        for place in names.places:
            for name in self.folder.names(place, unfinished=True):
                if is_temporary(name, mark) and is_unfinished:
                    self.found.unfinished += 1
                elif is_temporary(name, mark):
                    unexpected.append(f"{place}{'/' * bool(place)}{name}")
        self.found.problems += [f"unexpected: {name}" for name in unexpected]


def _output_of(log: CommitLog, run: Mapping[str, Any] | None) -> tuple[OutputNames, int, str]:
    """Return the names of a run's files, the number of its blocks, and its mark."""
    if run is None:
        raise log.damaged(RUN, "it is missing")
    log.check_format(run)
    try:
        return OutputNames.of_run(run), int(run["output"]["blocks"]), str(run["mark"])
    except (KeyError, TypeError, ValueError):
        raise log.damaged(RUN, "it is not what a run wrote") from None


_SIDES = re.compile(f"({'|'.join(PLACES[1:])})/")


def _beside(name: str, number: int) -> str:
    side, _, base = name.rpartition("/")
    return f"{side}/{phase_name(base, number)}"


def _stamps(log: CommitLog, only: re.Pattern[str] | None = None) -> Iterator[tuple[Stamp, int]]:
    for _, entry, _ in log.commits():
        for name, rows, size, checksum in entry.files:
            if only is None or only.match(name):
                yield Stamp(name, size, checksum), rows


def records_in(folder: Folder, name: str) -> int | None:
    """Return the number of records in a file; None for an unknown format."""
    if name.endswith(".parquet"):
        import pyarrow.parquet as pq

        with folder.open(name) as file:
            rows: int = pq.ParquetFile(file).metadata.num_rows
            return rows
    if name.endswith(SHARD):
        with folder.open(name) as file:
            return sum(1 for _ in samples_in(file, 0))
    if ".jsonl" not in name:
        return None
    with folder.open(name) as file:
        return sum(piece.count(b"\n") for piece in decompressed(cast(BinaryIO, file)))
