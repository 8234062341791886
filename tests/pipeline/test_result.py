import copy
from collections import Counter
from dataclasses import replace

import pytest

from gristmill.backends.base import Failure, RunRecord, StageStats, StepStats
from gristmill.errors import LedgerError, OutputsNotKept
from gristmill.ledger.entry import Entry
from gristmill.ledger.run import RunLedger
from gristmill.metrics import format as fmt
from gristmill.pipeline import RunResult
from gristmill.pipeline.funnel import funnel
from gristmill.pipeline.report import summary
from gristmill.tasks import Task


def record(**changes) -> RunRecord:
    a = StageStats("a", tasks_in=4, items_in=1234, tasks_done=3, tasks_out=5, items_out=50, tasks_failed=1)
    a.items_failed = 7
    b = StageStats("b", tasks_in=5, tasks_done=4, tasks_out=2, tasks_dropped=2, tasks_cancelled=1)
    c = StageStats("c", tasks_in=2, tasks_done=2, tasks_out=2)
    workers = [(0.0, 0), (0.1, 2), (5.0, 4), (9.0, 0)]
    values = dict(
        name="p",
        steps=[
            StepStats("a + b", [a, b], busy_share=0.93, service_s_mean=0.0021, service_s_max=1.5, workers=workers),
            StepStats(
                "c", [c], queue_s_mean=3.0, queue_s_max=200.0, workers=[(0.0, 1)], peak_worker_bytes=12_300 * 2**10
            ),
        ],
        wall_s=61.0,
        first_output_s=0.25,
        failures=[],
        failures_total=0,
        decisions=[],
        peak_bytes_in_flight=10 * 2**20,
        budget_bytes=2 * 2**30,
        peak_memory_bytes=512 * 2**20,
        worker_deaths=0,
        outputs=[Task("x"), Task("y")],
    )
    return RunRecord(**{**values, **changes})


def test_it_is_a_sequence_of_the_final_tasks():
    result = RunResult(record())
    assert [t.data for t in result] == ["x", "y"]
    assert len(result) == 2 and result[-1].data == "y" and [t.data for t in result[:1]] == ["x"]


def test_outputs_that_were_not_kept_say_why_and_how():
    result = RunResult(record(outputs=None, outputs_dropped="they are larger than 64 MB"))
    for use in (list, len, lambda r: r[0]):
        with pytest.raises(OutputsNotKept, match=r"larger than 64 MB(.|\n)*keep_outputs=True"):
            use(result)
    assert result and "not kept" in repr(result)


def test_accounts_are_found_by_name():
    result = RunResult(record())
    assert list(result.stages) == ["a", "b", "c"] and result.stages["b"].tasks_dropped == 2
    assert list(result.steps) == ["a + b", "c"] and result.steps["a + b"].busy_share == 0.93


@pytest.mark.parametrize(
    ("changes", "ok"), [({}, True), ({"failures_total": 1}, False), ({"interrupted": True}, False)]
)
def test_a_run_is_ok_when_it_ended_and_nothing_failed(changes, ok):
    assert RunResult(record(**changes)).ok is ok


@pytest.mark.parametrize("outputs", [record().outputs, None], ids=["kept", "not kept"])
def test_an_account_passes_if_it_balances_and_only_then(outputs):
    account = record(outputs=outputs)
    RunResult(account).check()
    account.steps[0].stages[0].tasks_done -= 1
    with pytest.raises(LedgerError, match="done"):
        RunResult(account).check()


@pytest.mark.parametrize("step,stage", [(0, 0), (0, 1), (1, 0)])
@pytest.mark.parametrize("field", ["tasks_in", "tasks_done", "tasks_out", "tasks_failed", "tasks_cancelled"])
def test_a_single_task_too_many_anywhere_is_noticed(step, stage, field):
    wrong = copy.deepcopy(record())
    stats = wrong.steps[step].stages[stage]
    setattr(stats, field, getattr(stats, field) + 1)
    with pytest.raises(LedgerError, match=f"'{stats.name}'"):
        RunResult(wrong).check()


def test_outputs_that_were_lost_are_noticed():
    with pytest.raises(LedgerError, match="1 outputs kept, but 2"):
        RunResult(record(outputs=[Task("x")])).check()


def test_the_summary_has_a_row_for_each_stage():
    lines = RunResult(record(worker_deaths=3, failures_total=1)).summary().splitlines()
    rows = {line.split()[0]: line for line in lines[3:]}
    assert [line.split()[:2] for line in lines[4:]] == [["a", "4"], ["+", "b"], ["c", "2"]]
    for words in ("1,234", "93%", "2.1 ms", "1.5 s", "2-4"):
        assert words in rows["a"]
    assert "3.33 min" in rows["c"] and "12 MB" in rows["c"]
    head = "\n".join(lines[:3])
    for words in ("ran 61 s", "250 ms", "512 MB", "10 MB of 2 GB", "3 workers died", "1 task failed (7 items)"):
        assert words in head
    assert len({len(line) for line in lines[3:] if not line.startswith("+")}) == 1


def test_the_summary_counts_failed_items_beside_failed_tasks():
    head, a, *_ = RunResult(record()).summary().splitlines()[3:]
    assert head.split()[:9] == ["stage", "tasks", "in", "out", "dropped", "failed", "items", "in", "out"]
    assert head.split()[9] == "failed" and a.split()[1:8] == ["4", "5", "0", "1", "1,234", "50", "7"]


