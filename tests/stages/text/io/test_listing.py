"""Which files an input is, and how they are cut into blocks."""

from __future__ import annotations

import os
import socket
from itertools import pairwise

import fsspec
import pytest

from gristmill.errors import PlanError
from gristmill.stages.text.io import JsonlReader, ParquetReader
from gristmill.stages.text.io.blocks import bytes_of, cut_evenly, default_blocksize
from gristmill.stages.text.io.stamps import of_entry
from gristmill.tasks import FileGroupTask

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


def test_small_inputs_are_cut_into_smaller_blocks():
    mib = 1 << 20
    assert [default_blocksize(n * mib) / mib for n in (0, 1, 16, 32, 54, 256, 10_000)] == [1, 1, 1, 2, 3.375, 16, 16]


def test_blocks_depend_on_the_whole_input_and_its_compression(work):
    mib = 1 << 20
    big, small = work.put("a.jsonl", b"x" * 20 * mib), work.put("b.jsonl", b"x" * 12 * mib)
    packed = work.put("c.jsonl.gz", b"x" * 4 * mib)

    def cuts(*paths):
        ranges = [part for block in JsonlReader(list(paths)).source() for part in block.data]
        for path in {part.path for part in ranges if part.stop >= 0}:
            edges = [(part.start, part.stop) for part in ranges if part.path == path]
            assert [0, *(stop for _, stop in edges)] == [*(start for start, _ in edges), os.path.getsize(path)]
        return [(part.stop - part.start) / mib for part in ranges if part.stop >= 0], {p.batch_bytes for p in ranges}

    assert cuts(big, small) == ([2.0] * 16, {0})
    assert cuts(big, small, packed)[1] == {0, 3 * mib}
    assert cuts(small) == ([1.0] * 12, {0})


@pytest.mark.parametrize("size", [0, 1, 5, 14, 15, 16, 29, 100])
def test_small_inputs_are_cut_evenly(size):
    ranges = cut_evenly(size, 10)
    assert ranges[0][0] == 0 and ranges[-1][1] == size
    assert all(one[1] == other[0] for one, other in pairwise(ranges))
    lengths = [stop - start for start, stop in ranges]
    assert max(lengths) - min(lengths) <= 1 and max(lengths) <= 15 and (len(ranges) == 1 or min(lengths) >= 6)


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
    assert of_entry(one).marks == (("".join(key.lower().split("_")).replace("-", ""), "1"),)
    assert of_entry(one).changes(of_entry(other))


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


ODD_NAMES = [
    "a::b.jsonl",
    "x*y[1].jsonl",
    "q?r.jsonl",
    "h#1.jsonl",
    "p%20q.jsonl",
    "s3:c.jsonl",
    "~d.jsonl",
    " e .jsonl",
]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_local_names_are_taken_as_they_are(work, name, monkeypatch):
    for decoy in ("a", "b.jsonl", "xzy1.jsonl", "qar.jsonl", "h", "p q.jsonl", "c.jsonl", "d.jsonl", "e .jsonl"):
        (work.folder / decoy).write_bytes(b'{"text": "wrong"}\n')
    path = work.put(name, b'{"text": "right"}\n')
    work.put("z.jsonl", b'{"text": "other"}\n')
    monkeypatch.chdir(work.source)

    def texts(paths):
        found = work.batches(JsonlReader(paths))
        assert all(batch.account.bad == [] for batch in found)
        return [text for batch in found for text in batch.data["text"].to_pylist()]

    assert texts(path) == texts(name) == texts("file://" + path) == texts([path, name]) == ["right"]
    assert sorted(texts(str(work.source))) == ["other", "right"]
    assert sorted(texts(str(work.source / "*.jsonl"))) == ["other", "right"]


@pytest.fixture
def odd(work):
    """A folder with a file and things that cannot be read."""
    work.put("a.jsonl", LINE)
    os.mkfifo(work.source / "pipe.jsonl")
    (work.source / "link.jsonl").symlink_to(work.source / "nothing.jsonl")
    (work.source / "loop.jsonl").symlink_to("loop.jsonl")
    os.mkfifo(work.source / "of no interest.txt")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(os.path.relpath(work.source / "socket.jsonl"))
    (work.source / "good link.jsonl").symlink_to("a.jsonl")
    (work.folder / "elsewhere").mkdir()
    (work.source / "folder").symlink_to(work.folder / "elsewhere")
    return work


