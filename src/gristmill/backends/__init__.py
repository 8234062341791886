"""Executors, which run a plan."""
