"""The profile store: filled by every run, safe under concurrent runs and kills, bounded."""

from __future__ import annotations

import json
import multiprocessing
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gristmill.backends.local import LocalExecutor
from gristmill.pipeline import Pipeline
from gristmill.pipeline.planner import flatten
from gristmill.pipeline.profiles import store as storing
from gristmill.pipeline.profiles.lookup import stored_profile
from gristmill.pipeline.profiles.machine import this_machine
from gristmill.pipeline.profiles.measured import (
    MachineKind,
    MeasureError,
    PhaseMeasure,
    RunMeasure,
    StepMeasure,
)
from gristmill.pipeline.profiles.recording import key_of
from gristmill.pipeline.profiles.store import ProfileStore, StoreError, store_path

MACHINE = MachineKind("a CPU", 4.0)


def run_of(key: str = "k", at: float = 1.0, **more: object) -> RunMeasure:
    step = StepMeasure("read", key="s", tasks=4, outputs=4, busy_s=2.0, settings={"tokens": 7})
    values = {"name": "job", "machine": MACHINE, "phases": (PhaseMeasure((step,), inputs=4),), "total_s": 3.0, **more}
    return RunMeasure(key=key, at=at, **values)  # type: ignore[arg-type]


def add_many(path: str, name: str, count: int) -> None:
    for i in range(count):
        ProfileStore(Path(path)).add(run_of(f"{name}-{i}"))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProfileStore:
    path = tmp_path / "home" / "profiles.jsonl"
    monkeypatch.setenv("GRISTMILL_PROFILE_STORE", str(path))
    return ProfileStore(path)


def pipeline_of(tmp_path: Path, folder: str = "in", words: int = 2) -> Pipeline:
    source = tmp_path / folder
    source.mkdir(exist_ok=True)
    lines = "".join(json.dumps({"text": f"one two three number {i}"}) + "\n" for i in range(300))
    (source / "a.jsonl").write_text(lines)
    return Pipeline.from_yaml(
        f"stages:\n  - JsonlReader: {{file_paths: {source}, blocksize: 4KB}}\n"
        f"  - ScoreFilter: {{filter_obj: {{WordCountFilter: {{min_words: {words}}}}}}}\n"
        f"  - JsonlWriter: {{path: {tmp_path / ('out-' + folder)}}}\n"
    )


def executor() -> LocalExecutor:
    return LocalExecutor({"view": "off", "num_cpus": 2})


def test_what_is_stored_is_read_back() -> None:
    run = run_of(sampled=True, documents=5)
    assert RunMeasure.of(json.loads(json.dumps(run.to_dict())), "x") == run


@pytest.mark.parametrize(
    "change",
    [
        {"format": 99},
        {"phases": []},
        {"phases": [{"steps": [{"name": 5}]}]},
        {"phases": [{"steps": [{"name": "x", "busy_s": -1.0}]}]},
        {"phases": [{"steps": [{}]}]},
        {"machine": None},
        {"total_s": "soon"},
        {"total_s": 1e400},
    ],
)
def test_values_that_are_no_measurements_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(MeasureError):
        RunMeasure.of({**run_of().to_dict(), **change}, "here")


def test_a_run_is_added_with_what_it_measured(tmp_path: Path, store: ProfileStore) -> None:
    pipeline_of(tmp_path).run(executor())
    (run,) = store.read().runs
    assert run.documents == 300
    assert run.source_bytes == (tmp_path / "in" / "a.jsonl").stat().st_size
    assert run.machine == this_machine()
    assert run.output_bytes > 0
    (step,) = run.phases[0].steps
    assert step.tasks == step.outputs > 2
    assert 0 < step.busy_s < run.total_s * 2
    assert run.phases[0].run_s <= run.total_s
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


def test_the_key_depends_on_the_configuration_and_not_on_the_data(tmp_path: Path) -> None:
    one, other, changed = pipeline_of(tmp_path), pipeline_of(tmp_path, "more"), pipeline_of(tmp_path, words=4)
    assert key_of(flatten(one.stages)) == key_of(flatten(other.stages))
    assert key_of(flatten(one.stages)) != key_of(flatten(changed.stages))


def test_a_run_of_several_phases_is_added_phase_by_phase(tmp_path: Path, store: ProfileStore) -> None:
    pipeline = pipeline_of(tmp_path)
    text = pipeline.to_yaml().replace("- JsonlWriter", "- ExactDeduplication: {}\n- JsonlWriter")
    Pipeline.from_yaml(text).run(executor())
    (run,) = store.read().runs
    assert [phase.decided_s > 0 for phase in run.phases] == [True, False]
    assert all(phase.run_s > 0 for phase in run.phases)


