"""How kernels are compiled: once, for one signature each, into a cache of our own.

A module of kernels is imported only when one of them is wanted: importing it loads Numba.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

SECONDS_EACH = 1.2
"""What compiling one kernel takes, about; said to the user, used for nothing else."""

BYTES = "Array(uint8, 1, 'C', readonly=True)"
INTS = "Array(int64, 1, 'C', readonly=True)"
HASHES = "Array(uint64, 1, 'C', readonly=True)"
LENGTHS = "Array(uint32, 1, 'C', readonly=True)"
STAGE_1 = "Array(uint8, 1, 'C', readonly=True)"
CLASSES = "Array(uint16, 1, 'C', readonly=True)"

_lock = threading.RLock()

# What reading a cache entry that is damaged, or writing to a full disk, can raise.
_CACHE_TROUBLE = (OSError, EOFError, RuntimeError, ValueError, KeyError, IndexError, AttributeError, TypeError)


class Kernel:
    """A function that is compiled, or loaded from the cache, when it is first called.

    It runs without the GIL and without bounds checks, in one thread.
    """

    def __init__(self, function: Callable[..., Any], arguments: Sequence[str]) -> None:
        self.function = function
        self.arguments = tuple(arguments)
        self._compiled: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        return (self._compiled or self.load())(*arguments)

    @property
    def name(self) -> str:
        return f"{self.function.__module__.rpartition('.')[2]}.{self.function.__qualname__}"

    def load(self) -> Callable[..., Any]:
        """The compiled function. A cache that cannot be used costs time, never an error."""
        with _lock:
            if self._compiled is None:
                folder = cache_folder()
                if folder is not None:
                    try:
                        self._compiled = self._compile(folder)
                    except (*_CACHE_TROUBLE, pickle.UnpicklingError):
                        pass  # what is wrong with the function itself is raised again below
                if self._compiled is None:
                    self._compiled = self._compile(None)
            return self._compiled

    def is_cached(self) -> bool:
        """Whether it is loaded, or seems to be in the cache."""
        folder = cache_folder()
        return self._compiled is not None or (
            folder is not None and any(folder.rglob(f"{self.name}-*.nbi"))  # the names of Numba's index files
        )

    def _compile(self, folder: Path | None) -> Callable[..., Any]:
        import numba

        signature = f"({', '.join(self.arguments)},)"
        with _numba_cache(folder):
            compiled: Callable[..., Any] = numba.njit([signature], nogil=True, cache=folder is not None)(self.function)
        return compiled


def kernel(*arguments: str) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a function a kernel that takes arguments of these types, and no others."""
    return lambda function: Kernel(function, arguments)


def helper(function: Callable[..., Any]) -> Any:
    """Make a function callable from kernels, into which it is compiled."""
    import numba

    # Nobody calls it from Python: without a wrapper for that it is compiled in half the time.
    options: dict[str, Any] = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return numba.njit(**options)(function)


def preload(kernels: Sequence[Kernel]) -> None:
    """Load kernels before they are needed, in a process from which others are forked, say.

    Those that are not in the cache are compiled, which takes a while and is said on stderr.
    """
    missing = [one for one in kernels if not one.is_cached()]
    if missing:
        seconds = max(1, round(len(missing) * SECONDS_EACH))
        print(f"gristmill: compiling kernels, once: about {seconds} s", file=sys.stderr, flush=True)
    for one in kernels:
        one.load()


@cache
def cache_folder() -> Path | None:
    """Where compiled kernels are kept; None where nothing can be written.

    ``$GRISTMILL_CACHE_DIR``, or ``gristmill`` in the user's cache folder, or else a folder for temporary files. In
    it there is one folder for each state of the sources: Numba notices a changed function, but not a changed helper.
    """
    name = f"kernels-{_fingerprint()}"
    given = os.environ.get("GRISTMILL_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    for place in (given, os.path.join(home, "gristmill")):
        if place and _writable(Path(place) / name):
            return Path(place) / name
    shared = Path(tempfile.gettempdir()) / f"gristmill-{os.getuid()}"
    # Cached kernels are code that is run: in a folder for all, only what nobody else can write is trusted.
    if _writable(shared / name) and _is_private(shared):
        return shared / name
    return None


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except (OSError, ValueError):
        return False


def _is_private(folder: Path) -> bool:
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _fingerprint() -> str:
    import numba

    digest = hashlib.sha256(f"{numba.__version__} {sys.version}".encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def _numba_cache(folder: Path | None) -> Iterator[None]:
    """Numba's cache folder for functions defined meanwhile; those of others keep theirs."""
    from numba.core import config as numba_config

    config: Any = numba_config
    before = config.CACHE_DIR
    config.CACHE_DIR = str(folder) if folder is not None else before
    try:
        yield
    finally:
        config.CACHE_DIR = before
