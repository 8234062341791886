"""Finding and removing documents that say the same."""
