"""One run at a time in an output folder."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress

from gristmill.errors import OutputChanged
from gristmill.storage import Folder

LOCK = "_gristmill/lock"
_TRIES = 10
_PAUSE_S = 0.05


def locked_by_another(folder: Folder) -> OutputChanged:
    """Return the error for a folder that another run is writing to."""
    return OutputChanged(f"another run is writing to {folder.url}: wait for it, or stop it.")


class FolderLock:
    """A lock on a folder of this machine. Elsewhere, and on file systems without locks, it locks nothing."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._descriptor: int | None = None
        self._made: list[str] = []
        """Folders that were made for the lock, and its file at the end."""

    def acquire(self) -> None:
        """Lock the folder, which is made if it is missing. Raise `OutputChanged` if another run holds the lock."""
        if not self._folder.is_local:
            return
        path = self._folder.path(LOCK)
        tries = 0
        while self._descriptor is None:
            self._made += _make(os.path.dirname(path))
            if not os.path.exists(path):
                self._made.append(path)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                tries += 1
                if tries < _TRIES:  # `is_locked` holds it for a moment
                    time.sleep(_PAUSE_S)
                    continue
                self._made.clear()
                raise locked_by_another(self._folder) from None
            except OSError:
                pass  # a file system without locks
            if _is_at(descriptor, path):
                self._descriptor = descriptor
            else:  # another run was refused, and has removed the file since it was opened
                os.close(descriptor)

    def release(self) -> None:
        """Let another run write here."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        self._made.clear()

    def undo(self) -> None:
        """Release the lock and remove what was made for it: the run was refused."""
        for path in reversed(self._made):
            with suppress(OSError):  # a folder that is not empty stays
                if os.path.isdir(path):
                    os.rmdir(path)
                else:
                    os.unlink(path)
        self.release()


def _make(folder: str) -> list[str]:
    """Make a folder. Return those that were missing, the outermost first."""
    missing = []
    path = folder
    while path and not os.path.exists(path):
        missing.append(path)
        path = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    return missing[::-1]


def _is_at(descriptor: int, path: str) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    return False


def is_locked(folder: Folder) -> bool:
    """Return whether a run holds the lock of a folder, as far as the system knows. Nothing is created."""
    if not folder.is_local:
        return False
    try:
        descriptor = os.open(folder.path(LOCK), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False
