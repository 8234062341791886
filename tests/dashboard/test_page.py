"""The live page in a real browser, during real runs."""

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from tests.dashboard.made import decisions, moment, plan
from tests.dashboard.runs import Control, Sleep, get_json, running, wait_until

from gristmill.dashboard.attachment import open_dashboard
from gristmill.errors import PipelineFailed
from gristmill.metrics.history import History
from gristmill.metrics.observer import Observers
from gristmill.pipeline import Pipeline
from gristmill.scheduling.snapshot import GpuSnapshot, GpuWorker


@pytest.fixture
def control(tmp_path):
    return Control(tmp_path, one=0.02, two=0.02, three=0.02)


def pipeline(control, *names, name="shifting", **arguments) -> Pipeline:
    return Pipeline(name, stages=[Sleep(one, control.folder, **arguments) for one in names])


def test_numbers_change_and_the_bottleneck_moves_when_the_load_shifts(control, visit):
    control.set("one", 0.3)
    with running(pipeline(control, "one", "two"), control.numbers(), stop=control.stopped.set) as run:
        visitor = visit(run.url)
        visitor.wait_for(lambda: visitor.bottleneck() == 0, "a bottleneck at the first step")
        assert visitor.text(".step[data-step='0'] .badge.bottleneck") == "bottleneck"
        before = visitor.items(1)
        visitor.wait_for(lambda: visitor.items(1) > before + 3, "more items")
        assert visitor.text("#status") == "running"
        assert "items/s" in visitor.figure(0, "speed") and "0 items/s" not in visitor.figure(0, "speed")[:7]
        assert "waiting for input" in visitor.figure(1, "backpressure")
        control.set("one", 0.02)
        control.set("two", 0.3)
        visitor.wait_for(lambda: visitor.bottleneck() == 1, "a bottleneck at the second step")
        visitor.wait_for(lambda: "task" in visitor.figure(1, "queue") and "0 tasks" not in visitor.figure(1, "queue"))
        control.stopped.set()
        visitor.wait_for_status("finished")
        assert visitor.bottleneck() is None
    assert run.errors == []


def test_the_reason_of_a_decision_is_shown_on_hover_and_on_keyboard_focus(control, visit):
    control.set("one", 0.3)  # the free GPU goes to the slow step
    with running(pipeline(control, "one", "two"), control.numbers(), stop=control.stopped.set) as run:
        visitor = visit(run.url)

        def reasons() -> list[str]:  # the latest first
            return [one.inner_text() for one in visitor.page.query_selector_all("#decisions li span:last-child")]

        visitor.wait_for(lambda: len(reasons()) >= 2, "decisions")
        assert visitor.text("#workers-chart .tip") == ""

        def is_shown_on_hover() -> bool:  # marks move to the left as the run continues
            mark = visitor.page.query_selector("#workers-chart .mark")
            if mark is not None and (box := mark.bounding_box()) is not None:
                visitor.page.mouse.move(box["x"], box["y"] + 5)
            return any(reason in visitor.text("#workers-chart .tip") for reason in reasons())

        visitor.wait_for(is_shown_on_hover, "a reason")
        visitor.page.mouse.move(5, 5)
        visitor.wait_for(lambda: visitor.text("#workers-chart .tip") == "", "the reason is gone")
        for _ in range(60):  # from element to element, as a keyboard does
            visitor.page.keyboard.press("Tab")
            if visitor.page.evaluate("document.activeElement.getAttribute('role') === 'slider'"):
                break
        visitor.wait_for(lambda: visitor.text("#workers-chart .tip"), "the reason of the latest mark at that time")
        assert any(reason in visitor.text("#workers-chart .tip") for reason in reasons())
        visitor.page.keyboard.press("Home")
        visitor.wait_for(lambda: reasons()[-1] in visitor.text("#workers-chart .tip"), "the first reason")
        spoken = visitor.page.evaluate("document.activeElement.getAttribute('aria-valuetext')")
        assert reasons()[-1] in spoken
        visitor.page.keyboard.press("ArrowRight")
        visitor.wait_for(lambda: reasons()[-2] in visitor.text("#workers-chart .tip"), "the second reason")


def test_the_marks_at_both_ends_of_the_chart_show_their_reasons(visit):
    with ExitStack() as stack:
        history = History()
        dashboard = open_dashboard(stack, history, "marks", None, "127.0.0.1", 0, True)
        reports = Observers((history, dashboard))
        reports.begin(plan("a"))
        reports.update(moment(0, {}))
        reports.update(moment(100, {}, decisions=(*decisions(0, 0), *decisions(100, 100))))
        visitor = visit(dashboard.url)
        visitor.wait_for(lambda: len(visitor.page.query_selector_all("#workers-chart .mark")) == 2, "marks")
        for index, reason in ((0, "decision 0"), (1, "decision 100")):
            for share in (0.1, 0.9):
                box = visitor.page.query_selector_all("#workers-chart .mark")[index].bounding_box()
                visitor.page.mouse.move(box["x"] + share * box["width"], box["y"] + 5)
                visitor.wait_for(lambda r=reason: r in visitor.text("#workers-chart .tip"), reason)
                visitor.page.mouse.move(5, 5)
                visitor.wait_for(lambda: visitor.text("#workers-chart .tip") == "", "the reason is gone")


