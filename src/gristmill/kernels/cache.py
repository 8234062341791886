"""Where compiled kernels are kept."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
from functools import cache
from pathlib import Path

from gristmill.kernels import private


@cache
def cache_folder() -> Path | None:
    """Find the folder for compiled kernels; None if there is none that can be written and trusted (see `private`).

    ``$GRISTMILL_CACHE_DIR``, or ``gristmill`` in the user's cache folder, or else a folder for temporary files. In
    it there is one folder for each state of the sources and version of the compiler.
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
                print(f"gristmill: GRISTMILL_CACHE_DIR is not used: {error}", file=sys.stderr, flush=True)
    return None


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
