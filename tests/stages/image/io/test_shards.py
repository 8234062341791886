"""WebDataset shards against a plain reference in Python: samples, blocks, damage."""

from __future__ import annotations

import gzip
import io
import json
import random
import secrets
import tarfile
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("PIL")

from tests.stages.image.io.pictures import bad, batches, by_id, check_balance, picture, put, rows, samples, shard

from gristmill.stages.image.io.reader import ImageReader
from gristmill.tasks.document import ID

IMAGES = ("png", "jpg")


def reference(path: str, data: bytes) -> list[tuple[str, dict[str, Any]]]:
    """(id, columns) of each sample of an undamaged shard, by `tarfile`."""
    groups: list[tuple[int, str, dict[str, bytes]]] = []
    with tarfile.open(fileobj=io.BytesIO(data), ignore_zeros=True) as tar:
        for info in tar:
            folder, slash, base = info.name.rpartition("/")
            stem, dot, end = base.partition(".")
            if not info.isreg() or not dot or not stem:
                continue
            key = folder + slash + stem
            if not groups or groups[-1][1] != key or end in groups[-1][2]:
                groups.append((info.offset, key, {}))
            groups[-1][2][end] = tar.extractfile(info).read()
    found = []
    for offset, key, parts in groups:
        image = next((parts[end] for end in parts if end in IMAGES), None)
        columns = {
            "image": image,
            "image_id": key,
            "caption": parts["txt"].decode().strip() if "txt" in parts else None,
        }
        found.append((f"{path}#{offset}", {**columns, **json.loads(parts.get("json", b"{}"))}))
    return found


def plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != ID and value is not None}


def random_shard(rng: random.Random) -> bytes:
    members = []
    for n in range(rng.randrange(1, 60)):
        key = f"{'deep/' * rng.randrange(2)}{rng.choice(('k' * 120, 'a'))}{n:04d}"
        parts = [(f"{key}.{rng.choice(IMAGES)}", picture(rng.randrange(1000), size=(rng.randrange(1, 40), 9)))]
        if rng.random() < 0.8:
            parts.append((f"{key}.txt", f" Straße {n}\nmore ".encode()))
        if rng.random() < 0.6:
            parts.append((f"{key}.json", json.dumps({"n": n, "deep": {"x": n / 2}}, indent=1).encode()))
        if rng.random() < 0.1:
            parts.append((rng.choice(("README", ".hidden.png", "folder/noend")), b"not read"))
        rng.shuffle(parts)
        members += parts * (2 if rng.random() < 0.1 else 1)
    return shard(members, rng.choice((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)))


def test_samples_are_those_of_the_reference_for_any_blocksize(tmp_path):
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for n in range(15):
        data = random_shard(rng)
        path = put(tmp_path, f"{n}.tar", data)
        expected = reference(path, data)
        packed = put(tmp_path, f"{n}.tar.gz", gzip.compress(data))
        sizes = [None, rng.randrange(1, 3000), rng.randrange(3000, 50_000), len(data) + 1]
        for name, blocksize in [*((path, size) for size in sizes), (packed, sizes[1])]:
            found = batches(ImageReader(name, blocksize=blocksize))
            check_balance(found)
            assert [(row[ID].replace(".tar.gz", ".tar"), plain(row)) for row in rows(found)] == [
                (ident, plain(columns)) for ident, columns in expected
            ]
            assert not bad(found)


def test_a_shard_on_this_machine_is_split_between_samples(tmp_path):
    path = put(tmp_path, "a.tar", shard(samples(100)))
    reader = ImageReader(path, blocksize=20_000)
    blocks = reader.source()
    assert len(blocks) > 5 and not reader.linked([], []).fan_out
    edges = [(block.data[0].start, block.data[0].stop) for block in blocks]
    assert edges[0][0] == 0 and all(a[1] == b[0] for a, b in pairwise(edges))
    assert all(reader.process(block).num_items for block in blocks)


def test_a_stream_becomes_batches_of_a_limited_size(tmp_path):
    path = put(tmp_path, "a.tar.gz", gzip.compress(shard(samples(100))))
    reader = ImageReader(path, blocksize=5000)
    [block] = reader.source()
    found = list(reader.process(block))
    assert len(found) > 3 and max(batch.data.nbytes for batch in found) < 10_000
    assert 0 < sum(batch.account.bytes_read for batch in found) <= len(gzip.compress(shard(samples(100))))


