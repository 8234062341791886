"""Documents that say the same as others: found, removed, and written down."""
