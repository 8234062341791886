"""The parts that executors on other schedulers share: the collector, which counts each result once, and running a unit.

Ray Data and Xenna decide what runs where. They see a step as a function from packed tasks to packed tasks that never
raises because of a task. Workers report to the collector, and the driver copies its updates into the run's accounts.
"""
