"""What executors on other people's schedulers share: the clerk who keeps count, and how a batch of tasks is run.

Ray Data and Xenna decide what runs where. Of gristmill they get a step as a function from packed tasks to packed tasks
that never raises because of a task; what a step did is told to the clerk, and by the clerk to the driver's books.
"""
