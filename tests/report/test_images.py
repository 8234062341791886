"""Reports of image outputs: thumbnails, hostile captions, bounded size, and both pictures of a duplicate."""

from __future__ import annotations

import base64
import io
import random
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from tests.browser import chromium  # noqa: F401  # a fixture
from tests.images.samples import encoded, image_corpus
from tests.report.runs import page_of, record_of

from gristmill import Pipeline
from gristmill.dedup import ExactDeduplication
from gristmill.image import ImageWriter
from gristmill.images.shown import MOST_THUMBNAIL_BYTES, THUMBNAIL, facts, thumbnail
from gristmill.report.build import rebuilt
from gristmill.report.page.page import MOST_BYTES, shortened
from gristmill.report.page.page import page_of as rendered
from gristmill.report.source import document_of
from gristmill.text import ParquetReader, ScoreFilter, WordCountFilter

HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script>'


def run(source: Path, out: Path, *stages, **options) -> None:
    reader = ParquetReader(str(source), text_field="caption")
    words = ScoreFilter(WordCountFilter(4), text_field="caption")
    Pipeline("p", stages=[reader, words, *stages, ImageWriter(str(out), **options)]).run(report=True)


def opened(uri: str) -> Image.Image:
    head, _, data = uri.partition(",")
    assert head == "data:image/jpeg;base64"
    return Image.open(io.BytesIO(base64.b64decode(data, validate=True)))


@pytest.fixture
def source(tmp_path) -> Path:
    return image_corpus(tmp_path / "in")


def test_dropped_and_kept_images_are_shown_as_thumbnails_with_their_facts(source, tmp_path):
    run(source, tmp_path / "out")
    data = record_of(tmp_path / "out")
    (rule,) = data["excluded"]["rules"]
    shown = rule["dropped"]["examples"] + data["kept"]
    assert {one.get("side", "kept") for one in shown} == {"dropped", "kept"}
    given = {row["image_id"]: row for path in source.iterdir() for row in pq.read_table(path).to_pylist()}
    for one in shown:
        row = given[one["id"]]
        assert one["text"] == row["caption"] and one["image"]["bytes"] == len(row["image"])
        assert (one["image"]["width"], one["image"]["height"]) == (40, 30)
        assert opened(one["thumbnail"]).size == (40, 30)
    page = page_of(tmp_path / "out").read_text()
    assert page.count('src="data:image/jpeg;base64,') >= len(shown) and "40 x 30" in page


def test_a_duplicate_is_shown_beside_the_image_that_stays(source, tmp_path):
    run(source, tmp_path / "out", ExactDeduplication(text_field="caption"))
    (found,) = record_of(tmp_path / "out")["duplicates"]
    for cluster in found["examples"]:
        for one in [cluster["survivor"], *cluster["members"]]:
            file, _, row = one["id"].rpartition("#")
            image = pq.read_table(file).column("image")[int(row)].as_py()
            assert one["thumbnail"] == thumbnail(image) and opened(one["thumbnail"])


def test_captions_and_thumbnails_cannot_change_the_page(source, tmp_path, chromium):  # noqa: F811
    for path in source.iterdir():
        table = pq.read_table(path)
        column = pa.array([f"{HOSTILE} {text}" for text in table.column("caption").to_pylist()])
        pq.write_table(table.set_column(2, "caption", column), path)
    run(source, tmp_path / "out")
    data, page = rebuilt(str(tmp_path / "out"))
    assert b"<script>document" not in page and b'onerror="' not in page
    data["kept"][0]["thumbnail"] = 'data:image/jpeg;base64,AA==" onload="document.title=3'
    data["kept"][0]["image"]["format"] = HOSTILE
    page = rendered(data)
    assert b"onload" not in page and b'onerror="' not in page
    place = tmp_path / "page.html"
    place.write_bytes(page)
    tab = chromium.new_page()
    try:
        problems: list[str] = []
        tab.on("console", lambda message: problems.append(message.text))
        tab.goto(place.as_uri())
        assert tab.title() not in ("1", "2", "3") and problems == []
        tab.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        widths = tab.evaluate("[...document.images].map(image => image.naturalWidth)")
        assert len(widths) > 3 and set(widths) == {40}
    finally:
        tab.close()


