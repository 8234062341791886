"""The parts that all backends share that run the scheduler: driver, reports, worker, and the account of a run."""
