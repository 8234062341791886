from __future__ import annotations

import copy
import pickle
import re
import subprocess
import sys
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.errors import PlanError
from gristmill.pipeline import Pipeline
from gristmill.stages import registry
from gristmill.stages.core import CompositeStage, ProcessingStage, accounts_for_all, worker_count
from gristmill.stages.resources import Resources
from gristmill.stages.text.tools.add_id import AddId
from gristmill.tasks import DocumentBatch, EmptyTask, FileGroupTask, Task

if TYPE_CHECKING:
    from nowhere import Unknown  # noqa: F401 - a name that annotations have and the run has not

X = TypeVar("X", bound=Task)


class Plain(ProcessingStage[Task, Task]):
    def process(self, task):
        return task


class Forgetful(ProcessingStage[Task, Task]):
    name = "forgetful"
    resources = Resources(cpus=2)

    def __init__(self, words):
        self.words = words  # and no super().__init__()

    def process(self, task):
        return task

    def num_workers(self):
        return 2


@dataclass
class Data(ProcessingStage[Task, Task]):
    words: list = field(default_factory=list)
    name: str = "data"
    batch_size: int = 4

    def process(self, task):
        return task


@dataclass(frozen=True)
class Frozen(ProcessingStage[Task, Task]):
    word: str = "w"

    def process(self, task):
        return task


def settings(stage):
    return {
        "name": stage.name,
        "resources": stage.resources,
        "batch_size": stage.batch_size,
        "num_workers": stage.num_workers(),
        "worker_max_lifetime_m": stage.worker_max_lifetime_m,
        "worker_restart_interval_m": stage.worker_restart_interval_m,
        "timeout_s": stage.timeout_s,
        "max_attempts": stage.max_attempts,
        "max_in_flight": stage.max_in_flight,
    }


changes = st.fixed_dictionaries(
    {},
    optional={
        "name": st.text(min_size=1),
        "resources": st.builds(Resources, cpus=st.integers(0, 8), memory_gb=st.integers(0, 8)),
        "batch_size": st.integers(1, 100),
        "num_workers": st.integers(1, 100),
        "worker_max_lifetime_m": st.floats(0.1, 100),
        "worker_restart_interval_m": st.floats(0.1, 100),
        "timeout_s": st.floats(0.1, 100),
        "max_attempts": st.integers(1, 10),
        "max_in_flight": st.integers(1, 1000),
    },
)


@given(st.sampled_from([Plain(), Forgetful(["a"]), Data(["a"]), Frozen()]), changes)
def test_with_gives_a_changed_copy_and_leaves_the_original(stage, change):
    before, attributes = settings(stage), copy.deepcopy(vars(stage))
    changed = stage.with_(**change)
    assert changed is not stage and type(changed) is type(stage)
    assert settings(changed) == {**before, **change}
    assert settings(stage) == before and vars(stage) == attributes
    assert getattr(changed, "words", None) == getattr(stage, "words", None)
    assert settings(pickle.loads(pickle.dumps(changed))) == {**before, **change}


def test_changes_add_up_and_the_last_one_wins():
    stage = Plain().with_(batch_size=8).with_(name="x").with_(batch_size=16)
    assert (stage.name, stage.batch_size) == ("x", 16)
    assert (Plain().name, Plain.batch_size) == ("Plain", 1)


