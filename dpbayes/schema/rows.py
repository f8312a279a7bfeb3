"""The number of rows: public, declared, or paid for. No setting may follow any other number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from dpbayes.errors import SchemaError

Kind = Literal["public", "declared", "noisy"]
SHARE = 0.05  # of ε, for a noisy number


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
            if not good or not 0 < share < 1 or not math.isfinite(share):
                raise SchemaError(f"rows: noisy = {share!r} must lie in (0, 1): its part of ε.")
            return cls("noisy", share=float(share))
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**31:
            return cls("declared", value)
        raise SchemaError(
            f'rows = {value!r} must be "public", a whole number above 0, "noisy", or '
            "{noisy = SHARE} with its part of ε in (0, 1)."
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
