"""The driver's cost of the live page while one browser is connected: the figures of RESULTS.md.

    python benchmarks/dashboard.py [--seconds 60] [--repeat 3] [--settle 33] [--stages 1 5 20]

Tasks take 5 ms. Two figures for each number of stages: CPU time measured where it is spent (the calls of observers in
the run's thread, and the threads of the server), and the difference between runs with and without the page. The first
counts from ``--settle`` seconds after the browser connected: a run is observed more often in its first half minute.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from engine import Pass, Source, show

from gristmill.backends.engine import moment
from gristmill.backends.local import LocalExecutor
from gristmill.dashboard import attachment
from gristmill.metrics.observer import Observers
from gristmill.pipeline import Pipeline

BROWSER = "import sys, urllib.request as u\nfor _ in u.urlopen(sys.argv[1] + 'events'): pass"
TASK_S = 0.005
WORKERS = 2


class Spent:
    """CPU seconds by where they were spent."""

    def __init__(self, settle_s: float) -> None:
        self.settle_s = settle_s
        self.observing = 0.0
        self.serving: dict[int, float] = {}
        self.settled: tuple[float, float, float] | None = None
        """The clock, and the CPU seconds of serving and of observing until then."""
        self.serving_us_per_s = 0.0
        """Of the threads of the server, from then on."""
        self.observing_us_per_s = 0.0

    def timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed_call(*args: Any) -> Any:
            began = time.thread_time()
            try:
                return call(*args)
            finally:
                self.observing += time.thread_time() - began

        return timed_call

    def sample(self, until: threading.Event) -> None:
        """Note the CPU time of the server's threads until the run ends."""
        began = 0.0
        while not until.wait(0.2):
            for thread in threading.enumerate():
                if thread.ident and ("process_request" in thread.name or thread.name == "gristmill-dashboard"):
                    clock = time.pthread_getcpuclockid(thread.ident)
                    self.serving[thread.ident] = time.clock_gettime(clock)
            served, observed, now = sum(self.serving.values()), self.observing, time.monotonic()
            if served and self.settled is None:
                began = began or now
                if now - began > self.settle_s:
                    self.settled = now, served, observed
            elif self.settled is not None:
                at, served_before, observed_before = self.settled
                self.serving_us_per_s = (served - served_before) * 1e6 / (now - at)
                self.observing_us_per_s = (observed - observed_before) * 1e6 / (now - at)


@contextmanager
def watched(spent: Spent) -> Iterator[None]:
    """Connect a browser to the page of the run, and measure."""
    ended = threading.Event()
    browsers: list[subprocess.Popen[bytes]] = []
    opened = attachment.open_dashboard

    def open_it(*args: Any, **kwargs: Any) -> Any:
        page = opened(*args, **kwargs)
        browsers.append(subprocess.Popen([sys.executable, "-c", BROWSER, page.url]))
        return page

    sampler = threading.Thread(target=spent.sample, args=(ended,))
    sampler.start()
    try:
        with (
            patch.object(attachment, "open_dashboard", open_it),
            patch.object(Observers, "update", spent.timed(Observers.update)),
            patch.object(moment, "moment_of", spent.timed(moment.moment_of)),
        ):
            yield
    finally:
        ended.set()
        sampler.join()
        for browser in browsers:
            browser.wait(30)


def one(stages: int, seconds: float, settle_s: float, is_watched: bool) -> tuple[float, float, Spent]:
    """Run once. Return the driver's CPU seconds, those of the clock, and what was measured."""
    source = Source(round(seconds * WORKERS / TASK_S / stages))
    spent = Spent(settle_s)
    pipeline = Pipeline("benchmark", stages=[Pass(f"sleep {i}", TASK_S) for i in range(stages)])
    executor = LocalExecutor({"num_cpus": WORKERS, "view": "off"})
    options = {"keep_outputs": False, "fuse": False, "dashboard": is_watched}
    if is_watched:
        with watched(spent):
            result = pipeline.run(executor, source, **options)
    else:
        result = pipeline.run(executor, source, **options)
    return source.cpu_since_first(), result.record.wall_s, spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--settle", type=float, default=33)
    parser.add_argument("--stages", type=int, nargs="+", default=(1, 5, 20))
    args = parser.parse_args()
    for stages in args.stages:
        of = stages, args.seconds, args.settle
        pairs = [(one(*of, False), one(*of, True)) for _ in range(args.repeat)]
        spent = [on[2] for _, on in pairs]
        difference = [on[0] - off[0] for off, on in pairs]
        show(
            f"live page, one browser, 5 ms tasks, {stages} stages on {WORKERS} workers",
            wall_s=statistics.median(on[1] for _, on in pairs),
            observing_us_per_s=statistics.median(x.observing_us_per_s for x in spent),
            serving_us_per_s=statistics.median(x.serving_us_per_s for x in spent),
            us_per_s_and_stage=statistics.median((x.observing_us_per_s + x.serving_us_per_s) / stages for x in spent),
            share_of_run_time=statistics.median((x.observing_us_per_s + x.serving_us_per_s) / 1e6 for x in spent),
            driver_cpu_s_without=statistics.median(off[0] for off, _ in pairs),
            difference_s_median_and_range=[statistics.median(difference), min(difference), max(difference)],
        )


if __name__ == "__main__":
    main()
