"""Synthesis: fit a mechanism, with its schema and model, to records and draw a release."""
