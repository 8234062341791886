"""Files that are added to the input after a run: only they are processed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.ledger.conftest import written
from tests.stages.deduplication.corpora import execute

from gristmill.backends.stage_errors import Interrupt
from gristmill.cli.main import main
from gristmill.errors import OutputChanged, PlanError
from gristmill.pipeline.verify import verify_output
from gristmill.stages.deduplication.exact import ExactDeduplication
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.storage import Folder


def stages(corpus: Path, out: Path, *more) -> list:
    words = ScoreFilter(WordCountFilter(min_words=50))
    return [JsonlReader(str(corpus), blocksize="30KB"), words, *more, JsonlWriter(str(out))]


def add(corpus: Path, name: str, documents: int = 40) -> None:
    lines = [json.dumps({"id": f"{name}-{n}", "text": f"{name} {n} " * (10 + n), "n": n}) for n in range(documents)]
    (corpus / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


def texts(out: Path) -> list[str]:
    lines = [line for name, data in written(out).items() if name.startswith("part-") for line in data.splitlines()]
    return sorted(json.loads(line)["id"] for line in lines)


def test_new_files_are_appended_and_earlier_blocks_stay_as_they_are(corpus, tmp_path):
    out = tmp_path / "out"
    first = execute(*stages(corpus, out))
    before = {path: path.stat().st_mtime_ns for path in out.glob("part-*")}
    add(corpus, "aa")
    add(corpus, "d")
    with pytest.raises(OutputChanged, match=r"aa\.jsonl is new(.|\n)*--append"):
        execute(*stages(corpus, out))
    second = execute(*stages(corpus, out), append=True)
    assert second.ledger.resumed == len(first.ledger.blocks) == len(before)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    new = sorted(path.name for path in out.glob("part-*") if path not in before)
    assert new == [f"part-{len(before) + n:06d}.jsonl" for n in range(len(new))]
    again = execute(*stages(corpus, out))
    assert again.ledger.resumed == len(again.ledger.blocks) == len(before) + len(new)
    add(corpus, "b2")
    execute(*stages(corpus, out), append=True)
    nothing = execute(*stages(corpus, out), append=True)
    assert nothing.ledger.resumed == len(nothing.ledger.blocks)
    whole = execute(*stages(corpus, tmp_path / "whole"))
    assert texts(out) == texts(tmp_path / "whole")
    assert nothing.ledger.plain()["total"] == whole.ledger.plain()["total"]
    assert not verify_output(str(out)).problems


def test_an_appended_file_may_not_change_and_earlier_ones_may_not_go(corpus, tmp_path):
    out = tmp_path / "out"
    execute(*stages(corpus, out))
    add(corpus, "d")
    execute(*stages(corpus, out), append=True)
    before = written(out)
    add(corpus, "d", 41)
    add(corpus, "e")
    with pytest.raises(OutputChanged, match=r"d\.jsonl has changed"):
        execute(*stages(corpus, out), append=True)
    (corpus / "d.jsonl").unlink()
    with pytest.raises(OutputChanged, match=r"d\.jsonl is gone"):
        execute(*stages(corpus, out), append=True)
    assert written(out) == before


def test_nothing_is_appended_where_all_documents_are_compared(corpus, tmp_path):
    out = tmp_path / "out"
    execute(*stages(corpus, out, ExactDeduplication()), append=True)
    before = written(out)
    add(corpus, "d")
    with pytest.raises(OutputChanged, match="'ExactDeduplication' compares all documents") as error:
        execute(*stages(corpus, out, ExactDeduplication()), append=True)
    assert str(out) in str(error.value) and "d.jsonl is new" in str(error.value)
    with pytest.raises(OutputChanged) as error:
        execute(*stages(corpus, out, ExactDeduplication()))
    assert "--append" not in str(error.value) and "d.jsonl is new" in str(error.value)
    assert written(out) == before


def test_starting_over_and_appending_exclude_each_other(corpus, tmp_path):
    with pytest.raises(PlanError, match="give one of the two"):
        execute(*stages(corpus, tmp_path / "out"), append=True, fresh=True)
    assert not (tmp_path / "out").exists()


class Stopped(Interrupt):
    """The process is gone."""


def test_a_run_that_appends_and_is_stopped_at_any_file_is_finished_by_the_next(corpus, tmp_path, monkeypatch):
    def runs(out: Path, stop_after: int) -> int:
        for name in ("d", "e"):
            (corpus / f"{name}.jsonl").unlink(missing_ok=True)
        execute(*stages(corpus, out))
        left = [stop_after]
        write = Folder.write

        def counted(self, *arguments, **options):
            write(self, *arguments, **options)
            left[0] -= 1
            if left[0] == 0:
                raise Stopped

        for name in ("d", "e"):
            add(corpus, name, 20)
            monkeypatch.setattr(Folder, "write", counted)
            try:
                execute(*stages(corpus, out), append=True)
            except Stopped:
                monkeypatch.undo()
                assert not [line for line in verify_output(str(out)).problems if "ledger.json" in line], stop_after
                execute(*stages(corpus, out), append=True)
            monkeypatch.undo()
        return stop_after - left[0]

    steps = runs(tmp_path / "whole", 1 << 30)
    whole = written(tmp_path / "whole")
    assert steps > 5
    for step in range(1, steps + 1):
        runs(tmp_path / f"out{step}", step)
        assert written(tmp_path / f"out{step}") == whole, step


def test_append_on_the_command_line(corpus, tmp_path, capsys):
    job = tmp_path / "pipeline.yaml"
    job.write_text(f"stages:\n  - JsonlReader: {{file_paths: {corpus}}}\n  - JsonlWriter: {{path: {tmp_path}/out}}\n")
    assert main(["run", str(job), "--view", "off"]) == 0
    add(corpus, "d")
    assert main(["run", str(job), "--view", "off"]) == 1
    assert re.search(r"d\.jsonl is new\n.*--append", capsys.readouterr().err)
    assert main(["run", str(job), "--view", "off", "--append"]) == 0
    assert {"d-0", "doc-0"} <= set(texts(tmp_path / "out"))
