"""The number of rows: public, declared, or paid for. No setting may follow any other number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from dpbayes.core.errors import GuaranteeError, SchemaError

Kind = Literal["public", "declared", "noisy"]
SHARE = 0.05  # of ε, for a noisy number
LEAST_SHARE = 1e-6  # whose noise is of the size of a million records at ε = 1
MOST_VALUES = 100_000_000  # of a release, which is in memory before it is written: some 6 GB


@dataclass(frozen=True)
class Rows:
    """What a schema says of the number of records.

    Attributes:
        kind: ``public``: their number n is public, as it is where public columns are released;
            ``declared``: a number that was chosen without looking, and need not be the true one;
            ``noisy``: n with geometric noise, paid for with a part of ε.
        number: the declared one.
        share: of ε for a noisy one, in (0, 1).
    """

    kind: Kind = "public"
    number: int | None = None
    share: float = 0.0

    @classmethod
    def parse(cls, value: Any) -> Rows:
        """From a schema file: ``"public"``, a whole number, ``"noisy"`` or ``{noisy = SHARE}``."""
        if value == "public":
            return cls()
        if value == "noisy":
            return cls("noisy", share=SHARE)
        if isinstance(value, dict) and list(value) == ["noisy"]:
            share = value["noisy"]
            good = isinstance(share, int | float) and not isinstance(share, bool)
            if not good or not LEAST_SHARE <= share < 1:
                raise SchemaError(
                    f"rows: noisy = {share!r} must lie in [{LEAST_SHARE:g}, 1): its part of ε."
                )
            return cls("noisy", share=float(share))
        if _is_number(value):
            return cls("declared", value)
        raise SchemaError(
            f'rows = {value!r} must be "public", a whole number from 1 to {MOST_VALUES:,}, '
            '"noisy", or {noisy = SHARE} with its part of ε in (0, 1).'
        )

    @property
    def public(self) -> bool:
        """The number of records may be told."""
        return self.kind == "public"

    def to_plain(self) -> Any:
        """What ``parse`` reads."""
        return {"public": "public", "declared": self.number, "noisy": {"noisy": self.share}}[
            self.kind
        ]


PUBLIC = Rows()


def _is_number(rows: Any) -> bool:
    whole = isinstance(rows, int) and not isinstance(rows, bool)
    return whole and 1 <= rows <= MOST_VALUES


def check_room(rows: int, columns: int, datasets: int) -> None:
    """Raise GuaranteeError unless a release can have so many rows, by public facts alone.

    Where memory runs out after a private draw, the draw is paid for and nothing comes of it.
    """
    if not _is_number(rows):
        raise GuaranteeError(f"rows = {rows!r} must be a whole number from 1 to {MOST_VALUES:,}.")
    if rows * columns * datasets > MOST_VALUES:
        raise GuaranteeError(
            f"{datasets} data set(s) of {rows:,} rows and {columns} columns have more than the "
            f"{MOST_VALUES:,} values that a release can have: ask for fewer rows or data sets."
        )
