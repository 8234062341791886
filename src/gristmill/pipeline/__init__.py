"""Pipelines: lists of stages, planned and run."""

from gristmill.pipeline.pipeline import Pipeline
from gristmill.pipeline.result import RunResult

__all__ = ["Pipeline", "RunResult"]
