"""Confidential report files: findings of a fit, and how close a release is to the records."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpbayes.core.lazy import pd
from dpbayes.evaluate.members import between_members
from dpbayes.evaluate.utility import utility
from dpbayes.mechanisms.base import Findings
from dpbayes.plots import charts
from dpbayes.plots.check_charts import check_panels
from dpbayes.report.utility_warnings import DATA_SET, MEMBERS, UNCLAMPED
from dpbayes.synthesis.fit import Fit
from dpbayes.synthesis.release import Release
from dpbayes.synthesis.saved_fit import as_json, fit_files

UTILITY = "utility.json"
FEW = 5  # data sets of which members of households are compared
SAMPLE = 100_000  # records to compare, if they are read in chunks


def fit_report(findings: Findings) -> dict[str, bytes]:
    """Build the files of a fit's findings, by name: weights, draws, diagnostics, record bounds."""
    files = fit_files(findings)
    if findings.bounds:
        n = len(next(iter(findings.bounds.values())))
        figure = charts.lipschitz_violin(findings.bounds, findings.epsilon, line=findings.half)
        mark = charts.confidential_mark(n, findings.summary["guarantee"])
        files["lipschitz.png"] = charts.png(figure, mark)
    return files


def release_report(fit: Fit[Any], release: Release) -> dict[str, bytes]:
    """Build the files that compare a release with the records, by name. Confidential.

    If records are read in chunks, ``SAMPLE`` of them are compared with as many synthetic rows.
    """
    table = fit.task.table
    records = table.sample(SAMPLE)
    shown_rows = len(records) if len(records) < len(table) else None
    records = table.schema.at_equal_weights(records)
    measures: dict[str, dict[str, object]] = {}
    columns = {column.name: column for column in fit.synthesised}
    datasets = [
        pd.DataFrame({name: column.validate(data[name]) for name, column in columns.items()})
        for data in (data.head(shown_rows) if shown_rows else data for data in release.datasets)
    ]
    named = {f"{DATA_SET}{i}": data for i, data in enumerate(datasets, start=1)}
    unclamped = fit.fitted.unclamped(np.random.default_rng())
    if unclamped is not None:
        named[UNCLAMPED] = unclamped
    for label, data in named.items():
        measures[label] = {
            name: utility(column, records[name], column.validate(data[name]))
            for name, column in columns.items()
        }
    if table.schema.unit is not None:
        validated = [table.schema.validate(data) for data in release.datasets[:FEW]]
        found = between_members(table.schema, table.frame, validated)
        measures[MEMBERS] = {row["relation"]: row for row in found.to_dict("records")}
    figure = charts.beside_records(fit.synthesised, records, datasets)
    mark = charts.confidential_mark(len(table), release.guarantee.to_dict())
    if shown_rows is not None:
        measures["sample"] = {"records": shown_rows, "of": len(table)}
        mark = f"{mark} · {shown_rows:,} records shown"
    if len(columns) > charts.MOST_PANELS:
        mark = f"{mark} · the first {charts.MOST_PANELS} of {len(columns)} columns"
    return {UTILITY: as_json(measures), "density.png": charts.png(figure, mark)}


def check_report(fit: Fit[Any]) -> dict[str, bytes]:
    """Build the files of the posterior predictive checks, by name; none without a Stan model."""
    if fit.task.model is None:
        return {}
    check = fit.check()
    mark = charts.confidential_mark(len(fit.records), fit.guarantee.to_dict())
    content = charts.png(check_panels(check), mark)
    return {"check.csv": check.table.to_csv(index=False).encode(), "check.png": content}
