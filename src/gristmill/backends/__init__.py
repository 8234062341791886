"""Who does the work: executors that run a plan."""
