"""The messages to browsers, for histories that did not happen."""

import json
import random

import pytest
from tests.dashboard.made import decisions, documents, failures, moment, plan, stage

from gristmill.dashboard.feed import Cursor, Feed, ending
from gristmill.errors import PipelineError
from gristmill.metrics.history import History
from gristmill.metrics.observer import Observers
from gristmill.metrics.rates import InputProgress
from gristmill.pipeline.monitoring import Outcome


class Adapter:
    """Passes on what an executor reports, as the attachment does."""

    def __init__(self, feed):
        self.feed = feed

    def begin(self, info):
        self.feed.begin()

    def update(self, now):
        self.feed.update(now)

    def message(self, text):
        self.feed.message()


class Made:
    """A feed, what reports to it, and browsers."""

    def __init__(self, show_text=True):
        self.history = History()
        self.feed = Feed(self.history, "a <b>name</b>", "/out", show_text)
        self.reports = Observers((self.history, Adapter(self.feed)))

    def state(self):
        return json.loads(self.feed.state())


class Browser:
    """Keeps what it is sent, as the page does."""

    def __init__(self, feed):
        self.feed, self.cursor = feed, Cursor()
        self.phases, self.messages, self.bytes = [], [], 0

    def read(self):
        sent = self.feed.news(self.cursor)
        self.bytes = len(sent)
        news = json.loads(sent)["news"]
        for delta in news["phases"]:
            if "plan" in delta:
                self.phases.append({"points": [], "decisions": [], "failures": []})
            phase = self.phases[delta["phase"]]
            if "points" in delta:
                phase["points"][delta["keep"] :] = delta["points"]
            for key in ("decisions", "failures"):
                phase[key] += delta.get(key, [])
        self.messages += news["messages"]


def test_browsers_that_read_at_different_times_all_have_the_history_at_the_end():
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    made = Made()
    browsers = [Browser(made.feed) for _ in range(4)]
    n = 0
    for phase in range(2):
        made.reports.begin(plan("s0"))
        at = 0.0
        for _ in range(3_000):
            n, at = n + 1, at + rng.choice((0.2, 0.5, 2.0))
            shown = failures(max(1, n - 30), n) if phase else ()
            made.reports.update(moment(at, {"items_done": n}, decisions=decisions(n, n), failures=shown))
            if rng.random() < 0.01:
                made.reports.message(f"message {n}")
            for k, browser in enumerate(browsers[:3]):
                if rng.random() < 0.3**k:
                    browser.read()
    for browser in browsers:
        browser.read()
        for phase, past in zip(browser.phases, made.history.plans, strict=True):
            assert [p[0] for p in phase["points"]] == [round(p.at_s, 2) for p in past.points]
            assert [p[-1][0][-1] for p in phase["points"]] == [p.steps[0].items_done for p in past.points]
            assert [d[1] for d in phase["decisions"]] == [d.text for d in past.decisions]
        assert [f["number"] for f in browser.phases[1]["failures"]][-20:] == [f.number for f in past.failures][-20:]
        assert browser.messages == made.history.messages
        browser.read()
        assert browser.bytes < 3_000, "nothing is sent twice"


def test_the_state_has_the_bottleneck_the_rates_and_the_drops_by_reason():
    made = Made()
    made.reports.begin(plan("s0", "s1"))
    assert made.state()["now"] is None and made.state()["status"] == "running"
    dropped = documents(s0={"too short": 7, "<script>": 2}, s1={"late": 1})
    for at in (10.0, 14.0):
        done = InputProgress(100, 90, 2, 8, int(at), 100)
        step = {"items_done": int(at) * 50, "tasks_done": int(at), "service_us": 1000}
        made.reports.update(
            moment(at, step, step, stages=(stage("s0"), stage("s1", 1)), documents=dropped, progress=done)
        )
    now = made.state()["now"]
    assert (now["bottleneck"], now["steps"][0]["items_per_s"], now["fraction"]) == (0, 50.0, 0.14)
    assert now["eta_s"] == pytest.approx(0.86 / 0.04 * 4)
    assert now["stages"][0]["reasons"] == [["too short", 7], ["<script>", 2]]
    assert now["documents"]["dropped"] == 10
    assert now["input"]["blocks_total"] == 8


def test_a_worker_that_finishes_its_last_task_is_counted_once():
    """The snapshot counts workers that drain among the busy ones while they still have work."""
    made = Made()
    made.reports.begin(plan("a"))
    made.reports.update(moment(1, {"busy": 3, "idle": 2, "starting": 1, "draining": 2}))
    made.reports.update(moment(2, {"busy": 1, "idle": 3, "starting": 0, "draining": 2}))
    (step,) = made.state()["now"]["steps"]
    assert {name: step[name] for name in ("busy", "idle", "starting", "draining")} == {
        "busy": 0,
        "idle": 2,
        "starting": 0,
        "draining": 2,
    }
    browser = Browser(made.feed)
    browser.read()
    assert [point[6][0][:4] for point in browser.phases[0]["points"]] == [[1, 2, 1, 2], [0, 2, 0, 2]]


def test_many_reasons_are_cut_and_their_sum_is_not():
    made = Made()
    made.reports.begin(plan("s0"))
    many = documents(s0={f"reason {n}": n + 1 for n in range(1_000)})
    made.reports.update(moment(1, {}, stages=(stage("s0"),), documents=many))
    (shown,) = made.state()["now"]["stages"]
    assert sum(n for _, n in shown["reasons"]) + shown["other_reasons"] == 500_500
    assert len(shown["reasons"]) == 50 and shown["reasons"][0] == ["reason 999", 1000]


@pytest.mark.parametrize(
    "error, status, words",
    [
        (None, "finished", ""),
        (
            KeyboardInterrupt("interrupted: 3 of 9 blocks are done"),
            "interrupted",
            "interrupted: 3 of 9 blocks are done",
        ),
        (PipelineError("<b>no</b> disk\u202e"), "failed", "PipelineError: <b>no</b> disk\\u202e"),
    ],
)
def test_how_a_run_ended(error, status, words):
    end = ending(Outcome(None, error), show_text=True)
    assert (end["status"], end["error"]) == (status, words)


def test_without_texts_no_message_of_an_error_is_sent():
    made = Made(show_text=False)
    made.reports.begin(plan("s0"))
    dropped = documents(s0={"too short": 7})
    dropped.errored["s0: ValueError: a private text"] = 1
    made.reports.update(moment(1, {}, failures=failures(1, 1, "ValueError: a private text"), documents=dropped))
    made.reports.message("s0: task 1 failed: ValueError: a private text")
    made.feed.end(Outcome(None, PipelineError("stage s0: ValueError: a private text")), 0)
    sent = made.feed.news(Cursor()).decode() + made.feed.state().decode()
    assert "private" not in sent and "ValueError" in sent


def test_text_of_a_run_cannot_end_an_event():
    made = Made()
    made.reports.begin(plan("s0\n\ndata: {}"))
    made.reports.message("a\r\n\r\nevent: end\ndata: {}\n\n")
    assert b"\n" not in made.feed.news(Cursor()) and b"\r" not in made.feed.news(Cursor())
