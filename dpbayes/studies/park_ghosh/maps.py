"""Utility and risk of perturbed Gibbs samplers by ε: the R-U maps and the attacks of the paper.

1,000 synthetic records from 20,000 made-up discharges at seven ε. The paper prints no numbers for
utility and risk, only figures; what its text says of their order is in ``ORDERINGS``, and is looked
at here.

What the paper leaves open, and how it is taken:

- ε is "per synthetic sample". A block of B records of `pegs-rs` then costs Bε, and all mechanisms
  have the same total, so that an order at equal ε per record is one at equal ε of the release. Of
  Figure 4 it says that a block costs ε: `pegs-rs (ε per block)`, a tenth of the total.
- "A simple bootstrap": of whole records, without any protection; and one of each column for itself.
- Keys: two columns by mutual information, and one bit. Their order and the seeds come from 5,000
  other discharges of the same kind: public, as those of an earlier year would be.
- Distances over columns are means; levels that no synthetic record has count as empty.
- Errors in charges are in bins, as the generator has no dollars.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from dpbayes.arrays import Floats, Mask, Vector
from dpbayes.evaluate.disclosure import attribution, inferred_error, uniqueness
from dpbayes.evaluate.joint import (
    Coded,
    conditional_distance,
    marginal_distance,
    regression_distance,
)
from dpbayes.heavy import optimize, pd, special
from dpbayes.mechanisms import MarginalBootstrap, Pegs, PegsReset, PerturbedImputation
from dpbayes.mechanisms.pegs.gibbs import FittedGibbs, Gibbs
from dpbayes.mechanisms.pegs.public import PublicRecords
from dpbayes.privacy.noise import StudyNoise
from dpbayes.studies.park_ghosh.discharges import SCHEMA, discharges

EPSILONS = (0.1, 0.5, 1.0, 5.0, 10.0, 50.0, 100.0)  # of a synthetic record
RECORDS, PUBLIC, SYNTHETIC, BLOCK = 20_000, 5000, 1000, 10
PEGS, RESET, PMI, PER_BLOCK = "pegs", "pegs-rs", "pmi", "pegs-rs (ε per block)"
MARGINAL = "marginal-bootstrap"
BOOTSTRAPS = ("bootstrap", "bootstrap of columns")  # without protection
UTILITY = ("marginal", "given age", "given ZIP", "logistic", "linear")
RISK = ("errors of MDC", "error of charge", "unique")
MEASURES = (*UTILITY, *RISK)
TERMS = ("intercept", "age", "sev = 1", "sev = 2", "cat", "los")
LOW = 14  # the first bin of charges that count as high, about two in five
TOTALS, DELTA = (1.0, 5.0, 20.0), 1e-6  # of a whole release


def mechanisms(reference: PublicRecords) -> dict[str, Gibbs]:
    """At ε = 1 of a record, with public order and seeds."""
    shared: dict[str, Any] = {"of": "record", "records": SYNTHETIC, "reference": reference}
    keyed = {**shared, "keys": "reference", "seeds": "reference"}
    return {
        PEGS: Pegs(1.0, **keyed),
        RESET: PegsReset(1.0, block=BLOCK, **keyed),
        PMI: PerturbedImputation(1.0, seeds="reference", **shared),
        MARGINAL: MarginalBootstrap(1.0, **shared),
    }


def at(fitted: FittedGibbs, epsilon: float) -> FittedGibbs:
    """The same fit at another ε of a record; of up to 100, which no release may have."""
    plan, units = fitted.plan, fitted.plan.sampler.units
    total = epsilon * SYNTHETIC
    step = plan.sampler.step_for(total, "add-remove")
    assert units * len(fitted.layout.drawn) * step <= total * (1 + 1e-9)
    fitted.plan = replace(plan, step=step)
    return fitted


def run(seed: np.random.SeedSequence) -> pd.DataFrame:
    """Every measure and coefficient of every mechanism at every ε, for one table of records.

    Source: park-ghosh-2014, section 4.3; section 4.4; figure 5; figure 6; figure 7; figure 8;
    figure 9.
    """
    rng = np.random.default_rng(seed)
    records = discharges(RECORDS, rng)
    reference = PublicRecords(discharges(PUBLIC, rng))
    original = regressions(records)
    noise, rows = StudyNoise(rng), []
    validated = SCHEMA.validate(records)
    for name, mechanism in mechanisms(reference).items():
        fitted = mechanism.prepare(SCHEMA, validated, SYNTHETIC)
        for epsilon in EPSILONS:
            cases = [(name, epsilon)]
            if name == RESET:
                cases.append((PER_BLOCK, epsilon / BLOCK))
            for label, each in cases:
                output = at(fitted, each).private(noise)
                data = fitted.synthetic(output, SYNTHETIC, noise.rng).astype(int)
                rows += list(_measured(label, epsilon, SYNTHETIC * each, records, data, original))
    for label, data in _bootstraps(records, rng):
        rows += list(_measured(label, np.inf, np.inf, records, data, original))
    return pd.DataFrame(rows, columns=["mechanism", "epsilon", "total", "measure", "value"])


def totals(seed: np.random.SeedSequence) -> pd.DataFrame:
    """Utility at an ε of the whole release, its noisy keys paid for, from uniform seeds.

    Rows as those of ``run``, with the block in the mechanism's name, and δ.
    """
    rng = np.random.default_rng(seed)
    records = discharges(RECORDS, rng)
    original, validated = regressions(records), SCHEMA.validate(records)
    noise, rows = StudyNoise(rng), []
    for epsilon, delta in itertools.product(TOTALS, (0.0, DELTA)):
        shared: dict[str, Any] = {"records": SYNTHETIC, "delta": delta}
        cases: dict[str, Gibbs] = {
            PEGS: Pegs(epsilon, **shared), MARGINAL: MarginalBootstrap(epsilon, **shared)
        }  # fmt: skip
        for block in (10, 100, 1000):
            cases[f"{RESET}, B = {block:,}"] = PegsReset(epsilon, block=block, **shared)
        for label, mechanism in cases.items():
            fitted = mechanism.prepare(SCHEMA, validated, SYNTHETIC)
            data = fitted.synthetic(fitted.private(noise), SYNTHETIC, noise.rng).astype(int)
            found = _measured(label, epsilon, epsilon, records, data, original)
            rows += [(*row, delta) for row in found if row[3] in MEASURES]
    columns = ["mechanism", "epsilon", "total", "measure", "value", "delta"]
    return pd.DataFrame(rows, columns=columns)


def _bootstraps(
    records: pd.DataFrame, rng: np.random.Generator
) -> Iterator[tuple[str, pd.DataFrame]]:
    whole = records.iloc[rng.integers(0, len(records), SYNTHETIC)].reset_index(drop=True)
    yield BOOTSTRAPS[0], whole
    yield BOOTSTRAPS[1], whole.apply(rng.permutation)


def _measured(
    label: str,
    epsilon: float,
    total: float,
    records: pd.DataFrame,
    data: pd.DataFrame,
    original: dict[str, Vector],
) -> Iterator[tuple[Any, ...]]:
    tables = Coded.of(records, data)
    age, zips = (tables.names.index(name) for name in ("age", "patzip"))
    columns = range(len(tables.names))
    found = regressions(data)
    values: dict[str, Any] = {
        "marginal": np.mean([marginal_distance(tables, i) for i in columns]),
        "given age": np.mean([conditional_distance(tables, i, age) for i in columns if i != age]),
        "given ZIP": np.mean([conditional_distance(tables, i, zips) for i in columns if i != zips]),
        "logistic": regression_distance(original["logistic"], found["logistic"]),
        "linear": regression_distance(original["linear"], found["linear"]),
        "errors of MDC": attribution(records, data, ["age", "sex", "patzip"], "mdc").errors,
        "error of charge": inferred_error(records, data, ["age", "los", "patzip"], "charge"),
        "unique": uniqueness(data, ["age", "sex", "patzip"]),
    }
    for kind, coefficients in found.items():
        values |= {f"{kind}: {t}": c for t, c in zip(TERMS, coefficients, strict=True)}
    for measure, value in values.items():
        yield label, epsilon, total, measure, float(value)


def regressions(data: pd.DataFrame) -> dict[str, Vector]:
    """Coefficients of charge above 25K, and of charge, on age, severity, category and stay.

    Source: park-ghosh-2014, section 4.3.
    """
    x = np.column_stack(
        [np.ones(len(data)), data["age"], data["sev"] == 1, data["sev"] == 2, data["cat"],
         data["los"]]
    ).astype(float)  # fmt: skip
    charge = data["charge"].to_numpy(dtype=float)
    linear = np.linalg.lstsq(x, charge, rcond=None)[0]
    return {"logistic": _logistic(x, charge >= LOW), "linear": linear}


def _logistic(x: Floats, y: Mask) -> Vector:
    """Maximum likelihood, with a ridge of 10^-3 for tables that a plane divides."""

    def objective(beta: Vector) -> tuple[float, Vector]:
        odds = x @ beta
        loss = np.logaddexp(0, odds).sum() - odds[y].sum() + 5e-4 * (beta**2).sum()
        return float(loss), np.asarray(x.T @ (special.expit(odds) - y) + 1e-3 * beta)

    return np.asarray(optimize.minimize(objective, np.zeros(x.shape[1]), jac=True, method="BFGS").x)