def test_blocks_have_no_more_images_than_their_pixels_allow(tmp_path):
    path = put(tmp_path, "a.tar", shard(samples(1100)))
    blocks = ImageReader(path, blocksize="1GB").source()
    assert len(blocks) == 3
    packed = put(tmp_path, "b.tgz", gzip.compress(shard(samples(1100))))
    assert [batch.num_items for batch in batches(ImageReader(packed))] == [512, 512, 76]


def damaged(rng: random.Random, data: bytes) -> bytes:
    """A shard with random damage."""
    broken = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        where = rng.randrange(len(broken))
        block = where // 512 * 512
        kind = rng.randrange(4)
        if kind == 0:
            del broken[where:]
            broken = broken or bytearray(b"x")
        elif kind == 1:
            broken[where : where + 600] = rng.randbytes(len(broken[where : where + 600]))
        elif kind == 2:
            broken[block:block] = rng.randbytes(512 * rng.randrange(1, 9))
        else:
            broken[block : block + 512] = bytes(len(broken[block : block + 512]))
    return bytes(broken)


def test_random_damage_loses_no_image_silently(tmp_path):
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for n in range(40):
        whole = random_shard(rng)
        data = damaged(rng, whole)
        path = put(tmp_path, f"{n}.tar", data)
        found = batches(ImageReader(path))
        check_balance(found)
        made, broken = by_id(found), bad(found)
        for blocksize in (1, rng.randrange(1, 5000), rng.randrange(5000, 50_000)):
            again = batches(ImageReader(path, blocksize=blocksize))
            check_balance(again)
            assert by_id(again) == made and sorted(bad(again)) == sorted(broken)
        packed = batches(ImageReader(put(tmp_path, f"{n}.tgz", gzip.compress(data)), blocksize=3000))
        check_balance(packed)
        assert [plain(row) for row in rows(packed)] == [plain(row) for row in rows(found)]
        assert len(bad(packed)) == len(broken)
        # an image whose bytes are still there after an intact header is read
        images = {row["image"] for row in made.values()}
        intact = {
            info.name: content for info, content in members_of(whole) if content.startswith((b"\x89PNG", b"\xff\xd8"))
        }
        lost = [name for name, content in intact.items() if content not in images and content in data]
        assert len(lost) <= len(broken) + silent(data, whole), (lost, broken)


def members_of(data: bytes) -> list[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return [(info, tar.extractfile(info).read()) for info in tar if info.isreg()]


def silent(data: bytes, whole: bytes) -> int:
    """Headers that became zeros: nothing shows that members were there, but for the data, which is garbage."""
    return sum(data[at : at + 512].count(0) == 512 for at in range(0, len(whole), 512))


def test_second_images_and_other_members_are_counted(tmp_path):
    members = [("a.seg.png", picture(1)), ("a.jpg", picture(2, "JPEG")), ("a.webp", picture(3)), ("a.npy", b"n")]
    members += [("b.seg.png", picture(4)), ("b.depth.png", picture(5)), ("README", b"r"), ("b.cls", b"7\n")]
    path = put(tmp_path, "a.tar", shard(members))
    [batch] = batches(ImageReader(path))
    assert [row["image"] for row in rows([batch])] == [picture(2, "JPEG"), picture(4)]
    assert [row["cls"] for row in rows([batch])] == [None, "7"]
    assert dict(batch.account.counters) == {"second images of a key": 3, "members that are not read": 2}
    [chosen] = batches(ImageReader(path, image_field="depth.png;seg.png"))
    assert [row["image"] for row in rows([chosen])] == [picture(1), picture(4)]


def test_links_and_devices_are_counted(tmp_path):
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as tar:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE):
            info = tarfile.TarInfo("a.png")
            info.type, info.linkname = kind, "/etc/passwd"
            tar.addfile(info)
        info = tarfile.TarInfo("b.png")
        info.size = len(picture(1))
        tar.addfile(info, io.BytesIO(picture(1)))
    [batch] = batches(ImageReader(put(tmp_path, "a.tar", sink.getvalue())))
    assert [row["image_id"] for row in rows([batch])] == ["b"]
    assert dict(batch.account.counters) == {"members that are no files": 4}


