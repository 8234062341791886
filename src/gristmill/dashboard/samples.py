"""Documents of finished blocks, kept and dropped, read on request from what the run has written."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from gristmill import fast_json
from gristmill.dashboard.lines import CutLine, Reader, records
from gristmill.dashboard.words import MOST_TEXT, visible
from gristmill.errors import PipelineError
from gristmill.images.shown import facts, image_of
from gristmill.ledger.commits import COMMITS, PHASES
from gristmill.ledger.excluded import EXCLUDED, REASON, SCORE, STAGE
from gristmill.ledger.lines import DamagedLine, commits_in
from gristmill.ledger.names import phase_name
from gristmill.metrics.format import size
from gristmill.metrics.history import History
from gristmill.storage import Folder
from gristmill.tasks.image import CAPTION, IMAGE_ID
from gristmill.videos.shown import is_video, name_of

SHOWN = 12
"""Documents of each kind."""
MOST_FILES = 40
"""Files that one request opens."""
FROM_ONE_FILE = 4
"""Documents of a kind from one file, if there are more files."""
MOST_COMMITS = 30
MOST_COMMIT_BYTES = 8 << 20
MOST_FIELDS = 12
MOST_FIELD = 200
TEXT = "text"


class SamplesError(Exception):
    """Why there is nothing to show."""

    def __init__(self, message: str, status: HTTPStatus = HTTPStatus.NOT_FOUND) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class StageSamples:
    """Documents that were found so far for one stage."""

    dropped: list[dict[str, Any]] = field(default_factory=list)
    passed: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        return len(self.dropped) >= SHOWN and len(self.passed) >= SHOWN


class SampleReader:
    """Reads examples, a few at a time and within a budget of bytes. Used by several threads."""

    def __init__(self, history: History, output: Folder | None, show_text: bool) -> None:
        self._history = history
        self._output = output
        self._show_text = show_text
        self._reading = threading.Lock()

    def of(self, phase: int, stage: int) -> dict[str, Any]:
        """Return documents that a stage dropped, and others that passed it. Both are numbers from 0."""
        if self._output is None:
            raise SamplesError("This pipeline has no writer, so no documents are on disk to show.")
        phases = self._history.plans.copy()
        if not phases:
            raise SamplesError("The run has not begun.")
        phase = phase if phase >= 0 else len(phases) - 1
        if phase >= len(phases):
            raise SamplesError("There is no such phase.")
        stages = [name for step in phases[phase].plan.steps for name in step.stages]
        if not 0 <= stage < len(stages):
            raise SamplesError("There is no such stage.")
        if not self._reading.acquire(timeout=5):
            raise SamplesError("Other samples are being read. Try again.", HTTPStatus.SERVICE_UNAVAILABLE)
        try:
            output = Folder(self._output.url, self._output.options)  # a storage must not be shared by threads
            return self._read(output, len(phases), stages, stage)
        except (OSError, PipelineError) as error:
            raise SamplesError(visible(f"The output cannot be read: {error}"), HTTPStatus.BAD_GATEWAY) from None
        finally:
            self._reading.release()

    def _read(self, output: Folder, phases: int, stages: Sequence[str], stage: int) -> dict[str, Any]:
        found = StageSamples()
        reader = Reader()
        for folder, name, is_excluded in _files(output, phases):
            self._take(records(reader, folder, name), found, stages, stage, is_excluded)
            if found.is_full or reader.is_spent:
                break
        return {
            "stage": visible(stages[stage]),
            "show_text": self._show_text,
            "dropped": found.dropped,
            "passed": found.passed,
            "complete": not reader.is_spent,
        }

    def _take(
        self,
        rows: Iterable[dict[str, Any] | CutLine],
        found: StageSamples,
        stages: Sequence[str],
        stage: int,
        is_excluded: bool,
    ) -> None:
        """Add documents of a file to those that were found."""
        taken = {True: 0, False: 0}
        for row in rows:
            if isinstance(row, CutLine):
                name, reason, score, shown = "", "", None, self._of_cut(row)
            else:
                name, reason = str(row.pop(STAGE, "")), str(row.pop(REASON, ""))
                score = row.pop(SCORE, None)
                shown = self._of_record(row)
            is_dropped = is_excluded and name == stages[stage]
            if is_excluded and not is_dropped and name and name in stages[:stage]:
                continue  # it never came to this stage
            into = found.dropped if is_dropped else found.passed
            if len(into) < SHOWN and taken[is_dropped] < FROM_ONE_FILE:
                taken[is_dropped] += 1
                where = "" if not is_excluded or is_dropped else visible(name)
                number = score if isinstance(score, int | float) and not isinstance(score, bool) else None
                into.append({**shown, "reason": visible(reason), "score": number, "dropped_by": where})
            if min(taken.values()) >= FROM_ONE_FILE or (not is_excluded and taken[False] >= FROM_ONE_FILE):
                return

    def _of_record(self, row: dict[str, Any]) -> dict[str, Any]:
        image = image_of(row)
        ident = name_of(row) if is_video(row) else row.get("id" if image is None else IMAGE_ID)
        shown: dict[str, Any] = {"id": "" if ident is None else visible(str(ident))}
        if not self._show_text:
            return shown
        texts = {name: value for name, value in row.items() if isinstance(value, str)}
        key = TEXT if TEXT in texts else max(texts, key=lambda name: len(texts[name]), default="")
        if image is not None:
            key = CAPTION
        shown["text"] = visible(texts.get(key, ""), MOST_TEXT)
        others = [
            (name, value) for name, value in row.items() if name not in (key, "id" if image is None else IMAGE_ID)
        ]
        shown["fields"] = [[visible(str(name), 80), _plain(value)] for name, value in others[:MOST_FIELDS]]
        return shown

    def _of_cut(self, line: CutLine) -> dict[str, Any]:
        shown: dict[str, Any] = {"id": f"a line of more than {line.limit >> 20} MB"}
        if self._show_text:
            shown["text"] = visible(line.head.decode("utf-8", "backslashreplace"), MOST_TEXT)
            shown["fields"] = []
        return shown


def _plain(value: Any) -> str:
    """Return a value of a field as a short text. Large values are cut before they are written as JSON."""
    if isinstance(value, str):
        return visible(value, MOST_FIELD)
    if isinstance(value, bytes):
        known = facts(value)
        return known.words(size(known.bytes)) if known.format else f"{size(known.bytes)} of binary data"
    if isinstance(value, list | dict) and len(value) > MOST_FIELD:
        return f"{len(value):,} values"
    try:
        return visible(fast_json.dumps(value, default=str).decode(), MOST_FIELD)
    except (TypeError, ValueError):
        return visible(str(value)[: 4 * MOST_FIELD], MOST_FIELD)


def _files(output: Folder, phases: int) -> Iterator[tuple[Folder, str, bool]]:
    """Yield files of finished blocks, the latest first: folder, name, and whether its documents were dropped."""
    count = 0
    logs = [(output, 0), *((output.sub(f"{PHASES}/{n}"), n) for n in range(phases, 0, -1))]
    for folder, number in logs:
        for name in _committed(folder):
            side, _, base = name.rpartition("/")
            if side not in ("", EXCLUDED):
                continue
            place = folder
            if number:
                if side != EXCLUDED:
                    continue  # documents between two phases, in a form of their own
                if not folder.exists(name):
                    place, name = output, f"{EXCLUDED}/{phase_name(base, number)}"
            if place.exists(name):
                yield place, name, side == EXCLUDED
                count += 1
            if count >= MOST_FILES:
                return


def _committed(folder: Folder) -> Iterator[str]:
    """Yield the names of files of finished blocks, from the latest commits."""
    sizes = folder.sizes(COMMITS)
    left = MOST_COMMIT_BYTES
    for commit in sorted(sizes, reverse=True)[:MOST_COMMITS]:
        left -= sizes[commit]
        if left < 0:
            return
        try:
            blocks = list(commits_in(folder.read(f"{COMMITS}/{commit}")))
        except (DamagedLine, FileNotFoundError):
            continue  # a resumed run merges these files
        for _, entry, _ in reversed(blocks):
            yield from (name for name, documents, *_ in entry.files if documents)
