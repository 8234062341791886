"""Folders with atomic writes, on this machine or any storage of fsspec."""

from __future__ import annotations

import errno
import os
import posixpath
import re
import shutil
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Any

from gristmill.errors import PlanError, out_of_space
from gristmill.secrets import public_url

TEMPORARY = ".tmp-"
"""The start of the names of unfinished files. Readers skip them. The run that made them removes them at its end."""

AT_ONCE_BYTES = 256 << 10
"""The size of a write. Larger ones were up to ten times slower on systems that keep files in large pages."""


_LOCAL = re.compile(r"(file|local)://|file:(?=/)")


def local_path(url: str) -> str | None:
    """Return the path on this machine that ``url`` names, or None if it names another storage.

    A path may contain any characters. Only text with a protocol (``s3://``) is a URL, and only URLs can be chained
    with ``::``.
    """
    prefix = _LOCAL.match(url)
    if prefix is not None and not ("::" in url and "://" in url[prefix.end() :]):
        url = url[prefix.end() :]
    elif "://" in url and not url.startswith(("/", "./", "../", "~")):
        return None
    if url.startswith("/"):
        return url
    return os.path.abspath(url if os.path.lexists(url) else os.path.expanduser(url))


def storage_of(url: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """Return the fsspec storage of a URL or path, and the path on it."""
    local = local_path(url)
    if local is not None:
        from fsspec.implementations.local import LocalFileSystem

        return LocalFileSystem(), local
    from fsspec.core import url_to_fs

    if "::" not in url or _is_chain(url):
        storage, path = url_to_fs(url, **options)
        return storage, path
    from fsspec import filesystem, get_filesystem_class

    protocol = url.partition("://")[0]
    kind = get_filesystem_class(protocol)
    return filesystem(protocol, **{**kind._get_kwargs_from_urls(url), **options}), kind._strip_protocol(url)


def _is_chain(url: str) -> bool:
    """Whether a URL is a chain of storages; if not, its ``::`` belongs to the name of an object."""
    first, *_, last = url.split("::")
    return "://" not in first or "://" in last or first.partition("://")[0] in ARCHIVES


_UNKNOWN = re.compile(r"unexpected keyword argument '(\w+)'")


@contextmanager
def plain_errors(path: str, options: Mapping[str, Any], verb: str = "read") -> Iterator[None]:
    """Turn the errors of a storage at its first use into a `PlanError` that names the wrong option."""
    try:
        yield
    except PlanError:
        raise
    except PermissionError:
        raise PlanError(f"{path!r} may not be {verb}: permission denied.") from None
    except Exception as error:  # each storage has exceptions of its own
        reason = f"{type(error).__name__}: {error}"
        unknown = _UNKNOWN.search(str(error))
        if unknown is not None:
            names = ", ".join(sorted(map(str, options))) or "none"
            reason = f"its storage has no option {unknown[1]!r}. The storage_options given are: {names}"
        raise PlanError(f"{path!r} cannot be {verb}: {reason}") from None  # its cause may contain secrets


ARCHIVES = ("zip", "tar", "libarchive")
"""Storages in files: the last part of such a chain may be a local path."""


def http_status(error: BaseException) -> int | None:
    """The status that a web server answered with, by the error of whatever client asked it; None if there is none."""
    status = vars(error).get("status")
    return status if isinstance(status, int) and status >= 400 else None


def checksum(data: Any, before: str = "") -> str:
    """Return the CRC-32 of bytes as 8 hexadecimal digits. ``before`` is the checksum of the bytes before them.

    CRC-32 finds damage, not forgery. It is part of Python and runs at 2 to 4 GB/s on one core: about 2 % of the CPU
    time of the text benchmark. BLAKE2b, at 0.3 to 0.8 GB/s, would take about 10 %.
    """
    with memoryview(data) as view, view.cast("B") as content:
        return _digits(zlib.crc32(content, int(before or "0", 16)))


def _digits(crc: int) -> str:
    return f"{crc:08x}"


class Folder:
    """A folder by path or URL.

    ``write`` is atomic: on disk by a temporary file that is renamed, elsewhere by an upload that completes or stays
    invisible. Names are relative and may contain slashes. Missing folders are created. ``mark`` is part of the names of
    temporary files, so that a run recognizes its own.
    """

    def __init__(self, path: str | os.PathLike[str], options: Mapping[str, Any] | None = None, mark: str = "") -> None:
        self.url = os.fspath(path)
        self.options = dict(options or {})
        self.mark = mark
        self._made = -1
        self._fs: Any = None
        if "\0" in self.url:
            raise PlanError(f"the folder {self.url!r} cannot be used: its name holds a NUL character.")
        local = local_path(self.url)
        self.is_local = local is not None
        if local is not None:
            self.root: str = local.rstrip("/") or "/"
        else:
            with plain_errors(self.url, self.options, "used"):
                self._find()

    def _find(self) -> None:
        self._fs, root = storage_of(self.url, self.options)
        self._made = os.getpid()
        self.root = root.rstrip("/") or "/"

    def check(self) -> None:
        """Raise `PlanError` if the storage cannot be used: an option may be wrong, or it may not exist."""
        if not self.is_local:
            with plain_errors(self.url, self.options, "used"):
                self.exists()

    @property
    def fs(self) -> Any:
        """The storage. It does not survive a fork, so each process opens it again."""
        if self._made != os.getpid():
            self._find()
        return self._fs

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.url, self.options, self.mark)

    def sub(self, name: str) -> Folder:
        """Return a folder within this one, with the same storage options and mark."""
        return Folder(f"{self.url.rstrip('/')}/{name}", self.options, self.mark)

    def __repr__(self) -> str:
        return f"Folder({self.name!r})"

    @property
    def name(self) -> str:
        """The folder's path or URL without secrets: for records and messages."""
        return public_url(self.url)

    def path(self, name: str = "") -> str:
        return posixpath.join(self.root, name) if name else self.root

    def full_path(self, name: str = "") -> str:
        """Return the path by which others can open a file, with its protocol if it is not on this machine."""
        path = self.path(name)
        return path if self.is_local else str(self.fs.unstrip_protocol(path))

    def path_of(self, url: str) -> str:
        """Return the path on this folder's storage that a path or URL names."""
        local = local_path(url) if self.is_local else None
        return local if local is not None else str(self.fs._strip_protocol(url))

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading."""
        path = self.path(name)
        file: IO[bytes] = open(path, "rb") if self.is_local else self.fs.open(path, "rb")  # noqa: SIM115  # by the caller
        return file

    def write(self, name: str, data: Any, durable: bool = False) -> str:
        """Put a file in place, or replace it, and return its `checksum`.

        A ``durable`` file survives a power failure once this returns. The checksum is computed part by part as the
        file is written, while each part is in the processor's cache.
        """
        path = self.path(name)
        if not self.is_local:
            self.fs.pipe_file(path, bytes(data))  # uploads take no other objects with bytes
            return checksum(data)
        parent, base = os.path.split(path)
        mark = f"{self.mark}-" if self.mark else ""
        temporary = os.path.join(parent, f"{TEMPORARY}{mark}{base}-{uuid.uuid4().hex[:8]}")
        try:
            try:
                file = open(temporary, "wb", buffering=0)  # noqa: SIM115  # opened again where the folder is missing
            except FileNotFoundError:
                os.makedirs(parent, exist_ok=True)
                file = open(temporary, "wb", buffering=0)  # noqa: SIM115  # as above
            with file, memoryview(data) as view, view.cast("B") as content:
                at = crc = 0
                while at < len(content):
                    part = content[at : at + AT_ONCE_BYTES]
                    written = file.write(part)
                    crc = zlib.crc32(part[:written], crc)
                    at += written
                if durable:
                    os.fsync(file.fileno())
            os.replace(temporary, path)
            if durable:
                _sync_folder(parent)
            return _digits(crc)
        except BaseException as error:
            if os.path.exists(temporary):
                os.unlink(temporary)
            if isinstance(error, OSError) and (full := out_of_space(path, error)) is not None:
                raise full from None
            raise

    def sync(self, names: Iterable[str]) -> None:
        """Make files durable, with the folders that they are in. Files that do not exist are skipped.

        Object stores confirm an upload only when it is durable, so nothing is done there.
        """
        if not self.is_local:
            return
        paths = [self.path(name) for name in names]
        for path in paths:
            with suppress(FileNotFoundError):
                _sync(path)
        for parent in dict.fromkeys(os.path.dirname(path) for path in paths):
            with suppress(FileNotFoundError):
                _sync_folder(parent)

    def read(self, name: str) -> bytes:
        """Return the content of a file. Raise `FileNotFoundError` if there is none."""
        if self.is_local:
            with open(self.path(name), "rb") as file:
                return file.read()
        self.fs.invalidate_cache()  # others write here too
        data: bytes = self.fs.cat_file(self.path(name))
        return data

    def exists(self, name: str = "") -> bool:
        if self.is_local:
            return os.path.exists(self.path(name))
        self.fs.invalidate_cache()
        return bool(self.fs.exists(self.path(name)))

    def names(self, folder: str = "", unfinished: bool = False) -> list[str]:
        """Return the names of files directly in a folder within this one, sorted; with ``unfinished`` also of those."""
        return sorted(name for name in self.sizes(folder) if unfinished or not name.startswith(TEMPORARY))

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return the size of each file directly in a folder within this one, by name."""
        try:
            if self.is_local:
                return _local_sizes(self.path(folder))
            found = self.fs.ls(self.path(folder), detail=True, refresh=True)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        files = {posixpath.basename(x["name"].rstrip("/")): int(x["size"] or 0) for x in found if x["type"] == "file"}
        files.pop("", None)
        return files

    def remove_empty(self, *names: str) -> None:
        """Remove empty folders within this one. Others stay; object stores have no folders."""
        for name in names if self.is_local else ():
            with suppress(OSError):  # it does not exist, or is not empty
                os.rmdir(self.path(name))

    def remove(self, name: str = "") -> None:
        """Remove a file, or a folder with its contents. No error if there is none."""
        path = self.path(name)
        try:
            if not self.is_local:
                self.fs.rm(path, recursive=True)
            elif os.path.isdir(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
        except FileNotFoundError:
            pass


def _sync_folder(path: str) -> None:
    """Write a folder's list of names to the disk, if the file system can: some network file systems cannot.

    A folder may also be writable and not readable.
    """
    try:
        _sync(path)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EACCES):
            raise


def _sync(path: str) -> None:
    """Write the cached data of a file, or of a folder's list of names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _local_sizes(folder: str) -> dict[str, int]:
    found = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # it was removed or renamed since it was listed
                if entry.is_file():
                    found[entry.name] = entry.stat().st_size
    return found
