"""The observers of a run: when they are opened, what they receive, and that otherwise none of them is imported."""

import subprocess
import sys

import pyarrow as pa
import pytest

from gristmill.backends.local import LocalExecutor
from gristmill.errors import PipelineFailed, PlanError
from gristmill.pipeline import Pipeline, monitoring
from gristmill.pipeline.monitoring import DashboardOptions, MetricsOptions, MonitoringOptions
from gristmill.stages.function_definitions import processing_stage
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.tasks import DocumentBatch


class Noted:
    """An attachment that notes its calls."""

    def __init__(self):
        self.calls = []

    def begin(self, plan):
        self.calls.append(("begin", plan.name, [step.name for step in plan.steps]))

    def update(self, moment):
        self.calls.append(("update", moment))

    def message(self, text):
        self.calls.append(("message", text))

    def end(self, outcome):
        self.calls.append(("end", outcome))


@processing_stage(name="pass")
def pass_on(task: DocumentBatch) -> DocumentBatch:
    return task


@processing_stage(name="fail")
def fail(task: DocumentBatch) -> DocumentBatch:
    raise ValueError("never")


def batches(n):
    return [DocumentBatch(data=pa.table({"text": [str(i)]})) for i in range(n)]


@pytest.fixture
def noted(monkeypatch):
    made = Noted()
    monkeypatch.setattr(monitoring, "_attachments", lambda run, watch, stack: [made])
    return made


def run(*stages, tasks=None, **options):
    executor = LocalExecutor({"num_cpus": 1, "view": "off"})
    return Pipeline("watched", stages=list(stages)).run(executor, tasks or batches(3), report=True, **options)


def test_an_attachment_sees_the_plan_then_moments_then_the_outcome(noted):
    result = run(pass_on)
    kinds = [call[0] for call in noted.calls]
    assert noted.calls[0] == ("begin", "watched", ["pass"])
    assert kinds[-1] == "end" and kinds.count("end") == 1 and "update" in kinds
    outcome = noted.calls[-1][1]
    assert outcome.result is result and outcome.error is None
    last = [call[1] for call in noted.calls if call[0] == "update"][-1]
    assert (last.stages[0].name, last.stages[0].tasks_done, last.snapshot.steps[0].tasks_done) == ("pass", 3, 3)


@pytest.mark.parametrize("fuse", [True, False])
def test_the_items_of_a_step_that_reads_are_documents(noted, tmp_path, fuse):
    source = tmp_path / "in"
    source.mkdir()
    for name in "abc":
        (source / f"{name}.jsonl").write_text("".join(f'{{"text": "{"word " * n}"}}\n' for n in range(10)))
    rule = ScoreFilter(WordCountFilter(min_words=4))
    stages = [JsonlReader(str(source)), rule, JsonlWriter(str(tmp_path / "out"))]
    Pipeline("watched", stages=stages).run(LocalExecutor({"num_cpus": 1, "view": "off"}), fuse=fuse, report=True)
    moments = [call[1] for call in noted.calls if call[0] == "update"]
    assert [step.items_done for step in moments[-1].snapshot.steps] == ([30] if fuse else [30, 30, 18])


def test_after_failed_tasks_the_outcome_has_the_error_and_the_result(noted):
    with pytest.raises(PipelineFailed):
        run(fail, tasks=batches(1))
    outcome = noted.calls[-1][1]
    assert isinstance(outcome.error, PipelineFailed) and outcome.result.record.failures_total == 1
    moments = [call[1] for call in noted.calls if call[0] == "update"]
    assert [f.number for f in moments[-1].failures] == [1]
    assert moments[-1].failures[0].error == "ValueError: never"


def test_an_error_before_the_run_ends_the_attachments_too(noted):
    with pytest.raises(PlanError):
        run(pass_on, tasks=[1])
    (end,) = noted.calls
    assert isinstance(end[1].error, PlanError) and end[1].result is None


def test_options_of_run():
    assert not MonitoringOptions.of(False, None, False).is_on
    assert MonitoringOptions.of(True, None, False).dashboard == DashboardOptions()
    assert MonitoringOptions.of(DashboardOptions(port=5), 0, False) == MonitoringOptions(
        DashboardOptions(port=5), MetricsOptions(0)
    )


WITHOUT = """
import sys
from gristmill.backends.local import LocalExecutor
from gristmill.pipeline import Pipeline
from gristmill.tasks import DocumentBatch
from tests.pipeline.test_monitoring import batches, pass_on
Pipeline("plain", stages=[pass_on]).run(LocalExecutor({"num_cpus": 1, "view": "off"}), batches(2), **OPTIONS)
watching = ("gristmill.dashboard", "gristmill.metrics.history", "gristmill.metrics.observer", "http.server")
print([name for name in sorted(sys.modules) if name.startswith(watching)])
"""


@pytest.mark.parametrize("options, expected", [({}, False), ({"dashboard": True}, True)])
def test_a_run_imports_the_page_only_if_it_is_switched_on(options, expected):
    text = WITHOUT.replace("OPTIONS", repr(options))
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    modules = eval(done.stdout.splitlines()[-1])
    assert ("gristmill.dashboard.server" in modules) is expected and bool(modules) is expected


def test_the_command_does_not_import_the_page():
    text = "import gristmill.cli.main, gristmill.cli.run, gristmill, sys; print('gristmill.dashboard' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, text=True).stdout == "False\n"
