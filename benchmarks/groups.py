"""Hierarchical models at default settings: do the chains mix, and what do the groups cost?

    .venv/bin/python benchmarks/groups.py                       # the families, an hour
    .venv/bin/python benchmarks/groups.py --turn 0 --cell 0 1 2 # the smallest, a third of them
    .venv/bin/python benchmarks/groups.py --part sizes          # J and n
    .venv/bin/python benchmarks/groups.py --part terms          # crossed, nested, slopes
    .venv/bin/python benchmarks/groups.py --family normal beta

One row per case: leapfrog steps per draw, divergences of 4,000 draws, largest R-hat, smallest bulk
ESS per 1,000 draws, and seconds of processors, also as a ratio to the model without groups on the
same records.
"""

import argparse
import os
from functools import partial

import numpy as np
import pandas as pd

import dpbayes as dpb

FAMILIES = ("normal", "lognormal", "beta", "gamma", "bernoulli", "poisson", "neg_binomial",
            "categorical", "ordinal")  # fmt: skip
MECHANISMS = {
    "unweighted": dpb.Unweighted(),
    "censored, ε = 4": dpb.Censored(4.0),
    "anchored, ε = 1": dpb.Anchored(1.0),
}
SHAPES = {"balanced": False, "1/j": True}  # sizes of the groups
SDS = (0.0, 0.1, 1.0)  # true sd between groups, in linear predictors of sd about 1
# J and n of the first part. Over its turns and the families, each with all of the above.
CELLS = [(3, 300), (10, 300), (30, 300), (100, 1_000), (10, 3_000), (1_000, 1_000)]
TURNS = 3
# J, n, sd, sizes and mechanism of the second part, for the normal family.
_CLAMPED, _ANCHORED = list(MECHANISMS)[1:]
SIZES = [
    (3, 300, 0.1, "balanced", "unweighted"), (3, 100_000, 0.1, "balanced", "unweighted"),
    (10, 10_000, 0.5, "balanced", "unweighted"), (30, 10_000, 0.1, "balanced", "unweighted"),
    (100, 10_000, 0.5, "balanced", "unweighted"), (1_000, 10_000, 0.1, "balanced", "unweighted"),
    (1_000, 100_000, 0.5, "balanced", "unweighted"), (1_000, 100_000, 1, "1/j", _CLAMPED),
    (10_000, 100_000, 0.1, "balanced", "unweighted"), (10_000, 100_000, 1, "1/j", _CLAMPED),
    (10_000, 100_000, 1, "balanced", _ANCHORED),
]  # fmt: skip
# Formula, levels of a and of b, of the third part.
TERMS = [
    ("(1 | a) + (1 | b)", 3, 10), ("(1 | a) + (1 | b)", 10, 30), ("(1 | a/b)", 5, 10),
    ("(x | a)", 3, 2), ("(x | a)", 10, 2), ("(x | a)", 100, 2), ("(x || a)", 10, 2),
    ("(x | a) + (1 | b)", 30, 5),
]  # fmt: skip


def groups_of(rng, n, groups, skewed):
    share = 1 / np.arange(1, groups + 1) if skewed else np.ones(groups)
    return rng.choice(groups, n, p=share / share.sum())


def records_of(family, n, groups, sd, skewed, seed=1):
    """Schema and records: an outcome, a public covariate x and a public group g."""
    rng = np.random.default_rng(seed)
    group = groups_of(rng, n, groups, skewed)
    x = rng.uniform(size=n)
    eta = 0.5 * (x - 0.5) + (sd * rng.normal(size=groups))[group]
    return table_of(family, eta, x, {"g": (group, groups)}, rng)


def records_of_terms(family, n, formula, levels, sd, skewed, seed=1):
    """With groups a and b: effects of both, of their pairs or slopes, half as far apart."""
    rng = np.random.default_rng(seed)
    a, b = (groups_of(rng, n, groups, skewed) for groups in levels)
    x = rng.uniform(size=n)
    eta = 0.5 * (x - 0.5) + sd * rng.normal(size=levels[0])[a]
    if "/" in formula:
        eta += 0.5 * sd * rng.normal(size=levels)[a, b]
    elif "b" in formula:
        eta += 0.5 * sd * rng.normal(size=levels[1])[b]
    if "x" in formula:
        eta += 0.5 * sd * rng.normal(size=levels[0])[a] * np.sqrt(12) * (x - 0.5)
    return table_of(family, eta, x, {"a": (a, levels[0]), "b": (b, levels[1])}, rng)


