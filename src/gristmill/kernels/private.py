"""Files that only this user and root can change, for code that is loaded from disk.

A folder is trusted if this user or root owns it and neither its group nor others can write to it, and if the same holds
for each folder above it. A folder above may be writable by all if it is sticky, as ``/tmp`` is: there users cannot
replace files of other users. Files are opened relative to the open folder and checked when they are open, so
that nothing can be exchanged between check and use. Anything else raises `OSError`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO must not wait for a writer.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH
_MAX_LINKS = 40
"""Symbolic links in one path, as in Linux."""


@contextlib.contextmanager
def open_folder(path: Path, create: bool = False) -> Iterator[tuple[int, Path]]:
    """Open a trusted folder. Yield its descriptor, and its path without symbolic links.

    With ``create``, missing folders are created with mode 0700 under any umask.
    """
    walk = _TrustedPath()
    try:
        walk.go(os.path.abspath(path), create)
        if walk.open_to_all:
            raise _untrusted(walk.path, "everyone can write to it")
        yield walk.fd, walk.path
    finally:
        os.close(walk.fd)


def read(path: Path) -> bytes:
    """Read a regular file in a trusted folder. It must belong to this user or root, and others must not write to it."""
    with open_folder(path.parent) as (folder, _):
        fd = os.open(path.name, _FILE, dir_fd=folder)
        with open(fd, "rb") as file:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise _untrusted(path, "it is not a regular file")
            _check(path, found)
            return file.read()


def write(path: Path, data: bytes) -> None:
    """Write a file with mode 0600 to a trusted folder, whole or not at all: others may be reading or writing it."""
    with open_folder(path.parent) as (folder, _):
        name = f".{os.urandom(8).hex()}.tmp"
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            with open(fd, "wb") as file:
                os.fchmod(fd, 0o600)
                file.write(data)
            os.replace(name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(name, dir_fd=folder)
            raise


def check_tree(folder: Path) -> None:
    """Raise `OSError` unless all files and folders in a trusted folder are trusted. Symbolic links are not."""
    with open_folder(folder):
        for place, folders, files in os.walk(folder, onerror=_raise):
            for name in (*folders, *files):
                try:
                    found = os.lstat(os.path.join(place, name))
                except FileNotFoundError:  # a temporary file of another process
                    continue
                if not stat.S_ISDIR(found.st_mode) and not stat.S_ISREG(found.st_mode):
                    raise _untrusted(Path(place, name), "it is neither a regular file nor a folder")
                _check(Path(place, name), found)


def close_tree(folder: Path) -> None:
    """Remove all rights of group and others to the contents of a folder of this user."""
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with contextlib.suppress(FileNotFoundError):  # a temporary file of another process
                os.chmod(os.path.join(place, name), 0o700 if name in folders else 0o600)


class _TrustedPath:
    """The way from the root to a folder. Each folder is checked when it is open."""

    def __init__(self) -> None:
        self.path = Path("/")
        self.fd = os.open("/", _FOLDER)
        root = os.fstat(self.fd)
        self.administrator = root.st_uid
        """The owner of the root folder: not 0 in a container in which root of the host is not mapped."""
        self.open_to_all = self._is_open(root)
        self.links = 0

    def go(self, path: str, create: bool) -> None:
        if path.startswith("/"):
            self._enter("/", Path("/"), checked=True)
        for name in path.split("/"):
            if name == "..":
                self._enter(name, self.path.parent, checked=True)
            elif name and name != ".":
                self._down(name, create)

    def _down(self, name: str, create: bool) -> None:
        try:
            found = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            if not create:
                raise
            self._make(name)
            found = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        if not stat.S_ISLNK(found.st_mode):
            self._enter(name, self.path / name)
            return
        self._check_owner(self.path / name, found)
        self.links += 1
        if self.links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(self.path / name))
        self.go(os.readlink(name, dir_fd=self.fd), create)

    def _make(self, name: str) -> None:
        with contextlib.suppress(FileExistsError):  # another process created it
            os.mkdir(name, 0o700, dir_fd=self.fd)
            os.chmod(name, 0o700, dir_fd=self.fd)

    def _enter(self, name: str, path: Path, checked: bool = False) -> None:
        """Open another folder. ``checked`` folders were passed before, so their owner is known."""
        fd = os.open(name, _FOLDER, dir_fd=self.fd)
        os.close(self.fd)
        self.fd = fd
        found = os.fstat(fd)
        if not checked:
            self._check_owner(path, found)
        self.path = path
        self.open_to_all = self._is_open(found)

    def _check_owner(self, path: Path, found: os.stat_result) -> None:
        if not self.open_to_all and found.st_uid == self.administrator:
            return
        _check_owner(path, found)

    def _is_open(self, found: os.stat_result) -> bool:
        """Return whether others can create files here. Raise an error if they can also replace files."""
        if not found.st_mode & _WRITABLE:
            return False
        if not found.st_mode & stat.S_ISVTX:
            raise _untrusted(self.path, "its group or others can write to it")
        return True


def _check(path: Path, found: os.stat_result) -> None:
    _check_owner(path, found)
    if found.st_mode & _WRITABLE:
        raise _untrusted(path, "its group or others can write to it")


def _check_owner(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in (0, os.geteuid()):
        raise _untrusted(path, f"it belongs to another user (uid {found.st_uid})")


def _untrusted(path: Path, why: str) -> OSError:
    return PermissionError(errno.EPERM, f"not trusted, {why}", str(path))


def _raise(error: OSError) -> None:
    raise error
