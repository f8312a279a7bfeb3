"""A local page on which settings are tried on reference records, before any budget is spent."""
