"""Sources of record weights: a constant, reference data, or the confidential records."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from dpbayes.core.arrays import Mask, Vector
from dpbayes.core.checks import PATH, expect, is_number
from dpbayes.core.errors import DataError, GuaranteeError, refused
from dpbayes.core.files import read_whole, write_whole
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
REFERENCE_DRAWS = 400  # draws stored: enough for a maximum over draws, and a small file


class RecordsView(Protocol):
    """The interface through which a weight source sees the confidential records.

    Equal records have equal weights, so the view holds each unique record once.
    """

    @property
    def size(self) -> int:
        """Number of unique records, m."""
        ...

    @property
    def counted(self) -> Vector:
        """What each counts as by its sampling weight, from 0 to 1, shape (m,); else 1."""
        ...

    def sensitivity(self) -> Vector:
        """Maximum over draws of |f_i| under an unweighted fit to these records, shape (m,)."""
        ...

    def sensitivity_under(self, draws: xr.DataTree) -> Vector:
        """Maximum over the given draws of |f_i|, shape (m,)."""
        ...


@dataclass(frozen=True)
class Weighting:
    """Weights of the unique records, shape (m,), and a mask of those that Weighted-e set to 0."""

    weights: Vector
    truncated: Mask


class WeightSource:
    """Base class of the sources of weights.

    Attributes:
        name: name in reports and guarantees.
        strict: alpha_i depends on nothing but record i and public facts.
    """

    name: ClassVar[str]
    strict: ClassVar[bool]

    def weighting(self, records: RecordsView) -> Weighting:
        """Compute the weights of the records."""
        raise NotImplementedError


def check_weights(weights: WeightSource) -> None:
    """Raise GuaranteeError for weights that come from no source."""
    expected = "ConstantWeights(0.5), ConfidentialWeights() or a Reference"
    expect(weights, WeightSource, "weights", expected, GuaranteeError)


@dataclass(frozen=True)
class ConstantWeights(WeightSource):
    """One public weight for all records, which tempers the likelihood.

    Attributes:
        alpha: the weight, in (0, 1].

    Examples:
        >>> import dpbayes as dpb
        >>> mechanism = dpb.CensoredWeighted(epsilon=5, weights=dpb.ConstantWeights(0.5))
        >>> mechanism.guarantee().basis
        'strict'
    """

    alpha: float = 1.0
    name: ClassVar[str] = "constant"
    strict: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not is_number(self.alpha) or not 0 < self.alpha <= 1:
            raise GuaranteeError(f"alpha = {self.alpha!r:.40} must lie in (0, 1].")

    def weighting(self, records: RecordsView) -> Weighting:
        return Weighting(np.full(records.size, self.alpha), np.zeros(records.size, dtype=bool))


@dataclass(frozen=True)
class ConfidentialWeights(WeightSource):
    """Linear risk weights from an unweighted fit to the confidential records themselves.

    Every weight depends on all records through the smallest and largest sensitivity, so nothing
    that uses them has a finite-sample guarantee.

    Source: hu-williams-savitsky, section 4.4.

    Attributes:
        c1, c2: scaling and shift of the weights.

    Examples:
        >>> import dpbayes as dpb
        >>> mechanism = dpb.CensoredWeighted(epsilon=5, weights=dpb.ConfidentialWeights(c1=0.8))
        >>> mechanism.guarantee().basis
        'asymptotic'
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
    """Weights of Weighted-e: confidential ones, set to 0 where alpha_i f_i > ``width / 2``."""

    weights: ConfidentialWeights
    width: float
    name: ClassVar[str] = "confidential"
    strict: ClassVar[bool] = False

    def weighting(self, records: RecordsView) -> Weighting:
        weights = self.weights.weighting(records).weights
        counted = weights * records.counted
        _, truncated = truncated_weights(counted, records.sensitivity(), self.width)
        return Weighting(np.where(truncated, 0.0, weights), truncated)


