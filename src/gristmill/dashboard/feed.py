"""What the page shows, made in a thread of its own from the history and the latest moment of the run.

The run's thread only leaves a reference. It wakes no thread before the end of the run: that would cost more than all
else that it does here. Each browser has a cursor and takes what is new to it when it is ready: nothing is queued for a
browser, so a slow one costs no memory and delays no other.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from gristmill import fast_json
from gristmill.dashboard import encode
from gristmill.dashboard.words import public, visible
from gristmill.metrics.history import History, PlanHistory, Point
from gristmill.metrics.observer import Moment
from gristmill.metrics.rates import Rates, RateWindow

MOST_RECENT = 40
"""Moments of the window of `RateWindow`, and some more."""
FIRST_PAUSE_S = 0.9
"""Between two events for a browser in the first `OFTEN_S` of a run; the page changes about once a second."""
OFTEN_S = 30.0
PAUSE_S = 1.9
"""After that."""
RUNNING, FINISHED, FAILED, INTERRUPTED = "running", "finished", "failed", "interrupted"


class Result(Protocol):
    """What the page reads of the result of a run."""

    @property
    def record(self) -> Any: ...


class Ending(Protocol):
    """How a run ended."""

    @property
    def result(self) -> Result | None: ...
    @property
    def error(self) -> BaseException | None: ...


@dataclass(slots=True)
class Cursor:
    """How much one browser has been sent."""

    version: int = -1
    spacings: list[float] = field(default_factory=list)
    """By phase, the spacing of the points that were sent: another one means that all points are sent again."""
    points: list[int] = field(default_factory=list)
    """By phase, the points that are sent and do not change any more."""
    decisions: list[int] = field(default_factory=list)
    failures: list[int] = field(default_factory=list)
    """By phase, the number of the last failure."""
    last: dict[int, list[Point]] = field(default_factory=dict)
    """By phase, the last point that was sent, in a list."""
    messages: int = 0


class Recent:
    """The moments of a phase that no browser has asked for yet, and the rates that follow from them.

    Rates cost more than all else that the page needs, so they are computed when they are shown.
    """

    def __init__(self) -> None:
        self._window = RateWindow()
        self._waiting: deque[Moment] = deque(maxlen=MOST_RECENT)
        self._rates: Rates | None = None

    def add(self, moment: Moment) -> None:
        """Note a moment, in the run's thread."""
        if self._rates is None:  # where the means over the whole phase begin
            self._add(moment)
        else:
            self._waiting.append(moment)

    def rates(self, has_ended: bool) -> Rates:
        """Return the rates now, or those of the whole phase at its end. Called by one thread at a time."""
        while self._waiting:
            self._add(self._waiting.popleft())
        assert self._rates is not None, "asked for before the first moment"
        return self._window.overall() if has_ended else self._rates

    def _add(self, moment: Moment) -> None:
        progress = moment.progress
        self._rates = self._window.add(moment.snapshot, progress.fraction if progress else None)


class _Latest(NamedTuple):
    """All that changes at once."""

    version: int
    phase: int
    recent: Recent
    moment: Moment | None
    """None until the phase has been seen at work."""
    end: dict[str, Any]


