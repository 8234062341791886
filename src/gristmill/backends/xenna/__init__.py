"""Running pipelines on Cosmos Xenna."""

from gristmill.backends.xenna.executor import XennaExecutor

__all__ = ["XennaExecutor"]
