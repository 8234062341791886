"""Bad and odd images in a whole run: each costs at most itself, and the account balances."""

from __future__ import annotations

import io
import json
import re
import tarfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest

pytest.importorskip("PIL")

from PIL import Image
from tests.stages.image.io.pictures import bomb, picture, put, shard

from gristmill.backends.local import LocalExecutor
from gristmill.images.pictures import Pictures
from gristmill.pipeline import Pipeline
from gristmill.stages.core import ProcessingStage
from gristmill.stages.image.io.reader import ImageReader
from gristmill.stages.text.io import ParquetWriter
from gristmill.tasks import ImageBatch
from gristmill.tasks.document import ID


class Decode(ProcessingStage[ImageBatch, ImageBatch], builtin=True):
    """Decodes all images, as filters do, and shows their ids in a column."""

    accounts_for_documents = True

    def __init__(self, with_ids: bool = False) -> None:
        self.with_ids = with_ids

    def inputs(self):
        return ["data"], ["image"]

    def outputs(self):
        return ["data"], ["of"] if self.with_ids else []

    def process(self, task):
        batch, pictures = Pictures.of(task)
        assert all(pixels.dtype == "uint8" and pixels.ndim == 3 for pixels in pictures.pixels)
        if self.with_ids:
            batch.data = batch.data.append_column("of", batch.data.column(ID))
        return batch


def run(reader: ImageReader, out: Path, with_ids: bool = False) -> tuple[list[dict], list[dict], dict]:
    """The images that were written, the bad records, and the ledger."""
    executor = LocalExecutor(config={"view": "off", "num_cpus": 1})
    result = Pipeline("p", stages=[reader, Decode(with_ids), ParquetWriter(str(out))]).run(executor, allow_empty=True)
    ledger = result.ledger
    assert not ledger.problems and all(account.balances for account in ledger.files.values())
    kept = [row for path in sorted(out.glob("part-*")) for row in pq.read_table(path).to_pylist()]
    lines = [line for path in sorted((out / "quarantine").glob("*")) for line in path.read_bytes().splitlines()]
    records = [json.loads(line) for line in lines]
    assert ledger.total().documents == len(kept) + len(records)
    return kept, records, ledger.total().errored


def saved(image: Image.Image, kind: str, **options) -> bytes:
    sink = io.BytesIO()
    image.save(sink, kind, **options)
    return sink.getvalue()


def animation() -> bytes:
    frames = [Image.new("RGB", (9, 9), (n * 50, 0, 0)) for n in range(4)]
    return saved(frames[0], "GIF", save_all=True, append_images=frames[1:])


