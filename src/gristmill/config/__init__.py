"""Pipelines as YAML: read with names, lines and near matches; written so that reading gives the same again."""

from gristmill.config.dump import dump
from gristmill.config.load import ExecutorChoice, PipelineFile, import_of_file, load

__all__ = ["ExecutorChoice", "PipelineFile", "dump", "import_of_file", "load"]
