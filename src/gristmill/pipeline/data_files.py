"""Stamps of the files that a stage reads. They change with the content, as far as a cheap check can see."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterator, Mapping, Set
from itertools import islice
from pathlib import Path
from typing import Any

from gristmill.config.paths import is_path_name, may_name_path
from gristmill.errors import PlanError
from gristmill.stages.contracts import Component
from gristmill.stages.protocols import Sink, Source
from gristmill.storage import plain_errors, storage_of

Stamp = list[Any]
"""The name of a file, its size, and a hash of its content or the time of its last change."""

MOST_FILES = 1000
"""Stamped files of a folder, and checked texts of a list: a tokenizer has a handful of files."""
HASHED_BYTES = 1 << 20
"""Up to this size the content is hashed; for larger files the time of the last change counts."""
HOOK = "fingerprint_files()"
WRITTEN = (
    *("output", "out_", "cache", "temp", "tmp", "log", "store", "save", "work", "checkpoint", "quarantine", "pairwise"),
)
"""Prefixes of arguments that name outputs."""
REMOTE = ("etag", "ETag", "md5Hash", "content_md5", "mtime", "LastModified")
"""Fields of a storage's file information that change with the content."""


def data_files(made: Any, arguments: Mapping[str, Any]) -> dict[str, list[Stamp]]:
    """Return the stamps of the files that an object reads, by the argument that names them.

    Input and output of a pipeline do not count, nor do arguments that are ``indifferent``.
    """
    read = {key: value for key, value in arguments.items() if _is_read(made, key)}
    found = {key: list(_stamps(value, is_path_name(key) or may_name_path(key))) for key, value in read.items()}
    if isinstance(made, Component):
        found[HOOK] = [stamp for path in made.fingerprint_files() for stamp in _named(path)]
    return {key: stamps for key, stamps in found.items() if stamps}


def _is_read(made: Any, argument: str) -> bool:
    if (isinstance(made, Component) and argument in made.indifferent) or argument.startswith(WRITTEN):
        return False
    if isinstance(made, Sink) and argument in ("path", "folder"):
        return False
    # The files of a reader are compared as the input of the run.
    return not (isinstance(made, Source) and argument == "file_paths")


def _stamps(value: Any, is_path: bool) -> Iterator[Stamp]:
    """Yield stamps of the files that a value names. A text of another argument must look like a path and exist."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple | Set):
        ordered = sorted(value, key=repr) if isinstance(value, Set) else value
        for one in ordered[:MOST_FILES]:
            yield from _stamps(one, is_path)
    elif isinstance(value, os.PathLike):
        yield from _of_path(value)
    elif isinstance(value, str) and _may_be_path(value):
        if is_path:
            yield from _of_remote(value) if "://" in value else _of_path(value)
        elif ("/" in value or "." in value) and "://" not in value and os.path.isfile(value):
            yield from _of_path(value)


def _may_be_path(text: str) -> bool:
    return 0 < len(text) < 4096 and text.isprintable()


def _named(path: str | os.PathLike[str]) -> list[Stamp]:
    """Return the stamps of a path from the hook; a missing file has a stamp too."""
    return list(_stamps(path, is_path=True)) or [[os.path.basename(os.fspath(path)), None, "is not there"]]


def _of_path(value: str | os.PathLike[str]) -> list[Stamp]:
    """Return the stamps of a file, of the files in a folder, or of a pattern."""
    path = os.path.expanduser(os.fspath(value))
    if not os.path.lexists(path):
        matching = sorted(glob.glob(path, recursive=True))[:MOST_FILES] if glob.has_magic(path) else []
        return [stamp for one in matching for stamp in _of_path(one)]
    root = Path(path)
    found = [root] if root.is_file() else islice(_below(path), MOST_FILES)
    return [_of_file(one, str(one.relative_to(root.parent))) for one in found]


def _below(folder: str) -> Iterator[Path]:
    """Yield the files below a folder in a fixed order, without outputs of runs: there may be millions."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    if any(entry.name == "_gristmill" for entry in entries):
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _below(entry.path)
        elif entry.is_file():
            yield Path(entry.path)


def _of_file(file: Path, name: str) -> Stamp:
    stat = file.stat()
    if stat.st_size > HASHED_BYTES or not os.access(file, os.R_OK):
        return [name, stat.st_size, stat.st_mtime_ns]
    return [name, stat.st_size, hashlib.sha256(file.read_bytes()).hexdigest()[:16]]


def _of_remote(url: str) -> list[Stamp]:
    """Return the stamp of a remote file by its file information; none if there is no information."""
    try:
        with plain_errors(url, {}):
            storage, path = storage_of(url, {})
            info = storage.info(path)
    except PlanError:  # the stage reports what is wrong when it opens the file, and may have credentials for it
        return []
    version = next((str(info[key]) for key in REMOTE if info.get(key)), "")
    name = os.path.basename(str(path).partition("?")[0].rstrip("/"))
    return [[name, info.get("size"), version]] if version or info.get("size") is not None else []
