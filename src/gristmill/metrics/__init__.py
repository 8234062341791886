"""The live view of a run, and text that other output shares with it."""

from gristmill.metrics.view import View, view_for

__all__ = ["View", "view_for"]