def test_two_runs_side_by_side_show_their_own_numbers(tmp_path, visit):
    controls = []
    for name in "ab":
        (tmp_path / name).mkdir()
        controls.append(Control(tmp_path / name, one=0.03))
    a, b = controls
    with (
        running(pipeline(a, "one", name="run a"), a.numbers(), stop=a.stopped.set) as run_a,
        running(pipeline(b, "one", name="run b"), b.numbers(), stop=b.stopped.set) as run_b,
    ):
        one, other = visit(run_a.url), visit(run_b.url)
        for visitor, name in ((one, "run a"), (other, "run b")):
            visitor.wait_for(lambda v=visitor: v.items(0) > 3, "items")
            assert visitor.text("#pipeline") == name and name in visitor.page.title()
        a.stopped.set()
        one.wait_for_status("finished")
        before = other.items(0)
        other.wait_for(lambda: other.items(0) > before, "the other run continues")
        assert other.text("#status") == "running"


def test_a_failing_run_shows_the_failure_as_text_only(control, visit):
    with running(pipeline(control, "one", fails_on=40), control.numbers(), stop=control.stopped.set) as run:
        visitor = visit(run.url)
        visitor.wait_for_status("failed")
        assert "ValueError: <script>document.title" in visitor.text("#error")
        assert "<script>" in visitor.text("#failures") and "\\u202e" in visitor.text("#failures")
        assert "\u202e" not in visitor.page.content()
        assert "hacked" not in visitor.page.title()
        assert visitor.page.evaluate("document.querySelectorAll('main script, header script').length") == 0
        assert visitor.figure(0, "errors") == "1 task, 1 item"
    assert isinstance(run.errors[0], PipelineFailed)


def test_a_finished_run_stays_on_the_page_after_its_server_is_gone(control, visit):
    with running(pipeline(control, "one", "two"), control.numbers(), stop=control.stopped.set) as run:
        visitor = visit(run.url)
        visitor.wait_for(lambda: visitor.items(1) > 5, "items")
        control.stopped.set()
        visitor.wait_for_status("finished")
        run.join()
    items = visitor.items(0)
    assert items == visitor.items(1) > 5, "the last state is shown"
    assert "ended" in visitor.text("#notice")
    visitor.page.wait_for_timeout(3_000)  # longer than a browser waits before it connects again
    assert visitor.text("#status") == "finished" and visitor.items(0) == items
    visitor.page.mouse.move(*middle(visitor.page.query_selector("#workers-chart svg")))
    visitor.wait_for(lambda: "one" in visitor.text("#workers-chart .tip"), "values")


def middle(element):
    box = element.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


KILLED = """
import sys
from tests.dashboard.runs import Control, Sleep
from gristmill.backends.local import LocalExecutor
from gristmill.pipeline import Pipeline
from pathlib import Path
control = Control(Path(sys.argv[1]), one=0.02)
executor = LocalExecutor({"num_cpus": 1, "num_gpus": 1, "view": "off"})
Pipeline("killed", stages=[Sleep("one", control.folder)]).run(executor, control.numbers(), dashboard=True)
"""


@pytest.mark.parametrize("number, status", [(signal.SIGKILL, "connection lost"), (signal.SIGINT, "interrupted")])
def test_a_run_that_is_killed_or_interrupted_shows_its_last_state(tmp_path, visit, number, status):
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            url = process.stderr.readline().rpartition(" ")[2].strip()
            visitor = visit(url)
            visitor.wait_for(lambda: visitor.items(0) > 5, "items")
            os.kill(process.pid, number)
            visitor.may_lose_server = True
            visitor.wait_for_status(status)
            assert visitor.items(0) > 5
            assert "last" in visitor.text("#notice")
        finally:
            process.kill()
            process.stderr.close()


