"""The folder for compiled kernels."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
from functools import cache
from pathlib import Path

from gristmill.kernels import private
from gristmill.logs import logger


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