@pytest.mark.parametrize("blocksize", [1, 100_000])
def test_a_shard_that_is_cut_between_members_is_counted(tmp_path, blocksize):
    data = shard([("a.png", picture(1)), ("b.png", picture(2))])
    path = put(tmp_path, "a.tar", data[: 2 * (512 + 512)])
    for name, count in ((path, 1), (put(tmp_path, "b.tar", data), 0), (put(tmp_path, "c.tgz", gzip.compress(data)), 0)):
        found = batches(ImageReader(name, blocksize=blocksize))
        assert len(rows(found)) == 2 and not bad(found)
        assert sum(batch.account.counters["shards without an end mark"] for batch in found) == count


def test_captions_and_metadata(tmp_path):
    members = [
        *(
            ("a.png", picture(1)),
            ("a.txt", b"\xef\xbb\xbf one\ntwo \n"),
            ("a.json", b'{"caption": "one\\ntwo", "x": 1}'),
        ),
        *(("b.png", picture(2)), ("b.json", b'{"caption": "from JSON", "image": "taken", "x": 2.5, "alt": "other"}')),
        *(("c.png", picture(3)), ("c.caption", b""), ("c.json", b'\n{\n"x": 3\n}\n')),
        ("d.png", picture(4)),
    ]
    path = put(tmp_path, "a.tar", shard(members))
    found = rows(batches(ImageReader(path)))
    assert [row["caption"] for row in found] == ["one\ntwo", "from JSON", "", None]
    assert [row["x"] for row in found] == [1, 2.5, 3, None] and found[1]["original_image"] == "taken"
    assert "original_caption" not in found[0]
    first = rows(batches(ImageReader(path, caption_lines="first", fields=["x"])))
    assert [row["caption"] for row in first] == ["one", "from JSON", "", None]
    assert set(first[0]) == {"image", "image_id", "caption", "x", ID}
    assert [row["caption"] for row in rows(batches(ImageReader(path, caption_field="alt")))] == [
        None,
        "other",
        None,
        None,
    ]


def test_many_shards_are_not_split_and_not_opened_before_the_run(tmp_path):
    for n in range(64):
        put(tmp_path, f"{n:03d}.tar", shard(samples(3, 3 * n)))
    blocks = ImageReader(str(tmp_path)).source()
    assert len(blocks) == 64 and all(block.data[0].stop == -1 for block in blocks)
    assert len(rows(batches(ImageReader(str(tmp_path))))) == 192
    grouped = ImageReader(str(tmp_path), files_per_partition=10).source()
    assert [len(block.data) for block in grouped] == [10] * 6 + [4]
    assert len(rows(batches(ImageReader(str(tmp_path), files_per_partition=10)))) == 192


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz"])
def test_limit_and_sample(tmp_path, name):
    data = shard([*samples(50), ("x.txt", b"no image"), *samples(50, 50)])
    data = data[:-10240] + b"garbage" * 200
    path = put(tmp_path, name, gzip.compress(data) if name.endswith("gz") else data)
    every = batches(ImageReader(path, blocksize=5000))
    assert (len(rows(every)), len(bad(every))) == (100, 2)
    for limit in (1, 49, 50, 51, 52, 101, 102, 500):
        found = batches(ImageReader(path, blocksize=5000, limit=limit))
        check_balance(found)
        assert len(rows(found)) + len(bad(found)) == min(limit, 102)
        assert rows(found) == rows(every)[: len(rows(found))]
    tenth = batches(ImageReader(path, sample=0.3))
    some = batches(ImageReader(path, sample=0.6, blocksize=4000))
    assert {row[ID] for row in rows(tenth)} < {row[ID] for row in rows(some)} < {row[ID] for row in rows(every)}
    skipped = sum(batch.account.counters["not in the sample"] for batch in some)
    assert skipped + sum(batch.account.read.total() for batch in some) == 102
    few = batches(ImageReader(path, sample=0.6, limit=20, blocksize=4000))
    assert rows(few) == rows(some)[: len(rows(few))] and sum(b.account.read.total() for b in few) == 20
