"""Public records: where Gibbs chains may start, and which columns go together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dpbayes.core.frames import as_frame
from dpbayes.core.lazy import pd
from dpbayes.mechanisms.base import ReferenceData
from dpbayes.mechanisms.posterior.weights import check_disjoint
from dpbayes.records.formats import read_records
from dpbayes.records.overlap import TableSketch
from dpbayes.schema import Schema
from dpbayes.schema.values import level_text


@dataclass(frozen=True, eq=False, repr=False)
class PublicRecords(ReferenceData):
    """Records that are public, and chosen without the confidential ones.

    Statistics of them are used as they are, and rows of them start chains: no ε covers them.

    Attributes:
        table: rows with every column of the schema.
    """

    table: pd.DataFrame

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", as_frame(self.table))

    @classmethod
    def load(cls, path: str | Path) -> PublicRecords:
        """From a file, as ``read_records``. DataError if it cannot be read."""
        return cls(read_records(path))

    def validated(self, schema: Schema) -> pd.DataFrame:
        """Declared columns, typed. DataError unless they fit the schema, and there are some."""
        return Schema(schema.columns).validate(self.table)

    def check_records(self, records: pd.DataFrame) -> None:
        instead = "(keys = noisy pays for its order, seeds = uniform need no records)"
        check_disjoint(TableSketch.of(_texts(self.table[list(records)])), _texts(records), instead)


def _texts(table: pd.DataFrame) -> pd.DataFrame:
    """Levels and numbers as one writes them, whichever way a file was read."""
    return pd.DataFrame({name: table[name].map(level_text).astype(object) for name in table})
