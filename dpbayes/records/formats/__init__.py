"""How records come in, and in which format data sets go out."""

from dpbayes.records.formats.reader import open_records, read_records

__all__ = ["open_records", "read_records"]
