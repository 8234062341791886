"""Which files an input is, and how they are cut into blocks."""

from __future__ import annotations

import os

import fsspec
import pytest

from gristmill.errors import PlanError
from gristmill.stages.text.io import JsonlReader, ParquetReader
from gristmill.stages.text.io.blocks import bytes_of
from gristmill.stages.text.io.listing import _version

LINE = b'{"text": "a"}\n'


@pytest.fixture
def folder(work):
    for name in [
        "b.jsonl",
        "a.jsonl.gz",
        "deep/c.ndjson",
        "deep/d.json.zst",
        "e.txt",
        "_hidden.jsonl",
        ".tmp-x.jsonl",
        "_gristmill/log.jsonl",
        "excluded/part.jsonl",
        "quarantine/part.jsonl",
        "deep/excluded/kept.jsonl",
    ]:
        work.put(name, LINE)
    return str(work.source)


def names(reader, folder):
    return [os.path.relpath(part.path, folder) for block in reader.source() for part in block.data]


ALL = ["a.jsonl.gz", "b.jsonl", "deep/c.ndjson", "deep/d.json.zst", "deep/excluded/kept.jsonl"]


def test_a_folder_is_its_documents_sorted(folder):
    assert names(JsonlReader(folder), folder) == ALL
    assert names(JsonlReader(folder + "/"), folder) == ALL
    assert names(JsonlReader("file://" + folder), folder) == ALL


def test_excluded_is_an_ordinary_name_where_there_is_no_output_of_ours(work):
    work.put("excluded/a.jsonl", LINE)
    assert names(JsonlReader(str(work.source)), work.source) == ["excluded/a.jsonl"]


def test_lists_files_and_globs(folder, monkeypatch):
    assert names(JsonlReader([folder + "/b.jsonl", folder + "/e.txt", folder + "/b.jsonl"]), folder) == [
        "b.jsonl",
        "e.txt",
    ]
    assert names(JsonlReader(folder + "/*.jsonl*"), folder) == ["a.jsonl.gz", "b.jsonl"]
    assert names(JsonlReader(folder + "/**/*.ndjson"), folder) == ["deep/c.ndjson"]
    monkeypatch.chdir(folder)
    assert names(JsonlReader("b.jsonl"), folder) == ["b.jsonl"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("missing.jsonl", "does not exist"),
        ("missing/*.jsonl", "matches no file"),
        ("*.nothing", "matches no file"),
        ("empty", "holds no file to read"),
        ([], "empty list"),
        ([3], "give paths as text"),
        ("nowhere://x", "cannot be read"),
    ],
)
def test_input_that_is_not_there_is_an_error_before_anything_starts(work, path, words):
    (work.source / "empty").mkdir()
    given = str(work.source / path) if isinstance(path, str) and "://" not in path else path
    with pytest.raises(PlanError, match=words):
        JsonlReader(given).source()


def test_files_are_cut_and_put_together_by_blocksize(work):
    work.put("a.jsonl", b"x" * 25)
    work.put("b.jsonl", b"x" * 4)
    work.put("c.jsonl", b"x" * 5)
    work.put("d.jsonl", b"")

    def cuts(**kwargs):
        blocks = JsonlReader(str(work.source), **kwargs).source()
        assert [block.task_id for block in blocks] == [str(i) for i in range(len(blocks))]
        return [[(part.path[-7], part.start, part.stop) for part in block.data] for block in blocks]

    a, b, c, d = ("a", 0, 25), ("b", 0, 4), ("c", 0, 5), ("d", 0, 0)
    assert cuts() == [[a], [b], [c], [d]]
    assert cuts(blocksize=10) == [[("a", 0, 10)], [("a", 10, 20)], [("a", 20, 25), b], [c, d]]
    assert cuts(blocksize="1kB") == [[a, b, c, d]]
    assert cuts(files_per_partition=3) == [[("a", 0, -1), ("b", 0, -1), ("c", 0, -1)], [("d", 0, -1)]]


def test_sizes_in_words():
    assert [bytes_of(x) for x in (5, "7", "256MB", "16MiB", "1.5 kb", "2G")] == [
        5,
        7,
        256 << 20,
        16 << 20,
        1536,
        2 << 30,
    ]
    for wrong in ("", "MB", "-1", "5 bytes", 0, True, None):
        with pytest.raises(ValueError, match="blocksize"):
            bytes_of(wrong)


def test_settings_that_make_no_sense():
    with pytest.raises(ValueError, match="not both"):
        JsonlReader("x", files_per_partition=2, blocksize="1MB")
    with pytest.raises(ValueError, match="storage_options"):
        ParquetReader("x", read_kwargs={"lines": True})
    with pytest.raises(ValueError, match="list of names"):
        JsonlReader("x", fields="text")
    with pytest.raises(ValueError, match="files_per_partition"):
        JsonlReader("x", files_per_partition=0)


def test_too_many_blocks_say_what_to_do(work, monkeypatch):
    monkeypatch.setattr("gristmill.stages.text.io.blocks.MAX_BLOCKS", 3)
    reader = JsonlReader(work.put("a.jsonl", b"x" * 10), blocksize=3)
    with pytest.raises(PlanError, match="larger blocksize"):
        reader.source()


def test_a_stage_may_give_several_batches_only_where_files_are_compressed(work):
    plain, packed = work.put("a.jsonl", LINE), work.put("b.jsonl.gz", LINE)
    assert JsonlReader(plain).linked([], []).fans_out() is False
    assert JsonlReader([plain, packed]).linked([], []).fans_out() is True


@pytest.mark.parametrize("key", ["ETag", "etag", "last_modified", "Last-Modified", "updated", "mtime", "md5Hash"])
def test_a_changed_file_of_equal_size_is_noticed_by_what_its_storage_tells(key):
    one, other = ({"name": "a", "size": 3, "Content-Type": "x", key: value} for value in ("1", "2"))
    assert _version(one) == "1" and _version(other) == "2"


def test_a_file_that_changed_in_memory_has_another_version():
    memory = fsspec.filesystem("memory")
    versions = []
    for text in (b'{"text": "a"}', b'{"text": "b"}'):
        memory.pipe_file("/versions/a.jsonl", text)
        reader = JsonlReader("memory://versions/a.jsonl")
        reader.source()
        versions.append(reader.versions())
    memory.rm("/versions", recursive=True)
    assert versions[0] != versions[1]
