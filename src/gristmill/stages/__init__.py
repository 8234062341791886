"""Stages, which process tasks."""
