"""What is public: columns, bounds and levels, and how records are read."""

from dpbayes.schema.columns import COLUMN_TYPES, Column, ColumnType
from dpbayes.schema.readers import read_records
from dpbayes.schema.rows import Rows
from dpbayes.schema.table import Schema

__all__ = ["COLUMN_TYPES", "Column", "ColumnType", "Rows", "Schema", "read_records"]
