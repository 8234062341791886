"""Outputs that were changed from outside: nothing is removed before all is checked, and what can be is done again."""

from __future__ import annotations

import json
import random
import re
import shutil
from pathlib import Path

import pytest
from tests.ledger.conftest import written
from tests.stages.deduplication.corpora import execute

from gristmill.cli.main import main
from gristmill.errors import OutputChanged, OutputDamaged, PipelineError, PlanError
from gristmill.ledger.commits import CommitLog
from gristmill.ledger.lines import line_of, whole
from gristmill.pipeline.verify import verify_output
from gristmill.stages.core import ProcessingStage
from gristmill.stages.deduplication.exact import ExactDeduplication
from gristmill.stages.deduplication.fuzzy import FuzzyDeduplication
from gristmill.stages.function_definitions import processing_stage
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter, ParquetWriter
from gristmill.storage import Folder
from gristmill.tasks import DocumentBatch

KINDS = ("filter", "read again", "put aside")


def stages(kind: str, corpus: Path, out: Path, min_words: int = 50) -> list:
    """A pipeline without a cut; one that reads the source again after it; one that puts documents aside before it."""
    reader, words = JsonlReader(str(corpus), blocksize="30KB"), ScoreFilter(WordCountFilter(min_words=min_words))
    middle = {
        "filter": [words],
        "read again": [ExactDeduplication(), words],
        "put aside": [words, ExactDeduplication()],
    }
    return [reader, *middle[kind], JsonlWriter(str(out))]


def everything(out: Path) -> dict[str, bytes]:
    """All files, those of the log too, but for the lock."""
    files = [path for path in sorted(out.rglob("*")) if path.is_file() and path.name != "lock"]
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


def one_byte_changed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def commit_files(out: Path) -> list[Path]:
    return sorted((out / "_gristmill/commits").iterdir())


@pytest.fixture(params=KINDS)
def kind(request) -> str:
    return request.param


@pytest.fixture
def done(kind: str, corpus: Path, tmp_path: Path) -> Path:
    """A finished output. Two documents are duplicates, so that there are records of them."""
    for name in "ab":
        with (corpus / f"{name}.jsonl").open("a") as file:
            file.write(
                json.dumps({"id": f"twin {name}", "text": "the same words again and again " * 20, "n": 0}) + "\n"
            )
    execute(*stages(kind, corpus, tmp_path / "out"))
    return tmp_path / "out"


def test_a_lost_commit_file_removes_nothing_before_the_refusal(kind, done, corpus):
    """In a finished output whose documents were put aside, and are gone, its blocks cannot be done again."""
    before = everything(done)
    for how in ("emptied", "deleted"):
        for path in commit_files(done):
            path.write_bytes(b"") if how == "emptied" else path.unlink()
        damaged = everything(done)
        if how == "emptied" or kind == "put aside":
            with pytest.raises(OutputDamaged, match="fresh"):
                execute(*stages(kind, corpus, done))
            assert everything(done) == damaged
        else:
            execute(*stages(kind, corpus, done))
            assert written(done) == {name: data for name, data in before.items() if "_gristmill" not in name}


@pytest.mark.parametrize("how", ["emptied", "deleted"])
def test_one_lost_commit_file_of_several_removes_nothing(corpus, tmp_path, how):
    """The output of a filter and a fuzzy deduplication is whole or refused: its documents were put aside."""
    out = tmp_path / "out"

    def pipeline() -> list:
        reader, words, _, writer = stages("put aside", corpus, out)
        return [reader, words, FuzzyDeduplication(), writer]

    execute(*pipeline())
    (all_commits,) = commit_files(out)
    for block, _, line in list(CommitLog(Folder(out)).commits()):
        all_commits.with_name(f"{block}.jsonl").write_bytes(whole([line]))
    all_commits.unlink()
    assert not verify_output(str(out)).problems
    first, *_ = commit_files(out)
    first.write_bytes(b"") if how == "emptied" else first.unlink()
    damaged = everything(out)
    with pytest.raises(OutputDamaged, match="fresh"):
        execute(*pipeline())
    assert everything(out) == damaged


PIECES = ("part-000001.jsonl", "excluded/*", "quarantine/*", "duplicates/*")


