"""Confidential tables, figures and files."""
