"""Files of the confidential side: what a fit says of the records, and how close a release is."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from dpbayes.core.lazy import pd
from dpbayes.evaluate.utility import utility
from dpbayes.mechanisms.base import Findings
from dpbayes.plots import charts
from dpbayes.plots.check_charts import check_panels
from dpbayes.report.utility_warnings import UNCLAMPED
from dpbayes.synthesis.fit import Fit
from dpbayes.synthesis.release import Release
from dpbayes.synthesis.saved_fit import as_json, fit_files

SHOWN = 4  # data sets in a figure
UTILITY = "utility.json"
SAMPLE = 100_000  # of records in parts


def fit_report(findings: Findings) -> dict[str, bytes]:
    """Files that say what a fit found, by name: weights, draws, diagnostics, by-record bounds."""
    files = fit_files(findings)
    if findings.bounds:
        n = len(next(iter(findings.bounds.values())))
        figure = charts.lipschitz_violin(findings.bounds, findings.epsilon, line=findings.half)
        mark = charts.confidential_mark(n, findings.summary["guarantee"])
        files["lipschitz.png"] = png(figure, mark)
    return files


def release_report(fit: Fit[Any], release: Release) -> dict[str, bytes]:
    """Files that compare a release with the records, by name. Confidential.

    Where records come in parts, ``SAMPLE`` of them are compared with as many synthetic rows.
    """
    table = fit.task.table
    records = table.sample(SAMPLE)
    most = len(records) if len(records) < len(table) else None
    measures: dict[str, dict[str, object]] = {}
    columns = {column.name: column for column in fit.synthesised}
    datasets = [
        pd.DataFrame({name: column.validate(data[name]) for name, column in columns.items()})
        for data in (data.head(most) if most else data for data in release.datasets)
    ]
    named = {f"synthetic_{i}": data for i, data in enumerate(datasets, start=1)}
    plain = fit.fitted.unclamped(np.random.default_rng())
    if plain is not None:
        named[UNCLAMPED] = plain
    for label, data in named.items():
        measures[label] = {
            name: utility(column, records[name], column.validate(data[name]))
            for name, column in columns.items()
        }
    shown = {f"synthetic {i}": data for i, data in enumerate(datasets[:SHOWN], start=1)}
    figure = charts.density_overlays(fit.synthesised, records, shown)
    mark = charts.confidential_mark(len(table), release.guarantee.to_dict())
    if most is not None:
        measures["sample"] = {"records": most, "of": len(table)}
        mark = f"{mark} · {most:,} records shown"
    return {UTILITY: as_json(measures), "density.png": png(figure, mark)}


def check_report(fit: Fit[Any]) -> dict[str, bytes]:
    """Files of the posterior predictive checks, by name; none where no model was drawn from."""
    if fit.task.model is None:
        return {}
    check = fit.check()
    mark = charts.confidential_mark(len(fit.records), fit.guarantee.to_dict())
    content = png(check_panels(check), mark)
    return {"check.csv": check.table.to_csv(index=False).encode(), "check.png": content}


def png(figure: Figure, mark: str) -> bytes:
    """A figure of the confidential side as a file."""
    content = io.BytesIO()
    charts.mark(figure, mark).savefig(content)
    return content.getvalue()
