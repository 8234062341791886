"""The same documents stay, with the same bytes, for any workers, block size, memory limit and interruption."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.stages.deduplication.corpora import (
    deduplicate,
    edited,
    execute,
    lines_of,
    records_of,
    resumed_after_each_change,
    texts,
    write_jsonl,
    written,
)

from gristmill.errors import OutputChanged
from gristmill.pipeline.phases import barrier_context
from gristmill.stages.deduplication.exact import ExactDeduplication
from gristmill.stages.deduplication.fuzzy import FuzzyDeduplication
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Three files of families of near duplicates, some of them equal, some of few words."""
    found = []
    for n, text in enumerate(texts(21, 45, 40)):
        found += [{"text": text, "n": n}, {"text": " ".join(text.split()[: 5 + n]), "n": n}]
        found += [{"text": edited(text, 10 * n + k, k), "n": n} for k in range(n % 4)]
    random.Random(4).shuffle(found)
    folder = tmp_path / "in"
    for n, name in enumerate("abc"):
        write_jsonl(folder / f"{name}.jsonl", found[n::3])
    with (folder / "b.jsonl").open("a") as file:
        file.write('{"text": "broken\n')
    return folder


def stages(barrier, spooled: bool):
    """A pipeline that reads the source again after the barrier, and one that stores documents."""
    return [ScoreFilter(WordCountFilter(min_words=8)), barrier] if spooled else [barrier]


def contents(out: Path) -> list[object]:
    """The results that do not depend on blocks: documents in order, and records but for the place in a block."""
    records = [{key: value for key, value in row.items() if key != "row"} for row in records_of(out)]
    dropped = sorted(json.dumps(d, sort_keys=True) for d in lines_of(out, "excluded"))
    return [b"".join(path.read_bytes() for path in sorted(out.glob("part-*"))), records, dropped]


@pytest.mark.parametrize(("spooled", "counts"), [(False, (0, 4)), (True, (0, 1, 2, 4))])
def test_the_bytes_do_not_depend_on_workers(corpus, tmp_path, monkeypatch, spooled, counts):
    outputs = []
    for workers in counts:
        monkeypatch.setattr(
            barrier_context, "HERE_BYTES", 0 if workers == 4 else 64 << 20
        )  # in the driver, or on workers
        reader = JsonlReader(str(corpus), blocksize=3000)
        barrier = FuzzyDeduplication(survivor="longest", verify=spooled)
        out = tmp_path / f"out{workers}"
        execute(reader, *stages(barrier, spooled), JsonlWriter(str(out)), workers=workers)
        outputs.append(written(out))
    assert all(output == outputs[0] for output in outputs)
    folders = {name.partition("/")[0] for name in outputs[0] if "/" in name}
    assert len(outputs[0]) > 20 and folders == {"duplicates", "excluded", "quarantine"}


@pytest.mark.parametrize(
    ("barrier", "arguments"),
    [(ExactDeduplication, {}), (FuzzyDeduplication, {"num_bands": 3, "minhashes_per_band": 5})],
)
def test_content_does_not_depend_on_blocks_nor_on_memory(corpus, tmp_path, barrier, arguments):
    found = []
    for name, spooled, blocksize, limit in (
        ("whole", False, None, None),
        ("tight", False, 5000, "20KB"),
        ("aside", True, None, None),
        ("aside, tight", True, 6000, "20KB"),
    ):
        reader = JsonlReader(str(corpus), blocksize=blocksize)
        execute(reader, *stages(barrier(memory_limit=limit, **arguments), spooled), JsonlWriter(str(tmp_path / name)))
        found.append(contents(tmp_path / name))
    assert found[0] == found[1] and found[2] == found[3] and found[0] != found[2]
    assert all(len(x) > 5 for x in found[0])


def test_little_memory_means_several_passes_over_each_band_one_band_at_a_time(tmp_path):
    from gristmill.stages.deduplication import cost, match

    assert cost.bands_at_once(1000, 20, 20_000) == 1
    tasks = match.tasks_for("band000", ["band000"], 1000, 20_000 // 2)
    assert [task.turn for task in tasks] == list(range(8)) and len({task.data for task in tasks}) == 8
    roomy = match.tasks_for("band000", ["band000"], 1000, 1 << 30)
    assert len(roomy) == 1 and roomy[0].data not in {task.data for task in tasks}  # of another run they are not enough


SCRIPT = """
import sys, time
from tests.stages.deduplication.corpora import *
from gristmill.stages.deduplication.exact import ExactDeduplication
from gristmill.stages.deduplication.fuzzy import FuzzyDeduplication
from gristmill.stages.function_definitions import processing_stage
from gristmill.tasks import DocumentBatch

def slowly(name):
    @processing_stage(name=name)
    def slow(task: DocumentBatch) -> DocumentBatch:
        time.sleep(0.02)
        return task
    return slow

from gristmill.storage import Folder
write = Folder.write

def slow_write(self, name, data, **options):
    if name.endswith((".pairs", ".npy", ".parquet", "decided.json", "removed.json")) or ".phase" in name:
        time.sleep(0.01)
    return write(self, name, data, **options)

Folder.write = slow_write
source, out = Path(sys.argv[1]), Path(sys.argv[2])
fuzzy = FuzzyDeduplication(verify=True, num_bands=10)
execute(
    *(JsonlReader(str(source), blocksize=2000), ExactDeduplication(), slowly("between"), fuzzy),
    *(slowly("after"), JsonlWriter(str(out))),
    workers=2,
)
"""


@pytest.mark.timeout(900)  # a safety net: many runs, one after the other
def test_a_run_killed_at_any_moment_is_finished_by_the_next(corpus, tmp_path):
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[3]), *filter(None, sys.path)])}
    command = [sys.executable, str(script), str(corpus)]
    began = time.monotonic()
    subprocess.run([*command, str(tmp_path / "whole")], check=True, env=env, stderr=subprocess.DEVNULL)
    takes = time.monotonic() - began
    rng = random.Random(11)
    out, killed, rounds = tmp_path / "out", 0, 0
    while killed < 10:
        process = subprocess.Popen([*command, str(out)], env=env, stderr=subprocess.DEVNULL)
        try:
            assert process.wait(rng.uniform(0.1, 0.9) * takes) == 0
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            killed += process.wait() == -signal.SIGKILL
        else:  # done before the next kill
            assert written(out) == written(tmp_path / "whole")
            shutil.rmtree(out)
            rounds += 1
            assert rounds < 40
    subprocess.run([*command, str(out)], check=True, env=env, stderr=subprocess.DEVNULL)
    assert written(out) == written(tmp_path / "whole")
    ledgers = [json.loads((x / "_gristmill/ledger.json").read_text()) for x in (out, tmp_path / "whole")]
    assert ledgers[0]["total"] == ledgers[1]["total"] and ledgers[0]["files"] == ledgers[1]["files"]
    assert not [path for path in out.rglob("*") if path.suffix in (".keys", ".docs", ".pairs", ".npy")]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("spooled", [False, True])