@pytest.mark.parametrize(
    ("failures", "tasks_failed", "items_failed", "words"),
    [
        (["0", "1"], 2, 20, "2 tasks failed (20 items)"),
        (["0"], 1, 1, "1 task failed (1 item)"),
        (["0[3]", "1[4]", "2[0:2]"], 0, 4, "3 parts of tasks failed (4 items)"),
        (["0[3]"], 0, 1, "1 part of a task failed (1 item)"),
        (["0[0]", "0[1]"], 1, 2, "2 tasks or parts of tasks failed (2 items)"),
        (["0[0]"], 1, 1, "1 part of a task failed (1 item)"),
    ],
)
def test_parts_of_tasks_that_failed_are_not_called_tasks(failures, tasks_failed, items_failed, words):
    stage = StageStats("s", tasks_in=5, tasks_done=5 - tasks_failed, tasks_failed=tasks_failed)
    stage.items_failed = items_failed
    result = RunResult(
        record(
            steps=[StepStats("s", [stage])],
            failures=[Failure(ident, "s", "ValueError: no", "", (), 1) for ident in failures],
            failures_total=len(failures),
        )
    )
    assert words in result.summary().splitlines()[1]
    assert f"pipeline 'p': {words}." in result.failure_report()


def test_a_run_out_of_memory_advises_more_memory_instead_of_ignoring_failures():
    def report(*errors: str) -> str:
        failures = [Failure(str(n), "s", error, "", (), 1) for n, error in enumerate(errors)]
        return RunResult(record(failures=failures, failures_total=len(failures))).failure_report()

    killed, raised = "worker ran out of memory (the run may use 0.1 GB)", "ValueError: no"
    assert "memory_limit" in report(killed) and "blocksize" in report(killed)
    assert "ignore-failures" not in report(killed) and "ignore-failures" in report(killed, raised)
    assert "memory_limit" in report(killed, raised) and "memory_limit" not in report(raised)


def test_a_run_of_nothing_has_a_summary_too():
    empty = record(steps=[StepStats("s", [StageStats("s")])], outputs=[], first_output_s=None, budget_bytes=0)
    result = RunResult(empty)
    result.check()
    assert "s" in result.summary() and "first output" not in result.summary()


def test_reasons_that_are_not_shown_one_by_one_are_counted_together():
    ledger = RunLedger()
    entry = Entry(read=Counter({"a": 100}), kept=20)
    entry.dropped = Counter({("s", f"reason {n:02}"): 2 for n in range(40)})
    ledger.resume(0, entry)
    shown = list(funnel(ledger, ["s"]))
    assert shown[1].split()[:3] == ["s", "-80", "20"]
    assert shown[2].split() == ["-2", "reason", "00"] and shown[31].split()[:2] == ["-2", "reason"]
    assert shown[32].split() == ["-20", "10", "more", "reasons"]


def test_numbers_of_one_record_are_left_out_of_reasons_but_not_of_names():
    entry = Entry()
    entry.err("not valid UTF-8: byte 0xff at 10 of line 7")
    entry.err("not valid UTF-16 at 123")
    assert list(entry.errored) == ["not valid UTF-8: byte N at N of line N", "not valid UTF-16 at N"]


@pytest.mark.parametrize("columns", [None, 80])
def test_marks_in_names_and_reasons_are_escaped(columns):
    hostile = "eman\u202e \x1b[2J\u2066"
    ledger = RunLedger()
    entry = Entry(read=Counter({"a.jsonl": 30}), kept=10)
    entry.dropped.update({(hostile, f"reason {hostile}"): 10})
    entry.errored.update({hostile: 10})
    entry.counters.update({(hostile, hostile): 3})
    ledger.resume(0, entry)
    steps = [StepStats(hostile, [StageStats(hostile)])]
    shown = summary(record(name=hostile, steps=steps, ledger=ledger, notes=[f"{hostile} was here"]), columns)
    assert shown.replace("\n", "").isprintable()
    assert shown.count(r"eman\u202e \x1b[2J\u2066") >= 6


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_summary_fits_the_width(columns, monkeypatch):
    names = ["JsonlReader", "gopher-quality with a name that is long", "数据清洗", "JsonlWriter"]
    big = [StageStats(name, tasks_in=10**6, items_in=10**9, items_out=10**9 - 1, items_failed=7) for name in names]
    steps = [StepStats("all", big, service_s_max=12.5, queue_s_max=99.0, peak_worker_bytes=10**9)]
    ledger = RunLedger()
    entry = Entry(read=Counter({"a.jsonl": 10**6}), kept=10**6 - 50)
    reason = "a reason that has a good many words to it, more than fit"
    entry.dropped.update({(names[1], reason): 30, (names[2], "数"): 20})
    entry.counters.update({(names[1], "documents that were changed in one way or another, by this stage"): 1234})
    ledger.resume(0, entry)
    done = replace(record(worker_deaths=3), steps=steps, ledger=ledger, notes=["a note of many words " * 8])
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = RunResult(done).summary().splitlines()
    assert [line for line in shown if fmt.width(line) > columns] == []
    head = next(line for line in shown if line.startswith("stage "))
    assert "items in" in head and ("tasks in" in head) == (columns >= 120)
    monkeypatch.delenv("COLUMNS")
    assert "(max)" in RunResult(done).summary(), "all is shown where there is no width"
