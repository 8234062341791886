import collections
import itertools
import pickle
import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.backends.base import Plan
from gristmill.backends.step_runner import StepRunner
from gristmill.errors import LedgerError, PipelineFailed, PlanError
from gristmill.pipeline import Pipeline
from gristmill.stages.core import ProcessingStage
from gristmill.stages.function_definitions import processing_stage
from gristmill.stages.resources import Resources
from gristmill.tasks import DocumentBatch, EmptyTask, Task


@processing_stage(name="source")
def source(task: EmptyTask) -> list[Task]:
    return [Task(n) for n in range(4)]


@processing_stage(name="odd")
def odd(task: Task) -> Task | None:
    return task if task.data % 2 else None


@processing_stage(name="twice")
def twice(task: Task) -> list[Task]:
    return [Task(task.data), Task(-task.data)]


@processing_stage(name="half")
def half(task: Task) -> Task:
    return Task(1 / task.data)


def tasks(*data):
    return [Task(n) for n in data]


class Watched(ProcessingStage[Task, DocumentBatch]):
    """Sees whether anything of it was started."""

    def __init__(self):
        self.calls = []

    def setup(self, worker_metadata=None):
        self.calls.append("setup")

    def process(self, task):
        self.calls.append("process")
        return DocumentBatch(pa.table({"a": [1]}))


def test_stages_are_chained_and_tasks_flow_through(executor):
    pipeline = Pipeline("p", "a description").add_stage(source).add_stage(odd).add_stage(twice)
    result = pipeline.run(executor, keep_outputs=True)
    assert [(t.task_id, t.data) for t in result] == [("0.1.0", 1), ("0.1.1", -1), ("0.3.0", 3), ("0.3.1", -3)]
    assert executor.sources == [None]


@given(st.lists(st.integers(-5, 5)), st.lists(st.sampled_from([odd, twice, odd.with_(batch_size=2)]), min_size=1))
def test_fusing_changes_neither_results_nor_ids(make_executor, data, stages):
    fused, apart = (
        [(t.task_id, t.data) for t in Pipeline("p", stages=stages).run(make_executor(), tasks(*data), fuse=fuse)]
        for fuse in (True, False)
    )
    assert fused == apart


class Summed(ProcessingStage[Task, Task]):
    """Knows tasks only by the batch."""

    def process(self, task):
        raise AssertionError("a stage with process_batch is called by it")

    def process_batch(self, tasks):
        return [Task(task.data + 1) for task in tasks]


@pytest.mark.parametrize("fuse", [True, False])
def test_a_stage_of_batches_gets_batches_whatever_stands_beside_it(make_executor, fuse):
    class Steps(make_executor):
        """Runs steps as workers do."""

        def execute(self, plan, initial_tasks, keep_outputs):
            flowing = list(initial_tasks)
            for step in plan.steps:
                flowing = [task for _, task in StepRunner(step.stages).run(flowing)]
            self.outputs = [task.data for task in flowing]
            return super().execute(Plan(plan.name, ()), [], keep_outputs)

    steps = Steps()
    Pipeline("p", stages=[odd, Summed(), odd.with_(name="still odd")]).run(steps, tasks(1, 2, 3), fuse=fuse)
    assert steps.outputs == []
    Pipeline("p", stages=[odd, Summed(), twice]).run(steps, tasks(1, 2, 3), fuse=fuse)
    assert steps.outputs == [2, -2, 4, -4]


def test_planning_fails_before_anything_starts(executor):
    watched = Watched()
    pulled = []
    pipeline = Pipeline("p", stages=[watched, processing_stage(inputs=["b"])(lambda task: task), source])
    with pytest.raises(PlanError, match="stage 3 'source' takes EmptyTask"):
        Pipeline("p", stages=[watched, watched, source]).run(executor, (pulled.append(n) or Task(n) for n in range(9)))
    assert watched.calls == [] and executor.plans == []
    assert len(pulled) <= 1
    assert pipeline.stages[0] is watched