def test_a_changed_byte_is_found_and_the_block_is_done_again_or_refused(kind, done, corpus, capsys):
    before = everything(done)
    for pattern in PIECES:
        if not (found := sorted(done.glob(pattern))):
            assert (kind, pattern) == ("filter", "duplicates/*")
            continue
        whole = found[0].read_bytes()
        one_byte_changed(found[0])
        damaged = everything(done)
        assert any(str(found[0].relative_to(done)) in line for line in verify_output(str(done)).problems)
        if kind == "put aside" or pattern == "duplicates/*":
            with pytest.raises(OutputDamaged, match=re.escape(found[0].name)):
                execute(*stages(kind, corpus, done))
            assert everything(done) == damaged
            found[0].write_bytes(whole)
        else:
            execute(*stages(kind, corpus, done))
            told = capsys.readouterr().err
            assert "1 block is done again" in told and found[0].name in told
        assert written(done) == {name: data for name, data in before.items() if "_gristmill" not in name}
        assert not verify_output(str(done)).problems


def test_checksums_are_not_compared_if_that_is_not_wanted(kind, done, corpus):
    one_byte_changed(done / "part-000001.jsonl")
    damaged = everything(done)
    result = execute(*stages(kind, corpus, done), verify=False)
    assert result.ledger.resumed == len(result.ledger.blocks)
    assert {name for name, data in everything(done).items() if damaged[name] != data} <= {"_gristmill/ledger.json"}


