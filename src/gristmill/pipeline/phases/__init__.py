"""Pipelines with barriers: split at each barrier, and run phase by phase."""
