"""Where record weights come from: one constant, reference data, or the confidential records."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from dpbayes.core.arrays import Mask, Vector
from dpbayes.core.errors import DataError, GuaranteeError
from dpbayes.core.files import write_whole
from dpbayes.core.lazy import pd, xr
from dpbayes.engines.draws import count_draws, make_draws, stacked
from dpbayes.mechanisms.base import ReferenceData
from dpbayes.mechanisms.posterior.risk import (
    check_scaling,
    linear_weights,
    scaled_weights,
    truncated_weights,
)
from dpbayes.records.fingerprint import data_hash, hash_of
from dpbayes.records.overlap import SHARE, TableSketch

FORMAT = "dpbayes reference fit 2"
REFERENCE_DRAWS = 400  # kept of a reference fit: enough for a maximum, small enough to read


class RecordsView(Protocol):
    """What a weight source may ask about the confidential records.

    Equal records have equal weights: it sees each kind of record once.
    """

    @property
    def size(self) -> int:
        """Number of kinds of records, m."""
        ...

    def sensitivity(self) -> Vector:
        """Shape (m,): max over draws of |f_i| under an unweighted fit to these records."""
        ...

    def sensitivity_under(self, draws: xr.DataTree) -> Vector:
        """Shape (m,): the same over given draws."""
        ...


@dataclass(frozen=True)
class Weighting:
    """Weights of kinds of records, shape (m,), and which of them Weighted-e truncated to 0."""

    weights: Vector
    truncated: Mask


class WeightSource:
    """Base of the sources. ``strict`` is True if alpha_i depends on record i and public facts."""

    name: ClassVar[str]
    strict: ClassVar[bool]

    def weighting(self, records: RecordsView) -> Weighting:
        """Weights of the records."""
        raise NotImplementedError


@dataclass(frozen=True)
class ConstantWeights(WeightSource):
    """One public weight for all records: tempering.

    Attributes:
        alpha: in (0, 1].
    """

    alpha: float = 1.0
    name: ClassVar[str] = "constant"
    strict: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= 1:
            raise GuaranteeError(f"alpha = {self.alpha!r} must lie in (0, 1].")

    def weighting(self, records: RecordsView) -> Weighting:
        return Weighting(np.full(records.size, self.alpha), np.zeros(records.size, dtype=bool))


@dataclass(frozen=True)
class ConfidentialWeights(WeightSource):
    """Linear risk weights from an unweighted fit to the confidential records themselves.

    Every weight depends on all records through the smallest and largest sensitivity, so nothing
    that uses them has a finite-sample guarantee.

    Source: hu-williams-savitsky, section 4.4.

    Attributes:
        c1, c2: scaling and shift.
    """

    c1: float = 1.0
    c2: float = 0.0
    name: ClassVar[str] = "confidential"
    strict: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_scaling(self.c1, self.c2)

    def weighting(self, records: RecordsView) -> Weighting:
        weights = linear_weights(records.sensitivity(), self.c1, self.c2)
        return Weighting(weights, np.zeros(records.size, dtype=bool))


NO_WEIGHTS = ConstantWeights()
PAPER_WEIGHTS = ConfidentialWeights()


@dataclass(frozen=True)
class TruncatedWeights(WeightSource):
    """Weighted-e: confidential weights, 0 where they leave a record above ``width / 2``."""

    weights: ConfidentialWeights
    width: float
    name: ClassVar[str] = "confidential"
    strict: ClassVar[bool] = False

    def weighting(self, records: RecordsView) -> Weighting:
        weights = self.weights.weighting(records).weights
        return Weighting(*truncated_weights(weights, records.sensitivity(), self.width))


@dataclass(frozen=True, eq=False, repr=False)
class Reference(WeightSource, ReferenceData):
    """A fit to reference data, as a weight function a(x) and as an anchor.

    a(x) = clip(c1 (1 - (f(x) - low) / (high - low)) + c2, 0, 1) with f(x) the largest
    |log-likelihood| of record x over the reference draws, and low, high the smallest and largest
    such f over the reference records. Each weight depends on its own record and on reference data
    only, so censoring with these weights is strict. Holds draws and two numbers, no record; and
    salted hashes of the records, by which confidential ones are refused as their own reference.

    Attributes:
        draws: parameters at up to 400 posterior draws of the unweighted reference fit.
        low, high: sensitivities that span the reference records.
        identity: what has to agree with the synthesizer that uses it.
        trace: of the reference records.
        c1, c2: scaling and shift.
        tuning: what ``tune`` aimed at and reached; for the reader.
    """

    draws: xr.DataTree
    low: float
    high: float
    identity: dict[str, Any]
    trace: TableSketch
    c1: float = 1.0
    c2: float = 0.0
    tuning: dict[str, Any] | None = None
    name: ClassVar[str] = "reference"
    strict: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_scaling(self.c1, self.c2)

    @classmethod
    def from_draws(
        cls,
        draws: xr.DataTree,
        sensitivity: Vector,
        parameters: list[str],
        identity: dict[str, Any],
        records: pd.DataFrame,
    ) -> Reference:
        """From an unweighted fit: its draws, and the sensitivities of the reference records.

        Args:
            records: the reference records, validated.
        """
        finite = sensitivity[np.isfinite(sensitivity)]
        if not finite.size:
            raise DataError("no reference record has a finite log-likelihood at all draws.")
        step = max(1, count_draws(draws) // REFERENCE_DRAWS)
        thinned = {name: stacked(draws, name)[None, ::step] for name in parameters}
        span = float(finite.min()), float(finite.max())
        return cls(make_draws(thinned), *span, _as_json(identity), TableSketch.of(records))

    def __repr__(self) -> str:
        drawn = {str(k): v.to_numpy() for k, v in self.draws["posterior"].data_vars.items()}
        content = hash_of(self.identity, self.low, self.high, data_hash(drawn))[:16]
        return f"Reference({content}, c1={self.c1!r}, c2={self.c2!r})"

    def with_scaling(self, c1: float, c2: float, tuning: dict[str, Any] | None = None) -> Reference:
        """The same with other c1 and c2."""
        return replace(self, c1=c1, c2=c2, tuning=tuning)

    def weighting(self, records: RecordsView) -> Weighting:
        f = records.sensitivity_under(self.draws)
        weights = scaled_weights(f, self.low, self.high, self.c1, self.c2)
        return Weighting(weights, np.zeros(records.size, dtype=bool))

    def anchor(self) -> xr.DataTree:
        """The posterior mean of the parameters, as one draw."""
        posterior = self.draws["posterior"].to_dataset()
        return make_draws(
            {str(k): v.mean(("chain", "draw")).to_numpy()[None, None] for k, v in posterior.items()}
        )

    def check(self, identity: dict[str, Any]) -> None:
        """Raise GuaranteeError unless it was fitted with the same program, formula and schema."""
        for key, value in _as_json(identity).items():
            if self.identity.get(key) != value:
                raise GuaranteeError(
                    f"the reference fit has another {key} than this synthesizer "
                    f"({self.identity.get(key)!r}, here {value!r}). Tune again with this {key}."
                )

    def check_records(self, records: pd.DataFrame) -> None:
        """Raise GuaranteeError if the reference was fitted to the confidential records themselves.

        Then it is neither public nor paid for, and nothing that uses it has the ε that is claimed.

        Args:
            records: validated.
        """
        check_disjoint(self.trace, records)

    def save(self, path: str | Path) -> None:
        """Write as JSON."""
        tree = {
            "format": FORMAT,
            "identity": self.identity,
            "trace": self.trace.to_dict(),
            "c1": self.c1,
            "c2": self.c2,
            "low": self.low,
            "high": self.high,
            "tuning": self.tuning,
            "draws": {
                str(name): values.to_numpy()[0].tolist()
                for name, values in self.draws["posterior"].data_vars.items()
            },
        }
        write_whole(Path(path), (json.dumps(tree, indent=1) + "\n").encode())

    @classmethod
    def load(cls, path: str | Path) -> Reference:
        """Read what ``save`` wrote."""
        try:
            tree = json.loads(Path(path).read_text(encoding="utf-8"))
            draws = make_draws(
                {k: np.asarray(v, dtype=float)[None] for k, v in tree["draws"].items()}
            )
            numbers = [float(tree[key]) for key in ("low", "high", "c1", "c2")]
            identity, trace = dict(tree["identity"]), TableSketch.from_dict(tree["trace"])
        except OSError as error:
            raise DataError(f"weights file {str(path)!r}: {error.strerror}.") from None
        except (
            ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError,
        ) as error:  # fmt: skip
            raise DataError(
                f"weights file {str(path)!r} is not a reference fit written by this `dpbayes "
                f"tune`: {error!r}. Tune again."
            ) from None
        if not all(math.isfinite(v) for v in numbers):
            raise DataError(f"weights file {str(path)!r} holds numbers that are not finite.")
        low, high, c1, c2 = numbers
        return cls(draws, low, high, identity, trace, c1, c2, tree.get("tuning"))


def _as_json(identity: dict[str, Any]) -> dict[str, Any]:
    """As it comes back from a file: dates are texts."""
    plain: dict[str, Any] = json.loads(json.dumps(identity, default=str))
    return plain


def check_disjoint(
    reference: TableSketch,
    records: pd.DataFrame,
    instead: str = "(anchored draws an anchor and pays for it)",
) -> None:
    """Raise GuaranteeError if reference records are, for the most part, the confidential ones.

    Args:
        records: the confidential ones, validated.
        instead: how to do without a reference.
    """
    share = reference.share(records)
    if share >= SHARE:
        raise GuaranteeError(
            f"the reference was made from these very records: {share:.0%} of the smaller table are "
            "in both. A reference has to be public; take records of another "
            f"period or place, or do without {instead}."
        )


def references(mechanism: Any) -> Iterator[ReferenceData]:
    """What was made of other records among the settings of a mechanism, and of those in it."""
    if isinstance(mechanism, ReferenceData):
        yield mechanism
    elif is_dataclass(mechanism):
        for one in fields(mechanism):
            yield from references(getattr(mechanism, one.name))
