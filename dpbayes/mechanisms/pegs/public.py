"""Public records: where Gibbs chains may start, and which columns go together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dpbayes.formats import read_records
from dpbayes.heavy import pd
from dpbayes.mechanisms.base import Outside
from dpbayes.mechanisms.posterior.weights import check_apart
from dpbayes.schema import Schema
from dpbayes.schema.fingerprint import content_digest
from dpbayes.schema.frames import as_frame
from dpbayes.schema.overlap import Trace
from dpbayes.schema.values import level_text


@dataclass(frozen=True, eq=False, repr=False)
class PublicRecords(Outside):
    """Records that are public, or paid for elsewhere, and chosen without the confidential ones.

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

    def digest(self) -> str:
        """SHA-256 of the content, hex."""
        return content_digest(self.table).hex()

    def check_records(self, records: pd.DataFrame) -> None:
        instead = "(keys = noisy pays for its order, seeds = uniform need no records)"
        check_apart(Trace.of(_texts(self.table[list(records)])), _texts(records), instead)


def _texts(table: pd.DataFrame) -> pd.DataFrame:
    """Levels and numbers as one writes them, whichever way a file was read."""
    return pd.DataFrame({name: table[name].map(level_text).astype(object) for name in table})
