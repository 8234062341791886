"""Pipelines as YAML: read with names, lines and near matches; written so that reading gives the same again."""

from gristmill.config.dump import dump
from gristmill.config.load import ExecutorChoice, PipelineFile, load

__all__ = ["ExecutorChoice", "PipelineFile", "dump", "load"]
