"""Samples of documents: which ones are shown, and hostile ones."""

import json
import shutil

import pytest
from tests.dashboard.made import plan
from tests.dashboard.runs import Control, Sleep, get_json, running, wait_until

from gristmill.backends.local import LocalExecutor
from gristmill.dashboard import lines as lines_module
from gristmill.dashboard.lines import CutLine, lines
from gristmill.dashboard.samples import SHOWN, SampleReader, SamplesError
from gristmill.metrics.history import History
from gristmill.pipeline import Pipeline
from gristmill.stages.core import ProcessingStage
from gristmill.stages.deduplication.exact import ExactDeduplication
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter, ParquetWriter
from gristmill.storage import Folder
from gristmill.tasks import DocumentBatch

HOSTILE = "<script>document.title='hacked'</script> <img src=x onerror=alert(1)> \u202eevil\u2066 \x00\x1b[31m"
LONG = "x" * (10 << 20)


def document(n: int) -> dict:
    words = ["few"] * 2 if n % 3 == 0 else ["word"] * 20 if n % 3 == 1 else ["many"] * 200
    return {"id": f"doc-{n}", "text": " ".join(words) + f" {n}", "source": "made"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus") / "in"
    folder.mkdir()
    documents = [document(n) for n in range(600)]
    for one in documents[::6]:
        one["text"] = one["id"] = f"{HOSTILE} {one['id']}"
    documents[597]["text"] = LONG  # at the end: blocks inside of it have no documents
    with (folder / "a.jsonl").open("w") as file:
        file.writelines(json.dumps(one) + "\n" for one in documents)
    return folder


def filters():
    return [ScoreFilter(WordCountFilter(min_words=15)), ScoreFilter(WordCountFilter(min_words=1, max_words=100))]


class Hold(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Passes documents on; waits at the last block for as long as a file is there, so that the run does not end."""

    name = "hold"

    def __init__(self, flag):
        self.flag = str(flag)

    def process(self, task):
        import os
        import time

        while task.task_id.partition(".")[0] == "5" and os.path.exists(self.flag):
            time.sleep(0.05)
        return task


def curating(corpus, tmp_path, *more, writer=JsonlWriter, **arguments) -> Pipeline:
    (tmp_path / "hold").touch()
    stages = [JsonlReader(str(corpus), blocksize=20_000), *filters(), *more, Hold(tmp_path / "hold")]
    return Pipeline("curating", stages=[*stages, writer(str(tmp_path / "out"), **arguments)])


@pytest.fixture(scope="module")
def outputs(corpus, tmp_path_factory):
    """Outputs of the pipeline by writer, each made once."""
    made = {}

    def of(writer):
        if writer not in made:
            made[writer] = tmp_path_factory.mktemp("run")
            pipeline = curating(corpus, made[writer], writer=writer)
            (made[writer] / "hold").unlink()
            pipeline.run(LocalExecutor({"num_cpus": 2, "view": "off"}))
        return made[writer] / "out"

    return of


@pytest.fixture
def samples_of(outputs):
    """Return what reads samples of an output."""

    def make(show_text=True, writer=JsonlWriter, folder=None):
        history = History()
        history.begin(plan("JsonlReader", "ScoreFilter", "ScoreFilter (2)", "hold", "JsonlWriter"))
        return SampleReader(history, Folder(str(folder or outputs(writer))), show_text)

    return make


@pytest.mark.parametrize("writer", [JsonlWriter, ParquetWriter])
def test_each_stage_shows_what_it_dropped_and_what_passed_it(samples_of, writer):
    samples = samples_of(writer=writer)
    first, second = samples.of(0, 1), samples.of(0, 2)
    assert len(first["dropped"]) == len(first["passed"]) == SHOWN
    assert all(int(one["id"].rpartition("-")[2]) % 3 == 0 for one in first["dropped"])
    assert all(one["reason"] for one in first["dropped"])
    assert all(isinstance(one["score"], float) and one["score"] < 15 for one in first["dropped"])
    later = [one for one in first["passed"] if one["dropped_by"]]
    assert later and all(int(one["id"][4:]) % 3 == 2 and one["dropped_by"] == "ScoreFilter (2)" for one in later)
    assert all(int(one["id"][4:]) % 3 == 2 for one in second["dropped"])
    assert all(int(one["id"][4:]) % 3 == 1 and not one["dropped_by"] for one in second["passed"]), "not those before it"
    assert second["passed"][0]["text"].startswith("word word")
    assert ["source", "made"] in second["passed"][0]["fields"]


def test_hostile_documents_are_cut_and_escaped(samples_of, monkeypatch):
    monkeypatch.setattr("gristmill.dashboard.samples.SHOWN", 300)
    monkeypatch.setattr("gristmill.dashboard.samples.FROM_ONE_FILE", 300)
    samples = samples_of()
    found = samples.of(0, 1)
    shown = json.dumps(found, ensure_ascii=False)
    assert len(shown) < 400_000
    for char in ("\u202e", "\u2066", "\x00", "\x1b"):
        assert char not in shown
    texts = [one["text"] for one in found["dropped"]]
    assert any(text.startswith("<script>document.title='hacked'</script>") for text in texts)
    assert any("x" * 100 in text and "(10,485,760 characters)" in text for text in texts)
    monkeypatch.setattr(lines_module, "LONGEST_LINE", 1 << 20)
    monkeypatch.setattr(lines_module.lines, "__defaults__", (1 << 20,))
    found = samples.of(0, 1)
    every = found["dropped"] + found["passed"]
    assert any(one["id"] == "a line of more than 1 MB" and len(one["text"]) < 5_000 for one in every)


def test_without_texts_only_ids_reasons_and_scores_are_sent(samples_of):
    found = samples_of(show_text=False).of(0, 1)
    assert {key for one in found["dropped"] + found["passed"] for key in one} == {"id", "reason", "score", "dropped_by"}


def test_the_bytes_of_a_request_are_bounded(samples_of, monkeypatch):
    samples = samples_of()
    assert samples.of(0, 1)["complete"]
    monkeypatch.setattr("gristmill.dashboard.samples.Reader.__init__", lambda self: setattr(self, "left", 1_000))
    found = samples.of(0, 1)
    assert not found["complete"] and len(found["dropped"]) + len(found["passed"]) < 2 * SHOWN


def test_what_cannot_be_shown_says_why(tmp_path):
    history = History()
    samples = SampleReader(history, Folder(str(tmp_path)), True)
    with pytest.raises(SamplesError, match="has not begun"):
        samples.of(0, 0)
    history.begin(plan("a"))
    assert samples.of(0, 0)["dropped"] == []
    for phase, stage in ((0, 1), (0, -1), (7, 0)):
        with pytest.raises(SamplesError, match="no such"):
            samples.of(phase, stage)
    with pytest.raises(SamplesError, match="no writer"):
        SampleReader(history, None, True).of(0, 0)


def test_damaged_files_are_passed_over(samples_of, outputs, tmp_path):
    shutil.copytree(outputs(JsonlWriter), tmp_path / "out")
    samples = samples_of(folder=tmp_path / "out")
    for path in (tmp_path / "out" / "excluded").iterdir():
        path.write_bytes(b'{"id": \xff\n[1]\nnot json\n')
    commit = next((tmp_path / "out" / "_gristmill" / "commits").iterdir())
    assert isinstance(samples.of(0, 1)["passed"], list)
    commit.write_bytes(b"damaged")
    assert isinstance(samples.of(0, 1)["passed"], list)


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_lines_of_a_stream(size):
    data = b"one\n\ntwo\n" + b"y" * 500 + b"\nthree\nlast without an end"
    found = list(lines((data[i : i + size] for i in range(0, len(data), size)), longest=100))
    assert found[:2] == [b"one", b"two"] and found[3] == b"three"
    assert isinstance(found[2], CutLine) and found[2].head.startswith(b"yyy")
    endless = list(lines((b"z" * 60 for _ in range(10)), longest=100))
    assert [type(one) for one in endless] == [CutLine]


def test_samples_during_a_run_in_the_browser(corpus, tmp_path, visit):
    executor = LocalExecutor({"num_cpus": 2, "view": "off"})
    stop = (tmp_path / "hold").unlink
    with running(curating(corpus, tmp_path), executor=executor, stop=stop) as run:
        visitor = visit(run.url)
        visitor.wait_for(lambda: "too few words" in visitor.text("#flow"), "drops by reason")
        visitor.wait_for(lambda: get_json(f"{run.url}samples?stage=1")["dropped"], "a finished block")
        visitor.page.get_by_role("button", name="Samples of documents at ScoreFilter", exact=True).click()
        visitor.wait_for(lambda: "doc-" in visitor.text("#samples-dropped"), "documents")
        visitor.wait_for(lambda: "<script>document.title" in visitor.text("#samples-dropped"), "the hostile document")
        assert "\\u202e" in visitor.text("#samples-dropped") and "\u202e" not in visitor.page.content()
        assert visitor.page.query_selector("dialog img") is None and "hacked" not in visitor.page.title()
        assert visitor.overflow() <= 0
        visitor.page.keyboard.press("Escape")
        visitor.wait_for(lambda: not visitor.text("#samples"), "closed by the Escape key")
        focused = visitor.page.evaluate("document.activeElement.getAttribute('aria-label')")
        assert focused == "Samples of documents at ScoreFilter", "the focus is where it was"


def test_a_run_without_texts_in_the_browser(corpus, tmp_path, visit):
    executor = LocalExecutor({"num_cpus": 2, "view": "off"})
    stop = (tmp_path / "hold").unlink
    with running(curating(corpus, tmp_path), executor=executor, stop=stop, show_text=False) as run:
        visitor = visit(run.url)
        visitor.wait_for(lambda: visitor.text("[aria-label='Samples of documents at ScoreFilter']"), "the button")
        wait_until(lambda: get_json(f"{run.url}samples?stage=1")["dropped"])
        visitor.page.get_by_role("button", name="Samples of documents at ScoreFilter", exact=True).click()
        visitor.wait_for(lambda: "doc-" in visitor.text("#samples-dropped"), "ids")
        assert "few few" not in visitor.page.content() and "switched off" in visitor.text("#samples-note")


def test_the_phases_of_a_pipeline_and_the_samples_of_an_earlier_one(corpus, tmp_path, visit):
    pipeline = curating(corpus, tmp_path, ExactDeduplication())
    executor = LocalExecutor({"num_cpus": 2, "view": "off"})
    with running(pipeline, executor=executor, stop=(tmp_path / "hold").unlink) as run:
        visitor = visit(run.url)
        visitor.wait_for(lambda: "Phase 2 (now)" in visitor.text("#phases"), "the second phase")
        second = visitor.text("#flow")
        assert "hold" in second
        visitor.page.get_by_role("button", name="Phase 1").click()
        visitor.wait_for(lambda: "hold" not in visitor.text("#flow"), "the first phase")
        assert visitor.items(0) > 0
        found = wait_until(lambda: (x := get_json(f"{run.url}samples?phase=0&stage=1"))["dropped"] and x)
        assert all(one["reason"] for one in found["dropped"])
        assert visitor.text("#status") == "running"
    state = History()
    assert state.plans == [] and run.errors == []


def test_a_pipeline_without_a_writer_offers_no_samples(tmp_path, visit):
    control = Control(tmp_path, one=0.02)
    pipeline = Pipeline("plain", stages=[Sleep("one", control.folder)])
    with running(pipeline, control.numbers(), stop=control.stopped.set) as run:
        visitor = visit(run.url)
        visitor.wait_for(lambda: visitor.items(0) > 1, "items")
        assert visitor.text(".stage-head button") == ""
