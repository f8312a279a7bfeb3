"""Families for real outcomes at default settings, against the plain family: mixing and time.

    .venv/bin/python benchmarks/families.py                    # half an hour
    .venv/bin/python benchmarks/families.py --family histogram --mechanism unweighted

One row per family and mechanism: leapfrog steps per draw, divergences of 4,000 draws, largest
R-hat, smallest bulk ESS per 1,000 draws and per second of processors, with those of the plain
family in brackets, and seconds as a ratio. Both are fitted to the same outcome; one that has atoms
is without them for the plain family.
"""

import argparse

import numpy as np
import pandas as pd
from groups import MECHANISMS, fitted
from scipy import stats

import dpbayes as dpb

UNIT = {"type": "continuous", "lower": 0, "upper": 1, "digits": 3}
WIDE = {"type": "continuous", "lower": 0, "upper": 3, "digits": 3}
ATOMS = {"atoms": [0]}
COUNT = {"type": "count", "lower": 0, "upper": 200}
POSITIVE = {"type": "count", "lower": 1, "upper": 200}
LEVELS = {"type": "ordinal", "levels": ["a", "b", "c", "d"]}
SURV = "Surv(y, seen)"
# Family, the plain one, column, and how the outcome is made (see ``outcome``).
CASES = [
    ("student_t", "normal", UNIT, "heavy"),
    ('normal(sigma = "~ x")', "normal", UNIT, "scaled"),
    ("truncated_normal", "normal", UNIT, "cut"),
    ("truncated_lognormal", "lognormal", WIDE, "skewed"),
    ("mixture", "normal", UNIT, "two"),
    ("mixture(components = 3)", "normal", UNIT, "three"),
    ("mixture_lognormal", "lognormal", WIDE, "skewed two"),
    ("histogram", "normal", UNIT, "three"),
    ("weibull", "gamma", WIDE, "skewed"),
    ("exponential", "gamma", WIDE, "skewed"),
    ("survival_exponential", "exponential", WIDE, "times"),
    ("survival_weibull", "weibull", WIDE, "times"),
    ("survival_lognormal", "lognormal", WIDE, "times"),
    ("semicontinuous_lognormal", "lognormal", WIDE | ATOMS, "skewed"),
    ("semicontinuous_gamma", "gamma", WIDE | ATOMS, "skewed"),
    ("semicontinuous_beta", "beta", UNIT | ATOMS, "cut"),
    ("semicontinuous_truncated_normal", "truncated_normal", UNIT | ATOMS, "cut"),
    ("ordinal_probit", "ordinal", LEVELS, "levels"),
    ("zero_truncated_poisson", "poisson", POSITIVE, "poisson"),
    ("zero_truncated_neg_binomial", "neg_binomial", POSITIVE, "wide"),
    ("hurdle_poisson", "poisson", COUNT, "poisson"),
    ("hurdle_neg_binomial", "neg_binomial", COUNT, "wide"),
    ("zero_inflated_poisson", "poisson", COUNT, "poisson"),
    ("zero_inflated_neg_binomial", "neg_binomial", COUNT, "wide"),
]


def outcome(kind, eta, rng):
    """Shape (n,), inside the bounds, given linear predictors of sd about 1."""
    n = len(eta)
    mean, small = 0.5 + 0.1 * eta, np.exp(-1 + 0.4 * eta)
    pick = rng.choice(3, n, p=(0.3, 0.5, 0.2))
    counts = np.exp(1 + 0.5 * eta)
    made = {
        "heavy": lambda: mean + 0.06 * rng.standard_t(4, n),
        "scaled": lambda: mean + 0.1 * np.exp(0.5 * eta) * rng.normal(size=n),
        "cut": lambda: stats.truncnorm.rvs(
            (0 - mean) / 0.3, (1 - mean) / 0.3, mean, 0.3, random_state=rng
        ),
        "two": lambda: mean - 0.1 + np.where(pick < 1, -0.1, 0.15) + 0.06 * rng.normal(size=n),
        "three": lambda: (
            mean + np.array([-0.3, 0, 0.3])[pick]
            + np.array([0.05, 0.08, 0.04])[pick] * rng.normal(size=n)
        ),
        "skewed": lambda: small * rng.lognormal(0, 0.4, n),
        "skewed two": lambda: small * np.where(pick < 1, 0.3, 1) * rng.lognormal(0, 0.25, n),
        "times": lambda: 2 * small * rng.weibull(1.5, n),
        "levels": lambda: np.array([*"abcd"])[
            (rng.normal(size=n) + eta > np.array([[-1.5], [0], [1]])).sum(axis=0)
        ],
        "poisson": lambda: np.where(rng.uniform(size=n) < 0.3, 0, rng.poisson(counts)),
        "wide": lambda: np.where(
            rng.uniform(size=n) < 0.3, 0, rng.negative_binomial(3, 3 / (3 + counts))
        ),
    }  # fmt: skip
    return made[kind]()


