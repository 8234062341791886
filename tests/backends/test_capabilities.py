"""Features that an executor does not support are reported before anything starts, and documented in the same words."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from collections.abc import AsyncIterator, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from gristmill.backends.capabilities import EXECUTORS, FEATURES, LimitedExecutor, No, check, table
from gristmill.backends.local.local_config import ConfigError
from gristmill.backends.ray_data import RayDataExecutor
from gristmill.backends.ray_data.executor import RayDataConfig
from gristmill.backends.xenna import XennaExecutor
from gristmill.backends.xenna.executor import SPEC_FIELDS, XennaConfig
from gristmill.errors import PlanError
from gristmill.pipeline import Pipeline
from gristmill.stages.core import ProcessingStage
from gristmill.stages.resources import Resources
from gristmill.tasks import Task

DOCS = (Path(__file__).parents[2] / "docs/executors.md").read_text()


class Plain(ProcessingStage[Task, Task]):
    def process(self, task: Any) -> Any:
        return task


class TearsDown(Plain):
    def teardown(self) -> None:
        pass


class Generates(ProcessingStage[Task, Task]):
    def process(self, task: Any) -> Iterator[Any]:
        yield task


class Waits(Plain):
    max_in_flight = 4

    async def process(self, task: Any) -> Any:
        return task


class Pours(Plain):
    async def process(self, task: Any) -> AsyncIterator[Any]:
        yield task


class Specified(Plain):
    def __init__(self, spec: Any) -> None:
        self.spec = spec

    def xenna_stage_spec(self) -> Any:
        return self.spec


def said(executor: str, *stages: ProcessingStage[Any, Any]) -> list[str]:
    plan = Pipeline("p", stages=list(stages)).plan()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check(plan, executor)
    assert all(x.category is LimitedExecutor for x in caught)
    return [str(x.message) for x in caught]


def test_the_table_in_the_documentation_is_the_one_that_is_checked():
    assert table() in DOCS


@pytest.mark.parametrize("config", [RayDataConfig, XennaConfig])
def test_the_documentation_names_every_option_with_its_default(config):
    rows = DOCS.partition(f"| `{config.__name__.removesuffix('Config')}Executor` | default |")[2].partition("\n\n")[0]
    told = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", rows, re.MULTILINE))
    shown = {f.name: "none" if f.default is None else f.default for f in fields(config)}
    assert told == {name: f'"{x}"' if isinstance(x, str) and x != "none" else str(x) for name, x in shown.items()}


def test_the_documentation_names_what_a_stage_may_tell_xenna():
    text = DOCS.partition("A stage may define `xenna_stage_spec()`")[2].partition("\n\n")[0]
    assert sorted({*re.findall(r"`(\w+)`", text)} - {"max_attempts"}) == sorted(SPEC_FIELDS)


def test_the_defaults_of_xenna_are_those_people_know():
    known = {
        "logging_interval": 60,
        "ignore_failures": False,
        "execution_mode": "streaming",
        "cpu_allocation_percentage": 0.95,
        "autoscale_interval_s": 180,
    }
    assert {name: getattr(XennaExecutor().config, name) for name in known} == known


def test_a_teardown_that_is_never_called_is_a_warning_that_names_the_stage():
    (words,) = said("xenna", Plain(), TearsDown())
    assert "'TearsDown'" in words and "teardown() is never called" in words
    assert not said("ray_data", TearsDown())


def test_what_no_stage_asks_for_is_not_reported():
    for executor in EXECUTORS:
        assert not said(executor, Plain().with_(batch_size=4, num_workers=2, max_attempts=5))


@pytest.mark.parametrize(
    "stage, executors, words",
    [
        (Generates(), ["xenna"], "held in memory"),
        (Plain().with_(timeout_s=3), ["ray_data", "xenna"], "timeout_s has no effect"),
        (Waits(), ["ray_data", "xenna"], "max_in_flight has no effect"),
        (Pours(), ["xenna"], "held in memory"),
        (Plain().with_(worker_max_lifetime_m=3), ["ray_data"], "worker_max_lifetime_m has no effect"),
        (Plain().with_(resources=Resources(memory_gb=1)), ["xenna"], "memory_gb is not reserved"),
    ],
)
def test_what_has_no_effect_is_a_warning(stage, executors, words):
    for executor in EXECUTORS:
        assert [words in text for text in said(executor, stage)] == ([True] if executor in executors else [])


def test_what_cannot_run_is_an_error_before_anything_starts():
    waits = Plain().with_(resources=Resources(cpus=0))
    with pytest.raises(PlanError, match=r"'Plain' on XennaExecutor: .*fraction of a CPU"):
        Pipeline("p", stages=[waits]).run(XennaExecutor(), [Task()])
    assert not said("ray_data", waits)


def test_our_own_executors_lack_nothing():
    assert not [f.title for f in FEATURES.values() if isinstance(f.local, No) or isinstance(f.ray, No)]


@pytest.mark.parametrize("executor", [RayDataExecutor, XennaExecutor])
def test_options_that_make_no_sense_are_errors_that_help(executor):
    with pytest.raises(ConfigError, match="Did you mean 'ignore_failures'"):
        executor(config={"ignore_failure": True})
    with pytest.raises(ConfigError, match="max_attempts is a whole number of at least 1, not 0"):
        executor(config={"max_attempts": 0})
    with pytest.raises(ConfigError, match="ignore_failures is True or False"):
        executor(config={"ignore_failures": "no"})


def test_options_of_xenna_are_checked():
    for name, value in (("execution_mode", "fast"), ("cpu_allocation_percentage", 1.5), ("logging_interval", 0)):
        with pytest.raises(ConfigError, match=name):
            XennaExecutor(config={name: value})


@pytest.mark.parametrize(
    "spec, words",
    [
        ({"slots": 2}, "'slots'.*can have only.*slots_per_actor"),
        ({"ignore_failures": True}, "'ignore_failures'.*handled by gristmill"),
        ("fast", "returns a dict"),
    ],
)
def test_what_a_stage_tells_xenna_is_checked(spec, words):
    with pytest.raises(PlanError, match=words):
        Pipeline("p", stages=[Specified(spec)]).run(XennaExecutor(), [Task()])


def test_a_number_of_workers_is_given_once():
    with pytest.raises(PlanError, match="different numbers"):
        Pipeline("p", stages=[Specified({"num_workers": 2}).with_(num_workers=3)]).run(XennaExecutor(), [Task()])


def test_ray_is_not_loaded_until_it_is_needed_and_missed_by_name():
    script = """
import sys, warnings
from gristmill import Pipeline, Task
from gristmill.backends.ray_data import RayDataExecutor
from gristmill.backends.xenna import XennaExecutor
executors = RayDataExecutor(), XennaExecutor()
heavy = {"ray", "cosmos_xenna", "pyarrow", "numba", "pandas"} & set(sys.modules)
assert not heavy, heavy
for name in ("ray", "cosmos_xenna"):
    sys.modules[name] = None
from tests.backends.test_capabilities import Plain
for executor in executors:
    try:
        Pipeline("p", stages=[Plain()]).run(executor, [Task()])
    except Exception as error:
        print(type(error).__name__, error)
"""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=root, timeout=300)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("PipelineError RayDataExecutor needs Ray") and "pip install 'gristmill[ray-data]'" in first
    assert second.startswith("PipelineError XennaExecutor needs cosmos-xenna") and "gristmill[xenna]" in second