def cut_in_half(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def last_line_gone(path: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


DAMAGES = {
    "a list": lambda path: path.write_bytes(b"[]"),
    "a number": lambda path: path.write_bytes(b"7"),
    "empty": lambda path: path.write_bytes(b""),
    "half": cut_in_half,
    "no JSON": lambda path: path.write_bytes(b"\xff\x00{{"),
    "other keys": lambda path: path.write_bytes(b'{"stages": 3, "inputs": 7, "format": 2}\n'),
    "no last line": last_line_gone,
    "a byte": one_byte_changed,
}


LOGS = ("_gristmill/run.json", "_gristmill/commits/*", "_gristmill/phases/1/decided.json")


def test_a_damaged_log_is_a_plain_error_and_removes_nothing(kind, done, corpus):
    paths = [path for place in LOGS for path in (*done.glob(place), *done.glob(f"_gristmill/phases/1/{place}"))]
    assert len(paths) == (2 if kind == "filter" else 5)
    for path in paths:
        whole = path.read_bytes()
        for name, damage in DAMAGES.items():
            if name == "a byte" and path.suffix != ".jsonl":
                continue  # a name or a note may be changed without a trace
            path.write_bytes(whole)
            damage(path)
            damaged = everything(done)
            with pytest.raises(OutputChanged, match=re.escape(str(done))) as error:
                execute(*stages(kind, corpus, done))
            assert isinstance(error.value, PlanError) and "fresh" in str(error.value), (path, name)
            assert everything(done) == damaged
            assert verify(done) == 1
        path.write_bytes(whole)
    assert verify(done) == 0
    good = written(done)
    paths[0].write_bytes(b"[]")
    execute(*stages(kind, corpus, done), fresh=True)
    assert written(done) == good and verify(done) == 0


def verify(out: Path) -> int:
    return main(["verify", str(out)])


def test_a_damaged_log_is_no_traceback_on_the_command_line(corpus, tmp_path, capsys):
    job = tmp_path / "pipeline.yaml"
    job.write_text(f"stages:\n  - JsonlReader: {{file_paths: {corpus}}}\n  - JsonlWriter: {{path: {tmp_path}/out}}\n")
    assert main(["run", str(job), "--view", "off"]) == 0
    (tmp_path / "out/_gristmill/run.json").write_text("[]")
    assert main(["run", str(job), "--view", "off"]) == 1
    assert main(["explain", str(tmp_path / "out"), "doc-1"]) != 0
    told = capsys.readouterr().err
    assert "run.json is damaged" in told and "Traceback" not in told


def test_a_damaged_ledger_does_not_stop_a_run_and_is_written_again(kind, done, corpus):
    ledger = done / "_gristmill/ledger.json"
    before = ledger.read_bytes()
    ledger.write_bytes(b"[]")
    execute(*stages(kind, corpus, done))
    assert ledger.read_bytes() == before


def test_an_output_of_a_version_without_checksums_is_refused(done, kind, corpus):
    path = done / "_gristmill/run.json"
    run = json.loads(path.read_bytes())
    for key in ("format", "mark", "output", "segments"):
        del run[key]
    path.write_text(json.dumps(run))
    damaged = everything(done)
    with pytest.raises(OutputChanged, match="it has no checksums"):
        execute(*stages(kind, corpus, done))
    assert everything(done) == damaged


OWN = ("part-2024-notes.txt", "part-99.jsonl", "excluded/part-99.bak", "quarantine/part-1", "duplicates/mine.parquet")


def test_files_of_the_user_survive_runs_resumes_and_starting_over(kind, done, corpus):
    own = [*OWN, "part-000001.jsonl.bak", "part-000001.parquet", ".tmp-part-000001.jsonl-0123abcd", "part-999999.jsonl"]
    for name in own:
        (done / name).parent.mkdir(exist_ok=True)
        (done / name).write_text("mine")
    (done / "part-000001.jsonl").unlink() if kind != "put aside" else None
    execute(*stages(kind, corpus, done))
    execute(*stages(kind, corpus, done), fresh=True)
    execute(*stages(kind, corpus, done, min_words=10), fresh=True)
    assert all((done / name).read_text() == "mine" for name in own)


def test_only_names_that_a_run_would_write_keep_it_from_starting(kind, corpus, tmp_path):
    out = tmp_path / "out"
    for name in OWN:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("mine")
    execute(*stages(kind, corpus, out))
    assert all((out / name).read_text() == "mine" for name in OWN)
    other = tmp_path / "other"
    (other / "excluded").mkdir(parents=True)
    (other / "excluded/part-000000.jsonl").write_text("mine")
    with pytest.raises(OutputChanged, match=r"excluded/part-000000\.jsonl"):
        execute(*stages(kind, corpus, other))
    assert everything(other) == {"excluded/part-000000.jsonl": b"mine"}


def test_a_refused_run_leaves_nothing_in_the_folder(kind, corpus, tmp_path):
    out = tmp_path / "not/there"
    with pytest.raises(PlanError):
        execute(JsonlReader(str(corpus), text_field="nothing"), JsonlWriter(str(out)))
    assert not (tmp_path / "not").exists()
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "part-000000.jsonl").write_text("{}\n")
    with pytest.raises(OutputChanged, match=re.escape(str(taken))):
        execute(*stages(kind, corpus, taken))
    assert [path.name for path in taken.rglob("*")] == ["part-000000.jsonl"]


def test_a_change_is_described_in_words(kind, done, corpus):
    with pytest.raises(OutputChanged, match="min_words was 50, now it is 10") as error:
        execute(*stages(kind, corpus, done, min_words=10))
    assert str(error.value).startswith(f"{done} holds the output of another run:")
    changed = stages(kind, corpus, done)
    changed[0] = JsonlReader(str(corpus), blocksize="9KB")
    with pytest.raises(OutputChanged, match="blocksize was") as error:
        execute(*changed)
    assert str(error.value).startswith(f"{done} holds the output of another run:")


def test_changed_code_is_named_by_function_and_not_by_a_hash(corpus, tmp_path):
    def run(words: str, limit: int) -> None:
        space: dict = {"__name__": "mine", "DocumentBatch": DocumentBatch, "processing_stage": processing_stage}
        source = f"LIMIT = {limit}\ndef helper(batch):\n    {words}\n    return batch if LIMIT else None\n"
        exec(source, space)
        exec("def shout(batch: DocumentBatch) -> DocumentBatch:\n    return helper(batch)\n", space)
        shout = processing_stage(name="shout")(space["shout"])
        execute(JsonlReader(str(corpus)), shout, JsonlWriter(str(tmp_path / "out")))

    run("pass", 1)
    with pytest.raises(OutputChanged, match=r"stage 2 'shout': its code has changed in helper\(\)") as error:
        run("print()", 1)
    assert not re.search(r"[0-9a-f]{12}", str(error.value).replace(str(tmp_path), ""))
    with pytest.raises(OutputChanged, match=r"its code has changed in LIMIT"):
        run("pass", 2)


class Spoiler(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Changes the output once while the run writes to it, as another program might: if a file asks for it."""

    def __init__(self, place: str) -> None:
        self.name = "spoiler"
        self.place = place

    def process(self, task: DocumentBatch) -> DocumentBatch:
        asked, out = Path(self.place, "spoil"), Path(self.place, "out")
        first = out / "part-000001.jsonl"
        if first.exists() and asked.exists():
            how = asked.read_text()
            asked.unlink()
            if how == "removed":
                first.unlink()
            elif how == "renamed":
                first.rename(out / "renamed.jsonl")
            else:
                out.rename(out.with_name("elsewhere"))
        return task


@pytest.mark.parametrize("how", ["removed", "renamed", "folder renamed"])
def test_an_output_that_a_stage_changes_in_the_middle_of_a_run_fails_it(corpus, tmp_path, how):
    out = tmp_path / "out"

    def pipeline(folder: Path) -> list:
        return [*stages("filter", corpus, folder)[:2], Spoiler(str(tmp_path)), JsonlWriter(str(folder))]

    execute(*pipeline(tmp_path / "whole"))
    (tmp_path / "spoil").write_text(how)
    with pytest.raises(PipelineError):
        execute(*pipeline(out))
    assert not (tmp_path / "spoil").exists()
    assert execute(*pipeline(out)).ok
    assert {n: data for n, data in written(out).items() if n != "renamed.jsonl"} == written(tmp_path / "whole")


@pytest.mark.parametrize(
    "how",
    ["removed", "renamed", "cut", "log removed", "run.json removed", "all of the log removed", "folder renamed"],
)
def test_an_output_that_changes_during_the_run_fails_it(corpus, tmp_path, monkeypatch, how):
    out = tmp_path / "out"
    monkeypatch.setattr("gristmill.ledger.commits._FLUSH_S", 0)

    def pipeline():
        return stages("filter", corpus, out)

    def spoil() -> None:
        parts = [out / "part-000001.jsonl"]
        if how == "removed":
            parts[0].unlink()
        elif how == "renamed":
            parts[0].rename(out / "renamed.jsonl")
        elif how == "cut":
            cut_in_half(parts[0])
        elif how == "log removed":
            for path in commit_files(out):
                path.unlink()
        elif how == "run.json removed":
            (out / "_gristmill" / "run.json").unlink()
        elif how == "all of the log removed":
            shutil.rmtree(out / "_gristmill")
        else:
            out.rename(tmp_path / "elsewhere")

    from gristmill.pipeline import documents

    check_written = documents.check_written

    def check(plan, result, ignore):
        plan.ledger.log.flush(now=True)
        spoil()
        return check_written(plan, result, ignore)

    monkeypatch.setattr("gristmill.pipeline.pipeline.check_written", check)
    with pytest.raises(PipelineError, match="was changed by something else while the run was writing to it"):
        execute(*pipeline())
    monkeypatch.undo()
    result = execute(*pipeline())
    execute(*stages("filter", corpus, tmp_path / "whole"))
    whole = {name: data for name, data in written(out).items() if name != "renamed.jsonl"}
    assert result.ok and whole == written(tmp_path / "whole")


def test_a_file_of_an_attempt_that_came_to_nothing_is_not_left_beside_its_block(corpus, tmp_path, monkeypatch):
    from gristmill.pipeline import documents

    out = tmp_path / "out"
    check_written = documents.check_written

    def check(plan, result, ignore):
        (out / "part-000001-00000000-00000002.jsonl").write_text('{"text": "twice"}\n')
        return check_written(plan, result, ignore)

    monkeypatch.setattr("gristmill.pipeline.pipeline.check_written", check)
    execute(*stages("filter", corpus, out))
    assert not (out / "part-000001-00000000-00000002.jsonl").exists()


def test_a_run_with_nothing_to_do_removes_nothing(corpus, tmp_path):
    out = tmp_path / "out"
    execute(*stages("filter", corpus, out))
    notes = [out / "part-000001-00000000-00000002.jsonl", out / "excluded" / "part-000001.7.jsonl"]
    for path in notes:
        path.write_text("mine")
    execute(*stages("filter", corpus, out))
    assert [path.read_text() for path in notes] == ["mine", "mine"]


@pytest.mark.parametrize(
    ("writer", "compression"), [(JsonlWriter, "gzip"), (JsonlWriter, "zstd"), (ParquetWriter, "zstd")]
)
def test_verify_counts_the_records_in_files_of_every_format(corpus, tmp_path, writer, compression, capsys):
    out = tmp_path / "out"
    front = stages("filter", corpus, out)[:2]
    execute(*front, writer(str(out), compression=compression))
    assert main(["verify", str(out)]) == 0
    assert "everything is as it was written" in capsys.readouterr().out


def test_verify_does_not_believe_counts_that_balance(corpus, tmp_path, capsys):
    """A commit that was forged with care: all sums agree, the files hold something else."""
    out = tmp_path / "out"
    execute(*stages("filter", corpus, out))
    (path,) = commit_files(out)
    lines = []
    for block, entry, line in CommitLog(Folder(out)).commits():
        if block == 1:
            entry.files = [(name, rows + (name[:5] == "part-"), *rest) for name, rows, *rest in entry.files]
            entry.kept += 1
            entry.read[next(iter(entry.read))] += 1
            line = line_of(block, entry)
        lines.append(line)
    path.write_bytes(whole(lines))
    assert main(["verify", str(out)]) == 1
    told = capsys.readouterr().out
    assert "part-000001.jsonl is damaged: it holds" in told and "ledger.json does not agree" in told


def test_verify_names_missing_and_unexpected_files_and_refuses_other_folders(corpus, tmp_path, capsys):
    out = tmp_path / "out"
    execute(*stages("filter", corpus, out))
    (out / "part-000002.jsonl").rename(out / "part-000099.jsonl")
    assert main(["verify", str(out)]) == 1
    told = capsys.readouterr().out
    assert "missing: part-000002.jsonl" in told and "unexpected: part-000099.jsonl" in told and "2 problems" in told
    (out / "part-000099.jsonl").rename(out / "part-000002.jsonl")
    (out / "part-000002.jsonl").open("a").write("more\n")
    assert main(["verify", str(out)]) == 1
    assert capsys.readouterr().out.endswith(": 1 problem\n")
    assert main(["verify", str(tmp_path)]) == 2  # as dropped and explain do: 1 means that something is damaged
    assert "is not the output of a run" in capsys.readouterr().err


def test_verify_does_not_call_files_of_an_unfinished_run_problems(corpus, tmp_path, capsys):
    """A run that was killed leaves files of blocks that are in no commit."""
    out = tmp_path / "out"
    result = execute(*stages("filter", corpus, out))
    (out / "_gristmill/ledger.json").unlink()  # it is written at the end of a run
    for path in commit_files(out):
        path.unlink()
    files = len(written(out)) + len(list((out / "_gristmill/scores").iterdir()))
    found = verify_output(str(out))
    assert not found.problems and found.unfinished == files and found.all_blocks == len(result.ledger.blocks)
    assert f"; {files} files of unfinished blocks: the next run replaces them" in found.summary()
    (out / "part-000099.jsonl").touch()  # a block that the run does not have
    assert verify_output(str(out)).problems == ["unexpected: part-000099.jsonl"]
    (out / "part-000099.jsonl").unlink()
    execute(*stages("filter", corpus, out))
    found = verify_output(str(out))
    assert not found.problems and not found.unfinished


def test_random_damage_to_any_file_is_found_by_verify(kind, done):
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    names = [path for path in sorted(done.rglob("*")) if path.is_file() and path.stat().st_size]
    known = [path for path in names if path.name not in ("lock", "run.json", "decided.json", "ledger.json")]
    path = rng.choice([path for path in known if "phases" not in path.parts or path.name == "removed.json"])
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    assert verify_output(str(done)).problems, path


def test_verify_reports_a_lost_description_of_the_run(kind, done):
    (done / "_gristmill/run.json").unlink()
    if (done / "_gristmill/phases/1").exists():
        assert "missing: _gristmill/run.json" in verify_output(str(done)).problems[0]
    else:
        with pytest.raises(PlanError, match=r"no _gristmill/run\.json"):
            verify_output(str(done))


@pytest.mark.parametrize("kind", ["read again", "put aside"])
def test_lost_commits_of_a_phase_are_found_by_verify_and_by_the_next_run(kind, done, corpus):
    """Without them it would not be noticed that excluded documents of the phase are missing or damaged."""
    next((done / "_gristmill/phases/1/_gristmill/commits").iterdir()).unlink()
    damaged = everything(done)
    assert "missing: the commits of " in verify_output(str(done)).problems[0]
    with pytest.raises(OutputDamaged, match=r"the commits of .* are missing"):
        execute(*stages(kind, corpus, done))
    assert everything(done) == damaged


@pytest.mark.parametrize("kind", ["read again", "put aside"])
def test_verify_reports_a_finished_output_whose_phase_is_not_decided(kind, done):
    (done / "_gristmill/phases/1/decided.json").unlink()
    assert "missing: _gristmill/phases/1/decided.json" in verify_output(str(done)).problems[0]
