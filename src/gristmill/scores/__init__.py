"""Read what a run has stored about its documents: scores of rules, and the documents that they belong to."""
