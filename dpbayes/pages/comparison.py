"""Sections of the confidential page that compare records with synthetic rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpbayes.core.arrays import Floats
from dpbayes.core.errors import DpbayesError
from dpbayes.core.lazy import pd
from dpbayes.engines.progress import progress_of
from dpbayes.evaluate.utility import utility
from dpbayes.pages import figures, regressions
from dpbayes.pages.page import PageTable, Picture, Section, per_cent, to_spread
from dpbayes.pages.regressions import Compared, OnRecords
from dpbayes.pages.verdict import (
    Comparison,
    chance_of_shares,
    lost_distance,
    means,
    of_column,
    of_data_sets,
    over_data_sets,
    verdict,
    worst_correlations,
    worst_pairs,
)
from dpbayes.report.whole import (
    BINS,
    Whole,
    bounds_of,
    correlations,
    joint_utility,
    numbers_of,
    risk,
    tables_of,
)
from dpbayes.schema import Column, Schema


@dataclass(frozen=True)
class PageTopic:
    """Data and questions of a confidential page, in addition to the release.

    Attributes:
        schema: schema of the records.
        records: the confidential records as they were read.
        holdout: records of the same population that were not synthesised, or None.
        keys, sensitive: columns that an intruder knows, and the column that it wants to know.
        formulas: formulas of regressions to fit to records and to synthetic rows.
        show_values: messages may show values of the records.
        progress: show a bar of the data sets.
    """

    schema: Schema
    records: pd.DataFrame
    holdout: pd.DataFrame | None = None
    keys: Sequence[str] = ()
    sensitive: str | None = None
    formulas: Sequence[str] = field(default_factory=tuple)
    show_values: bool = False
    progress: bool = False

    def for_formula(self, whole: Whole, released: pd.DataFrame, formula: str) -> Whole:
        """Return the tables that a regression is of."""
        return whole.of_members(self.schema, self.records, released, formula)

    def beside(self, released: pd.DataFrame) -> Whole:
        """Pair the records with the released rows, for the released columns."""
        names = [name for name in self.schema.columns if name in released]
        columns = {name: self.schema[name] for name in names}
        released_schema = Schema(columns, survey=self.schema.survey)
        return Whole.of(
            released_schema, self.records, released, self.holdout, show_values=self.show_values
        )


@dataclass(frozen=True)
class _Measured:
    """What is compared of one data set.

    Attributes:
        columns: measures of ``utility`` by column.
        pairs: see ``pair_grids``.
        fits: regressions by formula.
        outcomes: comparison of each column, pair, correlation and coefficient.
    """

    columns: Mapping[str, Mapping[str, Any]]
    pairs: tuple[tuple[str, ...], Floats, Floats]
    fits: Mapping[str, Compared]
    outcomes: Sequence[Comparison]


def sections(
    question: PageTopic,
    data_sets: Iterable[pd.DataFrame],
    statement: Mapping[str, Any],
    others: Sequence[Comparison] = (),
) -> list[Section]:
    """Sections on utility and disclosure risk, with a verdict on all data sets at the top.

    Distances are means over the data sets; pictures of columns, distances of the whole table and
    attacks are of the first one.

    Args:
        others: further comparisons for the verdict.
    """
    released = iter(data_sets)
    first = next(released)
    whole = question.beside(first)
    fitted: dict[str, OnRecords] = {}
    unfitted: dict[str, str] = {}
    for formula, asked in regressions.to_compare(statement, question.formulas).items():
        own = question.for_formula(whole, first, formula)
        if asked:
            regressions.check_columns(own.schema, formula)
        try:
            fitted[formula] = regressions.of_records(own, formula)
        except DpbayesError as error:
            unfitted[formula] = str(error)
    measured = [_measured(question, first, whole, fitted, unfitted)]
    total = statement["datasets"] - 1
    with progress_of(total, "comparing data sets", shown=question.progress) as done:
        for data in released:
            measured.append(_measured(question, data, question.beside(data), fitted, unfitted))
            done()
    outcomes = over_data_sets([of.outcomes for of in measured])
    page_sections = [
        verdict([*outcomes, *others]),
        _columns(whole, measured),
        _together(whole, [of.pairs for of in measured], outcomes),
    ]
    if fitted or unfitted:
        fits = [of.fits for of in measured]
        page_sections.append(regressions.section(fits, unfitted, statement))
    if question.keys:
        bounds = bounds_of(statement, row=True)
        table = risk(whole, question.keys, question.sensitive, bounds)
        key_names = ", ".join(question.keys)
        text = [
            f"What somebody who knows {key_names} of a record finds in the synthetic rows, what is "
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
        page_sections.append(Section("Disclosure risk", text, pictures=[picture], tables=[attacks]))
    return page_sections


def _measured(
    question: PageTopic,
    data: pd.DataFrame,
    whole: Whole,
    fitted: Mapping[str, OnRecords],
    unfitted: dict[str, str],
) -> _Measured:
    """Compare a data set with the records.

    Args:
        data, whole: the data set as it was read, and paired with the records.
        fitted: regressions on the records, by formula.
        unfitted: takes the reason why a regression cannot be compared on a data set, the first of
            each formula.
    """
    sizes = whole.size, len(whole.synthetic)
    columns = {
        name: utility(column, whole.weighed[name], whole.synthetic[name])
        for name, column in whole.schema.columns.items()
        if not column.public  # released unchanged, only reordered
    }
    outcomes = [o for name, of in columns.items() for o in of_column(name, of, *sizes)]
    pairs = pair_grids(whole)
    outcomes += _mean_outcomes(whole, columns)
    outcomes += _pair_outcomes(whole.schema, *pairs)
    outcomes += _correlation_outcomes(whole)
    fits = {}
    for formula, ours in fitted.items():
        try:
            own = question.for_formula(whole, data, formula)
            fits[formula] = regressions.compared(own, formula, ours)
        except DpbayesError as error:
            unfitted.setdefault(formula, str(error))
        else:
            outcomes += fits[formula].outcomes
    return _Measured(columns, pairs, fits, outcomes)


def _mean_outcomes(whole: Whole, measures: Mapping[str, Mapping[str, Any]]) -> Iterator[Comparison]:
    """Yield a comparison of the mean of each column of numbers or days."""
    for name, of in measures.items():
        column, records = whole.schema[name], whole.weighed[name]
        if column.levels or "mean" not in of["original"] or "mean" not in of["synthetic"]:
            continue
        ours, sd = of["original"]["mean"], float(np.std(numbers_of(column, records.dropna())))
        if sd == 0:
            continue

        def lost(distances: Sequence[float], of: Any = (column, records, ours, sd)) -> str:
            column, records, ours, sd = of
            values = [ours + sd * at for at in (np.mean(distances), min(distances), max(distances))]
            mean, low, high, true = (
                _centre(column, {"mean": value}, records) for value in (*values, ours)
            )
            spread = f" ({low} to {high})" if len(distances) > 1 else ""
            return f"Mean of `{column.name}`: {mean}{spread} in place of {true}"

        apart = float(of["synthetic"]["mean"] - ours) / sd
        present = records.notna().mean() * whole.size, whole.synthetic[name].notna().sum()
        chance = float(np.sqrt(sum(1 / count for count in present)))
        yield Comparison("mean", name, (apart,), chance, lost)


def _columns(whole: Whole, measured: Sequence[_Measured]) -> Section:
    """Section on each column by itself."""
    rows, pictures = [], []
    for name in measured[0].columns:
        column, ours, theirs = whole.schema[name], whole.weighed[name], whole.synthetic[name]
        measures = means([of.columns[name] for of in measured])
        both = measures["original"], measures["synthetic"]
        rows.append(
            [
                column.title,
                None if column.type == "binary" else _short(measures.get("max_ecdf")),
                _short(measures.get("total_variation")),
                *(_centre(column, of, ours) for of in both),
                *(f"{of['missing']:.1%}" if column.optional else "" for of in both),
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
        "column", "largest ECDF difference", "total variation", "mean or share, records",
        "mean or share, synthetic", "missing, records", "missing, synthetic",
    ]  # fmt: skip
    if not any(column.optional for column in whole.schema.columns.values()):
        head, rows = head[:-2], [row[:-2] for row in rows]
    caption = "Distance of each column" + of_data_sets(len(measured))
    table = PageTable(caption, head, rows).filled()
    public = [name for name, column in whole.schema.columns.items() if column.public]
    text = [f"Public columns are released as they are: {', '.join(public)}."] if public else []
    if len(measured) > 1:
        text.append("Pictures show the first data set.")
    return Section("Columns one by one", text, pictures=pictures, tables=[table])


def _short(distance: float | None) -> float | None:
    return None if distance is None else round(distance, 3)


def _centre(column: Column, summary: Mapping[str, Any], records: pd.Series) -> str:
    """Mean of a column with digits that suit the spread of the records, or share of one of two."""
    if len(column.levels) == 2:
        level = column.levels[1]
        return f"{level}: {per_cent(summary[f'share of {level}'])}"
    if "mean" not in summary:
        return ""
    if column.calendar is not None:
        return column.shown(round(summary["mean"]))
    return to_spread(summary["mean"], float(records.astype(float).std()))


def pair_grids(whole: Whole) -> tuple[tuple[str, ...], Floats, Floats]:
    """Total variation of every pair of columns; single columns on the diagonal.

    Returns:
        Names of the columns; the distances; and the mean distances of another sample of the
        population, both of shape (columns, columns).
    """
    tables = tables_of(whole)
    size, n, m = len(tables.names), whole.size, len(whole.synthetic)
    grid, chance = np.zeros((size, size)), np.zeros((size, size))
    for i, j in itertools.combinations_with_replacement(range(size), 2):
        p, q = tables.shares(*{i, j})
        grid[i, j] = grid[j, i] = np.abs(p - q).sum() / 2
        chance[i, j] = chance[j, i] = chance_of_shares(p, n, m)
    return tables.names, grid, chance


def _pair_outcomes(
    schema: Schema, names: Sequence[str], grid: Floats, chance: Floats
) -> list[Comparison]:
    """Outcomes of the pairs that are not public as a whole."""
    outcomes = []
    for i, j in itertools.combinations(range(len(names)), 2):
        if not (schema[names[i]].public and schema[names[j]].public):
            distance, expected = float(grid[i, j]), float(chance[i, j])
            lost = lost_distance(f"Pair `{names[i]}` and `{names[j]}`", expected)
            name = f"{names[i]}, {names[j]}"
            outcomes.append(Comparison("pair", name, (distance,), expected, lost))
    return outcomes


def _correlation_outcomes(whole: Whole) -> list[Comparison]:
    """Comparisons of the correlations that are not public."""
    outcomes = []
    for row in correlations(whole).to_dict("records"):
        first, second, value = row["first"], row["second"], float(row["records"])
        if whole.schema[first].public and whole.schema[second].public:
            continue
        outcomes.append(
            Comparison(
                "correlation",
                f"{first}, {second}",
                (float(row["synthetic"] - value),),
                float(row["error"]),
                _lost_correlation(f"Correlation of `{first}` and `{second}`", value),
                value,
            )
        )
    return outcomes


def _lost_correlation(what: str, value: float) -> Callable[[Sequence[float]], str]:
    """Text of a lost correlation, given its difference in each data set."""
    return lambda distances: f"{what}: {value + np.mean(distances):.3f} in place of {value:.3f}"


def _together(
    whole: Whole,
    pairs: Sequence[tuple[Sequence[str], Floats, Floats]],
    outcomes: Sequence[Comparison],
) -> Section:
    """Section on one, two and three columns at a time, and on all together."""
    names, grid = pairs[0][0], np.mean([of[1] for of in pairs], axis=0)
    i, j = divmod(int(np.argmax(grid)), len(names))
    picture = Picture.of(
        figures.pairs(names, grid),
        f"Total variation distance of every two columns{of_data_sets(len(pairs))}. The largest, "
        f"{grid[i, j]:.3f}, is of {names[i]} and {names[j]}.",
        f"Numbers in about {BINS} bins with equally many records; one column alone on the "
        "diagonal.",
    )
    text = [
        "Total variation distance is the largest difference of the shares of any set of cells. A "
        "pMSE ratio near 1 means that a logistic regression cannot tell synthetic rows from a "
        "bootstrap of the records, or a classification tree from others of the population.",
        "Marginal and conditional distances are sums of squared differences of shares: of the "
        "levels of a column, and of the same at each level of another column.",
    ]
    first = ", first data set" if len(pairs) > 1 else ""
    every = PageTable.of(f"Distances of the whole table{first}", joint_utility(whole))
    worst = [worst_pairs(outcomes), worst_correlations(outcomes)]
    tables = [table for table in (*worst, every) if table.rows]
    return Section("Columns together", text, pictures=[picture], tables=tables)
