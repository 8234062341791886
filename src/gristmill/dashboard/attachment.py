"""The live page as an observer of a run: opened before it, closed after it."""

from __future__ import annotations

import sys
from contextlib import ExitStack

from gristmill.dashboard.feed import Ending, Feed
from gristmill.dashboard.samples import SampleReader
from gristmill.dashboard.server import Server
from gristmill.metrics.history import History
from gristmill.metrics.observer import Moment, PlanInfo
from gristmill.storage import Folder

END_WAIT_S = 1.0
"""How long the end of a run waits for browsers that have not been sent it."""


class Dashboard:
    """Serves the page of one run. All that it does in the run's thread is to leave a reference to each moment."""

    def __init__(self, feed: Feed, server: Server) -> None:
        self.url = server.url
        self._feed = feed
        self._server = server

    def begin(self, plan: PlanInfo) -> None:
        self._feed.begin()

    def update(self, moment: Moment) -> None:
        self._feed.update(moment)

    def message(self, text: str) -> None:
        self._feed.message()

    def end(self, outcome: Ending) -> None:
        self._feed.end(outcome, END_WAIT_S)
        self._server.close()


def open_dashboard(
    stack: ExitStack, history: History, name: str, output: Folder | None, host: str, port: int, show_text: bool
) -> Dashboard:
    """Serve the page of a run and print its address. Raise `PlanError` if the port is in use.

    ``history`` must be updated before the dashboard is; ``output`` is the folder of the writer, if there is one.
    """
    feed = Feed(history, name, "" if output is None else output.name, show_text)
    server = Server(host, port, feed, SampleReader(history, output, show_text))
    stack.callback(server.close)
    dashboard = Dashboard(feed, server)
    if sys.stderr is not None:  # not by the logger, which would remove the token
        print(f"gristmill: watch the run at {dashboard.url}", file=sys.stderr, flush=True)
    return dashboard
