"""Shards of `ImageWriter`: members, keys, limits, and what other programs read from them."""

from __future__ import annotations

import io
import json
import os
import random
import tarfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests.images.samples import FORMATS, encoded, image_table

from gristmill.backends.local import LocalExecutor
from gristmill.errors import PlanError
from gristmill.image import ImageBatch, ImageWriter, ImageWriterStage
from gristmill.images.formats import format_of
from gristmill.images.shards import END, key_of, records_in
from gristmill.ledger.dropped import rows_at_once
from gristmill.pipeline import Pipeline
from gristmill.stages.core import ProcessingStage
from gristmill.stages.protocols import Source
from gristmill.tasks import FileBlock
from gristmill.tasks.document import ID
from gristmill.text import JsonlWriter, ParquetWriter

EXTENSIONS = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp", "GIF": "gif", "TIFF": "tif", "BMP": "bmp"}


def batch(task_id: str = "12", **columns) -> ImageBatch:
    rows = len(next(iter(columns.values())))
    columns = {"image": [encoded(n) for n in range(rows)], **columns}
    columns["image"] = pa.array(columns["image"], pa.large_binary())
    table = pa.table({**columns, ID: [f"/in/{n}.tar#{n * 512}" for n in range(rows)]})
    return ImageBatch(table, task_id=task_id)


