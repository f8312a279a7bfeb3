"""Public description of a table: its columns, their bounds and levels, rules and row count."""

from dpbayes.schema.columns import COLUMN_TYPES, Column, ColumnType
from dpbayes.schema.households import Household
from dpbayes.schema.panels import Panel
from dpbayes.schema.rows import Rows
from dpbayes.schema.survey import Survey
from dpbayes.schema.table import Schema

__all__ = ["COLUMN_TYPES", "Column", "ColumnType", "Household", "Panel", "Rows", "Schema", "Survey"]
