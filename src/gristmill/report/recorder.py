"""Write the report of a run: record and page, at growing intervals while it runs and when it has ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from gristmill import fast_json
from gristmill.errors import PlanError
from gristmill.report.configuration import configuration
from gristmill.report.limits import AFTER_A_LONG_RUN, AFTER_A_SHORT_RUN, LONG_S
from gristmill.report.place import FINISHED, PAGE, RECORD, RUNNING, Data, read_record
from gristmill.report.record import cut, documents_of, plans_of, public
from gristmill.storage import Folder, plain_errors

if TYPE_CHECKING:
    from gristmill.metrics.history import History
    from gristmill.metrics.observer import Moment, PlanInfo

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
GROWTH = 1.5
LEAST_PAUSE_OF_COST = 200
"""A pause is at least so many times as long as it took to make the report before it: at most 0.5 % of the time."""


class Recorder:
    """Follows one run. ``facts`` are what was known before it; ``warn`` prints a warning.

    Nothing is written before a plan begins: a run that is refused leaves the report of the run before it. A report that
    cannot be written is one warning, and nothing more is written.
    """

    def __init__(self, facts: Data, history: History, folder: Folder, warn: Callable[[str], None]) -> None:
        self.facts = facts
        self.folder = folder
        self.history = history
        self._warn = warn
        self._is_broken = False
        self._has_begun = False
        self._next_at = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._thread: ThreadPoolExecutor | None = None
        self._writing: Future[float] | None = None
        self._page_s = 0.0
        """CPU time that the last page took."""

    def begin(self, plan: PlanInfo) -> None:
        self._has_begun = True
        self.facts.pop("stages", None)  # each phase has written its own part of the configuration

    def update(self, moment: Moment) -> None:
        """Write the report if it is time, in a thread: a storage may be slow.

        So a run that is killed leaves a page of its own, and not that of the run before it.
        """
        now = time.monotonic()
        progress = moment.progress
        is_ending = progress is not None and progress.blocks >= progress.blocks_total
        if self._is_broken or is_ending or now < self._next_at or not self._has_written():
            return
        content = self._record({"state": RUNNING})
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="gristmill-report")
        self._writing = self._thread.submit(self._write_both, content)
        cost = time.monotonic() - now + self._page_s
        self._next_at = now + max(self._pause_s, LEAST_PAUSE_OF_COST * cost)
        self._pause_s = min(LONGEST_PAUSE_S, self._pause_s * GROWTH)

    def end(self, ended: Data) -> str | None:
        """Write record and page. Return the place of the page, or None if there is none."""
        if self._thread is not None:
            self._thread.shutdown()
        if not self._has_begun or self._is_broken or not self._has_written():
            return None
        if ended.get("did_nothing") and self._is_known():
            return self.folder.name.rstrip("/") + "/" + PAGE
        from gristmill.report.build import built  # only now: it reads the output and makes the page

        try:
            used = max(float(ended.get("cpu_s") or 0), float(ended.get("wall_s") or 0))
            limits = AFTER_A_LONG_RUN if used >= LONG_S else AFTER_A_SHORT_RUN
            data, page = built(fast_json.loads(self._record(ended)), self.folder, limits)
            self._write(RECORD, fast_json.dumps(data))
            self._write(PAGE, page)
        except PlanError as error:
            self._give_up(error)
            return None
        return self.folder.name.rstrip("/") + "/" + PAGE

    def _write_both(self, record: bytes) -> float:
        """Write a record, and a page without what the files of the output show. Return the CPU time of the page."""
        self._write(RECORD, record, may_vanish=True)
        from gristmill.report.build import page_while_running  # only now: not every run lasts so long

        began = time.thread_time()
        page = page_while_running(fast_json.loads(record))
        cost = time.thread_time() - began
        self._write(PAGE, page, may_vanish=True)
        return cost

    def _record(self, more: Data) -> bytes:
        """Return the record so far as JSON."""
        if "stages" not in self.facts:
            self.facts |= configuration(self.folder)
        plans = self.history.plans
        last = plans[-1].last if plans else None
        data: Data = {
            **self.facts,
            "updated": time.time(),
            "documents": documents_of(None if last is None else last.documents),
            "failures": [
                {"stage": x.stage, "task": x.task_id, "error": cut(x.error), "items": x.items}
                for x in self.history.failures()
            ],
            "messages": [cut(message) for message in self.history.messages],
            "plans": plans_of(self.history),
            **more,
        }
        return fast_json.dumps(public(data))

    def _write(self, name: str, content: bytes, may_vanish: bool = False) -> None:
        with plain_errors(self.folder.name.rstrip("/") + "/" + name, self.folder.options, "written"):
            try:
                self.folder.write(name, content)
            except FileNotFoundError:  # the end of the run removes unfinished files, and both are written again then
                if not may_vanish:
                    raise

    def _has_written(self) -> bool:
        """Return whether the last record was written; False while it is being written."""
        if self._writing is None:
            return True
        if not self._writing.done():
            return False
        try:
            self._page_s = self._writing.result()
        except PlanError as error:
            self._give_up(error)
            return False
        self._writing = None
        return True

    def _give_up(self, error: Exception) -> None:
        self._is_broken = True
        self._warn(f"no report of this run: {error} The run itself is not affected.")

    def _is_known(self) -> bool:
        """Return whether a finished run has left its report here."""
        try:
            found: Any = read_record(self.folder)
            return found is not None and found.get("state") == FINISHED and self.folder.exists(PAGE)
        except PlanError:
            return False