def test_a_browser_that_loses_the_connection_catches_up(control, visit):
    with running(pipeline(control, "one"), control.numbers(), stop=control.stopped.set) as run:
        visitor, other = visit(run.url), visit(run.url)
        visitor.wait_for(lambda: visitor.items(0) > 3, "items")
        other.wait_for(lambda: other.items(0) > 3, "items")
        other.page.close()
        visitor.may_lose_server = True
        visitor.context.set_offline(True)
        visitor.page.evaluate("document.querySelector('#status').dataset.test = 'same page'")
        before = visitor.items(0)
        wait_until(lambda: get_json(f"{run.url}state.json")["now"]["steps"][0]["items_done"] > before + 20)
        visitor.context.set_offline(False)
        visitor.wait_for(lambda: visitor.items(0) > before + 20, "newer items")
        assert visitor.text("#status") == "running"
        assert visitor.page.evaluate("document.querySelector('#status').dataset.test") == "same page"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_phone_in_light_and_dark(control, visit, scheme):
    names = ("one", "two", "three")
    with running(pipeline(control, *names, name="x" * 200), control.numbers(), stop=control.stopped.set) as run:
        visitor = visit(run.url, width=390, height=844, color_scheme=scheme)
        visitor.wait_for(lambda: visitor.items(2) > 3, "items")
        assert visitor.overflow() <= 0
        for selector in ("#pipeline", "#eta", ".step[data-step='2']", "#workers-chart svg", "#memory-chart svg"):
            box = visitor.page.query_selector(selector).bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= 390, selector
        page = visitor.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        light = sum(int(part) for part in page.strip("rgb()").split(",")) > 380
        assert light is (scheme == "light")
        assert visitor.page.evaluate(CONTRASTS) == [], "texts with too little contrast (WCAG AA)"


# Every visible text against the nearest background that is set: [text, ratio] of those below 4.5, or 3 if large.
CONTRASTS = """() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const channel = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const background = (e) => {
    for (; e; e = e.parentElement) {
      const c = rgb(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] === 1) return c;
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.checkVisibility() || e.closest("noscript, .skip, svg")) continue;
    const style = getComputedStyle(e);
    const [a, b] = [light(rgb(style.color)), light(background(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5)) low.push([e.textContent.slice(0, 40), ratio.toFixed(2)]);
  }
  return low;
}"""


def test_all_that_can_be_pressed_is_reached_by_keyboard_and_has_a_name(control, visit):
    with running(pipeline(control, "one"), control.numbers(), stop=control.stopped.set) as run:
        visitor = visit(run.url)
        visitor.wait_for(lambda: visitor.items(0) > 1, "items")
        unnamed = visitor.page.evaluate(
            "[...document.querySelectorAll('button, [tabindex=\"0\"], [role=img], [role=progressbar], dialog')]"
            ".filter(e => !(e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') || e.textContent.trim()))"
            ".map(e => e.outerHTML)"
        )
        assert unnamed == []
        levels = visitor.page.evaluate(
            "[...document.querySelectorAll('main h1, main h2, main h3')].map(e => e.tagName)"
        )
        assert levels[0] == "H2"


def test_a_name_of_a_run_is_never_markup(tmp_path, visit):
    hostile = "<img src=x onerror=alert(1)>\u202e'\"</script>"
    control = Control(tmp_path, one=0.02)
    stage = Sleep("one", control.folder)
    stage.name = "one"
    with running(pipeline(control, "one", name=hostile), control.numbers(), stop=control.stopped.set) as run:
        visitor = visit(run.url)
        visitor.wait_for(lambda: visitor.items(0) > 1, "items")
        assert visitor.text("#pipeline").startswith("<img src=x onerror=alert(1)>\\u202e")
        assert visitor.page.query_selector("img") is None
        state = get_json(f"{run.url}state.json")
        assert "\u202e" not in json.dumps(state, ensure_ascii=False)


def test_nothing_on_the_page_is_loaded_from_elsewhere():
    from gristmill.dashboard import server

    folder = Path(server.__file__).parent / "page"
    served = {name for name, _ in server.PAGE.values()}
    assert served == {path.name for path in folder.iterdir()}, "every file is served, and every file served is there"
    for path in folder.iterdir():
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "//" not in text.replace("// ", "") or "http" not in text, path.name
        for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "onclick=", " style="):
            assert word not in text, f"{path.name}: {word}"


def test_gpus_are_shown_by_step_if_there_are_any(visit):
    """With figures that no GPU made: none is needed to show them."""
    busy = GpuSnapshot(0, 93, 60 << 30, 80 << 30, 512.0, (GpuWorker(1, 1, 30 << 30), GpuWorker(2, 1, 29 << 30)))
    idle = GpuSnapshot(1, 4, 1 << 30, 80 << 30, 70.0, ())
    with ExitStack() as stack:
        history = History()
        dashboard = open_dashboard(stack, history, "gpus", None, "127.0.0.1", 0, True)
        reports = Observers((history, dashboard))
        reports.begin(plan("read", "classify"))
        now = moment(5, {}, {})
        reports.update(replace(now, snapshot=replace(now.snapshot, gpus=(busy, idle))))
        visitor = visit(dashboard.url)
        visitor.wait_for(lambda: "GPU 0" in visitor.text("#gpus"), "GPUs")
        words = visitor.text("#gpus")
        assert "93 % busy · 512 W" in words and "60 GB of 80 GB (classify: 2 workers, 59 GB)" in words
        assert "4 % busy" in words
        assert visitor.page.evaluate("document.querySelectorAll('#gpus-chart .curve').length") == 2
