"""The live page of a run: a small HTTP server in the driver, and the page that it serves."""
