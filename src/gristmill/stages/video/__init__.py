"""Stages for videos."""