class Feed:
    """The latest state as JSON, and for each browser what it has not seen."""

    def __init__(self, history: History, name: str, output: str, show_text: bool) -> None:
        self.show_text = show_text
        self.history = history
        self._head = {
            "run": secrets.token_hex(8),
            "pipeline": visible(name),
            "output": public(output),
            "show_text": show_text,
            "started": time.time(),
        }
        self._began = time.monotonic()
        self._closed = threading.Condition()
        self._latest = _Latest(0, -1, Recent(), None, {})
        self._ended = threading.Event()
        self._streams = 0
        self._encoding = threading.Lock()
        self._encoded: tuple[_Latest | None, bytes] = (None, b"")

    # In the run's thread --------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self._put(phase=len(self.history.plans) - 1, recent=Recent(), moment=None)

    def update(self, moment: Moment) -> None:
        self._latest.recent.add(moment)
        self._put(moment=moment)

    def message(self) -> None:
        self._put()

    def end(self, outcome: Ending, wait_s: float) -> None:
        """Tell all browsers how the run ended, and wait a moment until they were sent it."""
        deadline = time.monotonic() + wait_s
        self._put(end=ending(outcome, self.show_text))
        self._ended.set()
        with self._closed:
            while self._streams and (left := deadline - time.monotonic()) > 0:
                self._closed.wait(left)

    def _put(self, **changes: Any) -> None:
        self._latest = self._latest._replace(version=self._latest.version + 1, **changes)

    # In the threads of the server -----------------------------------------------------------------------------------

    @property
    def has_ended(self) -> bool:
        return bool(self._latest.end)

    def opened(self) -> None:
        with self._closed:
            self._streams += 1

    def closed(self) -> None:
        with self._closed:
            self._streams -= 1
            self._closed.notify_all()

    def has_news(self, cursor: Cursor) -> bool:
        return self._latest.version != cursor.version

    def pause_s(self) -> float:
        """How long to wait between two events: longer after the first half minute of a run."""
        return FIRST_PAUSE_S if time.monotonic() - self._began < OFTEN_S else PAUSE_S

    def wait_for_end(self, timeout_s: float) -> None:
        """Wait until the run has ended, but not longer than some seconds."""
        self._ended.wait(timeout_s)

    def state(self) -> bytes:
        """Return the latest state as JSON."""
        return self._state()[1]

    def news(self, cursor: Cursor) -> bytes:
        """Return the state and what is new to a browser as JSON, and move its cursor."""
        latest, state = self._state()
        cursor.version = latest.version
        phases = self.history.plans.copy()
        deltas = [delta for i, past in enumerate(phases) if (delta := self._phase_news(cursor, i, past))]
        messages = self.history.messages.copy()
        new = messages[cursor.messages :]
        cursor.messages = len(messages)
        news = {"phases": deltas, "messages": [self._message(text) for text in new]}
        return b'{"state":' + state + b',"news":' + fast_json.dumps(news) + b"}"

    def _message(self, text: str) -> str:
        return public(text) if self.show_text else "A message is in the terminal: texts are not shown here."

    def _state(self) -> tuple[_Latest, bytes]:
        """Return the latest state and its JSON, which is made once for all browsers."""
        with self._encoding:
            latest, encoded = self._encoded
            if latest is None or latest.version != self._latest.version:
                latest = self._latest
                encoded = self._encode(latest)
                self._encoded = (latest, encoded)
            return latest, encoded

    def _encode(self, latest: _Latest) -> bytes:
        now = None
        if latest.moment is not None:
            rates = latest.recent.rates(bool(latest.end))
            now = encode.moment(latest.moment, rates, self.history.plans[latest.phase].states_s, self.show_text)
        state = {**self._head, "phase": latest.phase, "now": now, "status": RUNNING, "error": "", **latest.end}
        return fast_json.dumps(state)

    def _phase_news(self, cursor: Cursor, phase: int, past: PlanHistory) -> dict[str, Any] | None:
        delta: dict[str, Any] = {"phase": phase}
        if phase == len(cursor.points):
            delta["plan"] = encode.plan(past.plan)
            cursor.spacings.append(0.0)
            cursor.points.append(0)
            cursor.decisions.append(0)
            cursor.failures.append(0)
        spacing, points = past.spacing_s, past.points.copy()
        if spacing != cursor.spacings[phase] or len(points) < cursor.points[phase]:
            cursor.spacings[phase], cursor.points[phase] = spacing, 0
        keep = cursor.points[phase]
        if (new_points := points[keep:]) and new_points != cursor.last.get(phase):
            delta["keep"], delta["points"] = keep, [encode.point(p) for p in new_points]
            cursor.points[phase] = len(points) - 1  # the last one is replaced while it is closer than the spacing
            cursor.last[phase] = points[-1:]
        decisions = past.decisions.copy()
        if new := decisions[cursor.decisions[phase] :]:
            delta["decisions"] = [encode.decision(d) for d in new]
            cursor.decisions[phase] = len(decisions)
        failures = [f for f in past.failures.copy() if f.number > cursor.failures[phase]]
        if failures:
            delta["failures"] = [encode.failure(f, self.show_text) for f in failures]
            cursor.failures[phase] = failures[-1].number
        return delta if len(delta) > 1 else None


def ending(outcome: Ending, show_text: bool) -> dict[str, Any]:
    """Return how a run ended, in the words of the page."""
    error, result = outcome.error, outcome.result
    if isinstance(error, KeyboardInterrupt | SystemExit):
        status, words = INTERRUPTED, str(error)
    elif error is not None:
        words = f"{type(error).__name__}: {error}"
        status = FAILED
    else:
        interrupted = result is not None and result.record.interrupted
        status, words = (INTERRUPTED, "") if interrupted else (FINISHED, "")
    if words and not show_text and error is not None:
        words = f"{type(error).__name__}: the terminal has the message"
    wall_s = None if result is None else round(result.record.wall_s, 2)
    return {"status": status, "error": public(words), "wall_s": wall_s}
