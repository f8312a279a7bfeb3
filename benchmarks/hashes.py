"""Hashes of draws, data sets and claims of some hundred fixed cases, to see what a change moved.

    python -m benchmarks.hashes --out before.csv
    python -m benchmarks.hashes --compare before.csv

A redesign that means to move nothing leaves every hash of draws and data as it was. Hashes are of
one machine and one set of installed versions: other versions of NumPy or of an engine have others.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

import dpbayes as dpb
from tests.conftest import make_records
from tests.programs import OUTCOME
from tests.unit.test_rows import CASES, schema, table

SHORT = dpb.SamplerSettings(chains=2, warmup=100, draws=50, seed=20_261)
ROWS = 120
COLUMNS = {
    "y": {"type": "continuous", "lower": 0, "upper": 10},
    "visits": {"type": "count", "upper": 1000},
    "ill": {"type": "binary", "levels": ["no", "yes"]},
    "party": {"type": "categorical", "levels": ["a", "b", "c"]},
    "health": {"type": "ordinal", "levels": ["bad", "fair", "good", "best"]},
    "wage": {"type": "continuous", "lower": 0, "upper": 10, "atoms": [0, 2.5]},
    "rooms": {"type": "count", "lower": 1, "upper": 30},
    "age": {"type": "count", "lower": 20, "upper": 60, "public": True},
    "sex": {"type": "categorical", "levels": ["f", "m"], "public": True},
    "region": {"type": "categorical", "levels": ["n", "e", "s"], "public": True},
}
PUBLIC = ("age", "sex", "region")
GROUPED = {
    "intercepts": "y ~ age + (1 | region)",
    "slopes": "y ~ age + (age | region)",
    "crossed": "y ~ (1 | region) + (1 | sex)",
}
SEQUENCE = [("y ~ sex", "normal"), ("ill ~ y", "bernoulli"), ("visits ~ ill", "poisson")]


def digest(*values: Any) -> str:
    """A short hash of arrays and texts."""
    total = hashlib.sha256()
    for value in values:
        array = np.asarray(value)
        total.update(str(array.shape).encode())
        total.update(array.tobytes() if array.dtype.kind in "fiub" else repr(list(value)).encode())
    return total.hexdigest()[:16]


def schema_of(*outcomes: str) -> dpb.Schema:
    """Some confidential columns with the public ones."""
    return dpb.Schema.from_dict({"columns": {name: COLUMNS[name] for name in (*outcomes, *PUBLIC)}})


def outcomes_of(formula: str) -> tuple[str, ...]:
    """The confidential columns of a formula's left side."""
    left = formula.partition("~")[0]
    return tuple(
        name
        for name in COLUMNS
        if name in left.replace("(", " ").replace(",", " ").split()
        or f"({name}" in left.replace(" ", "")
        or f",{name})" in left.replace(" ", "")
    )


def cases() -> Iterator[tuple[str, Callable[[], tuple[str, str, str]]]]:
    """Names of cases, and what gives their hashes: of draws, data sets and claims."""
    for number, (mechanism, names) in enumerate(CASES):
        yield (
            f"without model {number}",
            lambda m=mechanism, k=names: without_model(m, k),
        )
    for family, column in OUTCOME.items():
        formula = f"{column} ~ age + sex"
        model = dpb.Regression(formula, family)
        for mechanism in (dpb.Unweighted(), dpb.Weighted(), dpb.Censored(1.0), dpb.Anchored(1.0)):
            yield f"{family} {mechanism.name}", lambda m=mechanism, r=model: with_model(m, r)
        yield (
            f"{family} score",
            lambda r=model: with_model(dpb.Score(1.0), r),
        )
        yield (
            f"{family} candidates",
            lambda r=model: with_model(dpb.Anchored(1.0), r, engine="candidates"),
        )
    for kind, formula in GROUPED.items():
        for mechanism in (dpb.Censored(2.0), dpb.Anchored(1.0)):
            model = dpb.Regression(formula, "normal")
            yield f"{kind} {mechanism.name}", lambda m=mechanism, r=model: with_model(m, r)
    sequence = dpb.Sequence([dpb.Regression(*pair) for pair in SEQUENCE])
    for mechanism in (dpb.Censored(2.0), dpb.Anchored(1.0)):
        yield (
            f"sequence {mechanism.name}",
            lambda m=mechanism: with_model(m, sequence, columns=("y", "ill", "visits")),
        )
    if os.environ.get("CMDSTAN"):
        for family in ("normal", "bernoulli"):
            model = dpb.Regression(f"{OUTCOME[family]} ~ age", family)
            yield (
                f"{family} cmdstan",
                lambda r=model: with_model(dpb.Anchored(1.0), r, engine="cmdstan"),
            )


def without_model(mechanism: Any, names: tuple[str, ...]) -> tuple[str, str, str]:
    """A mechanism that draws from no Stan program, with the number of rows declared."""
    made = dpb.Synthesizer(schema(names, 20), mechanism, settings=SHORT)
    return hashes(made, table(25)[list(names)])


def with_model(
    mechanism: Any, model: Any, engine: str = "embedded", columns: tuple[str, ...] = ()
) -> tuple[str, str, str]:
    """A mechanism on a model of some columns."""
    columns = columns or outcomes_of(model.formula)
    made = dpb.Synthesizer(schema_of(*columns), mechanism, model, engine=engine, settings=SHORT)
    return hashes(made, make_records(ROWS)[[*columns, *PUBLIC]])


def hashes(made: dpb.Synthesizer[Any], records: pd.DataFrame) -> tuple[str, str, str]:
    """Of draws, two data sets and the claim."""
    fit = made.fit(records, allow_nonconvergence=True)
    try:
        draws = fit.to_datatree()["posterior"].data_vars.values()
    except dpb.DpbayesError:
        draws = ()
    release = fit.sample(2, accept="none", seed=SHORT.seed)
    # Rows are released in random order, by numbers of the operating system.
    tables = [data.sort_values(list(data)).reset_index(drop=True) for data in release.datasets]
    columns = [table[name].to_numpy() for table in tables for name in table]
    return digest(*draws), digest(*columns), digest(list(release.guarantee.to_json()))


def run(chosen: str) -> pd.DataFrame:
    """The hashes of all cases whose name contains a word."""
    rows = {}
    for name, case in cases():
        if chosen in name:
            try:
                rows[name] = case()
            except dpb.DpbayesError as error:
                rows[name] = ("refused", type(error).__name__, digest(list(str(error))))
            print(f"{name:48} {' '.join(rows[name])}", flush=True)
    return pd.DataFrame.from_dict(rows, orient="index", columns=["draws", "data", "claim"])


def main() -> int:
    """Write hashes, or compare them with those of a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out")
    parser.add_argument("--compare")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    options = parser.parse_args()
    now = run(options.only)
    if options.out:
        now.to_csv(options.out, index_label="case")
    if not options.compare:
        return 0
    before = pd.read_csv(options.compare, index_col="case").reindex(now.index)
    moved = (before != now).sum()
    print(f"{len(now)} cases; changed: " + ", ".join(f"{v} {k}" for k, v in moved.items()))
    for name in now.index[(before != now)[["draws", "data"]].any(axis=1)]:
        print(f"  {name}")
    return int(moved[["draws", "data"]].sum() > 0)


if __name__ == "__main__":
    sys.exit(main())
