"""Images with equal bytes or equal pixels are removed, and every image is accounted for."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("PIL", reason="Pillow is not installed: pip install 'gristmill[image]'")

from tests.images.pictures_made import encoded, picture
from tests.stages.image.deduplication.corpus import copies, ids_in, odd_images, removed_in, run, write_images

from gristmill.stages.image.deduplication import ImageExactDeduplication


def quarantined(out) -> dict[str, int]:
    lines = [line for path in (out / "quarantine").glob("*") for line in path.read_text().splitlines()]
    reasons = [json.loads(line)["reason"] for line in lines]
    return {reason: reasons.count(reason) for reason in sorted(set(reasons))}


def test_equal_bytes_are_removed_whatever_they_are(tmp_path):
    images = [*copies(1), ("again", copies(1)[3][1]), *odd_images(), ("no image again", b"not an image at all")]
    source = write_images(tmp_path / "in", images)
    result = run(source, tmp_path / "out", ImageExactDeduplication(id_field="image_id"))
    removed = {name: row["survivor_document_id"] for name, row in removed_in(tmp_path / "out").items()}
    assert removed == {"again": "1 jpeg", "no image again": "no image"}
    assert ids_in(tmp_path / "out") == [name for name, _ in images if name not in removed]
    assert sorted(ids_in(tmp_path / "out", "excluded")) == sorted(removed)
    assert not result.ledger.total().imbalance()


def test_equal_pixels_are_removed_and_bad_images_are_set_aside(tmp_path):
    images = [*copies(2), *odd_images(), *copies(3)]
    source = write_images(tmp_path / "in", images)
    result = run(source, tmp_path / "out", ImageExactDeduplication(level="pixels", id_field="image_id"))
    removed = {name: row["survivor_document_id"] for name, row in removed_in(tmp_path / "out").items()}
    assert removed == {
        **{f"{n} {kind}": f"{n} original" for n in (2, 3) for kind in ("webp", "turned")},
        "blank, equal pixels": "blank",
        "its first frame": "animated",
    }
    bad = {"missing", "no bytes", "truncated", "no image"}
    assert ids_in(tmp_path / "out") == [name for name, _ in images if name not in removed and name not in bad]
    expected = {"empty": 1, "no image": 1, "not an image of a known format": 1, "truncated": 1}
    assert quarantined(tmp_path / "out") == expected
    assert not result.ledger.total().imbalance()
    assert "4 images cannot be read" in " ".join(result.record.notes)


def test_the_best_of_equal_images_stays(tmp_path):
    data = encoded(picture(4))
    source = write_images(tmp_path / "in", [("a", data), ("b", data), ("c", data)], score=[1.0, 3.0, 2.0])
    run(source, tmp_path / "out", ImageExactDeduplication(survivor="best", score_field="score"))
    assert ids_in(tmp_path / "out") == ["b"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"level": "pixel"}, "level must be 'bytes' or 'pixels', not 'pixel'"),
        ({"survivor": "largest"}, "survivor must be one of 'first', 'best'"),
        ({"survivor": "best"}, "score_field names the column"),
        ({"score_field": "score"}, "score_field names the column"),
    ],
)
def test_wrong_arguments_are_errors(arguments, words):
    with pytest.raises(ValueError, match=words):
        ImageExactDeduplication(**arguments)
