"""Public records, from which Gibbs chains may start and keys may be chosen."""

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
    """Public records, which were chosen without looking at the confidential ones.

    Their statistics are used without noise, and their rows start chains: ε does not protect them.

    Attributes:
        table: rows with every column of the schema.

    Examples:
        >>> import dpbayes as dpb
        >>> import pandas as pd
        >>> schema = dpb.Schema({"smoker": dpb.Column("smoker", "binary", levels=("no", "yes"))})
        >>> public = dpb.PublicRecords(pd.DataFrame({"smoker": ["no", "yes", "no"]}))
        >>> mechanism = dpb.Pegs(epsilon=1, keys="reference", reference=public)
        >>> mechanism.claim(schema).epsilon
        1.0
    """

    table: pd.DataFrame

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", as_frame(self.table))

    @classmethod
    def load(cls, path: str | Path) -> PublicRecords:
        """Read public records from a file with ``read_records``; DataError if that fails."""
        return cls(read_records(path))

    def validated(self, schema: Schema) -> pd.DataFrame:
        """Typed declared columns; DataError if there are no rows or they do not fit the schema."""
        return Schema(schema.columns).validate(self.table)

    def check_records(self, records: pd.DataFrame) -> None:
        instead = "(keys = noisy pays for its order, seeds = uniform need no records)"
        check_disjoint(TableSketch.of(_texts(self.table[list(records)])), _texts(records), instead)


def _texts(table: pd.DataFrame) -> pd.DataFrame:
    """Levels and numbers as text, independent of the types with which a file was read."""
    return pd.DataFrame({name: table[name].map(level_text).astype(object) for name in table})
