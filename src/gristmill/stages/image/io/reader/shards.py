"""Samples of WebDataset shards: members of a tar file in a row that have the same key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from gristmill.stages.image.io.reader.options import (
    CAPTION_ENDINGS,
    IMAGE_ENDINGS,
    METADATA_ENDING,
    MOST_BYTES,
    MOST_IMAGES,
    MOST_TEXT_BYTES,
    TEXT_ENDINGS,
)
from gristmill.stages.image.io.reader.space import Space, new_space
from gristmill.stages.image.io.reader.tar import TarDamage, TarMember, TarReader

UNSAFE = "the name leads out of the shard"
TOO_LARGE = "too many bytes"
TEXT_TOO_LARGE = "too many bytes of caption or metadata"
ODD = "members that are no files"
UNREAD = "members that are not read"
SECOND = "second images of a key"
NO_END = "shards without an end mark"


@dataclass(frozen=True)
class ShardParts:
    """The members of samples that are read, by the ends of their names."""

    images: Sequence[str] = ()
    """Empty: all that are known."""
    texts: Sequence[str] = (METADATA_ENDING, *CAPTION_ENDINGS, *TEXT_ENDINGS)

    def is_image(self, end: str) -> bool:
        return end in self.images if self.images else end.rpartition(".")[2] in IMAGE_ENDINGS


@dataclass(slots=True)
class SampleMembers:
    """The members of a key that were read."""

    offset: int
    key: bytes
    image: bytes | memoryview | None = None
    image_end: str = ""
    """What the name of the image has after the key, in lower case."""
    texts: dict[str, bytes] = field(default_factory=dict)
    """Other data, by the same."""
    seen: set[str] = field(default_factory=set)
    """The ends of all members of the key."""
    problem: str = ""
    """Why the sample cannot be used."""

    @property
    def name(self) -> str:
        return self.key.decode("utf-8", "backslashreplace")


def split_name(name: bytes) -> tuple[bytes, str] | None:
    """The key of a member, up to the first dot of its base name, and the rest; None for members without one.

    >>> split_name(b"./a.b/0001.seg.PNG")
    (b'a.b/0001', 'seg.png')
    """
    while name.startswith(b"./"):
        name = name[2:].lstrip(b"/")
    folder, slash, base = name.rpartition(b"/")
    stem, dot, end = base.partition(b".")
    if not stem or not dot:
        return None
    return folder + slash + stem, end.decode("utf-8", "backslashreplace").lower()


def is_unsafe(key: bytes) -> bool:
    """Whether a name is absolute or leads out of the folder into which a shard is unpacked."""
    return key.startswith((b"/", b"\\")) or b".." in key.replace(b"\\", b"/").split(b"/") or b"\0" in key


class ShardReader:
    """The samples of a shard from a header on, up to the first that begins at ``stop`` or later.

    ``take`` decides by the offset of a sample whether it is returned. Without ``parts`` no data is read. Images are
    read into ``space``, one for each sample: what it returned for one is not needed any more when the next one is read.
    """

    def __init__(
        self,
        tar: TarReader,
        stop: int = -1,
        parts: ShardParts | None = None,
        take: Callable[[int], bool] = lambda offset: True,
        space: Space = new_space,
    ) -> None:
        self._tar = tar
        self._stop = stop
        self._parts = parts
        self._take = take
        self._space = space
        self._taken = True
        self.counts: dict[str, int] = {}
        """Members that are no part of an image, by kind."""

    def __iter__(self) -> Iterator[SampleMembers | TarDamage]:
        sample: SampleMembers | None = None
        for found in self._tar:
            if isinstance(found, TarDamage):
                cut = split_name(found.name)
                if sample is not None and cut is not None and cut[0] == sample.key:
                    # what is left of the sample is part of the rest
                    found, sample = TarDamage(sample.offset, found.reason, found.name), None
                if sample is not None and self._taken:
                    yield sample
                sample = None
                if 0 <= self._stop <= found.offset:
                    return
                yield found
                continue
            parted = split_name(found.name) if found.is_regular else None
            if parted is None:
                if not found.is_folder:
                    self._count(UNREAD if found.is_regular else ODD)
                continue
            key, end = parted
            if sample is None or key != sample.key or end in sample.seen:
                if sample is not None and self._taken:
                    yield sample
                if 0 <= self._stop <= found.offset:
                    return
                sample = SampleMembers(found.offset, key)
                self._taken = self._take(found.offset)
                if self._taken and is_unsafe(key):
                    sample.problem = UNSAFE
            sample.seen.add(end)
            if self._taken and self._parts is not None and not sample.problem:
                self._read(self._parts, sample, end, found)
        if sample is not None and self._taken:
            yield sample

    def _read(self, parts: ShardParts, sample: SampleMembers, end: str, member: TarMember) -> None:
        is_image = parts.is_image(end)
        if is_image and sample.image is not None:
            self._count(SECOND)
            if "." in end or "." not in sample.image_end:
                return
        elif not is_image and end not in parts.texts:
            self._count(UNREAD)
            return
        if member.size > (MOST_BYTES if is_image else MOST_TEXT_BYTES):
            sample.problem = TOO_LARGE if is_image else TEXT_TOO_LARGE
            return
        data = self._tar.data(member, self._space if is_image else new_space)
        if data is None:
            return  # the damage comes next
        if is_image:
            sample.image, sample.image_end = data, end
        else:
            sample.texts[end] = bytes(data)

    def _count(self, what: str) -> None:
        if self._parts is not None:
            self.counts[what] = self.counts.get(what, 0) + 1


def cut_shard(tar: TarReader, size: int, block_bytes: int) -> list[tuple[int, int, int]]:
    """Ranges that cover a shard, each from a key of its own on, with its number of keys."""
    found: list[tuple[int, int, int]] = []
    start = count = 0
    key = b""
    for member in tar:
        if member.offset >= size:
            break
        if isinstance(member, TarDamage) or not member.is_regular or (parted := split_name(member.name)) is None:
            continue
        if parted[0] == key:
            continue
        key = parted[0]
        if count and (member.offset - start >= block_bytes or count >= MOST_IMAGES):
            found.append((start, member.offset, count))
            start, count = member.offset, 0
        count += 1
    return [*found, (start, size, count)]
