"""`gristmill init --images`: the set of images, and the pipeline that runs on it."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from tests.ledger.conftest import written

from gristmill.cli.main import main
from gristmill.images.decode import decode
from gristmill.images.errors import BadImage
from gristmill.images.formats import format_of
from gristmill.stages.registry import known


@pytest.fixture
def folder(tmp_path, monkeypatch, capsys) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--images", "photos"]) == 0
    assert "49 images" in capsys.readouterr().out
    return tmp_path / "photos"


def test_the_images_are_the_same_each_time_and_nothing_is_overwritten(folder, capsys):
    assert main(["init", "--images", "again"]) == 0
    again = folder.parent / "again"
    assert written(again / "input") == written(folder / "input")
    assert main(["init", "--images", "photos"]) == 2
    assert "exists already" in capsys.readouterr().err


def test_the_images_are_what_their_names_and_captions_promise(folder):
    bad, formats = [], set()
    for path in sorted((folder / "input").iterdir()):
        if path.suffix == ".txt":
            continue
        try:
            decode(path.read_bytes())
            kind = format_of(path.read_bytes())
            assert kind is not None and path.suffix == f".{kind.extension}"
            formats.add(kind.name)
        except BadImage:
            bad.append(path.name)
        assert path.with_suffix(".txt").exists() == (path.name != "uncaptioned.png")
    assert bad == ["damaged.jpg", "page.jpg"] and formats == {"JPEG", "PNG", "WEBP"}


def test_the_example_keeps_pictures_and_drops_or_quarantines_the_rest(folder):
    if not {"ImageReader", "ShortSideFilter", "ImagePerceptualDeduplication"} <= set(known()):
        pytest.skip("the stages of the example are not all there yet")
    assert main(["run", "photos/pipeline.yaml", "--view", "off"]) == 0
    total = json.loads((folder / "output/_gristmill/ledger.json").read_text())["total"]
    dropped = {reason: n for _, reason, n in total["dropped"]}
    assert sum(total["read"].values()) == 49 and len(dropped) >= 5 and sum(total["errored"].values()) == 2
    with tarfile.open(folder / "output/part-000000.tar") as archive:
        names = {name.rpartition("-")[0] for name in archive.getnames()}
    assert "picture-001" in names and not {"blank", "icon", "banner", "noise", "page", "damaged"} & names
    assert main(["verify", "photos/output"]) == 0
