"""A diagonal or a dense metric, and how much warm-up: effective draws per CPU second.

    .venv/bin/python benchmarks/metric.py --family normal --covariates 20 --correlated
    .venv/bin/python benchmarks/metric.py --covariates 50 --warmup 1000 500 300

A row for each warm-up: steps per draw, smallest bulk ESS of 4 x 1,000 draws, CPU seconds and ESS by
CPU second, of a diagonal metric and of a dense one.
"""

import argparse
import os

import numpy as np
import pandas as pd

import dpbayes as dpb

RECORDS = 2_000
MECHANISMS = {"unweighted": dpb.Unweighted(), "censored": dpb.Censored(4.0)}
COLUMNS = {
    "normal": {"type": "continuous", "lower": -10, "upper": 10},
    "poisson": {"type": "count", "lower": 0, "upper": 200},
    "bernoulli": {"type": "binary", "levels": ["a", "b"]},
}


def records_of(family: str, covariates: int, correlated: bool):
    """Schema, records and formula; correlations of covariates are 0 or 0.5."""
    rng = np.random.default_rng(1)
    x = {f"x{k}": rng.uniform(-1, 1, RECORDS) for k in range(1, covariates + 1)}
    scale = np.sqrt(5 / covariates)
    if correlated:
        common = rng.uniform(-1, 1, RECORDS)
        x = {name: (values + common) / 2 for name, values in x.items()}
        scale = np.sqrt(5) / covariates
    eta = scale * sum(x.values())
    drawn = {
        "normal": lambda: np.clip(rng.normal(eta, 1), -10, 10),
        "poisson": lambda: np.minimum(rng.poisson(np.exp(1 + 0.6 * eta)), 200),
        "bernoulli": lambda: np.where(rng.uniform(size=RECORDS) < 1 / (1 + np.exp(-eta)), "b", "a"),
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", choices=COLUMNS, default="normal")
    parser.add_argument("--mechanism", choices=MECHANISMS, default="unweighted")
    parser.add_argument("--covariates", type=int, default=20)
    parser.add_argument("--correlated", action="store_true")
    parser.add_argument("--warmup", nargs="+", type=int, default=[1000])
    options = parser.parse_args()
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