LARGE = picture(1, "JPEG", size=(300, 300))
KEPT = {
    "a PNG with the name of a JPEG": picture(1),
    "CMYK": picture(2, "JPEG", "CMYK"),
    "16 bits": saved(Image.new("I;16", (9, 9), 40_000), "PNG"),
    "animation": animation(),
    "corrupt EXIF": saved(Image.new("RGB", (9, 9)), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff" + b"\x01" * 40),
    "palette with transparency": saved(Image.new("P", (9, 9)), "PNG", transparency=0),
    "AVIF": picture(3, "AVIF", size=(64, 64)),
    "TIFF": picture(4, "TIFF"),
}
REFUSED = {
    "truncated JPEG": (LARGE[: len(LARGE) // 2], "Decode", "truncated"),
    "JPEG cut in its header": (LARGE[:100], "ImageReader", "(truncated|damaged|not an image of a known format)"),
    "empty file": (b"", "ImageReader", "empty"),
    "bomb of 100 megapixels": (bomb(), "ImageReader", "too many pixels"),
    "text": (b"<html>404</html>", "ImageReader", "not an image of a known format"),
    "PostScript": (
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        "ImageReader",
        "not an image of a known format",
    ),
    "damaged pixels": (picture(5)[:60] + b"\0" * 40, "Decode", "(truncated|damaged)"),
}


def file_of(name: str) -> str:
    return name.replace(" ", "-")


@pytest.fixture(scope="module", params=["folder", "shards"])
def images(request, tmp_path_factory):
    """All odd and bad images in one run: what was written, and the bad records, by the name of the case."""
    folder = tmp_path_factory.mktemp(request.param)
    for name, data in {**KEPT, **{name: case[0] for name, case in REFUSED.items()}}.items():
        if request.param == "folder":
            put(folder, f"in/{file_of(name)}.jpg", data)
        else:
            put(folder, f"in/{file_of(name)}.tar", shard([(f"{file_of(name)}.jpg", data)]))
    kept, records, errored = run(ImageReader(str(folder / "in")), folder / "out")
    assert errored.total() == len(records) == len(REFUSED)
    return {row["image_id"].removesuffix(".jpg"): row for row in kept}, {Path(x["file"]).stem: x for x in records}


@pytest.mark.parametrize("name", KEPT)
def test_odd_images_are_kept_as_they_are(images, name):
    kept, records = images
    assert kept[file_of(name)]["image"] == KEPT[name] and kept[file_of(name)]["caption"] is None
    assert file_of(name) not in records


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_image_is_in_quarantine_with_its_place_and_reason(images, name):
    kept, records = images
    _, stage, reason = REFUSED[name]
    record = records[file_of(name)]
    assert file_of(name) not in kept and (record["position"], record["stage"]) == (0, stage)
    assert re.fullmatch(reason, record["reason"])


A, B, C = picture(1), picture(2), picture(3)
SHARDS = {
    "path traversal": (
        [("../../a.png", A), ("/etc/b.png", B), ("x/../../c.png", B), ("./fine.png", C), ("a..b/d.png", A)],
        ["fine", "a..b/d"],
        ["the name leads out of the shard"] * 3,
    ),
    "missing caption": ([("a.png", A), ("b.png", B), ("b.txt", b"b")], ["a", "b"], []),
    "missing image": ([("a.txt", b"a"), ("a.json", b"{}"), ("b.png", B)], ["b"], ["no image"]),
    "duplicate keys in a row": ([("a.png", A), ("a.txt", b"1"), ("a.png", B), ("a.txt", b"2")], ["a", "a"], []),
    "duplicate keys apart": ([("a.png", A), ("b.png", B), ("a.png", C)], ["a", "b", "a"], []),
    "empty members": ([("a.png", b""), ("b.png", B), ("b.txt", b"")], ["b"], ["empty"]),
    "caption that is not UTF-8": (
        [("a.png", A), ("a.txt", b"\xff\xfe"), ("b.png", B)],
        ["b"],
        ["the caption is not UTF-8"],
    ),
    "metadata that is no JSON": (
        [("a.png", A), ("a.json", b"{"), ("b.png", B)],
        ["b"],
        ["the metadata is no JSON object"],
    ),
    "metadata that is a list": (
        [("a.png", A), ("a.json", b"[]"), ("b.png", B)],
        ["b"],
        ["the metadata is no JSON object"],
    ),
    "name that is not UTF-8": ([("a\udcff.png", A)], ["a\\xff"], []),
}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """All odd shards in one run: the images and the reasons of the bad records of each, by its name."""
    folder = tmp_path_factory.mktemp("shards")
    for name, (members, _, _) in SHARDS.items():
        put(folder, f"in/{file_of(name)}.tar", shard(members))
    kept, records, _ = run(ImageReader(str(folder / "in"), fields=[]), folder / "out", with_ids=True)
    assert not any(path.suffix == ".png" for path in [*folder.rglob("*"), *Path("/etc").glob("b.png")])
    found = {}
    for name in SHARDS:
        path = f"{folder}/in/{file_of(name)}.tar"
        mine = [row for row in kept if row["of"].rpartition("#")[0] == path]
        found[name] = (mine, sorted(record["reason"] for record in records if record["file"] == path))
    return found


@pytest.mark.parametrize("name", SHARDS)
def test_odd_shards(shards, name):
    _, names, reasons = SHARDS[name]
    kept, found = shards[name]
    assert [row["image_id"] for row in kept] == names and found == sorted(reasons)


def test_duplicate_keys_have_ids_and_captions_of_their_own(shards):
    kept, _ = shards["duplicate keys in a row"]
    assert [(row["image"], row["caption"]) for row in kept] == [(A, "1"), (B, "2")]
    assert len({row["of"] for row in kept}) == 2


@pytest.mark.parametrize("cut", ["data", "header", "caption"])
def test_a_cut_shard_is_read_up_to_the_cut_and_the_rest_is_one_bad_record(tmp_path, cut):
    members = [("a.png", A), ("a.txt", b"a"), ("b.png", B), ("b.txt", b"text")]
    data = shard(members)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        infos = tar.getmembers()
    stop = {"data": infos[2].offset_data + 5, "header": infos[3].offset + 100, "caption": infos[3].offset_data + 1}[cut]
    path = put(tmp_path, "in/a.tar", data[:stop])
    kept, [record], _ = run(ImageReader(path), tmp_path / "out")
    # whose header is cut is not known, so what was complete is an image
    assert [row["image_id"] for row in kept] == (["a", "b"] if cut == "header" else ["a"])
    assert record["reason"] == "the tar file is cut short"
    assert record["position"] == (infos[3].offset if cut == "header" else infos[2].offset)


def test_garbage_between_members_costs_one_record(tmp_path):
    first, second = shard([("a.png", A)])[:2048], shard([("b.png", B)])
    path = put(tmp_path, "in/a.tar", first + b"garbage!" * 256 + second)
    kept, [record], _ = run(ImageReader(path), tmp_path / "out")
    assert [row["image_id"] for row in kept] == ["a", "b"]
    assert (record["reason"], record["position"]) == ("not a tar header", len(first))


def test_the_limit_on_pixels_is_an_argument(tmp_path):
    put(tmp_path, "in/a.png", picture(1, size=(10, 10)))
    put(tmp_path, "in/b.png", picture(1, size=(10, 11)))
    kept, [record], _ = run(ImageReader(str(tmp_path / "in"), max_pixels=100), tmp_path / "out")
    assert [row["image_id"] for row in kept] == ["a.png"] and record["reason"] == "too many pixels"
