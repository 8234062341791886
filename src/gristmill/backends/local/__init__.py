"""Running pipelines on one machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gristmill.backends.local.executor import LocalExecutor

__all__ = ["LocalExecutor"]


def __getattr__(name: str) -> Any:
    # Worker processes import modules of this package too, and have no use for the scheduler.
    if name == "LocalExecutor":
        from gristmill.backends.local.executor import LocalExecutor

        return LocalExecutor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
