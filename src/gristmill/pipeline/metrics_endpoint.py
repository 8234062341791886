"""The attachment that serves the metrics of a run to Prometheus."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from secrets import token_hex

from gristmill import __version__
from gristmill.logs import logger
from gristmill.metrics.discovery import TargetFile, discovery_folder
from gristmill.metrics.endpoint import MetricsEndpoint
from gristmill.metrics.exposition import MOST_PHASES, PhaseView, RunState, RunView, now_s, render
from gristmill.metrics.history import History
from gristmill.metrics.observer import Moment, PlanInfo
from gristmill.metrics.optimum import share_of_optimum
from gristmill.pipeline.monitoring import LOOPBACK, MetricsOptions, Outcome, WatchedRun

_STILL_SCRAPED_S = 60.0
"""If the metrics were last read longer ago, no scrape of the final ones is expected."""


class MetricsAttachment:
    """Keeps what was seen last, and serves it until the run has ended.

    Observers call it in the thread of the run. It only replaces one reference there: the text is made in the thread of
    the server, and only for a scrape.
    """

    def __init__(self, run: WatchedRun, options: MetricsOptions) -> None:
        """Raise `PlanError` if the port cannot be used."""
        self._history: History = run.history
        self._linger_s = options.linger_s
        ident = f"{time.strftime('%Y%m%d-%H%M%S')}-{token_hex(3)}"
        self._view = RunView(ident, run.pipeline.name, type(run.executor).__name__, __version__, now_s())
        self._endpoint = MetricsEndpoint(options.host, options.port, self._text)
        self._target: TargetFile | None = None
        address = self._endpoint.address
        logger.info(f"metrics are at http://{address}/metrics")
        if options.host not in (LOOPBACK, "localhost", "::1"):
            logger.warning(f"metrics at {address} can be read by everybody who can reach it: there is no password")
        folder = discovery_folder(options.folder)
        try:
            self._target = TargetFile(folder, ident, address)
        except OSError as error:
            logger.warning(
                f"Prometheus cannot find this run by itself: {folder} cannot be written to ({error.strerror}). "
                f"Scrape http://{address}/metrics, or set another folder in GRISTMILL_METRICS_DIR."
            )

    def _text(self, openmetrics: bool) -> str:
        return render(self._view, openmetrics)

    # The run calls these --------------------------------------------------------------------------------------------

    def begin(self, plan: PlanInfo) -> None:
        view = self._view
        phases = (*view.phases, PhaseView(plan))[-MOST_PHASES:]
        first = view.first_phase + len(view.phases) + 1 - len(phases)
        self._view = replace(view, phases=phases, first_phase=first)

    def update(self, moment: Moment) -> None:
        view = self._view
        seen = self._history.plans[-1]
        phase = PhaseView(view.phases[-1].plan, moment, tuple(seen.states_s), share_of_optimum(seen))
        self._view = replace(view, phases=(*view.phases[:-1], phase))

    def message(self, text: str) -> None:
        self._view = replace(self._view, warnings=self._view.warnings + 1)

    def end(self, outcome: Outcome) -> None:
        self._view = replace(self._view, state=_state_of(outcome))

    def close(self) -> None:
        """Stop serving, and remove the file by which Prometheus finds the run. What else watches the run has ended."""
        if self._view.state in (RunState.SUCCEEDED, RunState.FAILED):
            self._wait_for_last_scrape()
        if self._target is not None:
            self._target.remove()
        self._endpoint.close()

    def _wait_for_last_scrape(self) -> None:
        """If the metrics are being scraped, serve the final ones until they were read, for a limited time."""
        endpoint = self._endpoint
        if not endpoint.scrapes or time.monotonic() - endpoint.scraped_at > _STILL_SCRAPED_S:
            return
        with suppress(KeyboardInterrupt):  # the run has ended: Ctrl-C ends only the waiting
            endpoint.wait_for_scrape(self._linger_s)


def _state_of(outcome: Outcome) -> RunState:
    if isinstance(outcome.error, KeyboardInterrupt | SystemExit):
        return RunState.INTERRUPTED
    return RunState.SUCCEEDED if outcome.error is None else RunState.FAILED