def test_initial_tasks_may_never_end(make_executor):
    executor = make_executor(take=3)
    result = Pipeline("p", stages=[odd]).run(executor, (Task(n) for n in itertools.count()))
    assert [t.data for t in result] == [1]


def test_no_initial_task_is_lost_to_planning_or_taken_before_its_time(make_executor):
    pulled = []

    class Peeking(make_executor):
        def execute(self, plan, initial_tasks, keep_outputs):
            assert pulled == [0]
            return super().execute(plan, initial_tasks, keep_outputs)

    result = Pipeline("p", stages=[twice]).run(Peeking(), (pulled.append(n) or Task(n) for n in range(3)))
    assert [t.data for t in result] == [0, 0, 1, -1, 2, -2]


@pytest.mark.parametrize("empty", [[], (), iter(()), {}])
def test_no_tasks_are_no_error(empty, executor):
    assert list(Pipeline("p", stages=[odd]).run(executor, empty)) == []


def test_a_list_reaches_the_executor_with_its_length(executor):
    given_tasks = tasks(1, 2)
    Pipeline("p", stages=[odd]).run(executor, given_tasks)
    assert executor.sources[0] is given_tasks


class Once:
    """Tasks with a length that can be taken once, and a length that counts the remaining tasks."""

    def __init__(self, tasks):
        self.left = list(tasks)

    def __len__(self):
        return len(self.left)

    def __iter__(self):
        while self.left:
            yield self.left.pop(0)


class Counted(Once):
    """An iterator with a length."""

    def __iter__(self):
        return self

    def __next__(self):
        if not self.left:
            raise StopIteration
        return self.left.pop(0)


@pytest.mark.parametrize("kind", [Once, Counted, collections.deque])
def test_tasks_with_a_length_are_all_taken_and_counted_even_if_they_come_only_once(kind, executor):
    result = Pipeline("p", stages=[twice]).run(executor, kind(tasks(1, 2, 3, 4, 5)))
    assert [t.data for t in result] == [1, -1, 2, -2, 3, -3, 4, -4, 5, -5]
    assert len(executor.sources[0]) == 5


def test_a_length_that_is_not_known_is_no_error(executor):
    class Progress(Once):
        def __len__(self):
            return None

    assert len(Pipeline("p", stages=[odd]).run(executor, Progress(tasks(1, 2, 3)))) == 2
    assert not isinstance(executor.sources[0], collections.abc.Sized)


def test_a_result_can_start_another_pipeline(executor):
    first = Pipeline("p", stages=[odd]).run(executor, tasks(1, 2, 3))
    assert [t.data for t in Pipeline("q", stages=[twice]).run(executor, first)] == [1, -1, 3, -3]
    assert executor.sources[1] is first


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (Task(1), "single Task"),
        ([Task(1), 2], r"initial_tasks\[1\] is a int"),
        (iter([None, Task(1)]), r"initial_tasks\[0\] is a NoneType"),
        (["a.jsonl"], "not a task"),
        (3, "iterable"),
    ],
)
def test_initial_tasks_that_are_no_tasks_are_refused(wrong, words, executor):
    with pytest.raises(PlanError, match=words):
        Pipeline("p", stages=[odd]).run(executor, wrong)
    assert executor.plans == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [(Watched, r"Watched is a class: .*Watched\(\.\.\.\)"), (len, "@processing_stage"), (3, "3 is not a stage")],
)
def test_an_object_that_is_no_stage_is_refused(wrong, words):
    with pytest.raises(PlanError, match=words):
        Pipeline("p").add_stage(wrong)
    with pytest.raises(PlanError, match=words):
        Pipeline("p", stages=[odd, wrong])


def test_a_pipeline_without_stages_is_refused(executor):
    with pytest.raises(PlanError, match="no stages"):
        Pipeline("p").run(executor)


