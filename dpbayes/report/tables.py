"""Tables that compare synthesizers: confidential."""

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
    """Measures by data and synthesizers.

    ε is the local 2Δ on these records, as in the paper; the guarantee is what ``fit.guarantee``
    says. Utility is that of the first data set, for a numeric column, by default the first fit's
    first synthetic one. Mechanisms without a posterior have no local ε.

    Source: hu-williams-savitsky, table 2.
    """
    first = next(iter(fits.values()))
    column = column or first.synthesised[0]
    original = first.records[column.name]
    table = pd.DataFrame({"Data": {SUMMARY[k]: v for k, v in summary(column, original).items()}})
    for name, fit in fits.items():
        measures = utility(column, original, releases[name].datasets[0][column.name])
        found = {
            **fit.findings().measures,
            "max-ECDF": measures["max_ecdf"],
            "avg-ECDF": measures["avg_ecdf"],
            **{SUMMARY[k]: v for k, v in measures["synthetic"].items()},
        }
        table = table.join(pd.Series(found, name=name), how="outer")
    rows = ["Lipschitz", "ε = 2Δ", "max-ECDF", "avg-ECDF", *SUMMARY.values()]
    return table.reindex(rows)
