"""Hu, Williams & Savitsky, section 5: Table 2 and Figure 9, on earnings instead of salaries.

Their sample of the Survey of Doctoral Recipients is not available. It is replaced by the shipped
sample of the Current Population Survey, with their n = 1,601, and by all 61,395 records that it was
drawn from. The layout is theirs, ``anchored`` is ours, and measures are means over several data
sets, where they have one. The histogram is of earnings alone and with noise of scale 2/ε, as in the
paper: its ε is for a changed record, and for a record more or less it is ε/2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dpbayes.core.lazy import pd
from dpbayes.demo.earnings import EARNINGS_MODEL, alone, earnings
from dpbayes.demo.run import EPSILON, POSTERIORS
from dpbayes.engines import SamplerSettings
from dpbayes.evaluate.utility import avg_ecdf, max_ecdf, summary
from dpbayes.mechanisms import (
    PerturbedHistogram,
)
from dpbayes.plots import charts
from dpbayes.schema import Schema
from dpbayes.synthesis.fit import Fit
from dpbayes.synthesis.synthesizer import Synthesizer
from studies.runner import Chart, Report, Study

DATASETS = 20
# Iterations before and after adaptation, of four chains each.
SAMPLES = {"sample": (1000, 1000), "all records": (250, 250)}
SYNTHESIZERS = (*POSTERIORS, PerturbedHistogram.name)
MEASURES = {
    "lipschitz": "Lipschitz",
    "epsilon": "ε = 2Δ",
    "max_ecdf": "max-ECDF",
    "avg_ecdf": "avg-ECDF",
    "mean": "Mean",
    "median": "Median",
    "q15": "15th Q",
    "q90": "90th Q",
}
# Table 2 by column, each in the order of MEASURES: the data, then all SYNTHESIZERS but ours.
NAN = float("nan")
PRINTED = {
    "data": (NAN, NAN, NAN, NAN, 91019, 80000, 51000, 150000),
    "weighted": (2.62, 5.24, 0.0656, 0.0011, 92994, 80135, 44303, 162351),
    "weighted-e": (2.61, 5.22, 0.1020, 0.0025, 89525, 76451, 40574, 158037),
    "censored-weighted": (2.50, 5.00, 0.0968, 0.0026, 88581, 75642, 41142, 158426),
    "censored": (2.50, 5.00, 0.1350, 0.0039, 88840, 75211, 38107, 162686),
    "perturbed-histogram": (NAN, 5.00, 0.1310, 0.0057, 93654, 91180, 30108, 163872),
}


def run(
    seed: np.random.SeedSequence, data: str, synthesizer: str, datasets: int = DATASETS
) -> pd.DataFrame:
    """Run one synthesizer on one data set: rows of quantity, number of the synthetic set, value.

    ``density`` of the first synthetic set is evaluated at points ``at``; synthesizer ``data`` is
    the records themselves.

    Source: hu-williams-savitsky, section 5.
    """
    records, schema = earnings(whole=data == "all records")
    column = schema["earnings"]
    # All synthesizers use the study's own seed, so that fits of the same posterior agree.
    assert isinstance(seed.entropy, int)
    rows: list[tuple[str, float, float, float]] = []
    if synthesizer == "data":
        column_records, column_schema = alone(column.name, records, schema)
        original = column_schema.validate(column_records)[column.name]
        sets = [original]
    else:
        warmup, draws = SAMPLES[data]
        settings = SamplerSettings(warmup=warmup, draws=draws, seed=seed.entropy, parallel_chains=1)
        fit, fit_measures = _fit(synthesizer, records, schema, settings)
        original = fit.records[column.name]
        rows += [(quantity, 0, NAN, value) for quantity, value in fit_measures.items()]
        release = fit.sample(datasets, accept="none", seed=seed.entropy)
        sets = [drawn[column.name] for drawn in release.datasets]
    for number, values in enumerate(sets):
        measures = summary(column, values)
        if synthesizer != "data":
            measures["max_ecdf"] = max_ecdf(original, values)
            measures["avg_ecdf"] = avg_ecdf(original, values)
        rows += [(quantity, number, NAN, value) for quantity, value in measures.items()]
    points, height = charts.density(sets[0].to_numpy(float), column)
    rows += [("density", 0, x, y) for x, y in zip(points, height, strict=True)]
    results = pd.DataFrame(rows, columns=["quantity", "set", "at", "value"])
    return results.assign(data=data, n=len(records), synthesizer=synthesizer)


def _fit(
    name: str, records: pd.DataFrame, schema: Schema, settings: SamplerSettings
) -> tuple[Fit[Any], dict[str, float]]:
    """Fit a synthesizer; return the fit with its bound, convergence and ε."""
    if name == PerturbedHistogram.name:
        column_records, column_schema = alone("earnings", records, schema)
        mechanism = PerturbedHistogram(EPSILON, adjacency="substitution")
        histogram = Synthesizer(column_schema, mechanism).fit(column_records)
        return histogram, {"epsilon": EPSILON}
    synthesizer = Synthesizer(schema, POSTERIORS[name], EARNINGS_MODEL, settings=settings)
    fit = synthesizer.fit(records, allow_nonconvergence=True)
    fitted = fit.fitted
    return fit, {
        "lipschitz": fitted.lipschitz_bound,
        "converged": float(fitted.converged),
        "epsilon": fitted.epsilon_local,
    }


def pieces(datasets: int) -> Iterator[dict[str, object]]:
    """One piece per fit; the longest first."""
    for data in reversed(SAMPLES):
        for synthesizer in ("data", *SYNTHESIZERS):
            yield {"data": data, "synthesizer": synthesizer, "datasets": datasets}


def table(found: pd.DataFrame) -> pd.DataFrame:
    """Means over the synthetic sets with standard errors, beside the paper's figures.

    Source: hu-williams-savitsky, table 2.
    """
    rows = found[found["quantity"] != "density"]
    keys = ["data", "n", "synthesizer", "quantity"]
    means = rows.groupby(keys)["value"].agg(["mean", "sem"]).reset_index()
    printed = _printed()
    pairs = zip(means["quantity"], means["synthesizer"], strict=True)
    return means.rename(columns={"mean": "ours", "sem": "se"}).assign(
        paper=[printed.get(pair, NAN) for pair in pairs]
    )


def _printed() -> dict[tuple[str, str], float]:
    return {
        (quantity, name): value
        for name, values in PRINTED.items()
        for quantity, value in zip(MEASURES, values, strict=True)
    }


DIGITS = {"max_ecdf": "{:.4f}", "avg_ecdf": "{:.6f}"}


def _layout(values: Mapping[Any, float]) -> str:
    """Format values by (quantity, synthesizer) in the layout of Table 2."""
    names = [n for n in ("data", *SYNTHESIZERS) if any(name == n for _, name in values)]
    cells = {
        name: {
            label: DIGITS.get(quantity, "{:,.2f}").format(values[quantity, name])
            if np.isfinite(values.get((quantity, name), NAN))
            else ""
            for quantity, label in MEASURES.items()
        }
        for name in names
    }
    return pd.DataFrame(cells).to_string()


def report(found: pd.DataFrame) -> Report:
    """Report a table and a density figure for each data set, and the paper's table.

    Source: hu-williams-savitsky, figure 9.
    """
    shown = table(found)
    text = [
        f"Hu, Williams & Savitsky, Table 2, at ε = {EPSILON:g} for one data set: strict ε-DP, "
        "add/remove, for censored\nand anchored; strict, for a changed record, for "
        "perturbed-histogram; a target, asymptotic, for the others.\nε = 2Δ is confidential"
    ]
    figures = {}
    for data in SAMPLES:
        part = found[found["data"] == data]
        if part.empty:
            continue
        sets = part["set"].nunique()
        ours = shown[shown["data"] == data].set_index(["quantity", "synthesizer"])["ours"]
        text.append(
            f"Earnings, {data}, n = {part['n'].iloc[0]:,}: means over {sets} synthetic sets\n\n"
            + _layout(ours.to_dict())
        )
        failed = [name for name in POSTERIORS if ours.get(("converged", name)) == 0]
        if failed:
            text.append(f"Not converged: {', '.join(failed)}.")
        density = part[part["quantity"] == "density"]
        lines = {
            name: (rows["at"].to_numpy(), rows["value"].to_numpy())
            for name in ("data", *SYNTHESIZERS)
            if len(rows := density[density["synthesizer"] == name])
        }
        name = f"density-{data.replace(' ', '-')}"
        curve = density[["synthesizer", "at", "value"]].rename(columns={"value": "density"})
        figures[name] = Chart(charts.density_lines(lines, "earnings"), curve)
    text.append(
        "The paper's, Survey of Doctoral Recipients, n = 1,601: one synthetic set\n\n"
        + _layout(_printed())
    )
    return Report("\n\n".join(text), {"table-2": shown}, figures)


STUDY = Study(
    "sdr",
    "Hu, Williams & Savitsky, section 5: Table 2's layout on 1,601 and 61,395 earnings",
    DATASETS,
    lambda replicates: list(pieces(replicates)),
    run,
    report,
)
