"""How records come in, and in which format data sets go out."""

from dpbayes.formats.reader import read_records

__all__ = ["read_records"]
