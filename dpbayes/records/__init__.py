"""Confidential records: reading files, recognising data sets, and comparing tables."""
