"""Near copies of images are removed, each verified against the one that stays, whatever the workers and the memory."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("PIL", reason="Pillow is not installed: pip install 'gristmill[image]'")

from PIL import Image
from tests.images.pictures_made import blank, encoded, picture, scaled
from tests.stages.deduplication.corpora import resumed_after_each_change, written
from tests.stages.image.deduplication.corpus import copies, ids_in, odd_images, removed_in, run, write_images

from gristmill.errors import PipelineError
from gristmill.images.decode import decode
from gristmill.images.hashes import perceptual_hashes, windows
from gristmill.kernels.thumbnails import compared
from gristmill.pipeline.explain import explain
from gristmill.stages.image.deduplication import ImageExactDeduplication, ImagePerceptualDeduplication, near
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import ParquetReader, ParquetWriter
from gristmill.tasks import DocumentBatch
from gristmill.tasks.image import ImageBatch


def mixed(families: int = 6) -> list[tuple[str, bytes | None]]:
    """Families of copies and odd images, in an order of their own."""
    found = [one for seed in range(families) for one in copies(seed)] + odd_images()
    random.Random(3).shuffle(found)
    return found


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_images(tmp_path / "in", mixed())


def test_copies_are_removed_and_the_largest_stays(source, tmp_path):
    result = run(source, tmp_path / "out", ImagePerceptualDeduplication(id_field="image_id"))
    removed = removed_in(tmp_path / "out")
    survivors = {name: row["survivor_document_id"] for name, row in removed.items()}
    for seed in range(6):
        family = {name for name, _ in copies(seed)}
        assert len(family - set(survivors)) == 1  # one of the equally large ones stays
        stays = (family - set(survivors)).pop()
        assert stays.split()[1] in ("original", "webp", "turned", "jpeg", "grey")
        assert {survivors[name] for name in family - {stays}} == {stays}
    order = [name for name, _ in mixed()]
    for seed in range(6):  # the cluster is its first image in the source
        rows = [row for name, row in removed.items() if name.startswith(f"{seed} ")]
        members = {row["id"] for row in rows} | {row["survivor"] for row in rows}
        assert {row["cluster"] for row in rows} == {
            min(members, key=lambda one: (one[: one.index("#")], int(one.partition("#")[2])))
        }
    odd = {name: survivor for name, survivor in survivors.items() if not name[0].isdigit()}
    pairs = [("blank", "blank, equal pixels"), ("animated", "its first frame")]
    assert odd == {later: first for first, later in (sorted(pair, key=order.index) for pair in pairs)}
    assert not result.ledger.total().imbalance()
    assert result.ledger.total().kept == len(order) - len(survivors) - 4


def test_records_hold_what_the_pictures_give(source, tmp_path):
    run(source, tmp_path / "out", ImagePerceptualDeduplication(id_field="image_id"))
    data = dict(mixed())
    for name, row in removed_in(tmp_path / "out").items():
        if name.startswith("blank"):
            assert (row["distance"], row["similarity"]) == (0, 1.0)
            continue
        found = perceptual_hashes([decode(data[one], 256) for one in (name, row["survivor_document_id"])])
        distances, similar = compared(found.hashes, found.thumbnails, windows(), 12)
        assert row["distance"] == distances[0] <= 12
        assert row["similarity"] == round(float(similar[0]), 4) >= 0.97


def settled_one_by_one(images: list[bytes], ranks: list[float], most: int, least: float) -> dict[int, int]:
    """A plain model: each picture, largest first, with the first of those that stay that is near enough."""
    found = perceptual_hashes([decode(data, 256) for data in images])
    stays: list[int] = []
    survivors = {}
    for n in sorted(range(len(images)), key=lambda n: -ranks[n]):
        for other in stays:
            distances, similar = compared(found.hashes[[n, other]], found.thumbnails[[n, other]], windows(), most)
            if distances[0] <= most and similar[0] >= least:
                survivors[n] = other
                break
        else:
            stays.append(n)
    return survivors


@pytest.mark.parametrize("survivor", ["largest", "first", "best"])
def test_survivors_are_those_of_a_plain_model(tmp_path, survivor):
    seed = random.randrange(10**6)
    print("seed", seed)
    rng = random.Random(seed)
    images = [one for n in range(4) for one in copies(seed + n)]
    rng.shuffle(images)
    scores = [round(rng.random(), 3) for _ in images]
    source = write_images(tmp_path / "in", images, score=scores)
    score_field = "score" if survivor == "best" else None
    stage = ImagePerceptualDeduplication(survivor=survivor, score_field=score_field, id_field="image_id")
    run(source, tmp_path / "out", stage)
    sizes = [float(np.prod(decode(data).shape)) for _, data in images]
    ranks = {"largest": sizes, "first": [float(-n) for n in range(len(images))], "best": scores}[survivor]
    expected = settled_one_by_one([data for _, data in images], ranks, 12, 0.97)
    found = {name: row["survivor_document_id"] for name, row in removed_in(tmp_path / "out").items()}
    assert found == {images[n][0]: images[other][0] for n, other in expected.items()}
    assert len(found) >= 20


def rings(count: int) -> list[tuple[str, bytes | None]]:
    """Pictures like each other, so that many are near to several of those that stay."""
    y, x = np.mgrid[-1:1:60j, -1:1:80j]
    made = []
    for n in range(count):
        rng = np.random.default_rng(n)
        wide, high, power = rng.uniform(0.5, 2, 3)
        grey = 250 * np.exp(-((wide * x + 0.4 * rng.normal()) ** 2 + (high * y) ** 2) * 3 * power)
        made.append((f"ring {n}", encoded(Image.fromarray(grey.astype(np.uint8)))))
    return made


@pytest.mark.parametrize("arguments", [{}, {"verify": False, "survivor": "first"}])
def test_the_result_does_not_depend_on_blocks_and_memory(tmp_path, monkeypatch, arguments):
    source = write_images(tmp_path / "in", [*mixed(), *rings(60)])
    run(source, tmp_path / "whole", ImagePerceptualDeduplication(**arguments))
    monkeypatch.setattr(near, "LEAST_BLOCK", 3)
    monkeypatch.setattr(near, "_MEMORY_LEAST", 5)
    run(source, tmp_path / "blocks", ImagePerceptualDeduplication(memory_limit=100_000, **arguments))
    assert written(tmp_path / "blocks") == written(tmp_path / "whole")
    run(source, tmp_path / "small", ImagePerceptualDeduplication(**arguments), blocksize=1000)
    assert sorted(ids_in(tmp_path / "small")) == sorted(ids_in(tmp_path / "whole"))


def test_memory_of_a_block_is_bounded_by_the_limit(source, tmp_path, monkeypatch):
    most = []

    def noted(hashes, *arguments, **options):
        most.append(len(hashes))
        return first_near(hashes, *arguments, **options)

    first_near = near.first_near
    monkeypatch.setattr(near, "first_near", noted)
    monkeypatch.setattr(near, "_MEMORY_LEAST", 4)
    workers = os.cpu_count() or 1
    limit = 4 * workers * near.BYTES_EACH * 7
    run(source, tmp_path / "out", ImagePerceptualDeduplication(memory_limit=limit))
    assert 7 < max(most) <= 14 and len(most) > 6  # a block of seven, and as many that stay


@pytest.mark.parametrize("spooled", [False, True])
def test_the_bytes_do_not_depend_on_workers(source, tmp_path, spooled, monkeypatch):
    outputs = []
    for workers in (0, 1, 2, 4):
        stages = [ImageExactDeduplication(level="pixels")] if spooled else []
        out = tmp_path / f"out{workers}"
        run(source, out, *stages, ImagePerceptualDeduplication(id_field="image_id"), workers=workers, blocksize=20_000)
        outputs.append(written(out))
    assert all(output == outputs[0] for output in outputs)
    assert {name.partition("/")[0] for name in outputs[0] if "/" in name} >= {"duplicates", "excluded", "quarantine"}


def test_the_bytes_are_the_same_on_ray(source, tmp_path):
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'gristmill[ray]'")
    from tests.backends.slow_starts import start_ray

    from gristmill.backends.ray import RayExecutor

    run(source, tmp_path / "local", ImagePerceptualDeduplication(id_field="image_id"))
    try:
        start_ray(num_cpus=2, object_store_memory=100 << 20, include_dashboard=False)
        executor = RayExecutor({"view": "off"})
        run(source, tmp_path / "ray", ImagePerceptualDeduplication(id_field="image_id"), executor=executor)
    finally:
        ray.shutdown()
    assert written(tmp_path / "ray") == written(tmp_path / "local")


@pytest.mark.timeout(900)
def test_a_run_that_is_killed_after_any_file_is_finished_by_the_next(tmp_path):
    source = write_images(tmp_path / "in", [*copies(1), *odd_images()])
    changes = resumed_after_each_change(
        lambda out: run(source, out, ImagePerceptualDeduplication()), tmp_path / "out", tmp_path / "left"
    )
    assert changes > 20


def test_blank_pictures_are_duplicates_only_if_their_pixels_are_equal(tmp_path):
    images = [
        (f"{value} {width}", encoded(blank(value, width, 50))) for value in (0, 1, 128, 255) for width in (50, 51)
    ]
    copy = ("copy", encoded(blank(128, 51, 50), "WEBP", lossless=True))
    source = write_images(tmp_path / "in", [*images, copy])
    result = run(source, tmp_path / "out", ImagePerceptualDeduplication(id_field="image_id"))
    found = {name: row["survivor_document_id"] for name, row in removed_in(tmp_path / "out").items()}
    assert found == {"copy": "128 51"}
    assert "9 images with too little contrast" in " ".join(result.record.notes)


def test_without_crops_only_whole_pictures_are_compared(tmp_path):
    source = write_images(tmp_path / "in", copies(5))
    run(source, tmp_path / "out", ImagePerceptualDeduplication(crops=False))
    assert ids_in(tmp_path / "out") == ["5 original", "5 crop"]


def test_verification_keeps_pictures_whose_hashes_alone_are_near(tmp_path):
    image = picture(8, 200, 200)
    other = np.asarray(image).astype(int)
    other[60:140, 60:140] = np.asarray(picture(9, 80, 80))
    seen = [decode(encoded(image)), other.astype(np.uint8)]
    found = perceptual_hashes(seen)
    distance = compared(found.hashes, found.thumbnails, windows(), 15)[0][0]
    source = write_images(tmp_path / "in", [("a", encoded(image)), ("b", encoded(Image.fromarray(seen[1])))])
    limits = {"max_distance": 15, "min_similarity": 0.97}
    assert distance <= 15
    run(source, tmp_path / "verified", ImagePerceptualDeduplication(**limits))
    run(source, tmp_path / "hash", ImagePerceptualDeduplication(**limits, verify=False))
    assert ids_in(tmp_path / "verified") == ["a", "b"] and ids_in(tmp_path / "hash") == ["a"]


def test_bad_images_are_in_quarantine_when_documents_are_spooled_too(tmp_path):
    images = [*copies(6), *odd_images()]
    source = write_images(tmp_path / "in", images, caption=["one two three"] * len(images))
    words = ScoreFilter(WordCountFilter(min_words=2), text_field="caption")
    result = run(source, tmp_path / "out", words, ImagePerceptualDeduplication(id_field="image_id"))
    assert not result.ledger.total().imbalance() and result.ledger.total().errored.total() == 4
    assert set(removed_in(tmp_path / "out")) >= {"6 half", "6 crop", "6 grey"}


def test_explain_shows_of_which_image_it_is_a_duplicate(tmp_path):
    image = picture(10, 200, 150)
    images = [("large", encoded(image)), ("small", encoded(scaled(image, 0.5), "JPEG", quality=80)), ("broken", b"?")]
    source = write_images(tmp_path / "in", images)
    stages = [
        ParquetReader(str(source), text_field=None),
        ImagePerceptualDeduplication(),
        ParquetWriter(str(tmp_path / "out")),
    ]
    with pytest.raises(PipelineError, match="has not decided yet"):
        explain(stages, "small", "image_id")
    run(source, tmp_path / "out", ImagePerceptualDeduplication())
    (report,) = explain(stages, "small", "image_id").stages
    assert report.verdict == f"dropped: duplicate of {source}/0.parquet#0"
    values = {one.name: one.score for one in report.findings}
    assert values["distance"] <= 12 and values["similarity"] >= 0.97
    notes = "\n".join(report.notes)
    assert "this image: JPEG, 100 x 75 pixels, " in notes and "survivor: PNG, 200 x 150 pixels, " in notes
    (stays,) = explain(stages, "large", "image_id").stages
    assert stays.verdict == "kept" and list(stays.counted.values()) == [1]
    (broken,) = explain(stages, "broken", "image_id").stages
    assert broken.verdict == "dropped: in quarantine, not an image of a known format"


def test_a_batch_of_images_has_keys_like_a_batch_of_documents():
    table = pa.table(
        {
            "_gristmill_id": [f"f#{n}" for n in range(7)],
            "image": pa.array([data for _, data in copies(1)], pa.large_binary()),
        }
    )
    stage = ImagePerceptualDeduplication()
    assert stage.keys(ImageBatch(data=table)).equals(stage.keys(DocumentBatch(data=table)))
    assert (
        stage.keys(ImageBatch(data=table)).slice(2, 1).to_pylist()
        == stage.keys(ImageBatch(data=table.slice(2, 1))).to_pylist()
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"max_distance": 16}, "max_distance must be a whole number from 0 to 15, not 16"),
        ({"max_distance": True}, "max_distance must be a whole number"),
        ({"min_similarity": 0}, "min_similarity must be above 0"),
        ({"survivor": "longest"}, "survivor must be one of 'largest', 'first', 'best', not 'longest'"),
        ({"survivor": "best"}, "score_field names the column"),
    ],
)
def test_wrong_arguments_are_errors(arguments, words):
    with pytest.raises(ValueError, match=words):
        ImagePerceptualDeduplication(**arguments)


def test_a_field_that_no_image_has_ends_the_run(tmp_path):
    source = write_images(tmp_path / "in", copies(1), pixels=[None] * 7)
    with pytest.raises(PipelineError, match="'pixels'"):
        run(source, tmp_path / "out", ImagePerceptualDeduplication(image_field="pixels"))
