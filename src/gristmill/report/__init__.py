"""The report of a run: what was recorded, what the output shows, advice, and one HTML page of all three.

Everything here reads plain values (`report.json`) and files of the output. No code of the pipeline runs.
"""
