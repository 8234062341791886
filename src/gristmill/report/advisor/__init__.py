"""Advice on a recorded run: what limited it, with the figure that shows it, and the change to make.

Each rule is a function of the data of `report.json` that yields findings, most rules none. Rules need a run long enough
to measure: `LEAST_S`.
"""

from gristmill.report.advisor.findings import advise

__all__ = ["advise"]
