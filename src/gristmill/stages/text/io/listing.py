"""Find the files that an input names. On this machine only regular files are read; nothing is opened here."""

from __future__ import annotations

import errno
import os
import posixpath
import re
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from gristmill.errors import PlanError
from gristmill.secrets import public_url
from gristmill.stages.text.io.compression import BY_NAME
from gristmill.stages.text.io.formats import FORMATS
from gristmill.stages.text.io.stamps import of_entry, of_stat
from gristmill.storage import local_path, plain_errors, storage_of
from gristmill.tasks import FileStamp

LIST_FROM = 8
"""If at least so many files of one folder are named, the folder is listed once, without a request for each file."""
ASIDE = re.compile(r"excluded|quarantine|duplicates(-\d+)?")
"""Folders of an output that hold no documents that were kept."""


@dataclass(frozen=True, order=True, slots=True)
class File:
    """A file of the input by its full path or URL."""

    path: str
    """Without secrets."""
    size: int | None
    """None where the storage does not report it."""
    version: str = ""
    """A value that changes with the content, as far as the storage reports one: an ETag, or the time of change."""
    name: str = field(default="", compare=False)
    """The path relative to the folder or pattern that it was found by; the bare name of a file that was given."""
    stamp: FileStamp = field(default=FileStamp(), compare=False)
    limit: int = field(default=-1, compare=False)
    """How many records are taken at most; -1: all."""
    url: str = field(default="", compare=False)
    """The URL with its secrets; empty: it has none."""

    @property
    def location(self) -> str:
        """The path or URL that opens the file."""
        return self.url or self.path


@dataclass
class Skipped:
    """Entries of one kind that are skipped."""

    count: int = 0
    first: str = ""

    def add(self, path: str) -> None:
        self.first = self.first or path
        self.count += 1


@dataclass
class Listing:
    """The files that an input names, and the entries that are skipped."""

    extensions: tuple[str, ...]
    found: dict[str, File] = field(default_factory=dict)
    added: int = 0
    """How often a file was added; one that is named twice counts twice."""
    is_of_folders: bool = True
    """Whether all files were found in folders: none was named, or matched by a pattern."""
    odd: Skipped = field(default_factory=Skipped)
    """FIFOs, sockets and devices."""
    dangling: Skipped = field(default_factory=Skipped)
    folder_links: Skipped = field(default_factory=Skipped)
    others: dict[str, Skipped] = field(default_factory=dict)
    """Files of other formats that can be read, by the name of the format."""

    @property
    def files(self) -> list[File]:
        """Each file once, sorted by path."""
        return sorted(self.found.values())

    def add(self, file: File) -> None:
        if self.found.setdefault(file.path, file).url != file.url:
            raise PlanError(
                f"several URLs of the input are {file.path} once secrets are left out (signatures, tokens, passwords), "
                "and their documents would have the same ids: name each file once, or copy the files first."
            )
        self.added += 1

    def is_wanted(self, name: str) -> bool:
        return name.lower().endswith(self.extensions)

    def note_other(self, path: str) -> None:
        """Count a file of a folder that is not wanted, if it is of another known format."""
        for kind in FORMATS.values():
            if path.lower().endswith(tuple(kind.extensions)):
                self.others.setdefault(kind.name, Skipped()).add(path)

    def nothing_in(self, folder: str) -> str:
        """Describe a folder in which no file is wanted."""
        plain = [end for end in self.extensions if not end.endswith(tuple(BY_NAME))]
        words = f"the folder {folder!r} holds no file to read: no regular file in it has a name that ends in "
        words += f"{', '.join(plain)}{'' if len(plain) == len(self.extensions) else ', plain or compressed'}."
        for skipped, kind in self._skipped():
            words += f" It holds {kind}: {skipped.count:,}; the first is {skipped.first}."
        if self.others:
            words += f" It holds {' and '.join(self.others)} files: use the reader for those."
        return words

    def _skipped(self) -> list[tuple[Skipped, str]]:
        """Entries that cannot be read, each kind in words."""
        kinds = (
            (self.odd, "FIFOs, sockets or devices"),
            (self.dangling, "links whose target does not exist"),
            (self.folder_links, "links to folders, which are read only if they are named"),
        )
        return [(skipped, words) for skipped, words in kinds if skipped.count]

    def warnings(self, reader: str) -> Iterator[str]:
        """Describe the skipped entries, a line for each kind."""
        for skipped, words in self._skipped():
            yield f"{reader} skips {words}: {skipped.count:,} in the input; the first is {skipped.first}"
        known = " and ".join(kind.name for kind in FORMATS.values())
        for kind, skipped in self.others.items():
            yield (
                f"{reader} does not read the {skipped.count:,} {kind} file{'s' * (skipped.count != 1)} in the input; "
                f"the first is {skipped.first}. DocumentReader reads {known} together"
            )


def list_files(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    extensions: Sequence[str],
    options: Mapping[str, Any] | None = None,
) -> list[File]:
    """Return the files that an input names; see `list_input`."""
    return list_input(paths, extensions, options).files


