"""Samples: real runs of a part of the input, and what they leave behind."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gristmill.capacity.blocks import input_blocks, main_sample, small_sample, warm_up
from gristmill.capacity.errors import CapacityError
from gristmill.capacity.fitting import fitted
from gristmill.capacity.sampling import SampleLimits, sample, with_data
from gristmill.pipeline import Pipeline
from gristmill.stages.core import ProcessingStage
from gristmill.stages.resources import Resources
from gristmill.tasks import Task
from gristmill.text import JsonlReader

OPTIONS = {"num_cpus": 2}


@dataclass
class Number(Task[int]):
    data: int = 0


class Double(ProcessingStage[Number, Number]):
    name = "double"

    def process(self, task: Number) -> Number:
        return task


class OnGpu(Double):
    name = "on gpu"
    resources = Resources(gpus=1)


class DropsAll(ProcessingStage[Number, Number]):
    name = "drops all"

    def process(self, task: Number) -> Number | None:
        return None


class Fails(ProcessingStage[Number, Number]):
    name = "fails"

    def process(self, task: Number) -> Number:
        raise ValueError("no such luck")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_the_sample_is_spread_over_the_input_and_as_large_as_asked(corpus: Path) -> None:
    blocks = input_blocks(JsonlReader(str(corpus), blocksize="256KB"))
    assert blocks.bytes == sum(path.stat().st_size for path in corpus.iterdir())
    most = 0.6 * blocks.bytes
    parts = [warm_up(blocks, 2), small_sample(blocks, most, 2)]
    used = sum(block.size for part in parts for block in part)
    parts.append(main_sample(blocks, most, 2, used))
    total = sum(block.size for part in parts for block in part)
    assert 0.8 * most <= total <= most + blocks.block_bytes
    files = {range_.path for block in parts[-1] for range_ in block.parts}
    assert len(files) == 3
    assert max(block.size for block in parts[-1]) == pytest.approx(blocks.block_bytes, rel=0.1)


def test_a_sample_of_everything_is_the_job_itself(corpus: Path) -> None:
    blocks = input_blocks(JsonlReader(str(corpus), blocksize="64KB"))
    assert main_sample(blocks, blocks.bytes, 2, 0) == blocks.whole


def test_a_sample_is_measured_and_leaves_nothing_behind(
    tmp_path: Path, corpus: Path, temporary: Path, pipeline_file: Callable[..., Path]
) -> None:
    path = pipeline_file("ScoreFilter: {filter_obj: {WordCountFilter: {min_words: 100}}}")
    pipeline = with_data(Pipeline.from_yaml(path), None)
    found = sample(pipeline, None, OPTIONS, SampleLimits(0.5))
    run = fitted(found)
    assert 100 < run.documents < 2000
    assert found.blocks is not None
    per_document = found.blocks.bytes / 2400
    assert run.source_bytes / run.documents == pytest.approx(per_document, rel=0.15)
    assert run.output_bytes + run.excluded_bytes == pytest.approx(run.source_bytes, rel=0.3)
    assert run.peak_memory_bytes > run.driver_bytes > 10 << 20
    assert not (tmp_path / "out").exists()
    assert not list(temporary.iterdir())


def test_units_know_the_size_of_their_block(tmp_path: Path, corpus: Path, pipeline_file: Callable[..., Path]) -> None:
    pipeline = with_data(Pipeline.from_yaml(pipeline_file()), None)
    found = sample(pipeline, None, OPTIONS, SampleLimits(0.5))
    main = found.runs[-1]
    assert sorted(unit.size for unit in main.units[0]) == sorted(float(block.size) for block in main.blocks)
    assert sum(unit.is_first for unit in main.units[0]) <= 2
    assert all(unit.busy_s > 0 for unit in main.units[0])


def test_documents_limit_a_sample(tmp_path: Path, corpus: Path, pipeline_file: Callable[..., Path]) -> None:
    pipeline = with_data(Pipeline.from_yaml(pipeline_file(blocksize="16KB")), None)
    few = sample(pipeline, None, OPTIONS, SampleLimits(0.9, documents=300)).runs
    assert sum(run.run.documents for run in few) < 700
    assert sum(run.run.documents for run in few) < 0.5 * 2400


def test_each_phase_is_measured(tmp_path: Path, corpus: Path, pipeline_file: Callable[..., Path]) -> None:
    pipeline = with_data(Pipeline.from_yaml(pipeline_file("FuzzyDeduplication: {}")), None)
    run = fitted(sample(pipeline, None, OPTIONS, SampleLimits(0.5)))
    assert len(run.phases) == 2
    assert run.phases[0].decided_s > 0
    assert 0 <= run.phases[0].decided_fixed_s <= run.phases[0].decided_s
    assert not (tmp_path / "out").exists()


def test_other_data_is_read_if_it_is_named(tmp_path: Path, corpus: Path, pipeline_file: Callable[..., Path]) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "x.jsonl").write_text("".join(json.dumps({"text": f"a b c {i}"}) + "\n" for i in range(5000)))
    pipeline = with_data(Pipeline.from_yaml(pipeline_file()), str(other))
    found = sample(pipeline, None, OPTIONS, SampleLimits(1.0))
    assert found.blocks is not None
    assert found.blocks.bytes == (other / "x.jsonl").stat().st_size
    assert found.runs[-1].run.documents == 5000


def test_some_of_the_tasks_are_run(tmp_path: Path) -> None:
    tasks = [Number(data=i) for i in range(200)]
    found = sample(Pipeline("numbers", stages=[Double()]), tasks, OPTIONS, SampleLimits(0.1))
    assert found.inputs == 200
    assert found.runs[-1].run.phases[0].inputs == 20
    assert fitted(found).phases[0].steps[0].service_s > 0


def test_logical_gpus_measure_a_stage_that_asks_for_one() -> None:
    tasks = [Number(data=i) for i in range(20)]
    found = sample(Pipeline("numbers", stages=[OnGpu()]), tasks, {"num_cpus": 2, "num_gpus": 2}, SampleLimits(0.5))
    assert found.runs[-1].run.phases[0].steps[0].uses_gpu


def test_a_stage_that_gets_nothing_is_named() -> None:
    tasks = [Number(data=i) for i in range(20)]
    with pytest.raises(CapacityError, match=r"'double' got nothing in the sample.*Take a larger sample with --sample"):
        sample(
            Pipeline("numbers", stages=[DropsAll(), OnGpu().with_(name="double")]),
            tasks,
            {**OPTIONS, "num_gpus": 1},
            SampleLimits(),
        )


def test_a_sample_that_fails_tells_why(temporary: Path) -> None:
    with pytest.raises(CapacityError, match=r"(?s)the sample of 'numbers' failed.*no such luck"):
        sample(Pipeline("numbers", stages=[Fails()]), [Number(data=1)], OPTIONS, SampleLimits())
    assert not list(temporary.iterdir())


def test_a_pipeline_without_input_is_refused(tmp_path: Path, corpus: Path) -> None:
    with pytest.raises(CapacityError, match="has no initial tasks"):
        sample(Pipeline("numbers", stages=[Double()]), [], OPTIONS, SampleLimits())
    with pytest.raises(CapacityError, match="'double', is no reader of files"):
        sample(Pipeline("numbers", stages=[Double()]), None, OPTIONS, SampleLimits())
    with pytest.raises(CapacityError, match="--data is for pipelines that begin with a reader"):
        with_data(Pipeline("numbers", stages=[Double()]), os.fspath(corpus))


def test_empty_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(CapacityError, match="is empty, or its size is not known"):
        input_blocks(JsonlReader(os.fspath(tmp_path / "empty.jsonl")))