@pytest.mark.parametrize(
    "change",
    [
        {"name": ""},
        {"name": 3},
        {"resources": 4},
        {"batch_size": 0},
        {"batch_size": 1.5},
        {"batch_size": True},
        {"num_workers": 0},
        {"num_workers": -1},
        {"worker_max_lifetime_m": 0},
        {"worker_restart_interval_m": -1},
        {"timeout_s": float("nan")},
        {"timeout_s": "5"},
        {"max_attempts": 0},
        {"max_in_flight": 0},
        {"max_in_flight": 2.5},
        {"max_in_flight": True},
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(change):
    with pytest.raises(ValueError, match=r"stage .*" + next(iter(change))):
        Plain().with_(**change)


def test_unknown_settings_are_refused():
    with pytest.raises(TypeError, match="workers"):
        Plain().with_(workers=3)


def test_a_name_that_is_a_property_cannot_be_changed():
    class Named(Plain):
        @property
        def name(self):
            return "fixed"

    with pytest.raises(TypeError, match="'name' as a property"):
        Named().with_(name="x")
    assert Named().with_(batch_size=2).batch_size == 2


def test_a_stage_is_named_after_its_class_unless_a_class_says_otherwise():
    class Child(Plain): ...

    class Grandchild(Forgetful): ...

    assert (Plain().name, Child().name, Grandchild([]).name, Frozen().name) == ("Plain", "Child", "forgetful", "Frozen")


def test_a_stage_without_process_cannot_be_made():
    class Nothing(ProcessingStage[Task, Task]): ...

    with pytest.raises(TypeError, match="process"):
        Nothing()


def test_a_batch_is_processed_task_by_task_by_default():
    class Odd(ProcessingStage[Task, Task]):
        def process(self, task):
            return task if task.data % 2 else None

    assert [r and r.data for r in Odd().process_batch([Task(1), Task(2), Task(3)])] == [1, None, 3]


class Generic1(ProcessingStage[X, DocumentBatch], Generic[X]):
    def process(self, task):
        return task


class Reader(Generic1[FileGroupTask]): ...


class SubReader(Reader): ...


class Either(ProcessingStage[DocumentBatch | FileGroupTask, "DocumentBatch"]):
    def process(self, task):
        return task


class Unresolved(ProcessingStage["Unknown", Any]):
    def process(self, task):
        return task


class Untyped(ProcessingStage):
    def process(self, task):
        return task


@pytest.mark.parametrize(
    ("stage", "taken", "given"),
    [
        (Plain, Task, Task),
        (Reader, FileGroupTask, DocumentBatch),
        (SubReader, FileGroupTask, DocumentBatch),
        (Generic1, Task, DocumentBatch),
        (Either, DocumentBatch | FileGroupTask, DocumentBatch),
        (Unresolved, None, None),
        (Untyped, None, None),
    ],
)
def test_types_of_tasks_come_from_the_type_parameters(stage, taken, given):
    assert (stage().input_type(), stage().output_type()) == (taken, given)


def returning(annotation):
    class Stage(ProcessingStage[Task, Task]):
        def process(self, task):
            return task

    Stage.process.__annotations__["return"] = annotation
    return Stage()


@pytest.mark.parametrize(
    "annotation",
    [
        list,
        list[Task],
        Iterator[Task],
        Iterable[Task],
        Generator[Task, None, None],
        Task | list[Task],
        list[Task] | None,
        "list[Task]",
        "list[Unknown]",
        "Unknown | list[Unknown]",
        "collections.abc.Iterator[Unknown] | None",
        "Optional[List[Unknown]]",
        "'list[Unknown]'",
    ],
)
def test_a_stage_that_says_it_returns_several_fans_out(annotation):
    assert returning(annotation).fans_out()


@pytest.mark.parametrize(
    "annotation",
    [None, Task, Task | None, Task[list], Any, "Task[list]", "Unknown[list]", "Unknown | None", "not python"],
)
def test_other_annotations_do_not_mean_several_tasks(annotation):
    assert not returning(annotation).fans_out()
    assert not Plain().fans_out()


def test_a_generator_fans_out_and_the_attribute_has_the_last_word():
    class Split(ProcessingStage[Task, Task]):
        def process(self, task):
            yield task

    class Said(Split):
        fan_out = False

    assert Split().fans_out() and not Said().fans_out()


class Tokenize(Plain):
    name = "tokenize"


class Model(Plain):
    name = "model"
    resources = Resources(gpus=1)


class Classifier(CompositeStage[DocumentBatch, DocumentBatch]):
    def decompose(self):
        return [Tokenize(), Model()]


class Nested(CompositeStage[EmptyTask, DocumentBatch]):
    def decompose(self):
        return [Plain(), Classifier().with_(batch_size=2)]


def test_a_composite_is_flattened_at_any_depth():
    assert [(s.name, s.batch_size) for s in Nested().flatten()] == [("Plain", 1), ("tokenize", 2), ("model", 2)]


def test_keywords_on_a_composite_are_for_all_its_stages_and_the_name_for_itself():
    changed = Nested().with_(name="n", batch_size=8, max_attempts=2)
    assert changed.name == "n"
    assert [(s.name, s.batch_size, s.max_attempts) for s in changed.flatten()] == [
        ("Plain", 8, 2),
        ("tokenize", 8, 2),
        ("model", 8, 2),
    ]
    assert [s.batch_size for s in Nested().flatten()] == [1, 2, 2]


def test_a_gpu_is_only_for_the_stages_of_a_composite_that_need_one():
    stages = Nested().with_(resources=Resources(gpus=0.25), timeout_s=5).flatten()
    assert [s.resources.gpus for s in stages] == [0, 0, 0.25]
    assert [s.timeout_s for s in stages] == [5, 5, 5]
    on_cpu = Nested().with_(resources=Resources(cpus=3)).flatten()
    assert [s.resources for s in on_cpu] == [Resources(cpus=3)] * 3


def test_stages_of_a_composite_are_addressed_by_name():
    changed = Nested().with_({"tokenize": {"batch_size": 16}}).with_({"model": {"num_workers": 3}}, timeout_s=9)
    assert [(s.batch_size, s.num_workers(), s.timeout_s) for s in changed.flatten()] == [
        (1, None, 9),
        (16, None, 9),
        (2, 3, 9),
    ]
    assert [s.batch_size for s in cloudpickle.loads(cloudpickle.dumps(changed)).flatten()] == [1, 16, 2]


@pytest.mark.parametrize(
    ("by_name", "error", "words"),
    [
        ({"tokenise": {"batch_size": 2}}, ValueError, "no stage 'tokenise'; it has: Plain, tokenize, model"),
        ({"tokenize": {"batch_size": 0}}, ValueError, "batch_size"),
        ({"tokenize": {"bach_size": 2}}, TypeError, "bach_size"),
        ({"tokenize": 3}, TypeError, "setting: value"),
        ([1], TypeError, "setting: value"),
    ],
)
def test_wrong_changes_of_a_composite_are_refused_at_once(by_name, error, words):
    with pytest.raises(error, match=words):
        Nested().with_(by_name)


def test_a_composite_does_not_process():
    with pytest.raises(TypeError, match="composite"):
        Classifier().process(DocumentBatch.__new__(DocumentBatch))


class Four(Plain):
    num_workers = 4


@dataclass
class Counted(ProcessingStage[Task, Task]):
    num_workers: int | None = 3

    def process(self, task):
        return task


@pytest.mark.parametrize(("stage", "wanted"), [(Four(), 4), (Counted(), 3), (Counted(None), None), (Forgetful([]), 2)])
def test_the_number_of_workers_is_a_method_or_a_number(stage, wanted):
    assert worker_count(stage) == wanted
    pipeline = Pipeline("p", stages=[stage])
    assert [step.num_workers for step in pipeline.plan().steps] == [wanted]
    assert (f"num_workers={wanted}" in pipeline.describe()) == (wanted is not None)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "4"])
