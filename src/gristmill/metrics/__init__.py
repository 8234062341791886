"""What a run shows of itself while it runs."""

from gristmill.metrics.view import View, view_for

__all__ = ["View", "view_for"]
