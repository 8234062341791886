"""The report as one HTML page: no script but for printing, no external resource, all text escaped."""
