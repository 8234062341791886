"""Why a document is a duplicate: its record, and what it has in common with its survivor."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gristmill.metrics.format import size
from gristmill.storage import Folder

MOST_WORDS = 4000
"""Compared words of each text: time grows with their square."""
_SHOWN = 5
_LONGEST = 200


@dataclass(frozen=True)
class DuplicateRecord:
    """The record of a document."""

    record: dict[str, Any] | None
    """None if the document was not removed."""
    stood_for: int
    """Removed documents whose survivor is this one."""
    pieces: Sequence[int] = ()
    """The numbers of its removed pieces."""


def look_up(records: Folder, ident: str, id_column: str = "id", survivor_column: str = "survivor") -> DuplicateRecord:
    """Return the record of a document by its id."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    names = [name for name in records.names() if name.endswith(".parquet")]
    stood_for = 0
    for name in names:
        table = pq.ParquetFile(pa.BufferReader(records.read(name))).read()
        ids, survivors = (table.column(column) for column in (id_column, survivor_column))
        row = pc.index(ids, ident).as_py()
        if row >= 0:
            own = table.filter(pc.equal(ids, ident))
            pieces = own.column("piece").to_pylist() if "piece" in own.column_names else ()
            return DuplicateRecord(table.slice(row, 1).to_pylist()[0], 0, pieces)
        stood_for += pc.sum(pc.equal(survivors, ident)).as_py() or 0
    return DuplicateRecord(None, stood_for)


def in_common(text: str, other: str, normalize: bool = False) -> Iterator[str]:
    """Yield lines on what two texts share and where they differ.

    With ``normalize`` words are compared after `folding.folded`, as for fuzzy keys, and shown as they are.
    """
    if text == other:
        yield "the texts are equal"
        return
    mine, theirs = text.split()[:MOST_WORDS], other.split()[:MOST_WORDS]
    mine_compared, theirs_compared = mine, theirs
    if normalize:
        from gristmill.kernels.folding import folded
        from gristmill.kernels.texts import Texts

        whole = folded(Texts.of([text, other])).strings()
        if whole[0] == whole[1]:
            yield "the texts are equal but for case, white space, invisible characters or the encoding of accents"
            return
        mine_compared, theirs_compared = (folded(Texts.of(words)).strings() for words in (mine, theirs))
    matcher = difflib.SequenceMatcher(None, mine_compared, theirs_compared, autojunk=False)
    same = sum(block.size for block in matcher.get_matching_blocks())
    cut = " (of the first words)" if max(len(mine), len(theirs)) == MOST_WORDS else ""
    yield f"{same:,} of its {len(mine):,} words and of the {len(theirs):,} of the survivor are in common{cut}"
    longest = matcher.find_longest_match()
    if longest.size:
        yield f"longest passage in common: {_shown(mine[longest.a : longest.a + longest.size])}"
    changes = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    for _, i, j, k, m in changes[:_SHOWN]:
        yield f"differs: {_shown(mine[i:j])} / survivor: {_shown(theirs[k:m])}"
    if len(changes) > _SHOWN:
        yield f"and {len(changes) - _SHOWN} more differences"


def images_in_common(data: bytes, other: bytes) -> Iterator[str]:
    """Yield lines on the formats and sizes of two images."""
    if data == other:
        yield f"the encoded bytes are equal: {_image(data)}"
        return
    yield f"this image: {_image(data)}"
    yield f"survivor: {_image(other)}"


def _image(data: bytes) -> str:
    from gristmill.images import BadImage
    from gristmill.images.decode import read_header

    try:
        header = read_header(data)
    except BadImage as error:
        return f"cannot be read: {error}"
    turned = f", turned by EXIF orientation {header.orientation}" * (header.orientation != 1)
    return f"{header.format}, {header.width} x {header.height} pixels, {size(len(data))}{turned}"


def clips_in_common(data: bytes, other: bytes) -> Iterator[str]:
    """Yield lines on the codecs, sizes and lengths of two clips."""
    if data == other:
        yield f"the encoded bytes are equal: {_clip(data)}"
        return
    yield f"this clip: {_clip(data)}"
    yield f"survivor: {_clip(other)}"


def _clip(data: bytes) -> str:
    from gristmill.videos.errors import BadVideo
    from gristmill.videos.probe import probe

    try:
        info = probe(data)
    except BadVideo as error:
        return f"cannot be read: {error}"
    return f"{info.video_codec}, {info.width} x {info.height} pixels, {info.duration_s:.2f} s, {size(len(data))}"


def _shown(words: Sequence[str]) -> str:
    text = " ".join(words)
    return repr(text) if len(text) <= _LONGEST else f"{text[:_LONGEST]!r} ... ({len(words):,} words)"
