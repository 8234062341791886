"""The promises of every executor. Runs cost seconds where Ray is, so tests look at one run from many sides."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.backends.conformance.executors import Kind
from tests.backends.conformance.stages import (
    Batched,
    CannotSetUp,
    Deadly,
    DeadlyModel,
    Fragile,
    FragileBatch,
    Number,
    Odd,
    Shout,
    SlowStart,
    Split,
    Stream,
    notes,
)

from gristmill.backends.local import LocalExecutor
from gristmill.errors import PipelineError, PipelineFailed, PlanError
from gristmill.pipeline import Pipeline
from gristmill.stages.resources import Resources
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.tasks import DocumentBatch

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::gristmill.backends.capabilities.LimitedExecutor"),  # tested where planning is
]


def run(kind: Kind, stages: list[Any], tasks: Any, **options: Any) -> Any:
    return Pipeline("conformance", stages=stages).run(kind.make(**options), initial_tasks=tasks, fuse=False)


def by_hand(numbers: range) -> list[tuple[str, int, list[str]]]:
    """The tour's result for these numbers: id, data and trail of each final task, by the documented rules."""
    found = []
    for n in numbers:
        for i in range(n):
            data, ident = 100 * n + i, f"{n}.{i}"
            copies = 3 if data % 5 == 0 else 1
            if data % 2:
                found += [(f"{ident}.{k}", -data, [str(n), f"{ident}/{k}"]) for k in range(copies)]
    return found


# The tour: everything that ends well, in one run ----------------------------------------------------------------


