"""A diagonal or a dense metric, and how much warm-up: effective draws per CPU second.

    .venv/bin/python benchmarks/metric.py --family normal --covariates 20 --correlated
    .venv/bin/python benchmarks/metric.py --covariates 50 --warmup 1000 500 300
    .venv/bin/python benchmarks/metric.py --pilot                   # five minutes
    .venv/bin/python benchmarks/metric.py --sequence 1 3            # half an hour

A row for each warm-up: steps per draw, smallest bulk ESS of 4 x 1,000 draws, CPU seconds and ESS by
CPU second, of a diagonal metric and of a dense one. With --pilot or --sequence two rows for each
case at default settings, without a pilot run of the chains and with one: leapfrog steps per draw of
the last stage; of all stages R-hat, diverging draws, smallest bulk and tail ESS; CPU seconds with
checks of the program, and bulk ESS by CPU second.
"""

import argparse
import os
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pandas as pd

import dpbayes as dpb
from dpbayes.mechanisms.posterior import starts

RECORDS = 2_000
MECHANISMS = {"unweighted": dpb.Unweighted(), "censored": dpb.Censored(4.0)}
COLUMNS = {
    "normal": {"type": "continuous", "lower": -10, "upper": 10},
    "poisson": {"type": "count", "lower": 0, "upper": 200},
    "bernoulli": {"type": "binary", "levels": ["a", "b"]},
    "beta": {"type": "continuous", "lower": 0, "upper": 1},
    "categorical": {"type": "categorical", "levels": ["a", "b", "c"]},
}
# Family, covariates, records, and whether they are correlated.
PILOT = [
    ("normal", 20, 300, True), ("normal", 20, 2_000, True), ("normal", 20, 10_000, False),
    ("normal", 50, 2_000, False), ("bernoulli", 20, 300, False), ("bernoulli", 20, 2_000, True),
    ("poisson", 20, 2_000, False), ("beta", 20, 2_000, False), ("categorical", 20, 300, False),
    ("categorical", 20, 2_000, True),
]  # fmt: skip


def records_of(family: str, covariates: int, correlated: bool, n: int = RECORDS):
    """Schema, records and formula; correlations of covariates are 0 or 0.5."""
    rng = np.random.default_rng(1)
    x = {f"x{k}": rng.uniform(-1, 1, n) for k in range(1, covariates + 1)}
    scale = np.sqrt(5 / covariates)
    if correlated:
        common = rng.uniform(-1, 1, n)
        x = {name: (values + common) / 2 for name, values in x.items()}
        scale = np.sqrt(5) / covariates
    eta = scale * sum(x.values())
    drawn = {
        "normal": lambda: np.clip(rng.normal(eta, 1), -10, 10),
        "poisson": lambda: np.minimum(rng.poisson(np.exp(1 + 0.6 * eta)), 200),
        "bernoulli": lambda: np.where(rng.uniform(size=n) < 1 / (1 + np.exp(-eta)), "b", "a"),
        "beta": lambda: np.clip(
            rng.beta(8 / (1 + np.exp(-eta)), 8 / (1 + np.exp(eta))), 1e-4, 0.9999
        ),
        "categorical": lambda: np.array([*"abc"])[
            (rng.gumbel(size=(n, 3)) + np.column_stack([0 * eta, eta, -eta / 2])).argmax(axis=1)
        ],
    }
    public = {"type": "continuous", "lower": -1, "upper": 1, "public": True}
    columns = {"y": COLUMNS[family], **dict.fromkeys(x, public)}
    schema = dpb.Schema.from_dict({"columns": columns})
    return schema, pd.DataFrame({"y": drawn[family](), **x}), "y ~ " + " + ".join(x)


