"""The advisor on recorded runs: each flaw is found, and nothing that is not there.

``recorded/`` has reports of real runs, made by `record_runs.py`: all rules see all of them, so each recording is a
negative example for most rules. There was no GPU: the two rules about measurements of GPUs get a recording with
measurements added.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from tests.report.runs import record_of

from gristmill.report.advisor import advise
from gristmill.report.advisor.findings import RULES
from gristmill.report.place import Data

RECORDED = Path(__file__).parent / "recorded"
EXPECTED: dict[str, set[str]] = {
    "balanced": {"bottleneck"},
    "gpu_starved": {"bottleneck", "gpu_starved"},
    "gpu_busy": {"bottleneck"},
    "small_batches": {"small_batches"},
    "fixed_workers": {"bottleneck", "fixed_workers"},
    "few_blocks": {"bottleneck", "few_blocks"},
    "slow_storage": {"bottleneck", "slow_storage"},
    "oversized_tasks": {"bottleneck", "oversized_tasks"},
    "workers_died": {"workers_died"},
    "setup_dominates": {"setup_dominates"},
    "memory_near_limit": {"bottleneck", "memory_near_limit"},
    "blocked_by_output": {"bottleneck", "blocked_by_output", "memory_near_limit"},
    "drops": {"never_drops", "nearly_always_drops"},
    "skewed_duplicates": {"skewed_duplicates"},
    "failed": {"did_not_end"},
    "quarantined": {"failures"},
}


def recorded(name: str) -> Data:
    data: Data = json.loads((RECORDED / f"{name}.json").read_text())
    return data


def found(data: Data) -> dict[str, dict[str, Any]]:
    return {finding["rule"]: finding for finding in advise(data)}


def quiet(data: Data) -> Data:
    """The machine was busy with other programs when these runs were recorded: that alone is changed."""
    return data | {"load": 0.5}


@pytest.mark.parametrize("name", EXPECTED)
def test_each_flaw_is_found_and_no_other(name):
    data = recorded(name)
    assert set(found(quiet(data) if name == "slow_storage" else data)) == EXPECTED[name]


def test_every_rule_has_a_positive_and_a_negative_example():
    rules = {rule.__name__ for rule in RULES}
    seen = set().union(*EXPECTED.values())
    assert rules - seen == {"gpu_idle", "gpu_memory"}  # tested below
    assert all(any(rule not in names for names in EXPECTED.values()) for rule in rules)


@pytest.mark.parametrize(
    ("name", "rule", "figures"),
    [
        ("gpu_starved", "gpu_starved", ["'embed' had no input for", "'tokenize"]),
        ("fixed_workers", "fixed_workers", ["on 2 CPUs"]),
        ("few_blocks", "few_blocks", ["1 block of 1 file, for 2 CPUs"]),
        ("oversized_tasks", "oversized_tasks", [" of the run; the mean is "]),
        ("workers_died", "workers_died", ["1 worker of "]),
        ("setup_dominates", "setup_dominates", ["the first output came after "]),
        ("memory_near_limit", "memory_near_limit", ["of 300 MB"]),
        ("drops", "nearly_always_drops", [" of 1,600", "too few words"]),
        ("drops", "never_drops", ["mean_word_length (ScoreFilter), of at least 1,600 documents"]),
        ("skewed_duplicates", "skewed_duplicates", ["150 documents in one of "]),
        ("failed", "did_not_end", ["1 part of a task failed"]),
        ("quarantined", "failures", ["of 210; most often (10)"]),
        ("small_batches", "small_batches", ["4,000 tasks of "]),
    ],
)
def test_a_finding_has_its_figure_and_a_change(name, rule, figures):
    finding = found(quiet(recorded(name)))[rule]
    for figure in figures:
        assert figure in finding["figure"]
    assert finding["change"].endswith(".")
    assert finding["kind"] in ("problem", "advice", "note")


def test_waiting_workers_say_nothing_about_storage_if_other_programs_use_the_cpus():
    assert "slow_storage" not in found(recorded("slow_storage") | {"load": 9.0})


def with_gpu(name: str, busy_percent: int, memory_gb: float = 80, needs_gb: float = 0) -> Data:
    """A recording with measurements of one GPU, which is used by the step 'embed'."""
    data = copy.deepcopy(recorded(name))
    (plan,) = data["plans"]
    step = next(i for i, one in enumerate(plan["steps"]) if one["name"].startswith("embed"))
    plan["gpus"] = [{"index": 0, "memory_total": int(memory_gb * (1 << 30)), "steps": [step]}]
    points = len(plan["series"]["at_s"])
    plan["series"]["gpu_busy_percent"] = [[busy_percent]] * points
    plan["series"]["gpu_memory_bytes"] = [[1 << 30]] * points
    plan["steps"][step]["gpu_memory_gb"] = needs_gb
    return data


def test_a_gpu_that_idles_while_its_stage_has_work_needs_larger_batches():
    finding = found(with_gpu("gpu_busy", 20))["gpu_idle"]
    assert "busy for 20 % of the time, with batch_size=1" in finding["figure"]
    assert "gpu_idle" not in found(with_gpu("gpu_busy", 90))
    starved = found(with_gpu("gpu_starved", 20))
    assert "gpu_idle" not in starved and "gpu_starved" in starved


def test_a_stage_that_fills_the_memory_of_the_gpus_cannot_have_more_workers():
    assert "1 workers of 60 GB on 1 GPUs" in found(with_gpu("gpu_busy", 90, needs_gb=60))["gpu_memory"]["figure"]
    assert "gpu_memory" not in found(with_gpu("gpu_busy", 90, needs_gb=10))


@pytest.mark.parametrize("name", EXPECTED)
def test_advice_needs_no_part_of_a_record(name):
    """A run that was killed has less in its record, and one of another version may have less."""
    data = recorded(name)
    for key in list(data):
        advise({other: value for other, value in data.items() if other != key})
    killed = {key: value for key, value in data.items() if key not in ("steps", "wall_s", "cpu_s", "duplicates")}
    assert found(killed | {"state": "killed"})["did_not_end"]["title"] == "the run was killed"
    assert advise({"state": "finished"}) == []


def test_a_run_that_ends_gets_the_advice_into_its_report(tmp_path):
    from gristmill import Pipeline
    from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
    from gristmill.stages.text.io import JsonlReader, JsonlWriter

    lines = "".join(json.dumps({"id": i, "text": "word " * 5}) + "\n" for i in range(1_500))
    (tmp_path / "in.jsonl").write_text(lines)
    stages = [
        JsonlReader(str(tmp_path / "in.jsonl")),
        ScoreFilter(WordCountFilter(2)),
        JsonlWriter(str(tmp_path / "out")),
    ]
    Pipeline("p", stages=stages).run(report=True)
    (finding,) = record_of(tmp_path / "out")["findings"]
    assert finding["rule"] == "never_drops"
    assert finding["figure"] == "word_count (ScoreFilter), of at least 1,500 documents"
