"""Measurements of runs, and the store in which later runs and the capacity planner find them."""
