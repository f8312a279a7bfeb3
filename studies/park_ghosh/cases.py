"""Tables in the study of Park & Ghosh, and the columns that it uses in each.

Real tables are read from installed packages and are not shipped. All columns hold level numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpbayes.core.lazy import pd
from dpbayes.schema import Schema
from studies.park_ghosh import discharges, real

RECORDS, PUBLIC = 20_000, 5000  # numbers of simulated discharges
SHARE_PUBLIC = 0.2  # share of a real table that counts as public
Term = tuple[str, str, int | None]  # name, column, and the level it is an indicator of
Split = tuple[pd.DataFrame, pd.DataFrame]


@dataclass(frozen=True)
class Case:
    """A table, and the columns that take the roles of those in the paper.

    Attributes:
        what: short description.
        sizes: number of levels by column; public, as in an agency's code book.
        split: draws confidential records, and public ones of the same kind for order and seeds.
        given: columns that distributions are conditional on; the paper's age and ZIP area.
        sensitive: column that an intruder guesses, and the keys that it uses.
        number: numeric column that an intruder guesses by means, and the keys that it uses.
        shown: columns of the histograms.
        high: column of the logistic regression, and the first level that counts as high.
        outcome: column of the linear regression.
        terms: terms of both regressions.
    """

    what: str
    sizes: dict[str, int]
    split: Callable[[np.random.Generator], Split]
    given: tuple[str, str]
    sensitive: tuple[str, tuple[str, ...]]
    number: tuple[str, tuple[str, ...]]
    shown: tuple[str, str]
    high: tuple[str, int]
    outcome: str
    terms: tuple[Term, ...]

    @property
    def schema(self) -> Schema:
        """Schema with all columns as ordered levels."""
        columns = {
            name: {"type": "ordinal", "levels": list(range(size))}
            for name, size in self.sizes.items()
        }
        return Schema.from_dict({"rows": "public", "columns": columns})

    @property
    def coefficients(self) -> tuple[str, ...]:
        """Names of the coefficients, the intercept first."""
        return "intercept", *(name for name, _, _ in self.terms)


def made_up(rng: np.random.Generator) -> Split:
    """Simulate confidential discharges, and public ones of the same kind."""
    return discharges.discharges(RECORDS, rng), discharges.discharges(PUBLIC, rng)


def apart(load: Callable[[], pd.DataFrame]) -> Callable[[np.random.Generator], Split]:
    """Return a function that splits a real table: a random fifth is public, like another year."""

    def split(rng: np.random.Generator) -> Split:
        table = load()
        order = rng.permutation(len(table))
        cut = round(SHARE_PUBLIC * len(table))
        parts = (table.iloc[order[cut:]], table.iloc[order[:cut]])
        return parts[0].reset_index(drop=True), parts[1].reset_index(drop=True)

    return split


# Source: park-ghosh-2014, section 4.3; section 4.4.
CASES = {
    "discharges": Case(
        "made-up discharges",
        discharges.SIZES,
        made_up,
        given=("age", "patzip"),
        sensitive=("mdc", ("age", "sex", "patzip")),
        number=("charge", ("age", "los", "patzip")),
        shown=("charge", "age"),
        high=("charge", 14),  # about two in five
        outcome="charge",
        terms=(
            ("age", "age", None), ("sev = 1", "sev", 1), ("sev = 2", "sev", 2), ("cat", "cat", 1),
            ("los", "los", None),
        ),
    ),
    "medpar": Case(
        "Medicare stays, Arizona 1991 (medpar)",
        real.MEDPAR,
        apart(real.medpar),
        given=("age80", "provnum"),
        sensitive=("died", ("age80", "white", "provnum")),
        number=("los", ("age80", "type", "provnum")),
        shown=("los", "provnum"),
        high=("died", 1),
        outcome="los",
        terms=(
            ("age80", "age80", 1), ("urgent", "type", 1), ("emergency", "type", 2),
            ("hmo", "hmo", 1), ("white", "white", 1),
        ),
    ),
    "azpro": Case(
        "heart patients, Arizona 1991 (azpro)",
        real.AZPRO,
        apart(real.azpro),
        given=("age75", "hospital"),
        sensitive=("procedure", ("age75", "sex", "hospital")),
        number=("los", ("age75", "admit", "hospital")),
        shown=("los", "hospital"),
        high=("los", 9),  # ten days and more, about two in five
        outcome="los",
        terms=(
            ("procedure", "procedure", 1), ("sex", "sex", 1), ("admit", "admit", 1),
            ("age75", "age75", 1),
        ),
    ),
    "adult": Case(
        "Adult, US census 1994",
        real.ADULT,
        apart(real.adult),
        given=("age", "education"),
        sensitive=("occupation", ("age", "sex", "education")),
        number=("hours", ("age", "sex", "education")),
        shown=("hours", "age"),
        high=("income", 1),
        outcome="hours",
        terms=(
            ("age", "age", None), ("education", "education", None), ("sex", "sex", 1),
            ("married", "marital", 0),
        ),
    ),
}  # fmt: skip
