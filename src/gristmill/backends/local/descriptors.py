"""The limit on open files while runs last."""

from __future__ import annotations

import contextlib
import resource
import threading
from collections.abc import Iterator

_WANTED = 65536
_lock = threading.Lock()
_runs = 0
_before: tuple[int, int] | None = None


@contextlib.contextmanager
def many_descriptors() -> Iterator[None]:
    """Raise the limit to what is allowed. The last of several runs at a time restores it."""
    global _runs, _before
    with _lock:
        _runs += 1
        if _runs == 1:
            _before = _raise()
    try:
        yield
    finally:
        with _lock:
            _runs -= 1
            if not _runs and _before is not None:
                with contextlib.suppress(ValueError, OSError):
                    resource.setrlimit(resource.RLIMIT_NOFILE, _before)


def _raise() -> tuple[int, int] | None:
    """The limit that was in force if it was raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return None
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ValueError, OSError):
        return None
    return soft, hard
