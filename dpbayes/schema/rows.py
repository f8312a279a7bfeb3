"""Number of rows: public, declared, or noisy. Settings may depend on no other row count."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeGuard

from dpbayes.core.errors import GuaranteeError, SchemaError

Kind = Literal["public", "declared", "noisy"]
ROWS: tuple[Kind, ...] = ("public", "declared", "noisy")
SHARE = 0.05  # default part of ε for a noisy number of rows
LEAST_SHARE = 1e-6  # at ε = 1 its noise has a scale of a million records
MOST_VALUES = 100_000_000  # in a release, which is built in memory: some 6 GB


@dataclass(frozen=True)
class Rows:
    """Declaration of the number of records in a schema.

    Attributes:
        kind: ``public``: the number n of records is public, as it must be if public columns are
            released; ``declared``: a number chosen without looking at the records, which may
            differ from n; ``noisy``: n with geometric noise, paid for with a part of ε.
        number: the declared number, if ``kind`` is ``declared``.
        share: part of ε for a noisy number, in (0, 1).
        assumed: nothing was declared (``ASSUMED``).

    Raises:
        SchemaError: a number that is not declared, or a share that is not of a noisy number.
    """

    kind: Kind = "public"
    number: int | None = None
    share: float = 0.0
    assumed: bool = field(default=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.kind not in ROWS:
            raise SchemaError(f"rows: kind = {self.kind!r} must be one of {', '.join(ROWS)}.")
        if self.kind == "noisy":
            good = isinstance(self.share, int | float) and not isinstance(self.share, bool)
            if not good or not LEAST_SHARE <= self.share < 1:
                raise SchemaError(
                    f"rows: noisy = {self.share!r} must lie in [{LEAST_SHARE:g}, 1): its part of ε."
                )
        elif self.share:
            raise SchemaError(f"rows: share = {self.share!r} is for a noisy number alone.")
        if _is_number(self.number) is not (self.kind == "declared"):
            raise SchemaError(
                f"rows: number = {self.number!r} must be a whole number from 1 to {MOST_VALUES:,} "
                "for a declared number, and is for no other."
            )

    @classmethod
    def parse(cls, value: object) -> Rows:
        """Read a schema entry: ``"public"``, a whole number, ``"noisy"`` or ``{noisy = SHARE}``."""
        if value == "public":
            return cls()
        if value == "noisy":
            return cls("noisy", share=SHARE)
        if isinstance(value, dict) and list(value) == ["noisy"]:
            return cls("noisy", share=value["noisy"])
        if _is_number(value):
            return cls("declared", value)
        raise SchemaError(
            f'rows = {value!r} must be "public", a whole number from 1 to {MOST_VALUES:,}, '
            '"noisy", or {noisy = SHARE} with its part of ε in (0, 1).'
        )

    @property
    def public(self) -> bool:
        """True if the number of records is public."""
        return self.kind == "public"

    def to_plain(self) -> str | int | dict[str, float] | None:
        """Plain value that ``parse`` reads back."""
        return {"public": "public", "declared": self.number, "noisy": {"noisy": self.share}}[
            self.kind
        ]


def _is_number(rows: object) -> TypeGuard[int]:
    return isinstance(rows, int) and not isinstance(rows, bool) and 1 <= rows <= MOST_VALUES


PUBLIC = Rows()
# A schema that declares nothing: it is read as public where a column is, which shows the number.
ASSUMED = Rows("noisy", share=SHARE, assumed=True)


def check_room(rows: int, columns: int, datasets: int) -> None:
    """Raise GuaranteeError if a release would be too large; only public facts are used.

    The check comes first, because a private draw is paid for even if memory then runs out.
    """
    if not _is_number(rows):
        raise GuaranteeError(f"rows = {rows!r} must be a whole number from 1 to {MOST_VALUES:,}.")
    if rows * columns * datasets > MOST_VALUES:
        raise GuaranteeError(
            f"{datasets} data set(s) of {rows:,} rows and {columns} columns have more than the "
            f"{MOST_VALUES:,} values that a release can have: ask for fewer rows or data sets."
        )
