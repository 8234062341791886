"""From what a user calls the input to the files that it is."""

from __future__ import annotations

import os
import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gristmill.errors import PlanError

LIST_FROM = 8
"""From so many named files in one folder on, the folder is listed once instead of asking for each file."""
ASIDE = re.compile(r"excluded|quarantine|duplicates(-\d+)?")
"""Folders of an output that hold no documents that were kept."""


@dataclass(frozen=True, order=True)
class File:
    """A file of the input by its full path or URL."""

    path: str
    size: int | None
    """None where the storage does not tell."""
    version: str = ""
    """What changes when the content does, as far as the storage tells: an ETag, or the time of the last change."""


def list_files(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    extensions: Sequence[str],
    options: Mapping[str, Any] | None = None,
) -> list[File]:
    """The files that are meant, each once, sorted by path.

    A folder stands for the files below it that end in one of ``extensions``, without names that begin with ``_`` or
    ``.`` and without what an output of ours keeps beside its documents. Anything that is not there, or stands for no
    file, is a `PlanError`.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    for path in given:
        if not isinstance(path, str | os.PathLike):
            raise PlanError(f"file_paths holds {path!r}: give paths as text.")
    if not given:
        raise PlanError("file_paths is an empty list: give a file, a folder, a glob or a list of them.")
    found: dict[str, File] = {}
    for storage, group in _by_storage([os.fspath(path) for path in given], dict(options or {})):
        for file in _Listing(storage, extensions).all(group):
            found[file.path] = file
    return sorted(found.values())


def _by_storage(paths: list[str], options: dict[str, Any]) -> Iterable[tuple[Any, list[tuple[str, str]]]]:
    """(storage, [(path as given, path on it)]) for each storage among the paths."""
    from fsspec.core import url_to_fs

    groups: dict[int, tuple[Any, list[tuple[str, str]]]] = {}
    for path in paths:
        try:
            storage, inner = url_to_fs(path, **options)
        except (ValueError, ImportError) as error:
            raise PlanError(f"{path!r} cannot be read: {error}") from error
        groups.setdefault(id(storage), (storage, []))[1].append((path, inner))
    return groups.values()


class _Listing:
    """What is found on one storage."""

    def __init__(self, storage: Any, extensions: Sequence[str]) -> None:
        from fsspec.implementations.local import LocalFileSystem

        self.storage = storage
        self.extensions = tuple(extensions)
        self.is_local = isinstance(storage, LocalFileSystem)

    def all(self, paths: list[tuple[str, str]]) -> Iterable[File]:
        named: list[tuple[str, str]] = []
        for given, path in paths:
            if self._is_pattern(path) and not (self.is_local and os.path.exists(path)):
                yield from self._globbed(given, path)
            else:
                named.append((given, path))
        yield from self._named(named)

    def _is_pattern(self, path: str) -> bool:
        signs = "*" if path.startswith(("http://", "https://")) else "*?["  # of the web, "?" begins a query
        return any(sign in path for sign in signs)

    def _named(self, paths: list[tuple[str, str]]) -> Iterable[File]:
        by_folder: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for given, path in paths:
            by_folder[posixpath.dirname(path)].append((given, path))
        for folder, group in by_folder.items():
            known: dict[str, Any] = {}
            if len(group) >= LIST_FROM and not self.is_local:
                try:
                    known = {entry["name"]: entry for entry in self.storage.ls(folder, detail=True, refresh=True)}
                except FileNotFoundError:
                    pass
            for given, path in group:
                yield from self._one(given, path, known.get(path))

    def _one(self, given: str, path: str, entry: Any) -> Iterable[File]:
        if entry is None:
            self.storage.invalidate_cache()
            try:
                entry = self.storage.info(path)
            except FileNotFoundError:
                raise PlanError(f"{given!r} does not exist: there is no file and no folder of this name.") from None
            except PermissionError:
                raise PlanError(f"{given!r} may not be read: permission denied.") from None
        if entry["type"] != "directory":
            self._check_readable(given, path)
            return [self._file(entry)]
        below = self._below(path)
        if not below:
            ends = ", ".join(self.extensions)
            raise PlanError(f"the folder {given!r} holds no file to read: no name in it ends in {ends}.")
        return below

    def _globbed(self, given: str, path: str) -> Iterable[File]:
        self.storage.invalidate_cache()
        entries = list(self.storage.glob(path, detail=True).values())
        hidden = posixpath.basename(path).startswith(("_", "."))
        files: list[File] = []
        for entry in entries:
            if entry["type"] == "directory":
                files += self._below(entry["name"])
            elif hidden or not posixpath.basename(entry["name"]).startswith(("_", ".")):
                files.append(self._file(entry))
        if not files:
            raise PlanError(f"the pattern {given!r} matches no file.")
        return files

    def _below(self, folder: str) -> list[File]:
        entries = self.storage.find(folder, detail=True).values()
        inside = [(entry, entry["name"][len(folder.rstrip("/")) + 1 :].split("/")) for entry in entries]
        outputs = {tuple(parts[: parts.index("_gristmill")]) for _, parts in inside if "_gristmill" in parts[:-1]}
        return [
            self._file(entry)
            for entry, parts in inside
            if parts[-1].lower().endswith(self.extensions)
            and not any(part.startswith(("_", ".")) for part in parts)
            and not any(ASIDE.fullmatch(part) and tuple(parts[:i]) in outputs for i, part in enumerate(parts[:-1]))
        ]

    def _file(self, entry: Any) -> File:
        name = entry["name"]
        path = name if self.is_local else self.storage.unstrip_protocol(name)
        if entry.get("size") is None and not self.is_local:  # web servers list names only
            with suppress(FileNotFoundError):  # it says so when it is read
                entry = {**entry, **self.storage.info(name)}
        size = entry.get("size")
        return File(path, None if size is None else int(size), _version(entry))

    def _check_readable(self, given: str, path: str) -> None:
        if self.is_local and not os.access(path, os.R_OK):
            raise PlanError(f"{given!r} may not be read: permission denied.")


VERSIONS = (
    *("etag", "mtime", "lastmodified", "updated", "modified", "modify", "modificationtime", "contentmd5", "digest"),
    *("md5hash", "md5", "crc32c", "crc", "sha", "checksum", "contenthash", "generation", "versionid", "datetime"),
    "created",
)
"""What storages call that which changes with the content, in lower case, without "_" and "-"; the surest first."""


def _version(entry: Mapping[str, Any]) -> str:
    told = {key.lower().replace("_", "").replace("-", ""): value for key, value in entry.items()}
    return next((str(told[key]) for key in VERSIONS if told.get(key)), "")
