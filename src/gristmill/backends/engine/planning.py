"""Plans that take long are made in a thread of their own, so that work is handed out meanwhile."""

from __future__ import annotations

import threading
from collections import deque

from gristmill.scheduling.commands import Solve
from gristmill.scheduling.events import Solved
from gristmill.scheduling.planning import solve


class Planning:
    """One plan at a time: after `ask`, `take` gives it once it is made."""

    def __init__(self) -> None:
        self._done: deque[Solved] = deque()
        self._error: BaseException | None = None

    def ask(self, x: Solve) -> None:
        threading.Thread(target=self._solve, args=(x,), name="gristmill-planning", daemon=True).start()

    def _solve(self, x: Solve) -> None:
        try:
            self._done.append(Solved(x.number, solve(x.problem)))
        except BaseException as error:  # whatever it is, the driver has to know that no plan will come
            self._error = error

    def take(self) -> list[Solved]:
        if self._error is not None:
            raise self._error
        return [self._done.popleft() for _ in range(len(self._done))]
