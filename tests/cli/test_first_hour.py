"""Small things that a new user meets: samples of nothing, names of lambdas, lines that fit."""

from __future__ import annotations

import pytest
from tests.stages.deduplication.corpora import execute, lines_of, write_jsonl

from gristmill.cli import main as cli
from gristmill.cli.main import main
from gristmill.ledger.commits import CommitLog
from gristmill.ledger.run import RunLedger
from gristmill.pipeline.report import interrupted
from gristmill.stages.deduplication.exact import ExactDeduplication
from gristmill.stages.text.filters import Filter
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.storage import Folder


@pytest.mark.parametrize("stages", [[], [ExactDeduplication()]])
def test_a_sample_that_takes_nothing_is_reported(tmp_path, capsys, stages):
    write_jsonl(tmp_path / "in" / "a.jsonl", [{"text": f"text {n}"} for n in range(5)])
    reader = JsonlReader(str(tmp_path / "in"), sample=1e-9)
    result = execute(reader, *stages, JsonlWriter(str(tmp_path / "out")))
    assert result.ledger.total().documents == 0
    shown = capsys.readouterr().err
    assert "nothing was read and nothing written: the sample of 1e-09 takes none of the documents" in shown
    assert "Take a larger sample" in shown


def test_an_empty_input_is_reported_and_any_other_is_not(tmp_path, capsys):
    write_jsonl(tmp_path / "in" / "a.jsonl", [])
    execute(JsonlReader(str(tmp_path / "in")), JsonlWriter(str(tmp_path / "out")))
    assert "nothing was read and nothing written: there is no document in the input" in capsys.readouterr().err
    write_jsonl(tmp_path / "more" / "a.jsonl", [{"text": "text"}])
    execute(JsonlReader(str(tmp_path / "more")), JsonlWriter(str(tmp_path / "out-more")))
    assert "nothing was read" not in capsys.readouterr().err


def test_the_reason_of_a_lambda_says_where_it_is(tmp_path):
    write_jsonl(tmp_path / "in" / "a.jsonl", [{"text": "text", "n": n} for n in range(5)])
    is_small = lambda n: n < 3  # noqa: E731  # a lambda is what is tested
    line = is_small.__code__.co_firstlineno
    execute(JsonlReader(str(tmp_path / "in")), Filter(is_small, "n"), JsonlWriter(str(tmp_path / "out")))
    reasons = {record["excluded_reason"] for record in lines_of(tmp_path / "out", "excluded")}
    assert reasons == {f"lambda at test_first_hour.py:{line}"}


def test_stages_lists_no_class_that_only_gristmill_uses(capsys):
    assert main(["stages"]) == 0
    shown = capsys.readouterr().out
    assert "  ExactDeduplication(" in shown
    for name in ("KMeansStage", "PairwiseStage", "Identified(", "RemoveSemanticDuplicates", "StoreEmbeddingsStage"):
        assert name not in shown


@pytest.mark.parametrize("blocks", [3, 123_456, 10**9])
def test_the_line_after_ctrl_c_fits_80_columns(tmp_path, capsys, monkeypatch, blocks):
    ledger = RunLedger(CommitLog(Folder(tmp_path)))
    ledger.blocks_total = blocks
    words = interrupted(ledger, " at the keys of ExactDeduplication" if blocks > 3 else "")

    def stop(arguments: object) -> int:
        raise KeyboardInterrupt(words)

    monkeypatch.setattr(cli, "_execute", stop)
    assert main(["stages"]) == 130
    shown = capsys.readouterr().err
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert " ".join(shown.split()) == f"gristmill: {words}"
    assert (len(shown.splitlines()) == 1) == (len(f"gristmill: {words}") <= 80)


def test_the_overview_of_a_run_without_rebalances_fits_80_columns(tmp_path):
    write_jsonl(tmp_path / "in" / "a.jsonl", [{"text": "text"}])
    result = execute(JsonlReader(str(tmp_path / "in")), JsonlWriter(str(tmp_path / "out")))
    record = result.record
    record.peak_memory_bytes, record.peak_bytes_in_flight, record.budget_bytes = 204 << 20, 2755, 5 << 30
    assert record.decisions == []
    line = result.summary(80).splitlines()[1]
    assert line == "memory at most 204 MB, in flight at most 2.69 KB of 5 GB"
