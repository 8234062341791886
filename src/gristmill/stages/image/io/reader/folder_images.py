"""Read the images of a folder, with what is beside them."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gristmill.errors import InputChanged
from gristmill.stages.image.io.reader.building import FoundImage, ImageBuilder
from gristmill.stages.image.io.reader.fetching import TooLarge, Unread, fetched
from gristmill.stages.image.io.reader.folders import ImageFolder
from gristmill.stages.image.io.reader.options import CAPTION_ENDINGS, METADATA_ENDING, MOST_BYTES, MOST_TEXT_BYTES
from gristmill.stages.image.io.reader.shards import TEXT_TOO_LARGE, TOO_LARGE
from gristmill.stages.image.io.reader.space import Space, new_space
from gristmill.stages.text.io import stamps
from gristmill.stages.text.io.reader.files import open_regular
from gristmill.storage import local_path
from gristmill.tasks import FileStamp


def read_folder(folder: ImageFolder, rows: Sequence[int], options: Mapping[str, Any], builder: ImageBuilder) -> None:
    """Add the images in some rows of a folder. Raise `InputChanged` if a file is not what was listed."""
    beside = [folder.beside_of(folder.images.names[row]) for row in rows]
    wanted: list[tuple[str, FileStamp, int]] = []
    for row, near in zip(rows, beside, strict=True):
        name = folder.images.names[row]
        wanted.append((folder.urls.get(name) or folder.path + name, folder.images.stamp(row), MOST_BYTES))
        for place in near.values():
            wanted.append((folder.path + folder.beside.names[place], folder.beside.stamp(place), MOST_TEXT_BYTES))
    contents = _contents(wanted, options, builder.space)
    for row, near in zip(rows, beside, strict=True):
        name = folder.images.names[row]
        image = next(contents)
        texts = {end: next(contents) for end in near}
        problem = next((str(found) for found in (image, *texts.values()) if isinstance(found, Unread)), "")
        path = folder.path + name
        if problem:
            builder.bad(folder.path, path, 0, problem, folder.shown + name)
            continue
        given: dict[str, Any] = texts
        captions = [given[end] for end in CAPTION_ENDINGS if end in given]
        data: Any = image
        found = FoundImage(folder.path, path, 0, folder.shown + name, data, captions[0] if captions else None)
        found.metadata = given.get(METADATA_ENDING)
        builder.add(found)


def _contents(
    wanted: Sequence[tuple[str, FileStamp, int]], options: Mapping[str, Any], space: Space
) -> Iterator[bytes | memoryview | Unread]:
    """The content of each file, which must be as it was listed, or why it is a bad record.

    Images of this machine are read into ``space``.
    """
    if all(local_path(path) is not None for path, _, _ in wanted):
        for path, stamp, most in wanted:
            yield _local(path, stamp, most, space if most == MOST_BYTES else None)
        return
    # what is too large is known already, where sizes are
    for (path, stamp, most), found in zip(wanted, fetched([path for path, _, _ in wanted], options), strict=True):
        if isinstance(found, Unread):
            if found.is_missing:
                raise stamps.gone(path)
            if found.may_pass:
                raise OSError(f"{path}: {found}")
            yield found
        elif isinstance(found, TooLarge) or len(found) > most:
            yield Unread(TOO_LARGE if most == MOST_BYTES else TEXT_TOO_LARGE)
        elif stamp.size is not None and len(found) != stamp.size:
            raise InputChanged(
                f"{path} changed after the run was planned: it had {stamp.size:,} bytes and now has {len(found):,}"
            )
        else:
            yield found


def _local(path: str, stamp: FileStamp, most: int, space: Space | None) -> bytes | memoryview | Unread:
    try:
        file = open_regular(local_path(path) or path)
    except PermissionError:
        return Unread("access is denied (EACCES)")
    except (FileNotFoundError, NotADirectoryError):
        raise stamps.gone(path) from None
    with file:
        found = os.fstat(file.fileno())
        stamps.check_stat(path, stamp, found)
        if found.st_size > most:
            return Unread(TOO_LARGE if most == MOST_BYTES else TEXT_TOO_LARGE)
        data = _read(file, found.st_size, space or new_space)
        stamps.check_stat(path, stamp, os.fstat(file.fileno()))
    if len(data) != found.st_size:
        raise InputChanged(f"{path} changed after the run was planned: it had {found.st_size:,} bytes")
    return data if space is not None else bytes(data)


def _read(file: io.FileIO, size: int, space: Space) -> memoryview:
    """Read up to ``size`` bytes of a file into memory of its own."""
    data = space(size)
    done = 0
    while done < size and (more := file.readinto(data[done:])):
        done += more
    return data[:done]
