"""Deduplication: find documents that equal others, remove them, and record why."""
