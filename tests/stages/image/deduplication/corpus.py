"""Images in Parquet files, and ways to run a stage over them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.images.pictures_made import animated, blank, cropped, encoded, picture, scaled, turned
from tests.stages.deduplication.in_process import InProcess

from gristmill.backends.base import Executor
from gristmill.backends.local import LocalExecutor
from gristmill.pipeline import Pipeline, RunResult
from gristmill.stages.core import ProcessingStage
from gristmill.stages.text.io import ParquetReader, ParquetWriter

Images = Sequence[tuple[str, bytes | None]]


def copies(seed: int) -> list[tuple[str, bytes]]:
    """A picture and its copies, the largest first."""
    image = picture(seed, 240, 180)
    return [
        (f"{seed} original", encoded(image)),
        (f"{seed} webp", encoded(image, "WEBP", lossless=True)),
        (f"{seed} turned", turned(image, 6)),
        (f"{seed} jpeg", encoded(image, "JPEG", quality=60)),
        (f"{seed} grey", encoded(image.convert("L"))),
        (f"{seed} half", encoded(scaled(image, 0.5))),
        (f"{seed} crop", encoded(cropped(image, 0.08, 0.03, 0.85))),
    ]


def odd_images() -> list[tuple[str, bytes | None]]:
    """Images that are not like most: damaged, missing, blank, tiny, animated."""
    whole = encoded(picture(900))
    return [
        ("missing", None),
        ("no bytes", b""),
        ("truncated", whole[: len(whole) // 2]),
        ("no image", b"not an image at all"),
        ("blank", encoded(blank())),
        ("blank, equal pixels", encoded(blank(), "BMP")),
        ("blank, larger", encoded(blank(255, 65, 48))),
        ("black", encoded(blank(0))),
        ("one pixel", encoded(blank(40, 1, 1))),
        ("another pixel", encoded(blank(200, 1, 1))),
        ("animated", animated([901, 902])),
        ("its first frame", encoded(picture(901))),
        ("its second frame", encoded(picture(902))),
    ]


def write_images(folder: Path, images: Images, files: int = 2, **columns: Sequence[Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.table(
        {
            "image": pa.array([data for _, data in images], pa.large_binary()),
            "image_id": [name for name, _ in images],
            **{name: list(values) for name, values in columns.items()},
        }
    )
    size = -(-len(images) // files)
    for n in range(files):
        pq.write_table(table.slice(n * size, size), folder / f"{n}.parquet", row_group_size=9)
    return folder


def run(
    source: Path,
    out: Path,
    *stages: ProcessingStage,
    workers: int = 0,
    executor: Executor | None = None,
    **options: Any,
) -> RunResult:
    """Run stages over images in this process, on so many workers, or on an executor."""
    if executor is None:
        executor = LocalExecutor({"num_cpus": workers, "view": "off"}) if workers else InProcess()
    reader = ParquetReader(str(source), text_field=None, blocksize=options.pop("blocksize", 50_000))
    return Pipeline("images", stages=[reader, *stages, ParquetWriter(str(out))]).run(executor, **options)


def ids_in(out: Path, folder: str = "") -> list[str]:
    """The ids of the images in the Parquet files of a folder of the output."""
    files = sorted((out / folder).glob("*.parquet"))
    return [name for path in files for name in pq.read_table(path).column("image_id").to_pylist()]


def removed_in(out: Path) -> dict[str, dict[str, Any]]:
    """The records of removed images by their ids."""
    files = sorted((out / "duplicates").glob("*.parquet"))
    return {row["document_id"]: row for path in files for row in pq.read_table(path).to_pylist()}
