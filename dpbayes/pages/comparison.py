"""Sections of the confidential page that look at records and synthetic rows beside each other."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpbayes.core.arrays import Floats
from dpbayes.core.errors import InferenceError
from dpbayes.core.lazy import pd
from dpbayes.evaluate.joint import total_variation
from dpbayes.evaluate.utility import interval_overlap, utility
from dpbayes.inference.regressions import formula_fit
from dpbayes.pages import figures
from dpbayes.pages.page import PageTable, Picture, Section
from dpbayes.report.whole import Whole, bounds_of, joint_utility, risk, tables_of
from dpbayes.schema import Column, Schema

LOST = 0.5  # overlap of intervals, below which a coefficient is named
Fits = tuple[list[str], tuple[Floats, Floats], tuple[Floats, Floats]]


@dataclass(frozen=True)
class PageTopic:
    """What a page looks at, beside the release.

    Attributes:
        schema: of the records.
        records: as they were read.
        holdout: of the same population, which were not synthesised; or None.
        keys, sensitive: columns that an intruder knows, and wants to know.
        formulas: of regressions that are fitted to both.
        show_values: messages may show values of the records.
    """

    schema: Schema
    records: pd.DataFrame
    holdout: pd.DataFrame | None = None
    keys: Sequence[str] = ()
    sensitive: str | None = None
    formulas: Sequence[str] = field(default_factory=tuple)
    show_values: bool = False

    def beside(self, released: pd.DataFrame) -> Whole:
        """The columns that are released, of records and synthetic rows."""
        names = [name for name in self.schema.columns if name in released]
        some = Schema({name: self.schema[name] for name in names})
        return Whole.of(some, self.records, released, self.holdout, show_values=self.show_values)


def sections(
    question: PageTopic, released: pd.DataFrame, statement: Mapping[str, Any]
) -> list[Section]:
    """Utility and disclosure risk of a data set."""
    whole = question.beside(released)
    found = [_columns(whole), _together(whole)]
    if question.formulas:
        found.append(_regressions(whole, question.formulas))
    if question.keys:
        table = risk(whole, question.keys, question.sensitive, bounds_of(statement))
        known = ", ".join(question.keys)
        text = [
            f"What somebody who knows {known} of a record finds in the synthetic rows, what is "
            "found without them, and what the guarantee bounds it by. An attack that fails proves "
            "nothing; the bound holds for all attacks."
        ]
        picture = Picture.of(
            figures.risk(table),
            "Shares of matches and right guesses in the synthetic rows, without them, and what the "
            "guarantee bounds them by; the table below has the numbers.",
            "",
        )
        attacks = PageTable.of("Attacks", table)
        found.append(Section("Disclosure risk", text, pictures=[picture], tables=[attacks]))
    return found


def _columns(whole: Whole) -> Section:
    """One column at a time."""
    rows, pictures = [], []
    for name, column in whole.schema.columns.items():
        ours, theirs = whole.records[name], whole.synthetic[name]
        if column.public:  # as they are, in another order
            continue
        found = utility(column, ours, theirs)
        means = [_mean(column, found[key]) for key in ("original", "synthetic")]
        share = [f"{t.isna().mean():.1%}" if column.optional else "" for t in (ours, theirs)]
        rows.append(
            [
                column.title,
                None if column.type == "binary" else found.get("max_ecdf"),
                found.get("total_variation"),
                *means,
                *share,
            ]
        )
        pictures.append(
            Picture.of(
                figures.distribution(column, ours, theirs),
                f"Distribution of {name} in the records and in the synthetic rows. The table below "
                "has their distance.",
                "",
            )
        )
    head = [
        "column", "largest ECDF difference", "total variation", "mean, records",
        "mean, synthetic", "missing, records", "missing, synthetic",
    ]  # fmt: skip
    if not any(column.optional for column in whole.schema.columns.values()):
        head, rows = head[:-2], [row[:-2] for row in rows]
    table = PageTable("Distance of each column, on the first data set", head, rows).filled()
    public = [name for name, column in whole.schema.columns.items() if column.public]
    text = [f"Public columns are released as they are: {', '.join(public)}."] if public else []
    return Section("Columns one by one", text, pictures=pictures, tables=[table])


def _mean(column: Column, summary: Mapping[str, Any]) -> Any:
    if "mean" not in summary:
        return ""
    return column.shown(round(summary["mean"])) if column.type == "date" else summary["mean"]


def pair_grid(whole: Whole) -> tuple[tuple[str, ...], Floats]:
    """Names, and total variation of every two columns, of one alone on the diagonal."""
    tables = tables_of(whole)
    names = tables.names
    grid = np.diag(total_variation(tables, 1))
    if len(names) > 1:
        both = total_variation(tables, 2)
        for (i, j), distance in zip(
            itertools.combinations(range(len(names)), 2), both, strict=True
        ):
            grid[i, j] = grid[j, i] = distance
    return names, grid


def _together(whole: Whole) -> Section:
    """Columns by one, two and three, and all at once."""
    names, grid = pair_grid(whole)
    i, j = divmod(int(np.argmax(grid)), len(names))
    picture = Picture.of(
        figures.pairs(names, grid),
        f"Total variation distance of every two columns. The largest, {grid[i, j]:.3f}, is of "
        f"{names[i]} and {names[j]}.",
        "Numbers in at most twenty bins of their declared range; one column alone on the diagonal.",
    )
    text = [
        "Total variation distance is the largest difference of the shares of any set of cells. A "
        "pMSE ratio near 1 means that a logistic regression cannot tell synthetic rows from a "
        "bootstrap of the records, or a classification tree from others of the population.",
        "Marginal and conditional distances are sums of squared differences of shares: of the "
        "levels of a column, and of the same at each level of another column.",
    ]
    table = PageTable.of("Distances of the whole table", joint_utility(whole))
    return Section("Columns together", text, pictures=[picture], tables=[table])


def _regressions(whole: Whole, formulas: Sequence[str]) -> Section:
    """Regressions on records and on the first data set, beside each other."""
    pictures, tables, missed = [], [], []
    for formula in formulas:
        names, ours, theirs = fits = fitted(whole, formula)
        table = coefficients(fits)
        few = table.loc[table["interval overlap"] < LOST, "coefficient"]
        if len(few):
            missed.append(f"{formula}: {', '.join(few)}")
        tables.append(PageTable.of(f"{formula} (least squares)", table))
        figure = figures.regression(formula, {"data": ours, "synthetic": theirs}, names)
        mean = table["interval overlap"].mean()
        text = f"Coefficients of {formula}; mean overlap of 95% intervals {mean:.2f}."
        pictures.append(Picture.of(figure, text, text))
    note = (
        "Intervals of one synthetic data set leave out what noise and synthesis add; overlap is of "
        "95% intervals, 1 where they are the same and below 0 where they are apart. Rows with a "
        "missing value in a regression are left out of it."
    )
    texts = [note]
    if missed:
        texts.append(f"Intervals overlap by less than {LOST:.0%}: {'; '.join(missed)}.")
    return Section("Regressions", texts, pictures=pictures, tables=tables)


def fitted(whole: Whole, formula: str) -> Fits:
    """Names of coefficients; they and their standard errors, of records and of synthetic rows.

    Raises:
        InferenceError: a regression cannot be fitted, or has other coefficients on one of them.
    """
    fit = formula_fit(formula)
    names, ours = _fitted(fit, whole.schema, whole.records)
    others, theirs = _fitted(fit, whole.schema, whole.synthetic)
    if names != others:
        raise InferenceError(
            f"{formula!r} has other coefficients on synthetic rows than on the records: a "
            "level is missing in one of them."
        )
    return names, ours, theirs


def coefficients(fits: Fits) -> pd.DataFrame:
    """A regression on records and on synthetic rows, and how much 95 % intervals overlap."""
    names, ours, theirs = fits
    return pd.DataFrame(
        {
            "coefficient": names, "records": ours[0], "se": ours[1], "synthetic": theirs[0],
            "se, synthetic": theirs[1], "interval overlap": interval_overlap(ours, theirs),
        }
    )  # fmt: skip


def _fitted(
    fit: Callable[[pd.DataFrame], Any], schema: Schema, data: pd.DataFrame
) -> tuple[list[str], tuple[Floats, Floats]]:
    plain = data.astype({n: object for n in data if schema[str(n)].levels})
    with warnings.catch_warnings():  # the section says what is left out
        warnings.simplefilter("ignore", UserWarning)
        found = fit(plain)
    return [str(name) for name in found.params.index], (
        np.asarray(found.params, dtype=float),
        np.asarray(found.bse, dtype=float),
    )
