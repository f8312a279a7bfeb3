"""Confidential records: reading, recognising and comparing them."""
