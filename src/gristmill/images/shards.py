"""WebDataset shards: tar files in which the members of a sample follow each other, with one name before the dot."""

from __future__ import annotations

import hashlib
import re
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any

from gristmill import fast_json
from gristmill.tasks.image import CAPTION, IMAGE, IMAGE_ID

BLOCK = 512
END = 2 * BLOCK
"""Bytes of zeros at the end of a tar file."""
LONGEST_KEY = 48
"""Characters of an image id that are part of its key: the names of members have at most 100 bytes."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_IMAGE_FILE = re.compile(r"\.(?:jpe?g|png|webp|avif|gif|tiff?|bmp|p[bgp]m|jp2|j2k)$", re.IGNORECASE)


def key_of(image_id: str, place: str) -> str:
    """Return the key of an image: what its id has of letters, digits, ``_`` and ``-``, and a hash of its place.

    So keys are unique where ids are not.

    >>> key_of("cats/my cat.jpeg", "12/my cat.jpeg#0")
    'cats_my_cat-95c3d1bd52ed52e4'
    """
    safe = _UNSAFE.sub("_", _IMAGE_FILE.sub("", image_id)).strip("_")[:LONGEST_KEY]
    digest = hashlib.blake2b(place.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{safe or 'image'}-{digest}"


def padded(size: int) -> int:
    """Return the bytes of a tar file that a member of this size takes."""
    return BLOCK + -(-size // BLOCK) * BLOCK


class Shard:
    """The members of a tar file, collected. The same members make the same bytes: without times, owners or modes."""

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self.samples = 0
        self.size = END

    def add(self, members: list[tuple[str, Any]]) -> None:
        """Add the members of a sample: names, and content as anything with bytes."""
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            self._parts += [info.tobuf(tarfile.USTAR_FORMAT), data, bytes(-len(data) % BLOCK)]
            self.size += padded(len(data))
        self.samples += 1

    def content(self) -> bytes:
        return b"".join([*self._parts, bytes(END)])


@dataclass
class ShardSample:
    """A sample of a shard: its key, and its members by what follows the first dot of their names."""

    key: str
    members: dict[str, bytes] = field(default_factory=dict)


def samples_in(file: IO[bytes], longest: int) -> Iterator[ShardSample]:
    """Yield the samples of a tar file, as a stream. Members of more than ``longest`` bytes are not read.

    Raise `tarfile.TarError` if the file is no tar file or is not complete.
    """
    sample: ShardSample | None = None
    for info, source in _files_in(file):
        key, _, extension = info.name.rpartition("/")[2].partition(".")
        if sample is None or sample.key != key:
            if sample is not None:
                yield sample
            sample = ShardSample(key)
        if info.size <= longest:
            sample.members[extension] = source.read()
    if sample is not None:
        yield sample


def records_in(file: IO[bytes], longest: int) -> Iterator[dict[str, Any]]:
    """Yield what `ImageWriter` has written of each image: its bytes, its caption and the fields of its JSON."""
    for sample in samples_in(file, longest):
        made: dict[str, Any] = {IMAGE_ID: sample.key, CAPTION: None}
        for extension, data in sample.members.items():
            if extension == "txt":
                made[CAPTION] = data.decode("utf-8", "replace")
            elif extension == "json":
                with suppress(fast_json.JSONDecodeError):
                    found = fast_json.loads(data)
                    made |= found if isinstance(found, dict) else {}
            elif not extension.endswith(".npy"):
                made[IMAGE] = data
        yield made


def _files_in(file: IO[bytes]) -> Iterator[tuple[tarfile.TarInfo, IO[bytes]]]:
    """Yield the plain files of a tar file. A file that ends before its end is not accepted, as by `tarfile`."""
    with tarfile.open(fileobj=file, mode="r|") as archive:
        for info in archive:
            source = archive.extractfile(info) if info.isreg() else None
            if source is not None:
                yield info, source