@pytest.fixture(scope="module")
def tour(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("notes")
    share = Resources(cpus=0.5, gpus=0.25) if kind.can("logical_gpus") else Resources(cpus=0.5)
    last = Batched(folder).with_(resources=share, num_workers=2)
    result = run(kind, [Split(), Stream(), Odd(), last], [Number(data=n) for n in range(8)])
    return SimpleNamespace(result=result, folder=folder, share=share.gpus)


def test_tasks_become_what_the_stages_make_of_them_with_the_ids_of_their_origin(tour):
    assert [(t.task_id, t.data, t.trail) for t in tour.result] == by_hand(range(8))
    assert all(type(t) is Number for t in tour.result)


def test_what_goes_in_and_out_of_each_stage_adds_up(tour):
    tour.result.check()
    counts = {name: (s.tasks_in, s.tasks_out, s.tasks_dropped) for name, s in tour.result.stages.items()}
    split = [100 * n + i for n in range(8) for i in range(n)]
    streamed = [data for data in split for _ in range(3 if data % 5 == 0 else 1)]
    odd = [data for data in streamed if data % 2]
    assert counts == {
        "Split": (8, len(split), 1),
        "Stream": (len(split), len(streamed), 0),
        "Odd": (len(streamed), len(odd), len(streamed) - len(odd)),
        "Batched": (len(odd), len(odd), 0),
    }
    assert tour.result.ok and tour.result.record.wall_s > 0 and tour.result.record.first_output_s is not None


def test_batches_hold_as_many_tasks_as_they_may(tour):
    sizes = Counter(int(size) for size in notes(tour.folder, "batch"))
    tasks = tour.result.stages["Batched"].tasks_in
    assert sum(size * n for size, n in sizes.items()) == tasks
    assert max(sizes) == 4 and sum(sizes.values()) <= tasks // 2


def test_a_node_is_set_up_once_however_many_workers_it_has(tour):
    assert len(notes(tour.folder, "node")) == 1


def test_a_worker_is_torn_down_for_each_setup_where_the_executor_can(tour, kind):
    setups = Counter(text.split()[0] for text in notes(tour.folder, "setup"))
    stage = tour.result.stages["Batched"]
    assert 1 <= setups.total() <= 2
    if kind.can("teardown"):
        assert Counter(notes(tour.folder, "teardown")) == setups
        assert stage.teardowns == stage.setups == setups.total()
    else:
        assert not notes(tour.folder, "teardown") and not stage.teardowns
        assert 1 <= stage.setups <= setups.total()


def test_a_worker_knows_its_share_of_a_gpu(tour):
    assert {float(text.split()[1]) for text in notes(tour.folder, "setup")} == {tour.share}


# Failures -------------------------------------------------------------------------------------------------------


def documents(texts: list[str]) -> DocumentBatch:
    return DocumentBatch(data=pa.table({"text": texts}))


@pytest.fixture(scope="module", params=[Fragile, FragileBatch], ids=["alone", "batch"])
def failing(request: pytest.FixtureRequest, kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Any:
    if request.param is FragileBatch and kind.name == "xenna":
        pytest.skip("the same code as on Ray Data, and a run of Xenna is slow")
    folder = tmp_path_factory.mktemp("notes")
    texts = [f"text {i}" for i in range(40)]
    texts[13] = "poison"
    tasks = [*[Number(data=n) for n in range(8)], documents(texts)]
    result = run(kind, [request.param(folder)], tasks, ignore_failures=True, max_attempts=2, **kind.other)
    return SimpleNamespace(result=result, folder=folder, texts=texts)


def test_a_task_that_raises_is_given_up_alone_after_its_attempts(failing):
    given_up = {failure.task_id: failure for failure in failing.result.failures}
    assert set(given_up) == {"3", "8[13]"}
    assert given_up["3"].error == "ValueError: three" and "in process" in given_up["3"].detail
    assert "attempt 2 failed" in "\n".join(given_up["3"].story)
    assert len(notes(failing.folder, "three")) >= 2
    assert [t.data for t in failing.result if isinstance(t, Number)] == [0, 1, 2, 4, 5, 6, 7]
    assert not failing.result.ok


def test_a_task_that_fails_once_is_not_lost(failing):
    assert len(notes(failing.folder, "five")) >= 2
    assert "5" in [t.task_id for t in failing.result]


def test_of_a_batch_of_documents_only_the_bad_one_is_given_up(failing):
    batches = [t for t in failing.result if isinstance(t, DocumentBatch)]
    assert [text for t in batches for text in t.data["text"].to_pylist()] == failing.texts[:13] + failing.texts[14:]
    stage = next(iter(failing.result.stages.values()))
    assert (stage.tasks_in, stage.tasks_done, stage.tasks_failed, stage.items_failed) == (9, 8, 1, 2)


@pytest.mark.parametrize("stage", [Deadly, DeadlyModel])
def test_a_task_that_ends_its_process_costs_itself_or_is_named(kind, stage):
    tasks = [Number(data=n) for n in range(10)]
    if kind.can("crashes"):
        result = run(kind, [stage()], tasks, ignore_failures=True, max_attempts=1)
        assert [t.data for t in result] == [0, 1, 2, 3, 4, 5, 6, 8, 9]
        (failure,) = result.failures
        assert (failure.task_id, failure.stage) == ("7", stage.__name__)
        assert result.record.worker_deaths >= 1
    elif stage is DeadlyModel:
        with pytest.raises(PipelineError, match="task 7 in 'DeadlyModel'"):
            run(kind, [stage()], tasks, ignore_failures=True)


def test_a_setup_that_fails_ends_the_run_with_its_reason(kind):
    with pytest.raises(PipelineError, match=r"CannotSetUp.*OSError: no weights"):
        run(kind, [CannotSetUp()], [Number(data=1)])


def test_workers_that_take_long_to_set_up_at_the_same_time_are_waited_for(kind):
    result = run(kind, [SlowStart()], [Number(data=n) for n in range(12)], **kind.other)
    assert [task.data for task in result] == list(range(12))


# Planning -------------------------------------------------------------------------------------------------------


def test_a_stage_that_fits_nowhere_is_refused_before_anything_starts(kind):
    with pytest.raises(PlanError, match="64"):
        run(kind, [Odd().with_(resources=Resources(cpus=64))], [Number(data=1)])


def test_steps_that_take_turns_nowhere_must_fit_together(kind, tmp_path):
    if kind.can("turns"):
        pytest.skip("its steps take turns")
    large = Batched(tmp_path).with_(resources=Resources(cpus=3))
    with pytest.raises(PlanError, match="6 CPUs"):
        run(kind, [large, large.with_(name="again")], [Number(data=1)])


def test_a_share_of_a_gpu_by_memory_needs_a_gpu_of_known_size(kind):
    if not kind.uses_ray or kind.name == "ray":
        pytest.skip("knows its GPUs")
    with pytest.raises(PlanError, match='option "gpu_memory_gb"'):
        run(kind, [Odd().with_(resources=Resources(gpu_memory_gb=4))], [Number(data=1)])
    with pytest.raises(PlanError, match="the smallest GPU has 2 GB"):
        run(kind, [Odd().with_(resources=Resources(gpu_memory_gb=4))], [Number(data=1)], gpu_memory_gb=2)


# Documents ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of documents, with a malformed line and a poisoned document."""
    rng = random.Random(7)
    folder = tmp_path_factory.mktemp("corpus")
    for name in "ab":
        texts = [" ".join(rng.choice(("grain", "mill", "of", "stone")) for _ in range(n % 17)) for n in range(120)]
        lines = [json.dumps({"id": f"{name}{i}", "text": text}) for i, text in enumerate(texts)]
        lines[40] = '{"id": "broken'
        lines[100] = (
            json.dumps({"id": "bad", "text": "poison in the flour of the old mill"}) if name == "b" else lines[100]
        )
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def curate(corpus: Path, out: Path, flag: Path) -> Pipeline:
    reader = JsonlReader(str(corpus), blocksize="3KB")
    words = ScoreFilter(WordCountFilter(min_words=3))
    return Pipeline("curate", stages=[reader, words, Shout(flag), JsonlWriter(str(out))])


def written(folder: Path) -> dict[str, bytes]:
    """All that a run leaves but its log, by relative path."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and "_gristmill" not in path.parts]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def local_output(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The local executor's result for the corpus when nothing fails."""
    out = tmp_path_factory.mktemp("local") / "out"
    result = curate(corpus, out, out / "no flag").run(LocalExecutor({"view": "off", "num_cpus": 2}))
    return SimpleNamespace(files=written(out), ledger=result.ledger.plain())


@pytest.fixture(scope="module")
def curated(kind: Kind, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run that fails on a document, and another that resumes it when the cause is gone."""
    folder = tmp_path_factory.mktemp("curated")
    out, flag = folder / "out", folder / "flag"
    flag.touch()
    with pytest.raises(PipelineFailed) as failed:
        curate(corpus, out, flag).run(kind.make())
    flag.unlink()
    resumed = curate(corpus, out, flag).run(kind.make())
    return SimpleNamespace(failed=failed.value, resumed=resumed, out=out)


def test_a_run_with_a_failed_task_fails_at_its_end_and_names_the_document(curated):
    (failure,) = curated.failed.result.failures
    assert failure.stage == "Shout" and failure.error == "ValueError: poisoned" and failure.items == 1
    assert curated.failed.result.ledger.undone >= 1


def test_the_next_run_resumes_from_what_was_committed(curated):
    ledger = curated.resumed.ledger
    assert 0 < ledger.resumed < len(ledger.blocks)
    assert ledger.undone == 0


def test_every_document_is_accounted_for(curated, local_output):
    whole = curated.resumed.ledger.total()
    assert not curated.resumed.ledger.problems
    assert whole.documents == 240 and whole.errored.total() == 2
    assert whole.documents == whole.kept + whole.dropped.total() + whole.errored.total()
    assert curated.resumed.ledger.plain() == local_output.ledger


def test_what_is_written_is_the_same_to_the_byte(curated, local_output):
    assert written(curated.out) == local_output.files