def measured(given, family: str, mechanism, metric, warmup: int) -> list[str]:
    """Steps, ESS, CPU seconds and ESS per CPU second of one fit."""
    schema, records, formula = given
    settings = dpb.SamplerSettings(
        warmup=warmup, draws=1000, seed=1, metric=metric, parallel_chains=1
    )
    start = sum(os.times()[:4])
    model = dpb.Regression(formula, family)
    fit = dpb.Synthesizer(schema, mechanism, model, settings=settings).fit(
        records, allow_nonconvergence=True
    )
    seconds = sum(os.times()[:4]) - start
    posterior = fit.fitted.posterior
    steps = float(posterior.draws["sample_stats"]["n_steps"].mean())
    ess = posterior.diagnostics.min_ess_bulk
    return [f"{steps:.1f}", f"{ess:.0f}", f"{seconds:.1f}", f"{ess / seconds:.0f}"]


def with_and_without(label: str, synthesizer: dpb.Synthesizer, records) -> None:
    """Two rows: a fit without pilot runs, and one with them."""
    for many, pilot in ((np.inf, "no"), (starts.MANY, "yes")):
        with patch.object(starts, "MANY", many):
            start = sum(os.times()[:4])
            fit = synthesizer.fit(records, allow_nonconvergence=True).fitted
            seconds = sum(os.times()[:4]) - start
        told = [posterior.diagnostics for posterior in fit.posteriors]
        steps = float(fit.draws["sample_stats"]["n_steps"].mean())
        bulk = min(one.min_ess_bulk for one in told)
        cells = [
            label, pilot, f"{steps:.1f}", f"{max(one.max_rhat for one in told):.3f}",
            f"{sum(one.divergences for one in told)}", f"{bulk:.0f}",
            f"{min(one.min_ess_tail for one in told):.0f}", f"{seconds:.1f}",
            f"{bulk / seconds:.0f}",
        ]  # fmt: skip
        print("|", " | ".join(cells), "|", flush=True)


def pilots(sequences: list[float]) -> None:
    """Those of ``PILOT``, or the sequence of rivals.py at some ε."""
    settings = dpb.SamplerSettings(seed=1, parallel_chains=1)
    for epsilon in sequences:
        import rival_case

        records, compared = rival_case.populations()["earnings"]()
        columns = {n: replace(c, public=False) for n, c in compared.schema.columns.items()}
        columns["age"] = replace(columns["age"], type="continuous", digits=0)
        synthesizer = dpb.Synthesizer(
            dpb.Schema(columns), dpb.Anchored(epsilon), rival_case.sequence(), settings=settings
        )
        with_and_without(f"sequence, anchored, ε = {epsilon:g}", synthesizer, records)
    measured(records_of("normal", 1, correlated=False), "normal", dpb.Unweighted(), None, 20)
    for family, covariates, n, correlated in [] if sequences else PILOT:
        schema, records, formula = records_of(family, covariates, correlated, n)
        model = dpb.Regression(formula, family)
        synthesizer = dpb.Synthesizer(schema, dpb.Censored(4.0), model, settings=settings)
        about = f"{family} | {n:,} | {covariates}{', correlated' * correlated}"
        with_and_without(about, synthesizer, records)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", choices=COLUMNS, default="normal")
    parser.add_argument("--mechanism", choices=MECHANISMS, default="unweighted")
    parser.add_argument("--covariates", type=int, default=20)
    parser.add_argument("--correlated", action="store_true")
    parser.add_argument("--warmup", nargs="+", type=int, default=[1000])
    parser.add_argument("--pilot", action="store_true")
    parser.add_argument("--sequence", nargs="+", type=float, default=[], help="epsilons")
    options = parser.parse_args()
    if options.pilot or options.sequence:
        pilots(options.sequence)
        return
    given = records_of(options.family, options.covariates, options.correlated)
    mechanism = MECHANISMS[options.mechanism]
    measured(given, options.family, mechanism, None, 20)  # imports
    for warmup in options.warmup:
        found = [
            cell
            for metric in ("diag_e", "dense_e")
            for cell in measured(given, options.family, mechanism, metric, warmup)
        ]
        print("|", " | ".join([str(options.covariates), f"{warmup:,}", *found]), "|", flush=True)


if __name__ == "__main__":
    main()
