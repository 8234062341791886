"""Encoded images are read into the buffer of their column, which becomes Arrow as it is."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from tests.stages.image.io.pictures import batches, picture, put, shard

from gristmill.stages.image.io.reader import ImageReader, space
from gristmill.stages.image.io.reader.space import BytesColumn


@pytest.mark.parametrize("expected", [0, 10, 5000])
def test_a_column_holds_the_values_in_order(expected):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    column = BytesColumn(expected)
    values: list[bytes] = []
    views: list[tuple[memoryview, bytes]] = []
    for _ in range(100):
        value = rng.randbytes(rng.choice((0, 1, 7, 100, 900)))
        column.space(rng.randrange(1, 2000))[:1] = b"x"  # of an image that cannot be used
        if rng.random() < 0.5:
            column.append(value)
        else:
            memory = column.space(len(value))
            memory[:] = value
            views.append((memory, value))
            column.append_space(len(value))
        values.append(value)
        assert column.size == sum(map(len, values))
    assert all(view == value for view, value in views), "memory that was given out stays as it is"
    array = column.array()
    array.validate(full=True)
    assert array.type == pa.large_binary() and array.to_pylist() == values


@pytest.mark.parametrize("kind", ["files", "shards"])
def test_images_of_this_machine_are_read_into_one_buffer(tmp_path, monkeypatch, kind):
    pictures = [picture(n) for n in range(40)]
    if kind == "shards":
        put(tmp_path, "a.tar", shard((f"{n:02}.png", data) for n, data in enumerate(pictures)))
    for n, data in enumerate(pictures if kind == "files" else ()):
        put(tmp_path, f"{n:02}.png", data)
    sizes: list[int] = []
    allocate = space.pa.allocate_buffer
    monkeypatch.setattr(space.pa, "allocate_buffer", lambda size: sizes.append(size) or allocate(size))
    (batch,) = batches(ImageReader(str(tmp_path)))
    column = batch.data.column("image")
    assert sorted(column.to_pylist()) == sorted(pictures) and column.num_chunks == 1
    assert len(sizes) == 1 and sizes[0] <= 3 * sum(map(len, pictures)) + 40 * 1024