def members(path: str | Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        infos = archive.getmembers()
        assert all((i.mtime, i.uid, i.gid, i.mode, i.uname, i.gname) == (0, 0, 0, 0o644, "", "") for i in infos)
        assert len({info.name for info in infos}) == len(infos)
        return {info.name: archive.extractfile(info).read() for info in infos}


def test_an_image_is_its_bytes_its_caption_and_its_metadata(tmp_path):
    made = batch(image_id=["cats/my cat.png"], caption=["a cat\nsits"], score=[0.25], tags=[["x", None]], n=[None])
    (path,) = ImageWriter(tmp_path).process(made).data
    assert path == str(tmp_path / "part-000012.tar")
    found = members(path)
    key = key_of("cats/my cat.png", "12/0.tar#0")
    assert list(found) == [f"{key}.png", f"{key}.txt", f"{key}.json"]
    assert found[f"{key}.png"] == encoded(0) and found[f"{key}.txt"] == b"a cat\nsits"
    assert json.loads(found[f"{key}.json"]) == {
        "image_id": "cats/my cat.png",
        "score": 0.25,
        "tags": ["x", None],
        "n": None,
    }


@pytest.mark.parametrize("kind", FORMATS)
def test_the_extension_is_that_of_the_real_format(tmp_path, kind):
    made = batch(image=[encoded(3, kind)], image_id=["liar.jpg"])
    (path,) = ImageWriter(tmp_path).process(made).data
    name, content = next(iter(members(path).items()))
    assert name.rpartition(".")[2] == EXTENSIONS[kind] and content == encoded(3, kind)


def test_a_missing_caption_has_no_member_and_an_empty_one_has(tmp_path):
    (path,) = ImageWriter(tmp_path).process(batch(image_id=["a", "b"], caption=[None, ""])).data
    assert [name.rpartition(".")[2] for name in members(path)] == ["png", "json", "png", "txt", "json"]


def test_vectors_are_files_of_numpy_and_other_lists_json(tmp_path):
    vectors = pa.array([[0.5, 1.5], None], pa.list_(pa.float32()))
    fixed = pa.FixedSizeListArray.from_arrays(pa.array([1, 2, 3, 4], pa.float32()).cast(pa.float16()), 2)
    made = batch(image_id=["a", "b"], embedding=vectors, half=fixed, box=[[0.1, 0.2], []])
    (path,) = ImageWriter(tmp_path).process(made).data
    found = {name.partition(".")[2] + name[0]: data for name, data in members(path).items()}
    assert np.load(io.BytesIO(found["embedding.npya"])).tolist() == [0.5, 1.5] and "embedding.npyb" not in found
    half = np.load(io.BytesIO(found["half.npyb"]))
    assert half.dtype == np.float16 and half.tolist() == [3, 4]
    assert json.loads(found["jsona"]) == {"image_id": "a", "box": [0.1, 0.2]}


def test_fields_limit_what_is_written_beside_the_image(tmp_path):
    writer = ImageWriter(tmp_path, fields=["score"])
    (path,) = writer.process(batch(image_id=["a"], caption=["c"], score=[1], other=[2])).data
    assert [json.loads(data) for name, data in members(path).items() if name.endswith("json")] == [
        {"image_id": "a", "score": 1}
    ]
    assert len(members(path)) == 2 and writer.columns_needed() == ["image", "image_id", "score"]


def test_other_binary_columns_are_refused_with_what_to_do(tmp_path):
    made = batch(image_id=["a"], thumb=pa.array([b"x"], pa.binary()))
    with pytest.raises(TypeError, match=r"'thumb' holds binary data.*fields=\[...\].*Parquet"):
        ImageWriter(tmp_path).process(made)
    assert not list(tmp_path.iterdir())


def test_images_that_are_none_are_bad_records(tmp_path):
    made = batch(image=[b"GIF89", None, encoded(2), b"", b"<svg/>"], image_id=list("abcde"))
    written = ImageWriter(tmp_path).process(made)
    assert [(bad.file, bad.position, bad.reason) for bad in written.account.bad] == [
        ("/in/0.tar", 0, "not an image of a known format"),
        ("/in/1.tar", 512, "no image"),
        ("/in/3.tar", 1536, "empty"),
        ("/in/4.tar", 2048, "not an image of a known format"),
    ]
    assert [file.rows for file in written.account.written] == [1]


def test_a_batch_without_images_writes_no_file(tmp_path):
    written = ImageWriter(tmp_path).process(batch(image=[None], image_id=["a"]))
    assert written.data == [] and written.account.written == [] and not list(tmp_path.iterdir())


def test_shards_have_at_most_so_many_images_and_their_names_are_in_order(tmp_path):
    written = ImageWriter(tmp_path, images_per_tar=4).process(batch("3.2", image_id=[str(n) for n in range(10)]))
    names = [os.path.basename(path) for path in written.data]
    assert names == [f"part-000003.00002.0000{n}.tar" for n in range(3)] == sorted(names)
    assert [file.rows for file in written.account.written] == [4, 4, 2]
    ids = [json.loads(d)["image_id"] for path in written.data for n, d in members(path).items() if n.endswith("json")]
    assert ids == [str(n) for n in range(10)]


def test_shards_have_at_most_so_many_bytes_except_for_one_larger_image(tmp_path):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    images = [encoded(n) + rng.randbytes(rng.choice([0, 700, 3000, 9000])) for n in range(60)]
    limit = rng.randint(4096, 20_000)
    written = ImageWriter(tmp_path, max_shard_bytes=limit).process(batch(image=images, image_id=[""] * 60))
    assert sum(file.rows for file in written.account.written) == 60
    for path, file in zip(written.data, written.account.written, strict=True):
        assert file.size == os.path.getsize(path) and (file.size <= limit or file.rows == 1)
    sizes = [file.size for file in written.account.written]
    assert all(a + b - END > limit for a, b in pairwise(sizes)) or len(sizes) == 1
    found = [data for path in written.data for name, data in members(path).items() if name.endswith(".png")]
    assert found == images


@given(st.text(max_size=200))
def test_keys_are_safe_and_short(image_id):
    key = key_of(image_id, "place")
    assert key.isascii() and not set(key) & set('./\\ \n\0"') and len(f"{key}.{'x' * 24}.npy") <= 100
    assert key != key_of(image_id, "other place")


def test_keys_are_unique_where_ids_are_not_and_do_not_depend_on_the_folder(tmp_path):
    table = batch(image_id=["a"] * 4).data
    same = table.set_column(table.column_names.index(ID), ID, pa.array(["/x/a.tar#0"] * 2 + ["/y/a.tar#0"] * 2))
    one = members(ImageWriter(tmp_path / "1").process(ImageBatch(same, task_id="1")).data[0])
    two = members(ImageWriter(tmp_path / "2").process(ImageBatch(same, task_id="2")).data[0])
    assert len(one) == len(two) == 8 and not set(one) & set(two)
    moved = table.set_column(table.column_names.index(ID), ID, pa.array(["s3://b/a.tar#0"] * 4))
    assert members(ImageWriter(tmp_path / "3").process(ImageBatch(moved, task_id="1")).data[0]) == one


def test_what_was_written_is_read_back_as_a_stream(tmp_path):
    table = image_table(range(20), random.Random(1))
    (path,) = ImageWriter(tmp_path).process(ImageBatch(table, task_id="0")).data
    with open(path, "rb") as file:
        records = list(records_in(file, 1 << 20))
    assert [{name: one.get(name) for name in table.column_names} for one in records] == table.to_pylist()


def test_a_shard_that_is_cut_short_is_an_error(tmp_path):
    (path,) = ImageWriter(tmp_path).process(batch(image_id=["a", "b"])).data
    data = Path(path).read_bytes()
    with pytest.raises(tarfile.TarError):
        list(records_in(io.BytesIO(data[:700]), 1 << 20))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"images_per_tar": 0}, "images_per_tar must be a number of 1 or more"),
        ({"images_per_tar": True}, "images_per_tar"),
        ({"max_shard_bytes": "1 parsec"}, "max_shard_bytes: '1 parsec' is not a size"),
        ({"max_shard_bytes": 100}, "max_shard_bytes must be 4096 or more"),
        ({"excluded": 3}, "excluded must be"),
        ({"write_kwargs": {"level": 3}}, "write_kwargs knows"),
    ],
)
def test_wrong_arguments_are_named(tmp_path, arguments, words):
    with pytest.raises(ValueError, match=words):
        ImageWriter(tmp_path, **arguments)


