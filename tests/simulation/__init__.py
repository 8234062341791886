"""Additions to the simulator for tests and campaigns: checks during a run, random scenarios with faults, a shrinker."""
