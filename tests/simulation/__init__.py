"""What tests and campaigns add to the simulator: checks during a run, random scenarios with faults, and a shrinker."""
