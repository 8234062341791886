"""Where compiled kernels are kept."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import stat
import sys
import tempfile
from functools import cache
from pathlib import Path


@cache
def cache_folder() -> Path | None:
    """Where compiled kernels are kept; None where nothing can be written.

    ``$GRISTMILL_CACHE_DIR``, or ``gristmill`` in the user's cache folder, or else a folder for temporary files. In
    it there is one folder for each state of the sources and version of the compiler.
    """
    name = f"kernels-{_fingerprint()}"
    given = os.environ.get("GRISTMILL_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    for place in (given, os.path.join(home, "gristmill")):
        if place and _writable(Path(place) / name):
            return Path(place) / name
    shared = Path(tempfile.gettempdir()) / f"gristmill-{os.getuid()}"
    # Cached kernels are code that is run: in a folder for all, only what nobody else can write is trusted.
    if _is_private(shared) and _writable(shared / name):
        return shared / name
    return None


def write(path: Path, data: bytes) -> None:
    """Put a file in place, whole or not at all: others may be reading or writing it."""
    handle, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except (OSError, ValueError):
        return False


def _is_private(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _fingerprint() -> str:
    digest = hashlib.sha256(sys.version.encode())
    for path in (*sorted(Path(__file__).parent.glob("*.py")), *_versions()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _versions() -> list[Path]:
    """The files that name the versions of the compiler: to import it takes longer than all else."""
    found = []
    for name in ("numba", "llvmlite"):
        spec = importlib.util.find_spec(name)
        for folder in spec.submodule_search_locations or () if spec is not None else ():
            found.append(Path(folder) / "_version.py")
    return [path for path in found if path.is_file()]
