"""Reading and writing videos."""