@dataclass(frozen=True, eq=False, repr=False)
class Reference(WeightSource, ReferenceData):
    """A fit to reference data, which serves as a weight function a(x) and as an anchor.

    a(x) = clip(c1 (1 - (f(x) - low) / (high - low)) + c2, 0, 1) with f(x) the largest
    |log-likelihood| of record x over the reference draws, and low, high the smallest and largest
    such f over the reference records. Each weight depends on its own record and on reference data
    only, so censoring with these weights is strict. It stores draws and two numbers, and no record;
    salted hashes of the reference records serve to refuse them as the confidential ones.

    Attributes:
        draws: parameters at up to 400 posterior draws of the unweighted reference fit.
        low, high: smallest and largest sensitivity of the reference records.
        identity: program, formula and schema, which must agree with the synthesizer's.
        trace: salted hashes of the reference records.
        c1, c2: scaling and shift of the weights.
        tuning: target and result of ``tune``, for the reader.

    Examples:
        With a fit to last year's records in ``reference.json``, as ``save`` writes it:

        >>> import dpbayes as dpb
        >>> reference = dpb.Reference.load("reference.json")
        >>> mechanism = dpb.Anchored(epsilon=2, anchor=reference)
        >>> mechanism.guarantee().for_datasets(5).asked
        10.0
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
        """Build a reference from the draws of an unweighted fit and the sensitivities under it.

        Args:
            draws: posterior draws of the unweighted fit.
            sensitivity: the maximum over draws of |f_i|, by reference record.
            parameters: names of the parameters to store.
            identity: ``Model.identity`` of the fitted model.
            records: the reference records, validated.
        Raises:
            DataError: no reference record has a finite sensitivity.
        """
        finite = sensitivity[np.isfinite(sensitivity)]
        if not finite.size:
            raise DataError("no reference record has a finite log-likelihood at all draws.")
        step = max(1, count_draws(draws) // REFERENCE_DRAWS)
        thinned = {name: stacked(draws, name)[None, ::step] for name in parameters}
        ends = float(finite.min()), float(finite.max())
        return cls(make_draws(thinned), *ends, _as_json(identity), TableSketch.of(records))

    def __repr__(self) -> str:
        drawn = {str(k): v.to_numpy() for k, v in self.draws["posterior"].data_vars.items()}
        content = hash_of(self.identity, self.low, self.high, data_hash(drawn))[:16]
        return f"Reference({content}, c1={self.c1!r}, c2={self.c2!r})"

    def with_scaling(self, c1: float, c2: float, tuning: dict[str, Any] | None = None) -> Reference:
        """Copy the reference fit with other c1 and c2."""
        return replace(self, c1=c1, c2=c2, tuning=tuning)

    def weighting(self, records: RecordsView) -> Weighting:
        # These draws are public, so that each weight depends on its own record alone.
        f = records.sensitivity_under(self.draws)
        weights = scaled_weights(f, self.low, self.high, self.c1, self.c2)
        return Weighting(weights, np.zeros(records.size, dtype=bool))

    def anchor(self) -> xr.DataTree:
        """The posterior mean of the parameters, in the form of one draw."""
        posterior = self.draws["posterior"].to_dataset()
        return make_draws(
            {str(k): v.mean(("chain", "draw")).to_numpy()[None, None] for k, v in posterior.items()}
        )

    def check(self, identity: dict[str, Any]) -> None:
        """Raise GuaranteeError unless program, formula and schema are those of the reference."""
        for key, value in _as_json(identity).items():
            if self.identity.get(key) != value:
                raise GuaranteeError(
                    f"the reference fit has another {key} than this synthesizer "
                    f"({self.identity.get(key)!r}, here {value!r}). Tune again with this {key}."
                )

    def check_records(self, records: pd.DataFrame) -> None:
        """Raise GuaranteeError if the reference was fitted to the confidential records themselves.

        It would then be neither public nor paid for, and the claimed ε would not hold.

        Args:
            records: validated.
        """
        check_disjoint(self.trace, records)

    def save(self, path: str | Path) -> None:
        """Write the reference as a JSON file."""
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
        """Read a file that ``save`` wrote. DataError if it cannot be read."""
        expect(path, PATH, "the weights file", "a path", DataError)
        name = f"weights file {str(path)!r}"
        try:
            content = read_whole(path)
        except OSError as error:
            raise DataError(f"{name}: {error.strerror}.") from None
        other = f"{name} is not a reference fit written by this `dpbayes tune`; tune again"
        with refused(DataError, other):
            tree = json.loads(content)
            arrays = {k: np.asarray(v, dtype=float)[None] for k, v in tree["draws"].items()}
            if len({values.shape[1] for values in arrays.values()}) != 1:
                raise ValueError
            draws = make_draws(arrays)
            numbers = [float(tree[key]) for key in ("low", "high", "c1", "c2")]
            identity, trace = dict(tree["identity"]), TableSketch.from_dict(tree["trace"])
        drawn = (np.isfinite(values).all() for values in arrays.values())
        if not (all(map(math.isfinite, numbers)) and all(drawn)):
            raise DataError(f"{name} holds numbers that are not finite.")
        low, high, c1, c2 = numbers
        return cls(draws, low, high, identity, trace, c1, c2, tree.get("tuning"))


def _as_json(identity: dict[str, Any]) -> dict[str, Any]:
    """The identity as JSON stores it, with dates as texts, so that both sides compare equal."""
    plain: dict[str, Any] = json.loads(json.dumps(identity, default=str))
    return plain


def check_disjoint(
    reference: TableSketch,
    records: pd.DataFrame,
    instead: str = "(anchored draws an anchor and pays for it)",
) -> None:
    """Raise GuaranteeError if most of the reference records are among the confidential ones.

    Args:
        reference: salted hashes of the reference records.
        records: the confidential records, validated.
        instead: advice on how to do without a reference, for the message.
    """
    share = reference.share(records)
    if share >= SHARE:
        raise GuaranteeError(
            f"the reference was made from these very records: {share:.0%} of the smaller table are "
            "in both. A reference has to be public; take records of another "
            f"period or place, or do without {instead}."
        )


def references(mechanism: object) -> Iterator[ReferenceData]:
    """Find all settings derived from reference data, in a mechanism and in its settings."""
    if isinstance(mechanism, ReferenceData):
        yield mechanism
    elif is_dataclass(mechanism):
        for setting in fields(mechanism):
            yield from references(getattr(mechanism, setting.name))