def test_nothing_is_added_if_it_is_switched_off(
    tmp_path: Path, store: ProfileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline_of(tmp_path).run(executor(), profile_store=False)
    assert not store.path.exists()
    monkeypatch.setenv("GRISTMILL_PROFILE_STORE", "off")
    pipeline_of(tmp_path).run(executor(), fresh=True)
    assert store_path() is None


def test_the_store_is_in_the_data_folder_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRISTMILL_PROFILE_STORE")
    monkeypatch.setenv("XDG_DATA_HOME", "/somewhere")
    assert store_path() == Path("/somewhere/gristmill/profiles.jsonl")
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert store_path() == Path("/home/me/.local/share/gristmill/profiles.jsonl")


def test_a_store_that_cannot_be_written_is_no_error_of_a_run(
    tmp_path: Path, store: ProfileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GRISTMILL_PROFILE_STORE", str(tmp_path / "file" / "profiles.jsonl"))
    assert pipeline_of(tmp_path).run(executor()).ok
    with pytest.raises(StoreError, match=r"cannot be written.*Set GRISTMILL_PROFILE_STORE"):
        ProfileStore(tmp_path / "file" / "profiles.jsonl").add(run_of())


def test_a_stage_that_cannot_be_described_is_no_error_of_a_run(
    tmp_path: Path, store: ProfileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: object) -> None:
        raise RuntimeError("the user's code")

    monkeypatch.setattr("gristmill.pipeline.profiles.recording.measured", fails)
    assert pipeline_of(tmp_path).run(executor()).ok
    assert not store.path.exists()


def test_damaged_lines_are_skipped_and_counted(store: ProfileStore) -> None:
    store.add(run_of("a"))
    with store.path.open("ab") as file:
        file.write(b'{"format": 1, "na\n\xff\xfe\n[]\n')
    store.add(run_of("b"))
    found = store.read()
    assert [run.key for run in found.runs] == ["a", "b"]
    assert found.damaged == 3


def test_a_line_that_a_killed_process_began_does_not_spoil_the_next(store: ProfileStore) -> None:
    store.add(run_of("a"))
    with store.path.open("ab") as file:
        file.write(b'{"format":1,"name":"jo')  # SIGKILL here
    store.add(run_of("b"))
    found = store.read()
    assert [run.key for run in found.runs] == ["a", "b"]
    assert found.damaged == 1


def test_a_process_that_is_killed_while_it_holds_the_lock_blocks_no_other_process(store: ProfileStore) -> None:
    store.add(run_of("a"))
    script = (
        "import fcntl, os, sys\n"
        "fcntl.flock(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX)\n"
        "print('locked', flush=True)\nsys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, f"{store.path}.lock"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(StoreError, match="cannot be written"):  # it gives up soon: a run must not wait
            store.add(run_of("b"))
        holder.kill()
    store.add(run_of("c"))
    assert [run.key for run in store.read().runs] == ["a", "c"]


def test_concurrent_runs_lose_nothing(store: ProfileStore) -> None:
    context = multiprocessing.get_context("spawn")
    some = [context.Process(target=add_many, args=(str(store.path), f"p{i}", 25)) for i in range(3)]
    for process in some:
        process.start()
    for process in some:
        process.join()
    found = store.read()
    assert found.damaged == 0
    assert sorted(run.key for run in found.runs) == sorted(f"p{i}-{n}" for i in range(3) for n in range(25))


def test_the_store_stays_small_and_keeps_the_newest(store: ProfileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storing, "MOST_BYTES", 20_000)
    for i in range(200):
        store.add(run_of(f"key-{i % 60}", at=float(i)))
        assert store.path.stat().st_size <= 20_000
    runs = store.read().runs
    assert runs[-1].at == 199
    assert [run.at for run in runs] == sorted(run.at for run in runs)
    assert len(list(store.path.parent.iterdir())) == 2  # the store and its lock


def test_the_newest_whole_run_on_this_kind_of_machine_counts(store: ProfileStore) -> None:
    other = MachineKind("another CPU", 4.0)
    for run in (run_of(at=1), run_of(at=2), run_of(at=3, sampled=True), run_of(at=4, machine=other), run_of("x", 5)):
        store.add(run)
    found = store.newest("k", MACHINE)
    assert found is not None
    assert found.at == 2
    everywhere = store.newest("k", None)
    assert everywhere is not None
    assert everywhere.at == 4
    assert store.newest("none", None) is None


def test_a_later_run_can_start_from_the_stored_profile(tmp_path: Path, store: ProfileStore) -> None:
    pipeline = pipeline_of(tmp_path)
    assert stored_profile(pipeline) is None
    pipeline.run(executor())
    profile = stored_profile(pipeline_of(tmp_path))
    assert profile is not None
    (stage,) = profile.stages.values()
    assert stage.service_s > 0
    assert stored_profile(pipeline_of(tmp_path, words=4)) is None  # another configuration


def test_a_profile_of_another_kind_of_machine_is_not_taken(tmp_path: Path, store: ProfileStore) -> None:
    pipeline = pipeline_of(tmp_path)
    pipeline.run(executor())
    (run,) = store.read().runs
    store.path.unlink()
    store.add(replace(run, machine=MachineKind("another CPU", 64.0)))
    assert stored_profile(pipeline) is None


def test_secrets_of_a_pipeline_are_not_stored(tmp_path: Path, store: ProfileStore) -> None:
    pipeline = pipeline_of(tmp_path)
    pipeline.name = "https://me:hunter2@example.org/x"
    pipeline.run(executor())
    content = store.path.read_text()
    assert "hunter2" not in content
    assert os.fspath(tmp_path) not in content
