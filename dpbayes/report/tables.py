"""Confidential tables that compare synthesizers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpbayes.core.lazy import pd
from dpbayes.evaluate.utility import summary, utility
from dpbayes.schema import Column
from dpbayes.synthesis.fit import Fit
from dpbayes.synthesis.release import Release

SUMMARY = {"mean": "Mean", "median": "Median", "q15": "15th Q", "q90": "90th Q"}


def comparison_table(
    fits: Mapping[str, Fit[Any]],
    releases: Mapping[str, Release],
    column: Column | None = None,
) -> pd.DataFrame:
    """Compare synthesizers: risk and utility measures, one column for the data and for each fit.

    ε is the local 2Δ on these records, as in the paper; see ``fit.guarantee`` for the guarantee.
    Utility refers to the first data set and a numeric column, by default the first synthesised
    column of the first fit. Mechanisms without a posterior have no local ε.

    Source: hu-williams-savitsky, table 2.
    """
    first_fit = next(iter(fits.values()))
    column = column or first_fit.synthesised[0]
    original = first_fit.records[column.name]
    table = pd.DataFrame({"Data": {SUMMARY[k]: v for k, v in summary(column, original).items()}})
    for name, fit in fits.items():
        measures = utility(column, original, releases[name].datasets[0][column.name])
        cells = {
            **fit.findings().measures,
            "max-ECDF": measures["max_ecdf"],
            "avg-ECDF": measures["avg_ecdf"],
            **{SUMMARY[k]: v for k, v in measures["synthetic"].items()},
        }
        table = table.join(pd.Series(cells, name=name), how="outer")
    rows = ["Lipschitz", "ε = 2Δ", "max-ECDF", "avg-ECDF", *SUMMARY.values()]
    return table.reindex(rows)
