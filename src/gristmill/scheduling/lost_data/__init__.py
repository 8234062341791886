"""Data that is lost with a node: what it was made from, the work that waits for it, and how it is made again."""