def table_of(family, eta, x, groups, rng):
    n = len(x)
    mean = np.exp(1 + 0.6 * eta)
    small = np.exp(-2 + 0.6 * eta)
    p = 1 / (1 + np.exp(-eta))
    unit = {"type": "continuous", "lower": 0, "upper": 1}
    wide = {"type": "continuous", "lower": 0, "upper": 3}
    count = {"type": "count", "lower": 0, "upper": 200}
    made = {
        "normal": lambda: (unit, np.clip(rng.normal(0.5 + 0.15 * eta, 0.15), 0, 1)),
        "lognormal": lambda: (wide, np.clip(small * rng.lognormal(0, 0.5, n), 1e-4, 3)),
        "gamma": lambda: (wide, np.clip(rng.gamma(4, small / 4), 1e-4, 3)),
        "beta": lambda: (unit, np.clip(rng.beta(8 * p, 8 - 8 * p), 1e-4, 1 - 1e-4)),
        "bernoulli": lambda: levels("binary", ["a", "b"], rng.uniform(size=n) < p),
        "poisson": lambda: (count, np.minimum(rng.poisson(mean), 200)),
        "neg_binomial": lambda: (
            count, np.minimum(rng.negative_binomial(3, 3 / (3 + mean)), 200),
        ),
        "categorical": lambda: levels(
            "categorical", ["a", "b", "c"],
            (rng.gumbel(size=(n, 3)) + np.column_stack([0 * eta, eta, -0.5 * eta])).argmax(axis=1),
        ),
        "ordinal": lambda: levels(
            "ordinal", ["a", "b", "c", "d"],
            (rng.logistic(size=n) + eta > np.array([[-2], [0], [1.5]])).sum(axis=0),
        ),
    }  # fmt: skip
    column, y = made[family]()
    columns = {"y": column, "x": {"type": "continuous", "lower": 0, "upper": 1, "public": True}}
    values = {"y": y, "x": x}
    for name, (codes, count) in groups.items():
        names = [f"{name}{j}" for j in range(count)]
        columns[name] = {"type": "categorical", "levels": names, "public": True}
        values[name] = np.array(names)[codes]
    return dpb.Schema.from_dict({"columns": columns}), pd.DataFrame(values)


def levels(kind, names, codes):
    return {"type": kind, "levels": names}, np.array(names)[np.asarray(codes, dtype=int)]


def fitted(schema, records, mechanism, formula, family):
    start = processors()
    synthesizer = dpb.Synthesizer(
        schema, mechanism, dpb.Regression(formula, family), settings=dpb.SamplerSettings(seed=3)
    )
    fit = synthesizer.fit(records, allow_nonconvergence=True)
    posterior = getattr(fit.fitted, "posterior", None) or fit.fitted.unweighted
    return posterior, processors() - start


def processors():
    """Seconds of this process and of those that it started and has waited for."""
    return sum(os.times()[:4])


def row(family, groups, n, sd, shape, name):
    given = records_of(family, n, groups, sd, SHAPES[shape])
    measure(f"{family} | {groups:,} | {n:,} | {sd:g} | {shape}", name, family, given, "(1 | g)")


def row_of_terms(family, n, term, levels, sd, shape, name):
    given = records_of_terms(family, n, term, levels, sd, SHAPES[shape])
    said = term.replace("|", "\\|")
    measure(f"{family}, {said} | {levels[0]}, {levels[1]} | {n:,} | {sd:g} | {shape}", name, family,
            given, term)  # fmt: skip


def measure(case, name, family, given, term):
    run = partial(fitted, *given, MECHANISMS[name])
    without, least = run("y ~ x", family)
    posterior, seconds = run(f"y ~ x + {term}", family)
    found = posterior.diagnostics
    steps, plain = (float(p.draws["sample_stats"]["n_steps"].mean()) for p in (posterior, without))
    draws = posterior.draws["posterior"].sizes
    per_thousand = found.min_ess_bulk / (draws["chain"] * draws["draw"]) * 1000
    print(
        f"| {case} | {name} | {steps:.0f} ({plain:.0f}) "
        f"| {found.divergences} | {found.max_rhat:.3f} | {per_thousand:.0f} "
        f"| {seconds:.1f} | {seconds / least:.1f} x |",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=("families", "sizes", "terms"), default="families")
    parser.add_argument("--family", nargs="+", default=FAMILIES, choices=FAMILIES)
    parser.add_argument("--turn", nargs="+", type=int, default=range(TURNS))
    parser.add_argument("--cell", nargs="+", type=int)
    parser.add_argument("--records", type=int, default=3000)
    options = parser.parse_args()
    fitted(*records_of("normal", 50, 3, 0, False), dpb.Unweighted(), "y ~ x", "normal")  # imports
    print("| family | J | n | sd | sizes | mechanism | steps (without) | divergences | R-hat "
          "| ESS per 1,000 | CPU s | time |")  # fmt: skip
    print("|---" * 12 + "|")
    if options.part == "sizes":
        for i in options.cell or range(len(SIZES)):
            row("normal", *SIZES[i])
        return
    cases = list(zip(SDS, ("balanced", "1/j", "balanced"), MECHANISMS, strict=True))
    if options.part == "terms":
        for family in options.family:
            for term, *levels in TERMS:
                for sd, shape, name in cases:
                    row_of_terms(family, options.records, term, levels, sd, shape, name)
        return
    for turn in options.turn:
        for i in options.cell or range(len(CELLS)):
            for f in options.family:
                k = i + turn + FAMILIES.index(f)
                name, shape = list(MECHANISMS)[k % 3], list(SHAPES)[(k // 3 + turn) % 2]
                row(f, *CELLS[i], SDS[turn], shape, name)


if __name__ == "__main__":
    main()
