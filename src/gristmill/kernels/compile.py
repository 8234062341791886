"""Compile each kernel once, for one signature, into a cache of our own.

A kernel is called by its name, ``module.function``. If the cache has its object code, neither the kernel's module nor
Numba is imported.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import os
import pickle
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gristmill.kernels import native, private
from gristmill.kernels.native import Signature, numba_types, parse_signature
from gristmill.logs import logger

SECONDS_EACH = 1.2
"""About the time to compile one kernel. Used only in a message."""

_lock = threading.RLock()

# What reading a damaged cache entry, or writing to a full disk, can raise.
_CACHE_ERRORS = (
    *(OSError, EOFError, RuntimeError, ValueError, KeyError, IndexError, AttributeError, TypeError, ImportError),
)


@dataclass(frozen=True)
class KernelSource:
    """A function in the part of Python that Numba compiles, and the types of its arguments.

    It runs without the GIL and without bounds checks, in one thread. A function that allocates nothing, takes arrays
    and numbers and returns an integer or nothing becomes object code. Numba itself loads any other.
    """

    function: Callable[..., Any]
    signature: Signature


class Kernel:
    """A kernel by its name. The first call loads it from the cache or compiles it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._compiled: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        return (self._compiled or self.load())(*arguments)

    def load(self) -> Callable[..., Any]:
        """Return the compiled function. An unusable cache costs time and never raises an error."""
        with _lock:
            if self._compiled is None:
                folder = cache_folder()
                with contextlib.suppress(*_CACHE_ERRORS):
                    self._compiled = self._native(folder)
                if self._compiled is None and folder is not None:
                    # An error of the function itself is raised again below.
                    with contextlib.suppress(*_CACHE_ERRORS, pickle.UnpicklingError):
                        self._compiled = self._by_numba(folder)
                if self._compiled is None:
                    self._compiled = self._by_numba(None)
            return self._compiled

    def is_cached(self) -> bool:
        """Return whether the kernel is loaded, or seems to be in the cache."""
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

    def source(self) -> KernelSource:
        module, _, name = self.name.partition(".")
        found: KernelSource = vars(importlib.import_module(f"gristmill.kernels.{module}"))[name]
        return found

    def _path(self, folder: Path) -> Path:
        return folder / f"{self.name}-{native.machine()}.kernel"

    def _native(self, folder: Path | None) -> Callable[..., Any] | None:
        """Return the kernel as object code. None if that is impossible; the cache then has an empty entry."""
        if folder is not None:
            with contextlib.suppress(*_CACHE_ERRORS):
                return native.load(private.read(self._path(folder)))
        source = self.source()
        data = native.NONE
        with contextlib.suppress(*_CACHE_ERRORS):
            data = native.compile_(source.function, source.signature)
        if folder is not None:
            with contextlib.suppress(OSError):
                private.write(self._path(folder), data)
        return native.load(data)

    def _by_numba(self, folder: Path | None) -> Callable[..., Any]:
        import numba

        source = self.source()
        options: dict[str, Any] = {"nogil": True, "cache": folder is not None}
        with _numba_cache(folder):
            compiled: Callable[..., Any] = numba.njit([numba_types(source.signature)], **options)(source.function)
        return compiled


def kernel(signature: str) -> Callable[[Callable[..., Any]], KernelSource]:
    """Make a function a kernel that takes arguments of these types only: ``@kernel("texts int64 out_ints")``.

    The words are those of `native.TYPES` and `native.GROUPS`. Words in parentheses are a tuple.
    """
    return lambda function: KernelSource(function, parse_signature(signature))


def helper(function: Callable[..., Any]) -> Any:
    """Make a function that kernels can call. It is compiled into each of them."""
    import numba

    # Without a wrapper for calls from Python it compiles in half the time.
    options: dict[str, Any] = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return numba.njit(**options)(function)


def preload(kernels: Sequence[Kernel]) -> None:
    """Load kernels before they are used, for example in a process from which others are forked.

    Kernels that the cache does not have are compiled. That takes a while, so a message is logged.
    """
    missing = [one for one in kernels if not one.is_cached()]
    if missing:
        seconds = max(1, round(len(missing) * SECONDS_EACH))
        logger.info("compiling kernels, once: about %d s", seconds)
    for one in kernels:
        one.load()


@contextlib.contextmanager
def _numba_cache(folder: Path | None) -> Iterator[None]:
    """Set Numba's cache folder for functions that are defined meanwhile. Functions of others keep theirs.

    Numba unpickles what it finds there, so all of it is checked first. Numba creates files by the umask, so the folder
    around them is closed to others before, and the files are closed afterwards.
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


@cache
def cache_folder() -> Path | None:
    """Return the folder for compiled kernels. None if no folder can be written and trusted (see `private`).

    The places tried are ``$GRISTMILL_CACHE_DIR``, ``gristmill`` in the user's cache folder and a folder for temporary
    files. Each state of the sources and each version of the compiler has a folder of its own there.
    """
    given = os.environ.get("GRISTMILL_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    name = f"kernels-{_fingerprint()}"
    for place in (given, os.path.join(home, "gristmill"), f"{tempfile.gettempdir()}/gristmill-{os.geteuid()}"):
        if not place:
            continue
        try:
            with private.open_folder(Path(place) / name, create=True) as (fd, path):
                if os.access(".", os.W_OK | os.X_OK, dir_fd=fd):
                    return path
        except (OSError, ValueError) as error:
            if place == given:
                logger.warning("GRISTMILL_CACHE_DIR is not used: %s", error)
    return None


def _fingerprint() -> str:
    """Hash the sources of the kernels and the files that name the versions of the compiler.

    The compiler is not imported for its version: that takes longer than everything else here.
    """
    digest = hashlib.sha256(sys.version.encode())
    files = sorted(Path(__file__).parent.glob("*.py"))
    for name in ("numba", "llvmlite"):
        spec = importlib.util.find_spec(name)
        folders = spec.submodule_search_locations if spec is not None else None
        files += [path for folder in folders or () if (path := Path(folder) / "_version.py").is_file()]
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