@pytest.mark.parametrize("pattern", ["", "/*.jsonl"])
def test_what_is_no_file_is_skipped_with_a_warning_that_counts(odd, capsys, pattern):
    reader = JsonlReader(str(odd.source) + pattern)
    assert names(reader, odd.source) == ["a.jsonl", "good link.jsonl"]
    assert names(reader, odd.source) == ["a.jsonl", "good link.jsonl"]
    told = capsys.readouterr().err.splitlines()
    assert [line.count(": 2 in the input") for line in told][:2] == [1, 1]  # once, however often it is listed
    assert "FIFOs" in told[0] and "target does not exist" in told[1] and str(odd.source) in told[0]
    assert len(told) == (2 if pattern else 3)
    assert pattern or ("links to folders" in told[2] and ": 1 in the input" in told[2])


def test_a_folder_with_nothing_but_what_is_no_file_is_described_as_it_is(odd):
    for name in ("a.jsonl", "good link.jsonl"):
        (odd.source / name).unlink()
    with pytest.raises(PlanError, match="holds no file to read") as caught:
        JsonlReader(str(odd.source)).source()
    assert "FIFOs, sockets or devices: 2; the first is" in str(caught.value)
    assert "links whose target does not exist: 2; the first is" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "words"), [("pipe.jsonl", "is a FIFO"), ("socket.jsonl", "is a socket"), ("link.jsonl", "is a link to")]
)
def test_what_is_no_file_and_was_named_is_an_error(odd, name, words):
    with pytest.raises(PlanError, match=words) as caught:
        JsonlReader([str(odd.source / "a.jsonl"), str(odd.source / name)]).source()
    assert name in str(caught.value)
    with pytest.raises(PlanError, match="is a device"):
        JsonlReader("/dev/null").source()


def test_a_fifo_in_place_of_a_file_is_not_waited_for(odd):
    for kind in (JsonlReader, ParquetReader):
        with pytest.raises(OSError, match="not a regular file"):
            kind().process(FileGroupTask(data=[str(odd.source / "pipe.jsonl")]))


def test_names_that_are_no_text_are_plain_errors(work):
    with pytest.raises(PlanError, match="NUL"):
        JsonlReader(str(work.source / "a\0b.jsonl")).source()
    work.put("a.jsonl", LINE)
    with open(os.path.join(os.fsencode(work.source), b"\xff.jsonl"), "wb") as file:
        file.write(LINE)
    for given in (
        str(work.source),
        str(work.source / "*.jsonl"),
        os.fsdecode(os.fsencode(work.source) + b"/\xff.jsonl"),
    ):
        with pytest.raises(PlanError, match=r"xff\.jsonl' is not valid UTF-8: rename"):
            JsonlReader(given).source()
    with pytest.raises(PlanError, match="not valid UTF-8"):
        JsonlReader("\ud800.jsonl").source()


def test_a_folder_that_cannot_be_listed_is_an_error(work, monkeypatch):
    work.put("a.jsonl", LINE)
    work.put("closed/b.jsonl", LINE)
    scandir = os.scandir

    def refuse(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(PlanError, match="closed' cannot be listed: Permission denied"):
        JsonlReader(str(work.source)).source()


@pytest.mark.parametrize(("reader", "kind"), [(JsonlReader, "Parquet"), (ParquetReader, "JSONL")])
def test_files_of_the_other_format_are_named_in_a_warning(work, capsys, reader, kind):
    for name in ("a.jsonl", "b.jsonl.gz", "deep/c.parquet", "d.pq", "info.json", "e.txt", "_f.jsonl", "_g.parquet"):
        work.put(name, LINE)
    (work.source / "only").mkdir()
    (work.source / "only" / "h.jsonl").write_bytes(LINE)
    reader(str(work.source), files_per_partition=1).source()
    [line] = capsys.readouterr().err.splitlines()
    assert f"does not read the {3 if kind == 'JSONL' else 2} {kind} files" in line and "DocumentReader" in line
    with pytest.raises(PlanError, match=f"holds {kind} files"):
        reader(str(work.folder / "in" / ("deep" if kind == "Parquet" else "only"))).source()
