"""Answers from data: what other thresholds would do, and distributions of any documents."""
