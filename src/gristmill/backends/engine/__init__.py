"""What every backend shares that plays the scheduler: driver, reports, worker, and the account of a run."""