def test_a_wrong_number_of_workers_on_a_class_is_refused(wrong):
    class Wrong(Plain):
        num_workers = wrong

    with pytest.raises(PlanError, match="num_workers must be a whole number"):
        Pipeline("p", stages=[Wrong()]).plan()


@pytest.mark.parametrize("stage", [Four(), Counted(), Forgetful([]), Plain().with_(num_workers=2)], ids=repr)
def test_none_leaves_the_number_of_workers_to_the_balancer(stage):
    reset = stage.with_(num_workers=None)
    assert worker_count(reset) is None and worker_count(stage) is not None
    assert worker_count(pickle.loads(cloudpickle.dumps(reset))) is None
    assert worker_count(reset.with_(batch_size=2)) is None


def test_none_resets_what_may_be_none_and_keeps_the_rest():
    stage = Plain().with_(timeout_s=5, max_attempts=2, worker_max_lifetime_m=1, worker_restart_interval_m=1)
    stage = stage.with_(batch_size=8, name="n").with_(batch_size=None, name=None, resources=None)
    assert (stage.timeout_s, stage.max_attempts, stage.batch_size, stage.name) == (5, 2, 8, "n")
    stage = stage.with_(timeout_s=None, max_attempts=None, worker_max_lifetime_m=None, worker_restart_interval_m=None)
    assert stage.timeout_s is stage.max_attempts is stage.worker_max_lifetime_m is None
    assert stage.worker_restart_interval_m is None and stage.batch_size == 8


def test_each_module_that_registers_a_builtin_class_is_imported_to_look_up_names():
    root = Path(registry.__file__).parents[1]
    modules = {
        ".".join(("gristmill", *file.relative_to(root).with_suffix("").parts))
        for file in root.rglob("*.py")
        if re.search(rb"^@builtin", file.read_bytes(), re.MULTILINE)
    }
    code = "import sys; from gristmill.stages import registry; registry.known(); print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert modules <= {*imported}
    assert {*registry.MODULES} <= modules


def test_a_subclass_of_a_builtin_class_is_the_users():
    class Mine(AddId):
        pass

    assert AddId("id").builtin and accounts_for_all(AddId("id"))
    assert not Mine("id").builtin and not accounts_for_all(Mine("id"))
