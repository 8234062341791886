"""Parquet files with bytes or paths, and manifests."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("PIL")

from tests.stages.image.io.pictures import bad, batches, by_id, check_balance, picture, put, rows

from gristmill.errors import PlanError
from gristmill.stages.image.io.reader import ImageReader


def parquet(path: Path, columns: dict, groups: int = 1000) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=groups)
    return str(path)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.dictionary(pa.int32(), pa.binary())])
@pytest.mark.parametrize("name", ["image", "image_bytes", "jpg"])
def test_parquet_with_bytes(tmp_path, kind, name):
    images = [picture(n) for n in range(50)]
    columns = {name: pa.array(images).cast(kind), "text": [f" t{n}" for n in range(50)], "id": range(50)}
    path = parquet(tmp_path / "a.parquet", columns, 7)
    results = []
    for options in ({}, {"blocksize": 1}, {"blocksize": 3000}, {"files_per_partition": 1}):
        found = batches(ImageReader(path, **options))
        check_balance(found)
        results.append(by_id(found))
    assert all(result == results[0] for result in results)
    made = rows(found)
    assert [row["image"] for row in made] == images and list(results[0]) == [f"{path}#{n}" for n in range(50)]
    assert [row["image_id"] for row in made] == [str(n) for n in range(50)] and [row["id"] for row in made] == [
        *range(50)
    ]
    assert [row["caption"] for row in made] == columns["text"] and "text" not in made[0]
    assert len(rows(batches(ImageReader(path, limit=20, blocksize=1)))) == 20


def test_structs_of_bytes_and_paths(tmp_path):
    put(tmp_path, "images/b.png", picture(2))
    given = [
        {"bytes": picture(1), "path": "a.png"},
        {"bytes": None, "path": "images/b.png"},
        {"bytes": None, "path": None},
        None,
    ]
    path = parquet(tmp_path / "a.parquet", {"image": pa.array(given), "label": [1, 2, 3, 4]})
    found = batches(ImageReader(path))
    assert [(row["image"], row["label"]) for row in rows(found)] == [(picture(1), 1), (picture(2), 2)]
    assert bad(found) == [(f"{path}#2", "no image"), (f"{path}#3", "no image")]


def test_parquet_with_paths_is_read_beside_its_file(tmp_path):
    for n in range(300):
        put(tmp_path, f"data/{n}.png", picture(n))
    path = parquet(tmp_path / "a.parquet", {"file_name": [f"data/{n}.png" for n in range(300)], "caption": ["c"] * 300})
    found = batches(ImageReader(path))
    assert [batch.num_items for batch in found] == [128, 128, 44]
    assert [row["image"] for row in rows(found)] == [picture(n) for n in range(300)]
    assert rows(found)[3]["image_id"] == rows(found)[3]["file_name"] == "data/3.png"


def manifest(folder: Path, records: list[dict], name: str = "m.jsonl") -> str:
    data = b"".join(json.dumps(record).encode() + b"\n" for record in records)
    return put(folder, name, gzip.compress(data) if name.endswith("gz") else data)


@pytest.mark.parametrize("name", ["m.jsonl", "m.jsonl.gz"])
def test_a_manifest_with_relative_and_absolute_paths(tmp_path, name):
    records = []
    for n in range(300):
        path = put(tmp_path, f"data/{n}.png", picture(n))
        shown = (f"data/{n}.png", path, f"file://{path}")[n % 3]
        records.append({"path": shown, "text": f"caption {n}\nmore", "meta": {"n": n}})
    path = manifest(tmp_path, records, name)
    results = []
    for options in ({}, {"blocksize": 1000}, {"blocksize": "1GB"}, {"limit": 300}):
        found = batches(ImageReader(path, caption_lines="first", **options))
        check_balance(found)
        results.append(by_id(found))
    assert all(result == results[0] for result in results)
    made = list(results[0].values())
    assert [row["image"] for row in made] == [picture(n) for n in range(300)]
    assert [row["caption"] for row in made] == [f"caption {n}" for n in range(300)]
    assert [row["meta"] for row in made] == [{"n": n} for n in range(300)]
    assert [row["image_id"] for row in made] == [record["path"] for record in records]


def test_what_cannot_be_read_costs_one_image(tmp_path):
    put(tmp_path, "good.png", picture(1))
    put(tmp_path, "text.png", b"no image")
    put(tmp_path, "folder/x", b"")
    addresses = ["good.png", "nothing.png", "good.png/x", "folder", "text.png", None, "", "a\0b", "gopher://x/a.png"]
    addresses += ["simplecache::https://x/a.png", "http://127.0.0.1:9/a.png"]
    path = manifest(tmp_path, [{"path": one, "n": n} for n, one in enumerate(addresses)])
    [batch] = batches(ImageReader(path))
    check_balance([batch])
    assert [row["n"] for row in rows([batch])] == [0]
    assert [reason for _, reason in bad([batch])] == [
        "the file does not exist (ENOENT)",
        "the file does not exist (ENOTDIR)",
        "a folder, not a file (EISDIR)",
        "not an image of a known format",
        "no image",
        "no image",
        *["an address that is not read"] * 3,
        "the connection failed",
    ]
    assert [record.is_failure for record in batch.account.bad] == [False] * 9 + [True]
    assert all(str(tmp_path) not in reason for _, reason in bad([batch]))


def test_lines_that_are_no_objects_are_bad_records_as_always(tmp_path):
    put(tmp_path, "a.png", picture(1))
    path = put(tmp_path, "m.jsonl", b'{"path": "a.png"}\nnot JSON\n\n{"path": "a.png"}\n')
    found = batches(ImageReader(path))
    check_balance(found)
    assert len(rows(found)) == 2 and [ident for ident, _ in bad(found)] == [f"{path}#18"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "no field of images, paths or URLs"),
        ({"path_field": "pth"}, "no field 'pth' for path_field"),
        ({"image_field": "x"}, "no field 'x'"),
    ],
)
def test_fields_that_are_not_there_are_an_error_before_the_run(tmp_path, options, words):
    path = manifest(tmp_path, [{"where": "a.png", "n": 1}])
    with pytest.raises(PlanError, match=words) as caught:
        ImageReader(path, **options).source()
    assert "it has: n, where" in str(caught.value)


def test_fields_are_chosen(tmp_path):
    put(tmp_path, "a.png", picture(1))
    path = manifest(tmp_path, [{"where": "a.png", "say": "hello", "caption": 3, "n": 1}])
    [row] = rows(batches(ImageReader(path, path_field="where", caption_field="say")))
    assert (row["caption"], row["original_caption"], row["n"], row["where"]) == ("hello", 3, 1, "a.png")
    reader = ImageReader(path, path_field="where", caption_field="say", fields=["n"])
    assert list(rows(batches(reader))[0]) == ["image", "image_id", "caption", "n", "_gristmill_id"]
    assert reader.outputs()[1] == ["image", "image_id", "caption", "n"]


def test_what_a_batch_holds_is_the_same_when_a_file_fails(tmp_path):
    for n in range(300):
        put(tmp_path, f"{n}.png", picture(n))
    path = manifest(tmp_path, [{"path": f"{n}.png"} for n in range(300)])
    before = [batch.account.read.total() for batch in batches(ImageReader(path))]
    (tmp_path / "7.png").unlink()
    sizes = [batch.num_items + len(batch.account.bad) - 0 for batch in batches(ImageReader(path))]
    assert sum(before) == sum(sizes) == 300 and sizes == [128, 128, 44]


def test_a_damaged_parquet_file_is_one_bad_record(tmp_path):
    parquet(tmp_path / "a.parquet", {"image": [picture(1)]})
    sink = io.BytesIO()
    pq.write_table(pa.table({"image": [picture(n) for n in range(9)]}), sink)
    put(tmp_path, "b.parquet", sink.getvalue()[:-20])
    found = batches(ImageReader(str(tmp_path)))
    assert len(rows(found)) == 1 and len(bad(found)) == 1 and "Parquet" in bad(found)[0][1]
