"""The account of every document: in + made = kept + dropped + merged + errored, block by block."""
