"""Answers from what a run has stored: its scores, its dropped documents, and the documents themselves."""
