"""File formats of records and of synthetic data sets, and access to databases."""

from dpbayes.records.formats.reader import open_records, read_records

__all__ = ["open_records", "read_records"]
