"""Pipelines as YAML. Errors name the line and a near match; a pipeline that is written reads as the same pipeline."""
