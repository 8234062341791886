"""The report of real runs: finished, failed, interrupted, killed, refused, and runs that cannot write it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.report.runs import command, page_of, record_of, start, text_of, write_documents

from gristmill import Pipeline
from gristmill.errors import OutputChanged, PipelineFailed
from gristmill.stages.function_definitions import processing_stage
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.tasks import DocumentBatch

PIPELINE = """\
name: words
stages:
  - JsonlReader: {file_paths: input/}
  - ScoreFilter: {filter_obj: {WordCountFilter: {min_words: 20}}}
  - JsonlWriter: {path: output/}
"""
WAITS = """\
import os, time
from gristmill.stages.registry import register
from gristmill.stages.text.filters.document_filter import DocumentFilter

@register
class WaitFilter(DocumentFilter):
    def score_document(self, text: str) -> int:
        while "wait" in text and not os.path.exists("go"):
            time.sleep(0.01)
        return len(text)

    def keep_document(self, score: int) -> bool:
        return score > 50
"""
WAITING = """\
imports: [waits]
stages:
  - JsonlReader: {file_paths: input/, blocksize: 2KB}
  - ScoreFilter: {filter_obj: {WaitFilter: {}}}
  - JsonlWriter: {path: output/}
"""


@processing_stage
def breaks(batch: DocumentBatch) -> DocumentBatch:
    if any("broken" in text for text in batch.data["text"].to_pylist()):
        raise ValueError("a broken document")
    return batch


@processing_stage
def slow(batch: DocumentBatch) -> DocumentBatch:
    time.sleep(5)
    return batch


def documents(count: int = 60) -> list[dict[str, str]]:
    random_ = random.Random(7)
    return [{"id": f"d{i}", "text": text_of(random_, 10 if i % 3 == 0 else 40)} for i in range(count)]


def pipeline(folder: Path, *stages: object) -> Pipeline:
    reader, writer = JsonlReader(str(folder / "input")), JsonlWriter(str(folder / "output"))
    return Pipeline("words", stages=[reader, *(stages or (ScoreFilter(WordCountFilter(20)),)), writer])


def test_the_command_writes_a_report_that_agrees_with_its_summary(tmp_path, open_page):
    write_documents(tmp_path / "input", documents())
    (tmp_path / "p.yaml").write_text(PIPELINE)
    done = command(tmp_path, "run", "p.yaml")
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("report: output/_gristmill/report.html")
    data = record_of(tmp_path / "output")
    assert data["format"] == 1
    assert data["state"] == "finished"
    assert data["documents"] | {"counters": 0} == {
        **{"read": 60, "resumed": 0, "made": 0, "kept": 40, "merged": 0, "failed": 0, "problems": 0, "files": 2},
        **{"dropped": [["ScoreFilter", "too few words", 20]], "errored": [], "counters": 0, "notes": []},
    }
    assert data["command"][1:] == ["run", "p.yaml"]
    (rule,) = data["excluded"]["rules"]
    assert (rule["rule"], rule["least"], rule["most"], rule["dropped"]["read"]) == ("word_count", 20, 100_000, 20)
    opened = open_page(page_of(tmp_path / "output"))
    assert "60 read + 0 made = 40 kept + 20 dropped + 0 merged + 0 in quarantine" in opened.text()
    assert "min_words: 20" in opened.text("#configuration")
    rows = [row.inner_text().split("\t")[:3] for row in opened.page.query_selector_all("#funnel tr")[1:]]
    assert rows == [
        ["read", "", "60"],
        ["ScoreFilter", "−20", "40"],
        ["too few words", "−20", ""],
        ["kept", "66.7 %", "40"],
    ]


def test_without_it_nothing_is_written_or_imported(tmp_path):
    write_documents(tmp_path / "input", documents())
    (tmp_path / "p.yaml").write_text(PIPELINE)
    code = (
        "import sys; from gristmill.cli.main import main; status = main(sys.argv[1:]);"
        "print([name for name in sys.modules if name.startswith('gristmill.report') or 'run_report' in name]);"
        "sys.exit(status)"
    )
    run = [sys.executable, "-c", code, "run", "p.yaml", "--no-report"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("[]")
    assert not page_of(tmp_path / "output").exists()
    assert not (tmp_path / "output/_gristmill/report.json").exists()


def test_in_python_the_result_names_the_report(tmp_path):
    write_documents(tmp_path / "input", documents())
    result = pipeline(tmp_path).run(report=True)
    assert result.report == str(page_of(tmp_path / "output"))
    assert pipeline(tmp_path).run(fresh=True).report is None


def test_a_pipeline_without_a_writer_has_no_place_for_it(tmp_path, capsys):
    write_documents(tmp_path / "input", documents())
    result = Pipeline("p", stages=[JsonlReader(str(tmp_path / "input"))]).run(report=True)
    assert result.report is None
    assert "no stage writes, so there is no folder for it" in capsys.readouterr().err
    (tmp_path / "p.yaml").write_text("stages:\n  - JsonlReader: {file_paths: input/}\n")
    done = command(tmp_path, "run", "p.yaml")
    assert done.returncode == 0
    assert "report" not in done.stdout + done.stderr


def test_a_failed_run_has_a_report_with_the_failure(tmp_path, open_page):
    write_documents(tmp_path / "input", [*documents(10), {"id": "bad", "text": "a broken document"}], files=1)
    with pytest.raises(PipelineFailed) as raised:
        pipeline(tmp_path, breaks).run(report=True)
    assert raised.value.result.report == str(page_of(tmp_path / "output"))
    data = record_of(tmp_path / "output")
    assert data["state"] == "failed"
    assert data["failures_total"] == 1
    opened = open_page(page_of(tmp_path / "output"))
    assert "failed" in opened.text("h1")
    assert "ValueError: a broken document" in opened.text("#failures")
    assert "The run failed" in opened.text("#advice")


def test_a_setup_that_fails_leaves_a_report_and_says_where(tmp_path):
    write_documents(tmp_path / "input", documents())
    (tmp_path / "broken.py").write_text(
        "from gristmill import Pipeline\n"
        "from gristmill.text import JsonlReader, JsonlWriter\n"
        "from gristmill import ProcessingStage, DocumentBatch\n"
        "class Breaks(ProcessingStage[DocumentBatch, DocumentBatch]):\n"
        "    name = 'breaks'\n"
        "    def setup(self, worker_metadata=None):\n"
        "        raise RuntimeError('no model here')\n"
        "    def process(self, task):\n"
        "        return task\n"
        "pipeline = Pipeline('p', stages=[JsonlReader('input/'), Breaks(), JsonlWriter('output/')])\n"
    )
    done = command(tmp_path, "run", "broken.py")
    assert done.returncode == 1
    assert "no model here" in record_of(tmp_path / "output")["error"]
    assert done.stderr.endswith("report: output/_gristmill/report.html\n")


def waiting_run(folder: Path, *options: str) -> subprocess.Popen[str]:
    """Start a run that stops at a document of the last blocks, and return when it has recorded finished blocks."""
    random_ = random.Random(3)
    texts = [*(text_of(random_, 60) for _ in range(30)), "wait " + text_of(random_, 60)]
    write_documents(folder / "input", [{"id": f"d{i}", "text": text} for i, text in enumerate(texts)], files=1)
    (folder / "waits.py").write_text(WAITS)
    (folder / "p.yaml").write_text(WAITING)
    run = start(folder, ["run", "p.yaml", "--cpus", "2", *options])
    give_up = time.monotonic() + 200
    while time.monotonic() < give_up and run.poll() is None:
        if (folder / "output/_gristmill/report.json").exists() and (record_of(folder / "output")["documents"] or {})[
            "kept"
        ]:
            return run
        time.sleep(0.05)
    run.kill()
    raise AssertionError(run.communicate())


def test_after_sigkill_the_last_record_is_readable_and_a_page_is_made_of_it(tmp_path, open_page):
    run = waiting_run(tmp_path)
    during = command(tmp_path, "report", "output")
    assert during.stdout.startswith("the run was killed, or is still running\n"), during.stdout + during.stderr
    os.killpg(run.pid, signal.SIGKILL)
    run.communicate()
    assert record_of(tmp_path / "output")["state"] == "running"
    after = command(tmp_path, "report", "output")
    assert after.stdout == "the run was killed: this is what it had recorded\noutput/_gristmill/report.html\n"
    opened = open_page(page_of(tmp_path / "output"))
    assert "killed" in opened.text("h1")
    assert "The run was killed" in opened.text("#advice")
    assert "not finished" not in opened.text("#funnel")  # committed blocks are accounted for completely
    kept = int(opened.page.query_selector_all("#funnel tr")[-1].inner_text().split("\t")[2])
    assert 0 < kept < 31


def test_a_killed_run_leaves_a_page_of_itself_and_not_of_the_run_before(tmp_path, open_page):
    write_documents(tmp_path / "input", documents())
    pipeline(tmp_path).run(report=True)
    assert "finished" in page_of(tmp_path / "output").read_text()
    run = waiting_run(tmp_path, "--fresh")
    page = page_of(tmp_path / "output")
    give_up = time.monotonic() + 200
    try:
        while "killed, or still running" not in page.read_text():
            assert time.monotonic() < give_up, "the page of the run before is still there"
            time.sleep(0.05)
    finally:
        os.killpg(run.pid, signal.SIGKILL)
        run.communicate()
    opened = open_page(page)
    assert "killed, or still running" in opened.text("h1")
    assert "gristmill report" in opened.text("#scores")
    assert "is still running" in opened.text("#advice")


def test_after_ctrl_c_there_is_a_report_and_its_place_is_printed(tmp_path):
    run = waiting_run(tmp_path)
    run.send_signal(signal.SIGINT)
    (tmp_path / "go").touch()
    out, err = run.communicate(timeout=120)
    assert run.returncode == 130, out + err
    assert f"report: {tmp_path}/output/_gristmill/report.html" in err
    assert record_of(tmp_path / "output")["state"] == "interrupted"
    assert page_of(tmp_path / "output").exists()


def test_an_empty_input_has_a_report(tmp_path, open_page):
    write_documents(tmp_path / "input", [])
    assert pipeline(tmp_path).run(report=True).report
    opened = open_page(page_of(tmp_path / "output"))
    assert "0 read + 0 made = 0 kept" in opened.text()


def test_a_refused_run_leaves_the_report_of_the_run_before(tmp_path):
    write_documents(tmp_path / "input", documents())
    pipeline(tmp_path).run(report=True)
    before = [(path, path.read_bytes()) for path in (tmp_path / "output/_gristmill").glob("report.*")]
    assert len(before) == 2
    with pytest.raises(OutputChanged):
        pipeline(tmp_path, ScoreFilter(WordCountFilter(30))).run(report=True)
    assert all(path.read_bytes() == content for path, content in before)


def test_a_run_with_nothing_left_to_do_leaves_the_report_of_the_run_that_did_it(tmp_path):
    write_documents(tmp_path / "input", documents())
    pipeline(tmp_path).run(report=True)
    before = record_of(tmp_path / "output")
    again = pipeline(tmp_path).run(report=True)
    assert again.report == str(page_of(tmp_path / "output"))
    assert record_of(tmp_path / "output") == before
    (tmp_path / "output/_gristmill/report.json").unlink()
    assert pipeline(tmp_path).run(report=True).report
    assert record_of(tmp_path / "output")["documents"]["kept"] == 40


def test_a_report_that_cannot_be_written_is_one_warning(tmp_path, capsys):
    write_documents(tmp_path / "input", documents())
    for name in ("report.json", "report.html"):
        (tmp_path / "output/_gristmill" / name).mkdir(parents=True)
    result = pipeline(tmp_path, ScoreFilter(WordCountFilter(20)), slow).run(report=True)  # so it is tried several times
    assert result.ledger.total().kept == 40
    assert result.report is None
    errors = capsys.readouterr().err
    assert errors.count("no report of this run") == 1
    assert "report.json" in errors and "The run itself is not affected." in errors


def test_bad_records_are_shown_by_reason(tmp_path, open_page):
    (tmp_path / "input").mkdir()
    good = '{"id": "g", "text": "' + "word " * 40 + '"}\n'
    (tmp_path / "input/a.jsonl").write_text(good + '{"id": "x", "text": "cut\n' + good + "[1, 2]\n")
    pipeline(tmp_path).run(report=True)
    data = record_of(tmp_path / "output")
    assert sum(n for _, n in data["documents"]["errored"]) == 2
    opened = open_page(page_of(tmp_path / "output"))
    shown = opened.text("#quarantine")
    assert "[1, 2]" in shown and "a.jsonl at " in shown
    assert "2 documents in quarantine" in opened.text("#advice")


def test_duplicates_are_shown_by_the_size_of_their_clusters(tmp_path, open_page):
    random_ = random.Random(5)
    texts = [text_of(random_, 60) for _ in range(30)]
    copies = [*texts, *texts[:10], *texts[:3], *texts[:1]]
    write_documents(tmp_path / "input", [{"id": f"d{i}", "text": text} for i, text in enumerate(copies)])
    (tmp_path / "p.yaml").write_text(
        "stages:\n  - JsonlReader: {file_paths: input/}\n  - FuzzyDeduplication: {}\n  - JsonlWriter: {path: output/}\n"
    )
    done = command(tmp_path, "run", "p.yaml")
    assert done.returncode == 0, done.stderr
    data = record_of(tmp_path / "output")
    (found,) = data["duplicates"]
    assert (found["removed"], found["clusters"], found["largest"]) == (14, 10, 4)
    assert {low: n for low, _, n in found["sizes"]} == {2: 7, 3: 2, 4: 1, 6: 0, 11: 0, 101: 0}
    assert found["examples"][0]["size"] == 4
    shown = open_page(page_of(tmp_path / "output")).text("#duplicates")
    assert "14 removed, in 10 clusters; the largest has 4" in shown
    assert texts[0][:80] in shown


def test_secrets_of_urls_and_options_are_not_in_it(tmp_path):
    write_documents(tmp_path / "input", documents())
    url = "https://me:hush-hush@example.org/a?token=hush-hush"
    options = "{storage_options: {secret: hush-hush}}"
    text = PIPELINE.replace("file_paths: input/", f"file_paths: input/, read_kwargs: {options}")
    (tmp_path / "p.yaml").write_text(f"description: of {url}\n{text}")
    done = command(tmp_path, "run", "p.yaml", "--set", f"ScoreFilter.name={url}")
    assert done.returncode == 0, done.stderr
    assert "example.org" in (tmp_path / "output/_gristmill/report.html").read_text()
    for path in (tmp_path / "output/_gristmill").glob("report.*"):
        assert b"hush-hush" not in path.read_bytes()


def test_a_run_without_a_record_gets_a_page_of_what_its_output_shows(tmp_path, open_page):
    write_documents(tmp_path / "input", documents())
    pipeline(tmp_path).run()
    done = command(tmp_path, "report", "output", "-o", "page.html")
    assert (done.returncode, done.stdout) == (0, "page.html\n"), done.stderr
    opened = open_page(tmp_path / "page.html")
    assert "This run wrote no record" in opened.text()
    assert "60 read + 0 made = 40 kept + 20 dropped" in opened.text()
    assert not page_of(tmp_path / "output").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["report", "input"], "input is not the output of a run: there is no _gristmill/run.json in it"),
        (["report", "nowhere"], "nowhere is not the output of a run"),
        (["report", "output", "-o", "missing/a.html"], "missing/a.html cannot be written: No such file or directory"),
        (["diff", "output", "input"], "input is not the output of a run"),
        (["diff", "output", "output", "--html", "missing/a.html"], "cannot be written"),
    ],
)
def test_wrong_arguments_are_errors_in_one_line(tmp_path, arguments, words):
    write_documents(tmp_path / "input", documents())
    pipeline(tmp_path).run(report=True)
    done = command(tmp_path, *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("content", [b"", b"[]", b'{"format": "x"}', b'{"format": 1'])
def test_a_damaged_record_is_an_error_that_says_what_to_do(tmp_path, content):
    write_documents(tmp_path / "input", documents())
    pipeline(tmp_path).run(report=True)
    (tmp_path / "output/_gristmill/report.json").write_bytes(content)
    done = command(tmp_path, "report", "output")
    assert done.returncode == 2
    assert "report.json is damaged" in done.stderr and "Remove it" in done.stderr
    (tmp_path / "output/_gristmill/report.json").write_bytes(b'{"format": 99, "gristmill": "9.9"}')
    assert "has format 99" in command(tmp_path, "report", "output").stderr


def test_the_data_can_be_written_as_json(tmp_path):
    write_documents(tmp_path / "input", documents())
    pipeline(tmp_path).run(report=True)
    assert command(tmp_path, "report", "output", "-o", "data.json").returncode == 0
    assert '"format": 1' in (tmp_path / "data.json").read_text()
