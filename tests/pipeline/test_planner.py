import pyarrow as pa
import pytest

from gristmill.errors import PipelineError, PlanError
from gristmill.pipeline import Pipeline
from gristmill.stages.core import CompositeStage, ProcessingStage
from gristmill.stages.function_definitions import processing_stage
from gristmill.stages.resources import Resources
from gristmill.tasks import DocumentBatch, EmptyTask, FileGroupTask, Task


class Source(ProcessingStage[EmptyTask, FileGroupTask]):
    name = "files"

    def process(self, task) -> list[FileGroupTask]:
        return [FileGroupTask(["a"])]


class Reader(ProcessingStage[FileGroupTask, DocumentBatch]):
    name = "read"

    def __init__(self, fields=()):
        self.fields = list(fields)

    def outputs(self):
        return ["data"], self.fields

    def process(self, task):
        return DocumentBatch(pa.table({name: ["x"] for name in self.fields or ["text"]}))


class Documents(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Needs and makes given columns."""

    def __init__(self, name, needs=(), makes=(), only=False):
        self.name, self.needs, self.makes, self.only_outputs = name, list(needs), list(makes), only

    def inputs(self):
        return ["data"], self.needs

    def outputs(self):
        return ["data"], self.makes

    def process(self, task):
        return task


class Silent(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Says nothing of the columns it makes."""

    name = "silent"

    def process(self, task):
        return task


@processing_stage
def anything(task):
    return task


@processing_stage
def lines(task: DocumentBatch) -> list[DocumentBatch]:
    return [task]


def steps(*stages, initial=None, fuse=True):
    """The names of the stages in each step that is planned."""
    from gristmill.pipeline.planner import NO_INITIAL_TASKS, UNKNOWN, make_plan

    plan = make_plan("p", stages, UNKNOWN if initial else NO_INITIAL_TASKS, fuse)
    return [[stage.name for stage in step.stages] for step in plan.steps]


def error_of(*stages, initial_tasks=None, executor) -> str:
    """Return the error of planning, and check that nothing was started."""
    with pytest.raises(PlanError) as caught:
        Pipeline("p", stages=stages).run(executor, initial_tasks)
    assert isinstance(caught.value, PipelineError)
    assert executor.plans == []
    return str(caught.value)


def batch(**columns):
    return DocumentBatch(pa.table(columns))


# types


def test_task_types_of_neighbouring_stages_must_fit(executor):
    words = error_of(Source(), Documents("lower"), executor=executor)
    assert "stage 2 'lower' takes DocumentBatch, but stage 1 'files' gives FileGroupTask" in words


def test_the_first_stage_must_take_an_empty_task_when_there_are_no_initial_tasks(executor):
    words = error_of(Documents("lower"), executor=executor)
    assert "stage 1 'lower' takes DocumentBatch" in words and "initial_tasks" in words


def test_initial_tasks_must_fit_the_first_stage(executor):
    words = error_of(Documents("lower"), initial_tasks=[FileGroupTask(["a"])], executor=executor)
    assert "stage 1 'lower' takes DocumentBatch, but the first of initial_tasks is a FileGroupTask" in words


class Special(DocumentBatch): ...


class GivesSpecial(ProcessingStage[Task, Special]):
    def process(self, task):
        return task


class TakesSpecial(ProcessingStage[Special, Task]):
    def process(self, task):
        return task


class TakesEither(ProcessingStage[FileGroupTask | DocumentBatch, DocumentBatch]):
    def process(self, task):
        return task


@pytest.mark.parametrize(
    "stages",
    [
        (Source(), Reader(), Documents("a")),
        (anything, Documents("a"), anything, Source()),
        (GivesSpecial(), Documents("a")),
        (TakesSpecial(), Documents("a")),
        (Source(), TakesEither()),
        (GivesSpecial(), TakesEither()),
    ],
)
def test_subclasses_unions_and_unknown_types_fit(stages):
    assert steps(*stages, initial=True)


def test_a_base_class_does_not_fit_where_more_is_taken(executor):
    words = error_of(anything, Documents("a"), TakesSpecial(), executor=executor)
    assert "stage 3 'TakesSpecial' takes Special, but stage 2 'a' gives DocumentBatch" in words
    assert "takes FileGroupTask or DocumentBatch" in error_of(TakesEither(), executor=executor)


# columns


def test_a_column_that_a_reader_does_not_name_among_its_fields_is_missing(executor):
    words = error_of(Source(), Reader(["id", "sentences"]), Documents("quality", ["text"]), executor=executor)
    assert "stage 3 'quality' needs the column 'text', but stage 2 'read' makes only: id, sentences." in words
    assert "did you mean" not in words


def test_a_near_miss_is_suggested(executor):
    words = error_of(Source(), Reader(["Text", "id"]), Documents("quality", ["txt"]), executor=executor)
    assert "did you mean 'Text' instead of 'txt'?" in words


@pytest.mark.parametrize(
    ("missing", "maker"),
    [
        ("clip", "ClipTranscodingStage"),
        ("motion_score_global_mean", "MotionVectorDecodeStage"),
        ("start_s", "FixedStrideExtractorStage or ClipTranscodingStage or TransNetV2ClipExtractionStage"),
    ],
)
def test_the_stage_of_videos_that_makes_a_column_is_named(executor, missing, maker):
    stages = (Source(), Reader(["clip_id", "start"]), Documents("later", [missing]))
    words = error_of(*stages, executor=executor)
    assert f"{missing!r} is made by {maker}: put it before this stage." in words
    assert "did you mean" not in words


def test_all_missing_columns_are_named_and_all_makers(executor):
    stages = (Source(), Reader(["id"]), Documents("score", makes=["s"]), Documents("sort", ["t", "s", "u"]))
    words = error_of(*stages, executor=executor)
    assert "needs the columns 't', 'u'" in words
    assert "id (of stage 2 'read'), s (of stage 3 'score')" in words


@pytest.mark.parametrize(
    "stages",
    [
        (Reader(), Documents("a", ["text"])),
        (Reader(["id"]), Documents("a", makes=["text"]), Documents("b", ["text", "id"])),
        (Reader(["id"]), Silent(), Documents("a", ["text"])),
        (Reader(["id"]), anything, Documents("a", ["text"])),
        (Reader(), Documents("a", makes=["n"]), Documents("b", ["text"])),
        (Reader(["id"]), processing_stage(outputs=["n"])(lambda task: task), Documents("a", ["n", "id"])),
    ],
    ids=["open reader", "made on the way", "silent class", "silent function", "open stays open", "declared function"],
)
def test_columns_that_may_exist_are_no_error(stages):
    assert steps(Source(), *stages)


def test_a_stage_that_keeps_only_its_outputs_ends_the_others(executor):
    stages = (Source(), Reader(), Documents("split", makes=["line"], only=True), Documents("a", ["text"]))
    assert "stage 3 'split' makes only: line" in error_of(*stages, executor=executor)


def test_a_stage_that_declares_to_make_nothing_opens_nothing(executor):
    stages = (Source(), Reader(["id"]), Documents("filter", ["id"]), Documents("a", ["text"]))
    assert "stage 4 'a' needs the column 'text'" in error_of(*stages, executor=executor)


def test_columns_of_the_first_initial_task_are_known(executor):
    words = error_of(Documents("a", ["text"]), initial_tasks=[batch(txt=["x"])], executor=executor)
    assert "stage 1 'a' needs the column 'text', but the first of initial_tasks has only: txt." in words
    later = (Documents("a", ["txt"]), Documents("b", ["text"]))
    assert "stage 2 'b'" in error_of(*later, initial_tasks=iter([batch(txt=["x"])]), executor=executor)


def test_declarations_of_the_wrong_shape_are_an_error(executor):
    class Wrong(Silent):
        def inputs(self):
            return ["text"]

    assert "inputs() must return" in error_of(Wrong(), initial_tasks=[batch(a=[1])], executor=executor)


# composites and names


class Read(CompositeStage[EmptyTask, DocumentBatch]):
    name = "JsonlReader"

    def decompose(self):
        return [Source(), Reader(["text"])]


class Outer(CompositeStage[EmptyTask, DocumentBatch]):
    def decompose(self):
        return [Read(), Documents("a", ["text"])]


class Endless(CompositeStage[EmptyTask, DocumentBatch]):
    def decompose(self):
        return [Endless()]


class Hollow(CompositeStage[EmptyTask, DocumentBatch]):
    def __init__(self, parts):
        self.parts = parts

    def decompose(self):
        return self.parts


def test_nested_composites_are_decomposed_and_checked(executor):
    assert steps(Outer(), fuse=False) == [["files"], ["read"], ["a"]]
    assert "stage 4 'b' needs the column 'id'" in error_of(Outer(), Documents("b", ["id"]), executor=executor)


@pytest.mark.parametrize(
    ("composite", "words"),
    [
        (Endless(), "decomposes into itself"),
        (Hollow([]), "must return a list of stages"),
        (Hollow(None), "must return a list of stages"),
        (Hollow([3]), "3, which is not a stage"),
    ],
)
def test_composites_that_decompose_into_no_stages_are_an_error(composite, words, executor):
    assert words in error_of(composite, executor=executor)


def test_names_are_made_unique_and_instances_are_not_shared():
    from gristmill.pipeline.planner import UNKNOWN, make_plan

    a = Documents("a")
    plan = make_plan("p", [a, a, Documents("a (2)"), a], UNKNOWN)
    stages = [stage for step in plan.steps for stage in step.stages]
    assert [stage.name for stage in stages] == ["a", "a (3)", "a (2)", "a (4)"]
    assert len({id(stage) for stage in stages}) == 4
    assert a.name == "a"


def test_settings_that_make_no_sense_are_an_error_however_they_were_set(executor):
    class Wrong(Silent):
        batch_size = 0

    assert "stage 1: stage 'silent': batch_size" in error_of(Wrong(), initial_tasks=[batch(a=[1])], executor=executor)


# fusing


def test_neighbours_on_the_cpu_are_fused():
    a, b, c = (Documents(name) for name in "abc")
    assert steps(a, b, c, initial=True) == [["a", "b", "c"]]
    assert steps(a, b, c, initial=True, fuse=False) == [["a"], ["b"], ["c"]]


def test_the_first_stage_stays_alone_when_it_gets_a_single_task():
    assert steps(anything, Documents("a"), Documents("b")) == [["anything"], ["a", "b"]]


def test_a_stage_that_fans_out_ends_its_step():
    a, b, c = (Documents(name) for name in "abc")
    assert steps(a, lines, b, c, initial=True) == [["a", "lines"], ["b", "c"]]


def test_other_resources_are_another_step():
    a, b, c = (Documents(name) for name in "abc")
    two = Resources(cpus=2)
    assert steps(a, b.with_(resources=two), c.with_(resources=two), initial=True) == [["a"], ["b", "c"]]


@pytest.mark.parametrize(
    "setting",
    [
        {"resources": Resources(gpus=1)},
        {"resources": Resources(gpu_memory_gb=4)},
        {"resources": Resources(memory_gb=1)},
        {"batch_size": 2},
        {"num_workers": 1},
        {"timeout_s": 1},
        {"max_attempts": 1},
        {"worker_max_lifetime_m": 1},
        {"worker_restart_interval_m": 1},
    ],
    ids=str,
)
def test_a_stage_that_asks_for_something_stays_alone(setting):
    first, second = Documents("first").with_(**setting), Documents("second").with_(**setting)
    assert steps(Documents("a"), first, second, Documents("b"), initial=True) == [["a"], ["first"], ["second"], ["b"]]


def test_a_stage_with_its_own_process_batch_is_not_fused():
    class Batches(Documents):
        def process_batch(self, tasks):
            return tasks

    assert steps(Documents("a"), Batches("b"), Documents("c"), initial=True) == [["a"], ["b"], ["c"]]


# Asynchronous stages -------------------------------------------------------------------------------------------------


class Waits(Documents):
    """Processes several tasks at the same time."""

    max_in_flight = 4

    async def process(self, task):
        return task


class MayWait(Documents):
    """Decides by itself whether it does."""

    max_in_flight = 4

    def runs_async(self):
        return self.resources.requires_gpu


def test_an_asynchronous_stage_stays_alone():
    stages = [Documents("a"), Waits("first"), Waits("second").with_(max_in_flight=1), Documents("b")]
    assert steps(*stages, initial=True) == [["a"], ["first"], ["second"], ["b"]]
    assert steps(Documents("a"), MayWait("may"), initial=True) == [["a", "may"]]


def test_several_in_flight_need_an_asynchronous_process():
    with pytest.raises(PlanError, match=r"stage 2 'b' has max_in_flight=4, but its process is synchronous"):
        steps(Documents("a"), Documents("b").with_(max_in_flight=4), initial=True)


@pytest.mark.parametrize("in_flight", [1, 4])
def test_an_asynchronous_stage_has_no_batches(in_flight):
    class Batches(Waits):
        def process_batch(self, tasks):
            return tasks

    with pytest.raises(PlanError, match=r"stage 1 'a' has batch_size=2, but its process is asynchronous"):
        steps(Waits("a").with_(batch_size=2, max_in_flight=in_flight), initial=True)
    with pytest.raises(PlanError, match=r"stage 1 'a' has a process_batch of its own, but its process is asynchronous"):
        steps(Batches("a").with_(max_in_flight=in_flight), initial=True)


def test_only_process_may_be_asynchronous():
    class Wrong(Waits):
        async def setup(self):
            pass

    with pytest.raises(PlanError, match=r"stage 1 'a': setup is an 'async def', but only process may be one"):
        steps(Wrong("a"), initial=True)
