"""Utility and risk of perturbed Gibbs samplers by ε: the R-U maps and the attacks of the paper.

1,000 synthetic records at seven values of ε, from simulated discharges and from three real tables.
The paper prints no numbers for utility and risk, only figures; ``orderings`` tests its claims about
their order.

The paper leaves some details open, which are chosen as follows:

- ε is "per synthetic sample". A block of B records of `pegs-rs` then costs Bε, and all mechanisms
  have the same total, so that an order at equal ε per record is one at equal ε of the release. For
  Figure 4 it says that a block costs ε: `pegs-rs (ε per block)`, a tenth of the total. Totals of
  thousands protect nobody: ``totals`` compares releases that cost 1 to 20.
- "A simple bootstrap": of whole records, without any protection; and a second one that resamples
  columns independently.
- Keys: two columns by mutual information, and one bit. Their order and the seeds come from public
  records of the same kind (``cases``).
- Distances over columns are means; levels that no synthetic record has count as empty.
- Errors in numbers are in bins.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dpbayes.core.arrays import Floats, Mask, Vector
from dpbayes.core.lazy import optimize, pd, special
from dpbayes.evaluate.disclosure import attribution, inferred_error, uniqueness
from dpbayes.evaluate.joint import (
    Coded,
    conditional_distance,
    marginal_distance,
    regression_distance,
)
from dpbayes.mechanisms import MarginalBootstrap, Pegs, PegsReset, PerturbedImputation
from dpbayes.mechanisms.pegs.gibbs import FittedGibbs, Gibbs
from dpbayes.mechanisms.pegs.public import PublicRecords
from dpbayes.privacy.noise import StudyNoise
from studies.park_ghosh.cases import CASES, Case

EPSILONS = (0.1, 0.5, 1.0, 5.0, 10.0, 50.0, 100.0)  # ε of a synthetic record
SYNTHETIC, BLOCK, BLOCKS = 1000, 10, (10, 100)
PEGS, RESET, PMI, PER_BLOCK = "pegs", "pegs-rs", "pmi", "pegs-rs (ε per block)"
MARGINAL = "marginal-bootstrap"
BOOTSTRAPS = ("bootstrap", "bootstrap of columns")  # without protection
UTILITY = ("marginal", "given first", "given second", "logistic", "linear")
RISK = ("errors", "error of number", "unique")
MEASURES = (*UTILITY, *RISK)
TOTALS, DELTA = (1.0, 5.0, 20.0), 1e-6  # ε and δ of a whole release
COLUMNS = ["part", "mechanism", "epsilon", "total", "delta", "measure", "value"]


def with_block(block: int) -> str:
    """Name of `pegs-rs` with this block size, at a total ε."""
    return f"{RESET}, B = {block:,}"


def labels(case: Case) -> dict[str, str]:
    """Labels of the measures that depend on the table."""
    own = [f"given {name}" for name in case.given]
    own += [f"errors in {case.sensitive[0]}", f"error of {case.number[0]}"]
    return dict(zip(("given first", "given second", "errors", "error of number"), own, strict=True))


@dataclass
class MapFit:
    """One split of a table, with a cache that its fits share.

    Attributes:
        case: the table.
        records: confidential records.
        reference: public records.
        noise: noise and random numbers.
        kept: cached results that do not depend on ε, by mechanism.
    """

    case: Case
    records: pd.DataFrame
    reference: PublicRecords
    noise: StudyNoise
    kept: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.schema = self.case.schema
        self.validated = self.schema.validate(self.records)
        self.original = regressions(self.case, self.records)

    @classmethod
    def of(cls, seed: np.random.SeedSequence, name: str) -> MapFit:
        """Split the table with this name."""
        rng = np.random.default_rng(seed)
        records, public = CASES[name].split(rng)
        return cls(CASES[name], records, PublicRecords(public), StudyNoise(rng))

    def fit(self, mechanism: Gibbs) -> FittedGibbs:
        """Fit a mechanism; results that do not depend on ε are computed once and shared."""
        fitted = mechanism.prepare(self.schema, self.validated, SYNTHETIC)
        if not mechanism.noisy:
            fitted.kept = self.kept.setdefault(mechanism.name, {})
        return fitted

    def measured(self, fitted: FittedGibbs) -> Iterator[tuple[str, float]]:
        """Draw one data set and yield its measures."""
        output = fitted.draw_private(self.noise)
        data = fitted.synthetic(output, SYNTHETIC, self.noise.rng).astype(int)
        return measures(self.case, self.records, data, self.original)


def mechanisms(reference: PublicRecords) -> dict[str, Gibbs]:
    """Mechanisms at ε = 1 per record, with public key order and seeds."""
    shared: dict[str, Any] = {"of": "record", "records": SYNTHETIC, "reference": reference}
    keyed = {**shared, "keys": "reference", "seeds": "reference"}
    return {
        PEGS: Pegs(1.0, **keyed, adjacency="add-remove"),
        RESET: PegsReset(1.0, block=BLOCK, **keyed, adjacency="add-remove"),
        PMI: PerturbedImputation(1.0, seeds="reference", **shared, adjacency="add-remove"),
        MARGINAL: MarginalBootstrap(1.0, **shared, adjacency="add-remove"),
    }


def at(fitted: FittedGibbs, epsilon: float) -> FittedGibbs:
    """Set the ε per record of a fit, up to 100, which no release may have."""
    plan = fitted.plan
    assert plan is not None  # it has a claim
    units = plan.sampler.units
    total = epsilon * SYNTHETIC
    step = plan.sampler.step_for(total, "add-remove")
    assert units * len(fitted.layout.drawn) * step <= total * (1 + 1e-9)
    fitted.plan = replace(plan, step=step)
    return fitted


def run(seed: np.random.SeedSequence, case: str) -> pd.DataFrame:
    """Run every mechanism at every ε on one split of a table: all measures and coefficients.

    Source: park-ghosh-2014, section 4.3; section 4.4; figure 5; figure 6; figure 7; figure 8;
    figure 9.
    """
    setup = MapFit.of(seed, case)
    rows = [("maps", *row) for row in _by_record(setup)]
    rows += [("totals", *row) for row in _by_total(setup)]
    for label, data in _bootstraps(setup.records, setup.noise.rng):
        values = measures(setup.case, setup.records, data, setup.original)
        none = (label, np.inf, np.inf, 0.0)
        rows += [("bootstrap", *none, *measure) for measure in values]
    return pd.DataFrame(rows, columns=COLUMNS)


def _by_record(setup: MapFit) -> Iterator[tuple[Any, ...]]:
    for name, mechanism in mechanisms(setup.reference).items():
        fitted = setup.fit(mechanism)
        for epsilon in EPSILONS:
            cases = [(name, epsilon)]
            if name == RESET:
                cases.append((PER_BLOCK, epsilon / BLOCK))
            for label, record_epsilon in cases:
                for measure in setup.measured(at(fitted, record_epsilon)):
                    yield label, epsilon, SYNTHETIC * record_epsilon, 0.0, *measure


def _by_total(setup: MapFit) -> Iterator[tuple[Any, ...]]:
    """Measures at an ε of the whole release, which pays for noisy keys; seeds are uniform."""
    for epsilon, delta in itertools.product(TOTALS, (0.0, DELTA)):
        shared: dict[str, Any] = {"records": SYNTHETIC, "delta": delta}
        cases: dict[str, Gibbs] = {
            PEGS: Pegs(epsilon, **shared, adjacency="add-remove"),
            PMI: PerturbedImputation(epsilon, **shared, adjacency="add-remove"),
            MARGINAL: MarginalBootstrap(epsilon, **shared, adjacency="add-remove"),
            **{
                with_block(b): PegsReset(epsilon, block=b, **shared, adjacency="add-remove")
                for b in BLOCKS
            },
        }
        for label, mechanism in cases.items():
            for measure in setup.measured(setup.fit(mechanism)):
                yield label, epsilon, epsilon, delta, *measure


def _bootstraps(
    records: pd.DataFrame, rng: np.random.Generator
) -> Iterator[tuple[str, pd.DataFrame]]:
    resampled = records.iloc[rng.integers(0, len(records), SYNTHETIC)].reset_index(drop=True)
    yield BOOTSTRAPS[0], resampled
    yield BOOTSTRAPS[1], resampled.apply(rng.permutation)


def measures(
    case: Case, records: pd.DataFrame, data: pd.DataFrame, original: dict[str, Vector]
) -> Iterator[tuple[str, float]]:
    """Yield the values of ``MEASURES``, and the coefficients, of one data set."""
    tables = Coded.of(records, data)
    conditioning = [tables.names.index(name) for name in case.given]
    columns = range(len(tables.names))
    conditional = [
        np.mean([conditional_distance(tables, i, g) for i in columns if i != g])
        for g in conditioning
    ]
    estimates = regressions(case, data)
    (sensitive, keys), (number, number_keys) = case.sensitive, case.number
    values: list[Any] = [
        np.mean([marginal_distance(tables, i) for i in columns]),
        *conditional,
        *(regression_distance(original[kind], estimates[kind]) for kind in UTILITY[3:]),
        attribution(records, data, keys, sensitive).errors,
        inferred_error(records, data, number_keys, number),
        uniqueness(data, keys),
    ]
    for measure, value in zip(MEASURES, values, strict=True):
        yield measure, float(value)
    for kind, coefficients in estimates.items():
        for term, value in zip(case.coefficients, coefficients, strict=True):
            yield f"{kind}: {term}", float(value)


def regressions(case: Case, data: pd.DataFrame) -> dict[str, Vector]:
    """Fit the logistic and the linear regression; return coefficients, intercepts first.

    Source: park-ghosh-2014, section 4.3.
    """
    columns = [np.ones(len(data))]
    columns += [
        data[name].to_numpy(dtype=float) if level is None else data[name].to_numpy() == level
        for _, name, level in case.terms
    ]
    x = np.column_stack(columns).astype(float)
    linear = np.linalg.lstsq(x, data[case.outcome].to_numpy(dtype=float), rcond=None)[0]
    column, low = case.high
    return {"logistic": _logistic(x, data[column].to_numpy() >= low), "linear": linear}


def _logistic(x: Floats, y: Mask) -> Vector:
    """Maximise the likelihood with a ridge of 10^-3, which keeps separated data finite."""

    def objective(beta: Vector) -> tuple[float, Vector]:
        odds = x @ beta
        loss = np.logaddexp(0, odds).sum() - odds[y].sum() + 5e-4 * (beta**2).sum()
        return float(loss), np.asarray(x.T @ (special.expit(odds) - y) + 1e-3 * beta)

    return np.asarray(optimize.minimize(objective, np.zeros(x.shape[1]), jac=True, method="BFGS").x)