def test_thumbnails_are_small_and_upright_and_of_pixels_only():
    noise = Image.fromarray(np.random.default_rng(1).integers(0, 256, (400, 1200, 3), dtype=np.uint8))
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "a secret"
    made = io.BytesIO()
    noise.save(made, "JPEG", exif=exif)
    uri = thumbnail(made.getvalue())
    assert opened(uri).size == (32, 96) and len(uri) < MOST_THUMBNAIL_BYTES * 2
    assert b"secret" not in base64.b64decode(uri.partition(",")[2])
    assert facts(made.getvalue())[:3] == ("JPEG", 400, 1200)


@pytest.mark.parametrize("data", [b"", b"junk", encoded(1, "JPEG")[:300], encoded(1)[:40]])
def test_a_damaged_image_has_no_thumbnail_and_no_error(data):
    assert thumbnail(data) == "" and facts(data).bytes == len(data)


def test_the_page_stays_small_however_many_thumbnails_there_are(source, tmp_path):
    run(source, tmp_path / "out")
    data, _ = rebuilt(str(tmp_path / "out"))
    seed = random.randrange(1 << 32)
    print("seed", seed)
    example = dict(data["kept"][0])
    example["thumbnail"] = (
        "data:image/jpeg;base64," + base64.b64encode(random.Random(seed).randbytes(MOST_THUMBNAIL_BYTES)).decode()
    )
    (rule,) = data["excluded"]["rules"]
    rule["dropped"]["examples"] = [{**example, "side": "dropped"}] * 3
    data["excluded"]["rules"] = [rule] * 100
    page = rendered(data)
    assert len(page) <= MOST_BYTES
    shown = re.findall(rb'<img alt="" src="([^"]*)"', page)
    assert shortened([example], 60) == [{name: value for name, value in example.items() if name != "thumbnail"}]
    whole = [*data["kept"], *rule["kept"]["examples"], example]
    assert {uri.decode() for uri in shown} <= {one["thumbnail"] for one in whole}


def test_documents_of_the_source_are_found_in_tables_shards_and_folders(tmp_path):
    image = encoded(5, "PNG")
    (tmp_path / "a.png").write_bytes(image)
    (tmp_path / "a.txt").write_text("beside\n")
    assert document_of(f"{tmp_path}/a.png#0")["text"] == "beside"
    table = pa.table({"image": pa.array([b"", image], pa.large_binary()), "caption": ["x", "of a row"]})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=1)
    assert document_of(f"{tmp_path}/t.parquet#1")["text"] == "of a row"
    from gristmill.image import ImageBatch

    batch = ImageBatch(table.slice(1).append_column("image_id", [["a/b"]]), task_id="0")
    (shard,) = ImageWriter(tmp_path / "out").process(batch).data
    assert document_of(f"{shard}#0")["text"] == "of a row"
    for ident in (f"{tmp_path}/a.png#0", f"{tmp_path}/t.parquet#1", f"{shard}#0"):
        assert document_of(ident)["thumbnail"] == thumbnail(image) and THUMBNAIL == 96
    for ident in (f"{tmp_path}/t.parquet#7", f"{shard}#99999", f"{shard}#3", f"{tmp_path}/a.png#4", "nowhere.png#0"):
        assert document_of(ident) == {"id": ident}


def test_a_threshold_without_end_is_no_threshold_of_the_report(source, tmp_path):
    reader = ParquetReader(str(source), text_field="caption")
    words = ScoreFilter(WordCountFilter(4, float("inf")), text_field="caption")
    Pipeline("p", stages=[reader, words, ImageWriter(str(tmp_path / "out"))]).run(report=True)
    (rule,) = rebuilt(str(tmp_path / "out"))[0]["excluded"]["rules"]
    assert rule["least"] == 4 and "most" not in rule
