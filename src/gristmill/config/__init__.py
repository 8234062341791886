"""Pipelines as YAML: read with names, lines and near matches; written so that reading gives the same again."""
