"""How kernels are compiled: once, for one signature each, into a cache of our own.

A kernel is called by its name, ``module.function``. What is in the cache as object code is loaded without its module,
and so without Numba, which the modules of kernels import.
"""

from __future__ import annotations

import contextlib
import importlib
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gristmill.kernels import native, private
from gristmill.kernels.cache import cache_folder

SECONDS_EACH = 1.2
"""What compiling one kernel takes, about; said to the user, used for nothing else."""

BYTES = "Array(uint8, 1, 'C', readonly=True)"
INTS = "Array(int64, 1, 'C', readonly=True)"
HASHES = "Array(uint64, 1, 'C', readonly=True)"
LENGTHS = "Array(uint32, 1, 'C', readonly=True)"
STAGE_1 = "Array(uint8, 1, 'C', readonly=True)"
CLASSES = "Array(uint16, 1, 'C', readonly=True)"
BYTES_OUT = "Array(uint8, 1, 'C')"
INTS_OUT = "Array(int64, 1, 'C')"
HASHES_OUT = "Array(uint64, 1, 'C')"
LENGTHS_OUT = "Array(uint32, 1, 'C')"
TABLE_OUT = "Array(int64, 2, 'C')"

_lock = threading.RLock()

# What reading a cache entry that is damaged, or writing to a full disk, can raise.
_TROUBLE = (OSError, EOFError, RuntimeError, ValueError, KeyError, IndexError, AttributeError, TypeError, ImportError)


@dataclass(frozen=True)
class Source:
    """A function in the part of Python that Numba compiles, and the types of its arguments.

    It runs without the GIL and without bounds checks, in one thread. One that allocates nothing, takes arrays and
    numbers and gives an integer or nothing becomes object code; any other is left to Numba.
    """

    function: Callable[..., Any]
    arguments: tuple[str, ...]


class Kernel:
    """A kernel by its name. It is loaded from the cache, or compiled, when it is first called."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._compiled: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        return (self._compiled or self.load())(*arguments)

    def load(self) -> Callable[..., Any]:
        """The compiled function. A cache that cannot be used costs time, never an error."""
        with _lock:
            if self._compiled is None:
                folder = cache_folder()
                with contextlib.suppress(*_TROUBLE):
                    self._compiled = self._native(folder)
                if self._compiled is None and folder is not None:
                    # what is wrong with the function itself is raised again below
                    with contextlib.suppress(*_TROUBLE, pickle.UnpicklingError):
                        self._compiled = self._by_numba(folder)
                if self._compiled is None:
                    self._compiled = self._by_numba(None)
            return self._compiled

    def is_cached(self) -> bool:
        """Return whether it is loaded, or seems to be in the cache."""
        if self._compiled is not None:
            return True
        folder = cache_folder()
        if folder is None:
            return False
        try:
            private.read(self._path(folder))
        except OSError:
            return False
        return True

    def source(self) -> Source:
        module, _, name = self.name.partition(".")
        found: Source = getattr(importlib.import_module(f"gristmill.kernels.{module}"), name)
        return found

    def _path(self, folder: Path) -> Path:
        return folder / f"{self.name}-{native.machine()}.kernel"

    def _native(self, folder: Path | None) -> Callable[..., Any] | None:
        """The kernel as object code; None if it cannot be had so, which the cache remembers."""
        if folder is not None:
            with contextlib.suppress(*_TROUBLE):
                return native.load(private.read(self._path(folder)))
        source = self.source()
        data = native.NONE
        with contextlib.suppress(*_TROUBLE):
            data = native.compile_(source.function, source.arguments)
        if folder is not None:
            with contextlib.suppress(OSError):
                private.write(self._path(folder), data)
        return native.load(data)

    def _by_numba(self, folder: Path | None) -> Callable[..., Any]:
        import numba

        source = self.source()
        options: dict[str, Any] = {"nogil": True, "cache": folder is not None}
        with _numba_cache(folder):
            compiled: Callable[..., Any] = numba.njit([signature(source.arguments)], **options)(source.function)
        return compiled


def signature(arguments: Sequence[str]) -> str:
    return f"({', '.join(arguments)},)"


def kernel(*arguments: str) -> Callable[[Callable[..., Any]], Source]:
    """Make a function a kernel that takes arguments of these types, and no others."""
    return lambda function: Source(function, arguments)


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


@contextlib.contextmanager
def _numba_cache(folder: Path | None) -> Iterator[None]:
    """Numba's cache folder for functions defined meanwhile; those of others keep theirs.

    Numba unpickles what it finds there, so all of it is checked first. It makes files by the umask, so the folder
    that holds them is closed to others before, and they are closed after.
    """
    from numba.core import config as numba_config

    config: Any = numba_config
    before = config.CACHE_DIR
    if folder is None:
        yield
        return
    with private.open_folder(folder / "numba", create=True) as (_, own):
        private.check_tree(own)
    config.CACHE_DIR = str(own)
    try:
        yield
    finally:
        config.CACHE_DIR = before
        private.close_tree(own)