def case(column, kind, n, rng):
    """Schemas and records for a family and the plain one."""
    x = rng.uniform(size=n)
    y = outcome(kind, np.sqrt(12) * (x - 0.5), rng)
    seen = np.full(n, "yes")
    if kind == "times":
        left = rng.exponential(3, n)
        seen = np.where(y <= np.minimum(left, column["upper"]), "yes", "no")
        y = np.minimum(y, left)
    if "upper" in column:
        least = column["lower"] if column["type"] == "count" else 1e-3
        y = np.clip(y, least, column["upper"] - (1e-3 if column is UNIT else 0))
    at = rng.uniform(size=n) < (0.2 if "atoms" in column else 0)
    records = pd.DataFrame({"y": y, "x": x, "seen": seen})
    with_atoms = records.assign(y=np.where(at, 0, y)) if at.any() else records
    plain = {key: value for key, value in column.items() if key != "atoms"}
    return (schema(column), with_atoms), (schema(plain), records[~at].reset_index(drop=True))


def schema(column):
    covariate = {"type": "continuous", "lower": 0, "upper": 1, "public": True}
    seen = {"type": "binary", "levels": ["no", "yes"]}
    return dpb.Schema.from_dict({"columns": {"y": column, "x": covariate, "seen": seen}})


def row(family, plain, column, kind, name, n):
    ours, theirs = case(column, kind, n, np.random.default_rng(1))
    left = SURV if family.startswith("survival") else "y"
    found = []
    for given, formula, one in ((ours, f"{left} ~ x", family), (theirs, "y ~ x", plain)):
        posterior, seconds = fitted(*given, MECHANISMS[name], formula, one)
        draws = posterior.draws["posterior"].sizes
        least = posterior.diagnostics.min_ess_bulk
        found.append(
            {
                "steps": float(posterior.draws["sample_stats"]["n_steps"].mean()),
                "ess": least / (draws["chain"] * draws["draw"]) * 1000,
                "rate": least / seconds,
                "seconds": seconds,
                "told": posterior.diagnostics,
            }
        )
    a, b = found
    print(
        f"| {family} | {plain} | {name} | {a['steps']:.0f} ({b['steps']:.0f}) "
        f"| {a['told'].divergences} | {a['told'].max_rhat:.3f} | {a['ess']:.0f} ({b['ess']:.0f}) "
        f"| {a['rate']:.0f} ({b['rate']:.0f}) | {a['seconds']:.1f} "
        f"| {a['seconds'] / b['seconds']:.1f} x |",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", nargs="+", help="all, if left out")
    parser.add_argument("--mechanism", nargs="+", default=list(MECHANISMS), choices=MECHANISMS)
    parser.add_argument("--records", type=int, default=1000)
    options = parser.parse_args()
    imports = case(UNIT, "two", 50, np.random.default_rng(0))[0]
    fitted(*imports, dpb.Unweighted(), "y ~ x", "normal")
    print("| family | plain | mechanism | steps | divergences | R-hat | ESS per 1,000 | ESS per s "
          "| CPU s | time |")  # fmt: skip
    print("|---" * 10 + "|")
    for name in options.mechanism:
        for each in CASES:
            if options.family is None or each[0] in options.family:
                row(*each, name, options.records)


if __name__ == "__main__":
    main()
