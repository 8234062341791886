"""Image files in folders: captions beside them, blocks, the account by folder, changes."""

from __future__ import annotations

import os
import pickle
import random
import secrets
from pathlib import Path

import pytest

pytest.importorskip("PIL")

from tests.stages.image.io.pictures import bad, batches, by_id, check_balance, picture, put, rows

from gristmill.errors import InputChanged, PlanError
from gristmill.stages.image.io.reader import ImageReader, ImageReaderStage
from gristmill.tasks import FileGroupTask


def make_tree(folder: Path, rng: random.Random) -> dict[str, tuple[bytes, str | None]]:
    """Random images with captions; by path below the folder."""
    expected = {}
    for n in range(rng.randrange(20, 80)):
        name = f"{rng.choice(('', 'a/', 'a/deep/', 'b.c/'))}p {n}.{rng.choice(('png', 'JPG', 'webp', 'gif'))}"
        data = picture(n, rng.choice(("PNG", "JPEG", "WEBP", "GIF")))
        put(folder, name, data)
        caption = None
        if rng.random() < 0.6:
            caption = f"caption {n}"
            put(folder, os.path.splitext(name)[0] + rng.choice((".txt", ".caption")), f" {caption}\n".encode())
        expected[name] = (data, caption)
    put(folder, "_hidden/x.png", picture(1))
    put(folder, "README.md", b"no image")
    put(folder, "alone.txt", b"of no image")
    return expected


def test_a_tree_is_read_whole_for_any_blocksize(tmp_path):
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for n in range(8):
        folder = tmp_path / str(n)
        expected = make_tree(folder, rng)
        results = []
        for options in ({}, {"blocksize": 1}, {"blocksize": rng.randrange(100, 5000)}, {"files_per_partition": 7}):
            reader = ImageReader(str(folder), **options)
            blocks = reader.source()
            assert not reader.linked([], []).fan_out
            assert "files_per_partition" not in options or all(
                sum(part.stop - part.start for part in block.data) <= 7 for block in blocks
            )
            found = batches(reader)
            check_balance(found)
            results.append(by_id(found))
        assert all(result == results[0] for result in results)
        assert {row["image_id"]: (row["image"], row.get("caption")) for row in results[0].values()} == expected
        assert set(results[0]) == {f"{folder}/{name}#0" for name in expected}
        read = sum((batch.account.read for batch in found), start=type(found[0].account.read)())
        assert set(read) == {str((folder / name).parent) + "/" for name in expected}
        estimated = sum(reader.block_sizes(reader.source()))
        assert 0 <= sum(len(data) for data, _ in expected.values()) - estimated <= len(expected)  # it is rounded


@pytest.mark.parametrize("paths", ["{}/a/*.png", ["{}/a/1.png", "{}/a/2.png"], "{}/[ab]"])
def test_captions_are_found_however_images_are_named(tmp_path, paths):
    for n in (1, 2):
        put(tmp_path, f"a/{n}.png", picture(n))
        put(tmp_path, f"a/{n}.txt", b"caption")
        put(tmp_path, f"a/{n}.json", b'{"n": %d}' % n)
    given = [one.format(tmp_path) for one in paths] if isinstance(paths, list) else paths.format(tmp_path)
    found = rows(batches(ImageReader(given)))
    assert [(row["caption"], row["n"]) for row in found] == [("caption", 1), ("caption", 2)]


def test_a_worker_gets_only_its_part_of_a_folder(tmp_path):
    for n in range(300):
        put(tmp_path, f"{n:03d}.png", picture(n))
        put(tmp_path, f"{n:03d}.txt", b"c")
    reader = ImageReader(str(tmp_path), files_per_partition=10)
    blocks = reader.source()
    assert len(pickle.dumps(reader.linked([], []))) < 2000
    sizes = [len(pickle.dumps(block)) for block in blocks]
    assert len(sizes) == 30 and max(sizes) < 3000
    one = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(blocks[7]))))
    assert [row["image_id"] for row in rows([reader.process(one)])] == [f"{n:03d}.png" for n in range(70, 80)]


