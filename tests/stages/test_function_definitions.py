import subprocess
import sys

import cloudpickle
import pytest

from gristmill.stages.core import ProcessingStage
from gristmill.stages.function_definitions import processing_stage
from gristmill.stages.resources import Resources
from gristmill.tasks import DocumentBatch, FileGroupTask, Task


@processing_stage(name="custom", resources=Resources(cpus=2), batch_size=3, outputs=["text"])
def read(task: FileGroupTask) -> DocumentBatch:
    """Reads files."""
    return task


@processing_stage
def bare(task):
    return task


def test_it_is_a_stage_that_still_looks_like_its_function():
    assert isinstance(read, ProcessingStage)
    assert (read.name, read.resources, read.batch_size) == ("custom", Resources(cpus=2), 3)
    assert (read.__name__, read.__doc__) == ("read", "Reads files.")
    assert (read.input_type(), read.output_type(), read.fans_out()) == (FileGroupTask, DocumentBatch, False)
    assert read.outputs() == ([], ["text"]) and read.declares_outputs()


def test_parentheses_may_be_left_out():
    task = Task(1)
    assert bare.name == "bare" and bare.process(task) is task and bare(task) is task
    assert (bare.input_type(), bare.output_type()) == (None, None)
    assert not bare.declares_outputs()


def test_with_changes_a_copy():
    assert (read.with_(batch_size=9).batch_size, read.batch_size) == (9, 3)


def test_all_that_a_stage_may_return_a_function_may_too():
    @processing_stage()
    def split(task: Task) -> list[Task] | None:
        return [Task(c) for c in task.data] if task.data else None

    @processing_stage(num_workers=2)
    def stream(task: Task):
        yield from (Task(c) for c in task.data)

    assert [t.data for t in split.process(Task("ab"))] == ["a", "b"] and split.process(Task("")) is None
    assert [t.data for t in stream.process(Task("ab"))] == ["a", "b"]
    assert split.fans_out() and stream.fans_out() and stream.num_workers() == 2
    assert split.output_type() is Task
    assert processing_stage(fan_out=True)(lambda task: task).fans_out()
    assert len(split.process_batch([Task("ab"), Task("")])) == 2


@pytest.mark.parametrize("stage", [read, bare, bare.with_(batch_size=2)])
def test_it_travels(stage):
    again = cloudpickle.loads(cloudpickle.dumps(stage))
    assert (again.name, again.batch_size, again.__doc__) == (stage.name, stage.batch_size, stage.__doc__)
    task = Task("x")
    assert again.process(task) is task


def test_closures_lambdas_and_what_lives_in_main_travel_to_a_process_that_cannot_import_them():
    script = """
import sys, cloudpickle
from gristmill import Task, processing_stage
factor = 3
def closure(k):
    return processing_stage(name="closure")(lambda task: Task(task.data * k * factor))
@processing_stage
def twice(task: Task) -> Task:
    return Task(task.data * 2)
sys.stdout.buffer.write(cloudpickle.dumps([closure(5), twice]))
"""
    sent = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout
    stages = cloudpickle.loads(sent)
    assert [stage.process(Task(1)).data for stage in stages] == [15, 2]
    assert [stage.name for stage in stages] == ["closure", "twice"]


@pytest.mark.parametrize("wrong", ["name", Task, lambda: None, lambda a, b: a, bare])
def test_what_is_not_a_function_of_a_task_is_refused(wrong):
    with pytest.raises(TypeError, match="@processing_stage"):
        processing_stage(wrong)


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="batch_size"):
        processing_stage(batch_size=0)(lambda task: task)
    with pytest.raises(TypeError, match="bach_size"):
        processing_stage(bach_size=1)(lambda task: task)
