"""A run starts from what an earlier run measured."""

from __future__ import annotations

import copy
import json
import time
from dataclasses import dataclass

import pyarrow as pa
import pytest

from gristmill.backends.local import LocalExecutor
from gristmill.errors import PipelineError
from gristmill.pipeline import Pipeline
from gristmill.scheduling.profile import Profile, ProfileError
from gristmill.scheduling.simulator import read_load, simulate
from gristmill.stages.core import ProcessingStage
from gristmill.stages.protocols import Tuned
from gristmill.stages.resources import Resources
from gristmill.tasks import DocumentBatch, Task
from gristmill.text import JsonlReader, JsonlWriter

pytestmark = pytest.mark.alone  # times that a run measures are compared


@dataclass
class Number(Task[int]):
    data: int = 0


class Sleep(ProcessingStage[Number, Number]):
    def __init__(self, name, seconds, gpus=0):
        self.name, self.seconds = name, seconds
        self.resources = Resources(gpus=gpus)

    def process(self, task):
        time.sleep(self.seconds)
        return task


class Setup(Sleep):
    def setup(self, worker_metadata=None):
        time.sleep(0.2)


class Stream(Sleep):
    def process(self, task):
        for _ in range(3):
            time.sleep(self.seconds)
            yield Number(data=task.data)


def numbers(n):
    return [Number(data=i) for i in range(n)]


def first_counts(result):
    """Workers of each step by the first plan, which is carried out at one moment."""
    first = min(at for step in result.record.steps for at, n in step.workers if n)
    return {step.name: [n for at, n in step.workers if at <= first][-1] for step in result.record.steps}


def test_the_second_run_begins_balanced(run, tmp_path):
    stages = [Sleep("quick", 0.02, gpus=1), Sleep("slow", 0.1, gpus=1)]
    first = run(stages, numbers(30), num_cpus=8, num_gpus=6)
    file = tmp_path / "profile.json"
    first.profile().write(file)
    second = run(stages, numbers(100), num_cpus=8, num_gpus=6, profile=file)
    assert first_counts(first) == {"quick": 3, "slow": 3}
    known = Profile.read(file).stages
    quick, slow = known["quick"].service_s, known["slow"].service_s  # as measured: a busy machine takes longer
    times = {workers: max(quick / workers, slow / (6 - workers)) for workers in range(1, 6)}
    began = first_counts(second)
    assert sum(began.values()) == 6 and times[began["quick"]] <= 1.1 * min(times.values())


def test_a_profile_holds_what_was_measured(run):
    profile = run([Stream("make", 0.1), Setup("use", 0.02)], numbers(4), fuse=False).profile()
    make, use = profile.stages["make"], profile.stages["use"]
    assert 0.3 <= make.service_s < 0.5, "all chunks of a generator count"
    assert make.outputs_per_input == 3
    assert 0.02 <= use.service_s < 0.1 and 0.2 <= use.setup_s < 0.4


@pytest.mark.parametrize("profile", [{"stages": {"other": {"service_s": 3.0}}}, Profile({})])
def test_stages_that_it_does_not_know_are_measured(run, profile):
    assert len(run([Sleep("sleep", 0.001)], numbers(3), profile=profile)) == 3


@pytest.mark.parametrize(
    ("profile", "says"),
    [
        ("no/such.json", "no/such.json cannot be read: No such file"),
        ({"stages": {"sleep": {"service_s": "fast"}}}, "'service_s' must be a number of 0 or more, not 'fast'"),
        ({"steps": {}}, 'the profile is not a profile: it must be an object with "stages"'),
        (7, "profile is what `result.profile()` gives"),
    ],
)
def test_a_profile_that_cannot_be_read_is_reported_before_anything_starts(profile, says):
    with pytest.raises(PipelineError, match="profile") as failure:
        LocalExecutor({"profile": profile})
    assert says in str(failure.value)


def test_a_run_is_a_load(run, tmp_path):
    stages = [Stream("make", 0.12), Setup("use", 0.03, gpus=0.5), Sleep("end", 0.02).with_(num_workers=2, batch_size=4)]
    result = run(stages, numbers(6), num_cpus=6, num_gpus=2, memory_limit="8GB", object_store_memory="1GB")
    load = result.load()
    (node,) = load.nodes
    assert (node.cpus, node.gpus, node.memory_gb, load.budget_gb, load.inputs) == (6, 2, 8, 1, 6)
    assert load.shared_cpu and 0 < load.start_s < 1 and 0 < load.leave_s < 1
    make, use, end = load.stages
    assert (make.gpus, make.outputs_per_input, make.setup_s) == (0, 3, 0) and make.chunk in (1, 2)
    assert 0.36 <= make.mean_s < 0.6 and 0 < make.output_mb < 0.01
    assert (use.gpus, use.outputs_per_input) == (0.5, 1) and 0.2 <= use.setup_s < 0.4
    assert (end.workers, end.batch_size) == (2, 4) and 0.02 <= end.mean_s < 0.1
    file = tmp_path / "load.json"
    load.write(file)
    assert read_load(file) == load
    simulated = simulate(file)
    assert [stage.tasks_done for stage in simulated.stages] == [6, 18, 18]
    assert [stage.workers_started for stage in simulated.stages][::2] == [0, 2], "CPU stages share workers"


def test_a_run_in_which_a_step_did_nothing_is_no_load(run):
    class Drop(Sleep):
        def process(self, task):
            return None

    result = run([Drop("drop", 0), Sleep("never", 0, gpus=1)], numbers(3), num_gpus=1)
    with pytest.raises(PipelineError, match="cannot be simulated"):
        result.load()
    assert list(result.profile().stages) == ["drop"]


class Tuning(ProcessingStage[DocumentBatch, DocumentBatch], Tuned):
    """Finds the pace 7, and adds a column with the pace that it began with."""

    name = "tuning"
    accounts_for_documents = True
    pace = 1

    def process(self, task):
        task.data = task.data.append_column("pace", pa.array([self.pace] * task.num_items))
        task.account.notes["found pace"] = 7
        return task

    def with_found(self, settings):
        changed = copy.copy(self)
        changed.pace = settings["pace"]
        return changed

    def num_workers(self):  # a step of its own
        return 1


def test_a_stage_begins_with_the_setting_that_it_found(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n')

    def paces(output, **config):
        stages = [JsonlReader(str(tmp_path / "in.jsonl")), tuning, JsonlWriter(str(tmp_path / output))]
        result = Pipeline("tuning", stages=stages).run(LocalExecutor(config=config))
        lines = (tmp_path / output).glob("part-*.jsonl")
        return result, [json.loads(line)["pace"] for file in lines for line in file.read_text().splitlines()]

    tuning = Tuning()
    first, begun = paces("first")
    assert begun == [1]
    first.profile().write(tmp_path / "profile.json")
    assert paces("second", profile=tmp_path / "profile.json")[1] == [7]
    assert paces("third")[1] == [1], "the user's stage was changed"


def test_settings_that_are_no_numbers_are_an_error():
    entry = {"service_s": 1.0, "settings": {"pace": "fast"}}
    with pytest.raises(ProfileError, match="'settings' must be an object of whole numbers"):
        Profile.read({"stages": {"tuning": entry}})
