"""Check that input files have not changed since the run was planned."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from functools import cache
from typing import Any

from gristmill.errors import InputChanged
from gristmill.storage import storage_of
from gristmill.tasks import FileStamp

VERSIONS = (
    *("etag", "mtime", "lastmodified", "updated", "modified", "modify", "modificationtime", "contentmd5", "digest"),
    *("md5hash", "md5", "crc32c", "crc", "sha", "checksum", "contenthash", "generation", "versionid", "datetime"),
    "created",
)
"""Values in listings of storages that change with the content, most reliable first; without "_" and "-"."""


def of_stat(found: os.stat_result) -> FileStamp:
    """Return the stamp of a local file."""
    return FileStamp(found.st_size, (("mtime", str(found.st_mtime_ns)),), _place(found.st_dev), found.st_ino)


@cache
def _place(device: int) -> str:
    """A name of a device of this machine: one object for all files on it."""
    return f"{os.uname().nodename}:{device}"


def of_entry(entry: Mapping[str, Any]) -> FileStamp:
    """Return the stamp of a file by what its storage lists of it."""
    found = {key.lower().replace("_", "").replace("-", ""): value for key, value in entry.items()}
    # some storages quote ETags in one answer and not in the other
    marks = tuple((key, str(found[key]).removeprefix("W/").strip('"')) for key in VERSIONS if found.get(key))
    size = entry.get("size")
    return FileStamp(None if size is None else int(size), marks)


def check(path: str, planned: FileStamp, now: FileStamp) -> None:
    """Raise `InputChanged` if a file is not what was planned."""
    if changes := planned.changes(now):
        raise InputChanged(f"{path} changed after the run was planned: {changes}")


def check_stat(path: str, planned: FileStamp, found: os.stat_result) -> None:
    """Raise `InputChanged` if an open local file is not what was planned."""
    if not stat.S_ISREG(found.st_mode):
        raise InputChanged(f"{path} changed after the run was planned: it is no longer a regular file")
    check(path, planned, of_stat(found))


def check_remote(path: str, planned: FileStamp, storage: Any, inner: str) -> None:
    """Raise `InputChanged` if a file elsewhere is not what was planned."""
    if planned.size is None and not planned.marks:
        return
    storage.invalidate_cache(storage._parent(inner))
    try:
        now = of_entry(storage.info(inner))
    except FileNotFoundError:
        raise gone(path) from None
    check(path, planned, now)


def check_path(path: str, planned: FileStamp, options: Mapping[str, Any]) -> None:
    """Raise `InputChanged` if a file, wherever it is, is not what was planned."""
    if planned.place:
        try:
            check_stat(path, planned, os.stat(path))
        except (FileNotFoundError, NotADirectoryError):
            raise gone(path) from None
        return
    check_remote(path, planned, *storage_of(path, options))


def gone(path: str) -> InputChanged:
    return InputChanged(f"{path} changed after the run was planned: it no longer exists")
