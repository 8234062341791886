"""Workflows: whole runs over files, made of pipelines."""