def test_failed_tasks_raise_at_the_end_with_the_stages_error(executor):
    with pytest.raises(PipelineFailed) as caught:
        Pipeline("p", stages=[half]).run(executor, tasks(1, 0, 2))
    words = str(caught.value)
    assert "1 task failed (1 item)" in words
    assert "stage 'half', task 1 (1 item): ZeroDivisionError: division by zero" in words
    assert "given up after 1 attempt" in words
    assert "return Task(1 / task.data)" in words
    result = caught.value.result
    assert not result.ok and [t.data for t in result] == [1.0, 0.5]
    assert str(pickle.loads(pickle.dumps(caught.value))) == words


def test_only_the_first_failures_are_shown(executor):
    with pytest.raises(PipelineFailed) as caught:
        Pipeline("p", stages=[half]).run(executor, tasks(*[0] * 50))
    assert "50 tasks failed" in str(caught.value) and "and 47 more" in str(caught.value)
    assert str(caught.value).count("return Task(1 / task.data)") == 1  # the same error is described once
    assert [n for n in range(50) if f"task {n} (1 item)" in str(caught.value)] == [0, 1, 2]


def test_failures_that_are_ignored_are_reported(make_executor):
    result = Pipeline("p", stages=[half]).run(make_executor(ignore_failures=True), tasks(1, 0))
    assert not result.ok and [f.task_id for f in result.failures] == ["1"]


def test_a_run_that_loses_a_task_fails(make_executor):
    class Lossy(make_executor):
        def execute(self, plan, initial_tasks, keep_outputs):
            record = super().execute(plan, initial_tasks, keep_outputs)
            record.steps[0].stages[0].tasks_done -= 1
            return record

    with pytest.raises(LedgerError, match="'odd': 2 tasks in, but 1 done"):
        Pipeline("p", stages=[odd]).run(Lossy(), tasks(1, 2))


def test_describe_shows_columns_and_settings_of_stages():
    class Score(ProcessingStage[DocumentBatch, DocumentBatch]):
        name = "score"
        resources = Resources(gpus=0.5)

        def inputs(self):
            return [], ["text"]

        def outputs(self):
            return [], ["points"]

        def process(self, task):
            return task

    text = Pipeline("p", "what for", stages=[odd, odd, Score().with_(batch_size=8, num_workers=2)]).describe()
    for words in ("'p': what for", "2 stages fused", "3. score", "DocumentBatch -> DocumentBatch", "gpus=0.5"):
        assert words in text
    for words in ("batch_size=8", "num_workers=2", "needs: text", "makes: points", "2. odd (2)"):
        assert words in text
    assert "step 2" in text and "step 3" not in text


def test_describe_shows_errors():
    text = Pipeline("p", stages=[Watched(), source]).describe()
    assert "1. Watched" in text and "cannot run: stage 2 'source' takes EmptyTask" in text
    assert "no stages" in Pipeline("p").describe()

    class Wrong(Watched):
        def inputs(self):
            return ["text"]

    assert "inputs() must return" in Pipeline("p", stages=[Wrong()]).describe()


def test_names_at_the_top_are_there_and_cost_nothing_before_they_are_used():
    code = """
import sys, gristmill
heavy = {"pyarrow", "pandas", "numpy", "torch", "rich", "cloudpickle"}
assert not [m for m in sys.modules if m.startswith("gristmill.")]
from gristmill import CompositeStage, EmptyTask, FileGroupTask, Pipeline, ProcessingStage, Resources, Task, errors
from gristmill import DocumentBatch, processing_stage
import gristmill.pipeline
assert not heavy & set(sys.modules), heavy & set(sys.modules)
assert gristmill.Pipeline is gristmill.pipeline.Pipeline and issubclass(errors.PlanError, errors.PipelineError)
assert set(gristmill.__all__) <= set(dir(gristmill)) and "LocalExecutor" in dir(gristmill)
try:
    gristmill.nothing
except AttributeError as error:
    print(gristmill.__version__, error)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout == "0.1.0 module 'gristmill' has no attribute 'nothing'\n", run.stderr
