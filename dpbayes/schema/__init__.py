"""What is public: columns, bounds and levels."""

from dpbayes.schema.columns import COLUMN_TYPES, Column, ColumnType, Schema
from dpbayes.schema.rows import Rows

__all__ = ["COLUMN_TYPES", "Column", "ColumnType", "Rows", "Schema"]