def test_a_run_that_is_killed_after_any_file_is_finished_by_the_next(corpus, tmp_path, spooled):
    """Whatever is written or removed is once the last thing that is done."""

    def run(out: Path) -> None:
        barrier = FuzzyDeduplication(num_bands=4, minhashes_per_band=4, verify=spooled)
        execute(JsonlReader(str(corpus)), *stages(barrier, spooled), JsonlWriter(str(out)))

    assert resumed_after_each_change(run, tmp_path / "out", tmp_path / "left") > 20


def test_another_argument_or_input_is_refused_and_fresh_leaves_nothing_of_the_old_run(corpus, tmp_path):
    out = tmp_path / "out"

    def run(char_ngrams: int = 24, **options):
        barrier = FuzzyDeduplication(char_ngrams=char_ngrams)
        front = [ScoreFilter(WordCountFilter(min_words=8))]
        reader = JsonlReader(str(corpus), blocksize=options.pop("blocksize", 2000))
        return execute(reader, *front, barrier, JsonlWriter(str(out)), **options)

    first = run()
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    with pytest.raises(OutputChanged, match="char_ngrams"):
        run(char_ngrams=5)
    with pytest.raises(OutputChanged, match="blocksize"):
        run(blocksize=5000)
    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}

    again = run()
    changed = {path for path in out.rglob("*") if path.is_file() and before.get(path) != path.stat().st_mtime_ns}
    assert {path.name for path in changed} <= {"ledger.json", "lock"}
    assert again.ledger.total() == first.ledger.total() and again.record.notes == first.record.notes
    assert again.ledger.files == first.ledger.files

    def documents(result) -> str:
        lines = result.summary().partition("documents\n")[2].partition("kept documents")[0].splitlines()
        lines = [line for line in lines if "by earlier runs" not in line and "nothing was left to do" not in line]
        return "\n".join(line.partition(", ")[0] for line in lines)

    assert documents(again) == documents(first) and "ScoreFilter" in documents(again)

    with (corpus / "a.jsonl").open("a") as file:
        file.write('{"text": "one more"}\n')
    with pytest.raises(OutputChanged, match=r"a\.jsonl has changed"):
        run()
    (out / "mine.txt").write_text("left alone")
    run(fresh=True, blocksize=50_000)
    clean = {name: data for name, data in written(out).items() if name != "mine.txt"}
    execute(
        JsonlReader(str(corpus), blocksize=50_000),
        ScoreFilter(WordCountFilter(min_words=8)),
        FuzzyDeduplication(),
        JsonlWriter(str(tmp_path / "clean")),
    )
    assert clean == written(tmp_path / "clean") and (out / "mine.txt").exists()


def test_fresh_without_duplicates_to_remove_takes_the_records_away(corpus, tmp_path):
    out = tmp_path / "out"
    deduplicate(corpus, out, ExactDeduplication(), FuzzyDeduplication())
    assert (out / "duplicates").exists() and (out / "duplicates-2").exists()
    execute(JsonlReader(str(corpus)), JsonlWriter(str(out)), fresh=True)
    folders = {name.partition("/")[0] for name in written(out) if "/" in name}
    assert folders == {"quarantine"}
    with pytest.raises(OutputChanged, match="another run"):
        deduplicate(corpus, out, ExactDeduplication())


@pytest.mark.parametrize("spooled", [False, True])
def test_a_part_that_is_lost_after_the_end_is_made_again_or_the_loss_is_reported(corpus, tmp_path, spooled):
    def run(**options):
        reader = JsonlReader(str(corpus), blocksize=4000)
        return execute(reader, *stages(ExactDeduplication(), spooled), JsonlWriter(str(tmp_path / "out")), **options)

    run()
    before = written(tmp_path / "out")
    (tmp_path / "out/part-000001.jsonl").unlink()
    if spooled:
        with pytest.raises(OutputChanged, match="fresh"):
            run()
        run(fresh=True)
    else:
        run()
    assert written(tmp_path / "out") == before