def test_the_name_of_nemo_curator_is_the_same_writer(tmp_path):
    made = batch(image_id=["a", "b"])
    one = ImageWriterStage(output_dir=str(tmp_path / "1"), images_per_tar=1).process(made)
    two = ImageWriter(tmp_path / "2", images_per_tar=1).process(made)
    assert [Path(path).read_bytes() for path in one.data] == [Path(path).read_bytes() for path in two.data]


@pytest.mark.parametrize("kind", [*FORMATS, "JPEG2000", "PPM", "AVIF"])
def test_the_first_bytes_show_the_format(kind):
    if kind not in Image.SAVE and (Image.init() or kind not in Image.SAVE):
        pytest.skip(f"this Pillow writes no {kind}")
    found = format_of(encoded(1, kind))
    assert found is not None and found.name == kind
    assert Image.open(io.BytesIO(encoded(1, kind))).format == kind


@pytest.mark.parametrize("data", [b"", b"\x89PN", b"RIFF0000WAVE", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", b"P7\n"])
def test_other_bytes_have_no_format(data):
    assert format_of(data) is None


class Images(Source[FileBlock, ImageBatch], builtin=True):
    """A reader of images, as far as planning looks at it."""

    def source(self):
        return [FileBlock([], task_id="0")]

    def outputs(self):
        return ["data"], ["image", "image_id", "caption"]

    def process(self, task: FileBlock) -> ImageBatch:
        made = batch(image_id=["a"], caption=["c"])
        made.account.read["/in/0.tar"] += 1
        return made


class WithoutImages(ProcessingStage[ImageBatch, ImageBatch], builtin=True):
    accounts_for_documents = True

    def inputs(self):
        return ["data"], ["image"]

    def outputs(self):
        return ["data"], []

    def removes(self):
        return ["image"]

    def process(self, task: ImageBatch) -> ImageBatch:
        return task._with_data(task.data.drop_columns(["image"]))


def planned(*stages):
    return Pipeline("p", stages=list(stages)).run(LocalExecutor(config={"view": "off", "num_cpus": 1}))


@pytest.mark.parametrize("fields", [None, ["image", "caption"]])
def test_json_lines_of_images_are_refused_at_planning(tmp_path, fields):
    with pytest.raises(PlanError, match=r"(?s)'JsonlWriter'.*'image'.*ImageWriter.*ParquetWriter.*fields="):
        planned(Images(), JsonlWriter(tmp_path / "out", fields=fields))
    assert not (tmp_path / "out").exists()


def test_json_lines_without_the_images_are_written(tmp_path):
    planned(Images(), JsonlWriter(tmp_path / "1", fields=["image_id", "caption"]))
    planned(Images(), WithoutImages(), JsonlWriter(tmp_path / "2"))
    for n in "12":
        assert json.loads((tmp_path / n / "part-000000.jsonl").read_text()) == {"image_id": "a", "caption": "c"}


def test_parquet_with_images_has_row_groups_of_a_sensible_size(tmp_path):
    large = [encoded(n) + bytes(1 << 20) for n in range(80)]
    writer = ParquetWriter(tmp_path, compression=None)
    (path,) = writer.process(
        batch(image=large, image_id=[str(n) for n in range(80)], tags=[[n] for n in range(80)])
    ).data
    file = pq.ParquetFile(path)
    rows = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
    assert sum(rows) == 80 and len(rows) == 3 and max(rows) <= 32
    assert 10 < rows_at_once(file) <= 16  # of views, which hold 16 MB
    assert file.read().column("image").to_pylist() == large
    (path,) = ParquetWriter(tmp_path / "2", write_kwargs={"row_group_size": 80}).process(batch(image=large)).data
    assert pq.ParquetFile(path).num_row_groups == 1
