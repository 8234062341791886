"""Running pipelines on one machine."""

from gristmill.backends.local.executor import LocalExecutor

__all__ = ["LocalExecutor"]