def test_a_named_stage_and_paths_as_tasks(tmp_path):
    paths = [put(tmp_path, f"{n}.png", picture(n)) for n in range(3)]
    put(tmp_path, "1.txt", b"one")
    found = rows(ImageReaderStage().process(FileGroupTask(paths)))
    assert [row["caption"] for row in found] == [None, "one", None]


def test_limit_and_sample(tmp_path):
    for n in range(200):
        put(tmp_path, f"{n % 7}/{n:03d}.png", picture(n) if n % 10 else b"bad")
    every = by_id(batches(ImageReader(str(tmp_path))))
    found = batches(ImageReader(str(tmp_path), limit=50, blocksize=1000))
    assert sum(batch.account.read.total() for batch in found) == 50
    assert list(by_id(found)) == list(every)[: len(by_id(found))]
    some, more = (batches(ImageReader(str(tmp_path), sample=rate)) for rate in (0.2, 0.5))
    assert set(by_id(some)) < set(by_id(more)) < set(every)
    skipped = sum(batch.account.counters["not in the sample"] for batch in more)
    assert skipped + sum(batch.account.read.total() for batch in more) == 200
    few = batches(ImageReader(str(tmp_path), sample=0.5, limit=20))
    assert list(by_id(few)) == list(by_id(more))[: len(by_id(few))]


@pytest.mark.parametrize("change", ["other bytes", "longer", "gone", "caption"])
def test_a_file_that_changes_after_planning_ends_the_run(tmp_path, change):
    for n in range(5):
        put(tmp_path, f"{n}.png", picture(n))
        put(tmp_path, f"{n}.txt", b"caption")
    reader = ImageReader(str(tmp_path))
    [block] = reader.source()
    assert reader.changed_inputs() == []
    path = tmp_path / ("3.txt" if change == "caption" else "3.png")
    if change == "gone":
        path.unlink()
    else:
        path.write_bytes(b"x" * (7 if change != "longer" else 10_000))
        os.utime(path, ns=(1, 1))
    with pytest.raises(InputChanged, match=f"{path} changed after the run was planned"):
        reader.process(block)
    assert len(reader.changed_inputs()) == 1 and str(path) in reader.changed_inputs()[0]


def test_the_version_of_a_folder_changes_with_its_files(tmp_path):
    put(tmp_path, "a.png", picture(1))
    reader = ImageReader(str(tmp_path))
    reader.source()
    [(name, before)] = reader.versions()
    assert name == f"{tmp_path}/" and before.startswith("1 images")
    put(tmp_path, "a.txt", b"caption")
    reader.source()
    assert reader.versions() != [(name, before)]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read all files")
def test_an_image_that_may_not_be_read_costs_one(tmp_path):
    put(tmp_path, "a.png", picture(1))
    os.chmod(put(tmp_path, "b.png", picture(2)), 0)
    assert bad(batches(ImageReader(str(tmp_path)))) == [(f"{tmp_path}/b.png#0", "access is denied (EACCES)")]


def test_an_input_of_several_kinds_is_refused_unless_one_is_chosen(tmp_path):
    put(tmp_path, "a.png", picture(1))
    put(tmp_path, "b.jsonl", b'{"path": "a.png"}\n')
    with pytest.raises(PlanError, match=r"1 image files and 1 JSONL manifests(.|\n)*kind='files' or kind='manifest'"):
        ImageReader(str(tmp_path)).source()
    assert len(rows(batches(ImageReader(str(tmp_path), kind="files")))) == 1
    assert rows(batches(ImageReader(str(tmp_path), kind="manifest")))[0]["path"] == "a.png"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "pictures"}, "kind must be one of"),
        ({"caption_lines": 1}, "caption_lines must be"),
        ({"max_pixels": 0}, "max_pixels must be"),
        ({"limit": 0}, "limit must be"),
        ({"fields": "x"}, "list of names"),
    ],
)
def test_wrong_arguments_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        ImageReader("x", **options)


@pytest.mark.parametrize("name", ["a.txt", "a.json"])
def test_a_folder_without_images_is_an_error(tmp_path, name):
    put(tmp_path, name, b"{}")
    with pytest.raises(PlanError, match="holds no image"):
        ImageReader(str(tmp_path)).source()