def list_input(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    extensions: Sequence[str],
    options: Mapping[str, Any] | None = None,
) -> Listing:
    """List the files that an input names.

    A folder stands for the files below it that end in one of ``extensions``, without names that begin with ``_`` or
    ``.`` and without what an output of gristmill keeps beside its documents. A path that does not exist, stands for no
    file or names something other than a regular file is a `PlanError`.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    for path in given:
        if not isinstance(path, str | os.PathLike):
            raise PlanError(f"file_paths holds {path!r}: give paths as text.")
    if not given:
        raise PlanError("file_paths is an empty list: give a file, a folder, a glob or a list of them.")
    listing = Listing(tuple(extensions))
    elsewhere: list[str] = []
    for path in given:
        one = os.fspath(path)
        check_name(one)
        local = local_path(one)
        if local is None:
            elsewhere.append(one)
        else:
            add_local(listing, one, local)
    for storage, group in _by_storage(elsewhere, dict(options or {})):
        _Remote(storage, listing).all(group)
    return listing


def check_name(path: str) -> None:
    """Raise `PlanError` for a name that cannot stand in ids and logs, or that no file can have."""
    if "\0" in path:
        raise PlanError(f"{path!r} cannot be read: the name holds a NUL character.")
    try:
        path.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path) if all(not 0xD800 <= ord(c) < 0xDC80 for c in path) else path
        raise PlanError(f"the file name {shown!r} is not valid UTF-8: rename the file or the folder.") from None


def relative_name(path: str, root: str) -> str:
    """Return a path relative to the folder it was found in, however that folder was written."""
    return path[len(root.rstrip("/")) + 1 :] if path.startswith(root.rstrip("/") + "/") else posixpath.basename(path)


def fixed_part(pattern: str) -> str:
    """Return the folder in which a pattern begins to vary."""
    first = min(pattern.find(sign) for sign in "*?[" if sign in pattern)
    return posixpath.dirname(pattern[:first])


def _by_storage(paths: list[str], options: dict[str, Any]) -> Iterable[tuple[Any, list[tuple[str, str]]]]:
    """(storage, [(path as given, path on it)]) for each storage among the paths."""
    groups: dict[int, tuple[Any, list[tuple[str, str]]]] = {}
    for path in paths:
        with plain_errors(path, options):
            storage, inner = storage_of(path, options)
        groups.setdefault(id(storage), (storage, []))[1].append((path, inner))
    return groups.values()


class _Remote:
    """Lists files of one storage that is not on this machine."""

    def __init__(self, storage: Any, listing: Listing) -> None:
        self.storage = storage
        self.listing = listing
        self.options: Mapping[str, Any] = storage.storage_options

    def all(self, paths: list[tuple[str, str]]) -> None:
        named: list[tuple[str, str]] = []
        for given, path in paths:
            if self._is_pattern(path):
                with plain_errors(given, self.options):
                    self._globbed(given, path)
            else:
                named.append((given, path))
        self._named(named)

    def _is_pattern(self, path: str) -> bool:
        signs = "*" if path.startswith(("http://", "https://")) else "*?["  # of the web, "?" begins a query
        return any(sign in path for sign in signs)

    def _named(self, paths: list[tuple[str, str]]) -> None:
        by_folder: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for given, path in paths:
            by_folder[posixpath.dirname(path)].append((given, path))
        for folder, group in by_folder.items():
            known: dict[str, Any] = {}
            with plain_errors(group[0][0], self.options):
                if len(group) >= LIST_FROM:
                    with suppress(FileNotFoundError):
                        known = {entry["name"]: entry for entry in self.storage.ls(folder, detail=True, refresh=True)}
                for given, path in group:
                    self._one(given, path, known.get(path))

    def _one(self, given: str, path: str, entry: Any) -> None:
        if entry is None:
            self.storage.invalidate_cache()
            try:
                entry = self.storage.info(path)
            except FileNotFoundError:
                raise PlanError(f"{given!r} does not exist: there is no file and no folder of this name.") from None
            except PermissionError:
                raise PlanError(f"{given!r} may not be read: permission denied.") from None
        if entry["type"] != "directory":
            self.listing.is_of_folders = False
            self._add(entry, posixpath.basename(public_url(path)))
        else:
            before = self.listing.added
            self._below(path, path)
            if self.listing.added == before:
                raise PlanError(self.listing.nothing_in(given))

    def _globbed(self, given: str, path: str) -> None:
        self.listing.is_of_folders = False
        self.storage.invalidate_cache()
        entries = list(self.storage.glob(path, detail=True).values())
        hidden = posixpath.basename(path).startswith(("_", "."))
        root, before = fixed_part(path), self.listing.added
        for entry in entries:
            if entry["type"] == "directory":
                self._below(entry["name"], root)
            elif hidden or not posixpath.basename(entry["name"]).startswith(("_", ".")):
                self._add(entry, relative_name(entry["name"], root))
        if self.listing.added == before:
            raise PlanError(f"the pattern {given!r} matches no file.")

    def _below(self, folder: str, root: str) -> None:
        entries = self.storage.find(folder, detail=True).values()
        inside = [(entry, entry["name"][len(folder.rstrip("/")) + 1 :].split("/")) for entry in entries]
        outputs = {tuple(parts[: parts.index("_gristmill")]) for _, parts in inside if "_gristmill" in parts[:-1]}
        for entry, parts in inside:
            if any(part.startswith(("_", ".")) for part in parts):
                continue
            if any(ASIDE.fullmatch(part) and tuple(parts[:i]) in outputs for i, part in enumerate(parts[:-1])):
                continue
            if self.listing.is_wanted(parts[-1]):
                self._add(entry, relative_name(entry["name"], root))
            else:
                self.listing.note_other(self.storage.unstrip_protocol(entry["name"]))

    def _add(self, entry: Any, name: str) -> None:
        url = self.storage.unstrip_protocol(entry["name"])
        path = public_url(url)
        if entry.get("size") is None:  # web servers list names only
            with suppress(FileNotFoundError):  # the reader reports it
                entry = {**entry, **self.storage.info(entry["name"])}
        stamp = of_entry(entry)
        version = stamp.marks[0][1] if stamp.marks else ""
        self.listing.add(File(path, stamp.size, version, name, stamp, url="" if url == path else url))


KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def add_local(listing: Listing, given: str, path: str) -> None:
    """Add the files that ``path`` names to a listing; ``given`` is how the user wrote it."""
    if any(sign in path for sign in "*?[") and not os.path.lexists(path):
        _add_pattern(listing, given, path)
        return
    try:
        found = os.stat(path)
    except PermissionError:
        raise PlanError(f"{given!r} may not be read: permission denied.") from None
    except (FileNotFoundError, NotADirectoryError):
        if os.path.lexists(path):
            raise PlanError(f"{given!r} is a link to {os.readlink(path)!r}, which does not exist.") from None
        raise PlanError(f"{given!r} does not exist: there is no file and no folder of this name.") from None
    except OSError as error:
        raise PlanError(f"{given!r} cannot be read: {error.strerror}.") from None
    if stat.S_ISDIR(found.st_mode):
        before = listing.added
        _add_folder(listing, path, path)
        if listing.added == before:
            raise PlanError(listing.nothing_in(given))
        return
    if not stat.S_ISREG(found.st_mode):
        kind = KINDS.get(stat.S_IFMT(found.st_mode), "no regular file")
        raise PlanError(f"{given!r} is {kind}: only regular files can be read. Write the data to a file first.")
    if not os.access(path, os.R_OK):
        raise PlanError(f"{given!r} may not be read: permission denied.")
    listing.is_of_folders = False
    _add(listing, path, found, posixpath.basename(path))


def _add_pattern(listing: Listing, given: str, pattern: str) -> None:
    from fsspec.implementations.local import LocalFileSystem

    listing.is_of_folders = False
    hidden = posixpath.basename(pattern).startswith(("_", "."))
    root, before = fixed_part(pattern), listing.added
    for path in LocalFileSystem().glob(pattern):
        if os.path.isdir(path):
            _add_folder(listing, path, root)
        elif hidden or not posixpath.basename(path).startswith(("_", ".")):
            _add_entry(listing, path, root)
    if listing.added == before:
        raise PlanError(f"the pattern {given!r} matches no file.")


def _add_folder(listing: Listing, top: str, root: str) -> None:
    """Add the files below a folder that end in what is wanted."""
    folders = [top]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as found:
                entries = [entry for entry in found if not entry.name.startswith(".")]
        except FileNotFoundError:  # it was removed since its parent was listed
            continue
        except OSError as error:
            raise PlanError(f"the folder {folder!r} cannot be listed: {error.strerror}.") from None
        is_output = any(entry.name == "_gristmill" for entry in entries)
        for entry in entries:
            if entry.name.startswith("_"):
                continue
            if entry.is_dir(follow_symlinks=False):
                if not (is_output and ASIDE.fullmatch(entry.name)):
                    folders.append(entry.path)
            elif listing.is_wanted(entry.name):
                _add_entry(listing, entry.path, root)
            elif entry.is_symlink() and entry.is_dir():
                listing.folder_links.add(entry.path)
            else:
                listing.note_other(entry.path)


def _add_entry(listing: Listing, path: str, root: str) -> None:
    """Add a file that was found, or count what cannot be read."""
    try:
        found = os.stat(path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP):
            raise PlanError(f"{path!r} cannot be read: {error.strerror}.") from None
        if os.path.islink(path):
            listing.dangling.add(path)
        return  # else it was removed since the folder was listed
    if stat.S_ISREG(found.st_mode):
        _add(listing, path, found, relative_name(path, root))
    elif stat.S_ISDIR(found.st_mode):
        listing.folder_links.add(path)
    else:
        listing.odd.add(path)


def _add(listing: Listing, path: str, found: os.stat_result, name: str) -> None:
    check_name(path)
    listing.add(File(path, found.st_size, str(found.st_mtime_ns), name, of_stat(found)))
