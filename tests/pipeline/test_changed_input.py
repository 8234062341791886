"""Input that changes after a run was planned: the run fails, names the file, and commits none of its blocks."""

from __future__ import annotations

import gzip
import io
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill.backends.local import LocalExecutor
from gristmill.cli.main import main
from gristmill.errors import InputChanged
from gristmill.pipeline import Pipeline
from gristmill.stages.deduplication.exact import ExactDeduplication
from gristmill.stages.text.io import JsonlReader, JsonlWriter, ParquetReader

TEXTS = [f"document number {i} of the corpus" for i in range(3000)]


def jsonl(texts=TEXTS) -> bytes:
    return b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)


def parquet(texts=TEXTS) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": texts}), sink, row_group_size=500)
    return sink.getvalue()


FORMATS = {
    "plain": ("a.jsonl", jsonl, JsonlReader),
    "gzip": ("a.jsonl.gz", lambda: gzip.compress(jsonl()), JsonlReader),
    "parquet": ("a.parquet", parquet, ParquetReader),
}


def half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def rewrite(path: Path) -> None:
    """The same size, other content."""
    data = path.read_bytes()
    path.write_bytes(data[:100] + b"x" + data[101:])


def replace(path: Path) -> None:
    """Another file of the same size and time."""
    stat = path.stat()
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    os.rename(other, path)


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b'{"text": "one more"}\n')


def delete(path: Path) -> None:
    path.unlink()


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


CHANGES = {
    half: "and now has",
    empty: "and now has 0",
    rewrite: "written again",
    replace: "another file took its place",
    append: "and now has",
    delete: "no longer exists",
    fifo: "regular file",
}


def put(tmp_path: Path, kind: str) -> tuple[Path, type]:
    name, make, reader = FORMATS[kind]
    path = tmp_path / "in" / name
    path.parent.mkdir()
    path.write_bytes(make())
    return path, reader


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("change", CHANGES)
def test_a_block_of_a_changed_file_is_not_read(tmp_path, kind, change):
    path, reader = put(tmp_path, kind)
    reader = reader(str(path), blocksize=50_000)
    blocks = reader.source()
    change(path)
    for block in blocks:
        with pytest.raises((InputChanged, OSError), match=CHANGES[change]) as caught:
            list(reader.process(block))
        assert str(path) in str(caught.value)
    [line] = reader.changed_inputs()
    assert str(path) in line and CHANGES[change] in line


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("change", [half, rewrite, append])
def test_a_file_that_changes_while_it_is_read_is_noticed(tmp_path, kind, change, monkeypatch):
    path, reader = put(tmp_path, kind)
    reader = reader(str(path))
    [block] = reader.source()
    original = io.FileIO.read
    from gristmill.stages.text.io.reader import files

    opened = files.open_regular

    class ChangesAfterRead(io.FileIO):
        def read(self, size=-1):
            data = original(self, size)
            if not done:
                done.append(True)
                change(path)
            return data

    done: list[bool] = []
    monkeypatch.setattr(files, "open_regular", lambda name: ChangesAfterRead(opened(name).name))
    with pytest.raises(InputChanged, match=str(path)):
        list(reader.process(block))


def test_a_short_read_of_a_planned_range_is_an_error_even_if_nothing_else_shows_it(tmp_path):
    path, _ = put(tmp_path, "plain")
    reader = JsonlReader(str(path), blocksize=50_000)
    block = reader.source()[-1]
    [part] = block.data
    block.data = [type(part)(part.path, part.start, part.stop + 1)]
    with pytest.raises(InputChanged, match="ends at byte"):
        reader.process(block)


class Changing(LocalExecutor):
    """Changes the input when a plan is about to run, or when it has run."""

    def __init__(self, change, when: int = 1, after: bool = False, **config) -> None:
        super().__init__(config={"view": "off", "num_cpus": 2, **config})
        self.change, self.when, self.after = change, when, after
        self.calls: list[int] = []

    def execute(self, *arguments):
        self.calls.append(1)
        if len(self.calls) == self.when and not self.after:
            self.change()
        record = super().execute(*arguments)
        if len(self.calls) == self.when and self.after:
            self.change()
        return record


def committed(out: Path) -> list[int]:
    commits = sorted((out / "_gristmill/commits").iterdir()) if (out / "_gristmill/commits").exists() else []
    return [json.loads(line)["block"] for file in commits for line in file.read_bytes().splitlines()]


@pytest.mark.parametrize("ignore", [False, True])
@pytest.mark.parametrize(
    ("kind", "change"), [("plain", half), ("plain", empty), ("gzip", replace), ("parquet", delete)]
)
def test_a_run_fails_and_commits_no_block_of_a_changed_file(tmp_path, kind, change, ignore):
    path, reader = put(tmp_path, kind)
    out = tmp_path / "out"
    pipeline = Pipeline("p", stages=[reader(str(path), blocksize=50_000), JsonlWriter(str(out))])
    with pytest.raises(InputChanged, match=CHANGES[change]) as caught:
        pipeline.run(Changing(lambda: change(path), ignore_failures=ignore))
    assert str(path) in str(caught.value) and "--fresh" in str(caught.value)
    assert committed(out) == []
    assert not (out / "_gristmill/ledger.json").exists()


def test_a_change_after_all_was_read_is_found_at_the_end(tmp_path):
    path, _ = put(tmp_path, "plain")
    (path.parent / "b.jsonl").write_bytes(jsonl(TEXTS[:10]))
    pipeline = Pipeline("p", stages=[JsonlReader(str(path.parent)), JsonlWriter(str(tmp_path / "out"))])
    with pytest.raises(InputChanged, match=r"a\.jsonl .*and now has") as caught:
        pipeline.run(Changing(lambda: append(path), after=True))
    assert "b.jsonl" not in str(caught.value)
    assert caught.value.result.ledger.total().kept == 3010


@pytest.mark.parametrize("when", [1, 2])
def test_a_change_before_or_between_phases_is_found(tmp_path, when):
    path, _ = put(tmp_path, "plain")
    stages = [JsonlReader(str(path), blocksize=50_000), ExactDeduplication(), JsonlWriter(str(tmp_path / "out"))]
    with pytest.raises(InputChanged, match="written again"):
        Pipeline("p", stages=stages).run(Changing(lambda: rewrite(path), when=when, ignore_failures=True))


def test_the_command_exits_with_an_error_and_names_the_file(tmp_path, monkeypatch, capsys):
    path, _ = put(tmp_path, "plain")
    target = tmp_path / "p.yaml"
    target.write_text(f"stages:\n  - JsonlReader: {{file_paths: {path}}}\n  - JsonlWriter: {{path: {tmp_path}/out}}\n")
    original = LocalExecutor.execute

    def changed(self, *arguments):
        half(path)
        return original(self, *arguments)

    monkeypatch.setattr(LocalExecutor, "execute", changed)
    assert main(["run", str(target), "--view", "off", "--ignore-failures"]) == 1
    told = capsys.readouterr().err
    assert f"{path} changed after the run was planned: it had" in told and "Traceback" not in told


def test_an_input_that_stays_the_same_is_no_error(tmp_path):
    path, _ = put(tmp_path, "plain")
    os.chmod(path, 0o400)  # of no consequence for the content
    pipeline = Pipeline("p", stages=[JsonlReader(str(path)), JsonlWriter(str(tmp_path / "out"))])
    result = pipeline.run(Changing(lambda: os.chmod(path, 0o600)))
    assert result.ledger.total().kept == 3000
