"""Regressions and groups on the confidential page: the records beside the synthetic rows."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpbayes.core.arrays import Floats, Mask
from dpbayes.core.errors import InferenceError, SchemaError
from dpbayes.core.lazy import pd
from dpbayes.evaluate.utility import interval_overlap
from dpbayes.formula.formula import columns_of, without_groups
from dpbayes.formula.text import parse
from dpbayes.formula.tree import Name, text_of
from dpbayes.inference.combining import combine
from dpbayes.inference.coverage import RULES_BY_MECHANISM, records_of, size_ratio
from dpbayes.inference.regressions import formula_fit
from dpbayes.pages import figures
from dpbayes.pages.page import PageTable, Picture, Section, shown
from dpbayes.pages.verdict import ALIKE, ERRORS, Comparison, of_data_sets
from dpbayes.report.whole import Whole, numbers_of
from dpbayes.schema import Schema

LONG = 3.0  # times the records' standard error above which that of readers is named
MODELS = {"ols": "least squares", "logit": "logistic", "ordinal": "proportional odds"}
FEWEST_GROUPS = 3  # whose means have a variance that says something
TELLING = 0.5  # correlation of groups' means in two samples below which groups hardly differ
Estimates = tuple[Floats, Floats]  # values and standard errors


@dataclass(frozen=True)
class Spread:
    """How far the means of an outcome differ between groups, by analysis of variance.

    Attributes:
        groups: number of groups.
        variance: variance of the groups' means that sampling within groups does not explain.
        error: its standard error.
        means: mean of each group.
        repeated: correlation of the means with those of another sample of the groups.

    Searle, Casella and McCulloch (1992), Variance Components, chapter 3, have the estimator for
    groups of unequal sizes; the standard error is that of normal outcomes in groups of their usual
    size.
    """

    groups: int
    variance: float
    error: float
    means: pd.Series
    repeated: float

    @property
    def sd(self) -> float:
        """Standard deviation between groups, 0 if sampling explains all differences."""
        return _sd(self.variance)

    @classmethod
    def of(cls, values: Floats, groups: pd.Series, size: float) -> Spread | None:
        """Estimate the spread; None for too few groups, or one record in each.

        Args:
            values: the outcome as numbers, shape (n,); nan where it is missing.
            groups: group of each row.
            size: number of rows that these are worth.
        """
        table = pd.DataFrame({"y": values, "group": groups.to_numpy()}).dropna()
        parts = table.groupby("group")["y"].agg(["size", "mean"])
        n, count = len(table), len(parts)
        if count < FEWEST_GROUPS or n <= count:
            return None
        between = float((parts["size"] * (parts["mean"] - table["y"].mean()) ** 2).sum())
        within = max(0.0, float(((table["y"] - table["y"].mean()) ** 2).sum()) - between)
        between, within = between / (count - 1), within / (n - count)
        usual = (n - float((parts["size"] ** 2).sum()) / n) / (count - 1)  # rows of a group
        error = math.sqrt(2 * (between**2 / (count - 1) + within**2 / (n - count))) / usual
        variance, fewer = (between - within) / usual, len(values) / size
        sampling = within / usual * fewer  # variance of a mean within its group
        repeated = variance / (variance + sampling) if variance > 0 else 0.0
        return cls(count, variance, error * math.sqrt(fewer), parts["mean"], repeated)

    def alike(self, other: Spread) -> float:
        """Correlation of the groups' means in both tables; 0 where one has no differences."""
        correlation = float(self.means.corr(other.means))
        return 0.0 if math.isnan(correlation) else correlation


@dataclass(frozen=True)
class Compared:
    """A regression and the groups of its formula, on the records and on a synthetic table.

    Attributes:
        formula: text of the formula, without group terms.
        model: a key of ``MODELS``.
        names: names of the coefficients.
        ours, theirs: coefficients and standard errors of the records, and of the synthetic rows.
        spreads: by the columns of a grouping, the outcome's spread in both tables.
        outcome: name of the outcome.
    """

    formula: str
    model: str
    names: list[str]
    ours: Estimates
    theirs: Estimates
    spreads: Mapping[tuple[str, ...], tuple[Spread, Spread]]
    outcome: str

    @property
    def finite(self) -> Mask:
        """Whether both tables have each estimate; a cutpoint is infinite without a row beyond."""
        return np.asarray(np.isfinite([*self.ours, *self.theirs]).all(axis=0))

    def only(self, kept: Mask) -> Compared:
        """Keep some of the coefficients."""
        names = [name for name, keep in zip(self.names, kept, strict=True) if keep]
        ours, theirs = ((of[0][kept], of[1][kept]) for of in (self.ours, self.theirs))
        return replace(self, names=names, ours=ours, theirs=theirs)

    def coefficients(self) -> pd.DataFrame:
        """Table of coefficients in both tables, with 95 % interval overlap."""
        return _coefficients(self.names, self.ours, self.theirs)

    @property
    def judged(self) -> list[str]:
        """Names of the coefficients that are judged: the intercept follows from the others."""
        return [name for name in self.names if name != "Intercept"] or self.names

    @property
    def outcomes(self) -> list[Comparison]:
        """Comparison of each coefficient, and of the spread between groups."""
        there = self.only(self.finite)
        named = [
            (f"Regression `{self.formula}`, {name}", name, value, error, synthetic)
            for name, value, error, synthetic in zip(
                there.names, *there.ours, there.theirs[0], strict=True
            )
            if name in self.judged
        ]
        outcomes = []
        for what, name, value, error, synthetic in named:
            apart = float((synthetic - value) / error) if error > 0 else 0.0
            lost = _lost(what, float(value), float(error))
            title = f"{name} in {self.formula}"
            outcomes.append(Comparison("coefficient", title, (apart,), lost=lost))
        for by, (ours, theirs) in self.spreads.items():
            apart = (theirs.variance - ours.variance) / ours.error if ours.error > 0 else 0.0
            title = f"sd of {self.outcome} between groups of {', '.join(by)}"
            lost = _lost(title[0].upper() + title[1:], ours.variance, ours.error, _sd)
            outcomes.append(Comparison("coefficient", title, (apart,), lost=lost))
            if ours.repeated >= TELLING:
                title = f"{self.outcome} by {', '.join(by)}"
                held, distance = 1 - ALIKE * ours.repeated, 1 - ours.alike(theirs)
                lost = _lost_means(title, ours.repeated)
                outcomes.append(Comparison("group", title, (distance,), held, lost))
        return outcomes


def released(statement: Mapping[str, Any]) -> list[str]:
    """Formulas of a release's own model, or of the regressions that it keeps."""
    settings = statement.get("settings", {})
    keep = settings.get("keep", ())
    texts = [settings.get("formula"), *(keep if isinstance(keep, list) else ())]
    return [text for text in texts if isinstance(text, str)]


def to_compare(statement: Mapping[str, Any], asked: Sequence[str]) -> dict[str, bool]:
    """Formulas of a release, and those that are asked for: True if it is asked for.

    Each regression is there once, with the groups of all formulas that have its fixed part.
    """
    texts: dict[object, str] = {}
    groups: dict[object, list[tuple[str, ...]]] = {}
    wanted = set()
    for text in (*released(statement), *asked):
        key, by = _regression_of(text)
        if key not in texts:
            texts[key], groups[key] = text, list(by)
        for columns in by:
            if columns not in groups[key]:
                groups[key].append(columns)
                texts[key] += f" + (1 | {':'.join(text_of(Name(name)) for name in columns)})"
        if text in asked:
            wanted.add(key)
    return {text: key in wanted for key, text in texts.items()}


def _regression_of(text: str) -> tuple[object, tuple[tuple[str, ...], ...]]:
    """What two texts of one regression share, and the columns of each of its group terms."""
    try:
        parsed, (_, by) = parse(text), without_groups(text)
    except SchemaError:  # refused where it is fitted
        return text, ()
    return (parsed.outcome, frozenset(map(frozenset, parsed.terms))), by


@dataclass(frozen=True)
class OnRecords:
    """A regression on the records.

    Attributes:
        formula: text of the formula, without group terms.
        model: a key of ``MODELS``.
        fit: fits it to a table.
        names: names of the coefficients.
        estimates: coefficients and standard errors.
        outcome: name of the outcome, if it is a column.
        groupings: columns of each group term.
    """

    formula: str
    model: str
    fit: Callable[[pd.DataFrame], object]
    names: list[str]
    estimates: Estimates
    outcome: str
    groupings: Sequence[tuple[str, ...]]


def check_columns(schema: Schema, formula: str) -> None:
    """Raise SchemaError if a text is not a formula, or has a column that is not declared."""
    outcomes, others = columns_of(formula)
    for name in (*outcomes, *others):
        schema[name]


def of_records(whole: Whole, formula: str) -> OnRecords:
    """Fit a regression to the records.

    A column of two levels has a logistic regression, one of ordered levels proportional odds.

    Raises:
        InferenceError: it cannot be fitted. SchemaError: a column is not declared.
    """
    try:
        plain, by = without_groups(formula)
        left, _ = columns_of(plain)
    except SchemaError as error:
        raise InferenceError(str(error)) from None
    declared = [name for name in left if name in whole.schema.columns]
    kind = whole.schema[declared[0]].type if len(declared) == len(left) == 1 else None
    model = "logit" if kind == "binary" else "ordinal" if kind == "ordinal" else "ols"
    levels = {c.name: c.levels for c in whole.schema.columns.values()}
    fit = formula_fit(plain, model, levels, whole.unit)
    names, (values, errors) = _fitted(fit, whole.schema, whole.weighed)
    ours = values, errors * math.sqrt(len(whole.weighed) / whole.size)
    return OnRecords(plain, model, fit, names, ours, left[0] if declared else "", by)


def compared(whole: Whole, formula: str, known: OnRecords | None = None) -> Compared:
    """Fit a regression to records and to synthetic rows, and compare the groups of its formula.

    Args:
        whole: the records and a synthetic table.
        formula: the formula.
        known: the regression on these records.
    Raises:
        InferenceError: a regression cannot be fitted, or has other coefficients on one table.
        SchemaError: a column is not declared.
    """
    ours = of_records(whole, formula) if known is None else known
    names, theirs = _fitted(ours.fit, whole.schema, whole.synthetic)
    if names != ours.names:
        raise InferenceError(
            f"{ours.formula!r} has other coefficients on synthetic rows than on the records: a "
            "level is missing in one of them."
        )
    spreads = _spreads(whole, ours.outcome, ours.groupings) if ours.outcome else {}
    return Compared(ours.formula, ours.model, names, ours.estimates, theirs, spreads, ours.outcome)


def _spreads(
    whole: Whole, outcome: str, groupings: Sequence[tuple[str, ...]]
) -> dict[tuple[str, ...], tuple[Spread, Spread]]:
    """Spread of an outcome between the groups of each grouping, in both tables."""
    column = whole.schema[outcome]
    if column.type == "categorical":
        return {}
    spreads = {}
    for by in groupings:
        for name in by:
            whole.schema[name]
        both = []
        for table, size in (
            (whole.weighed, whole.size),
            (whole.synthetic, float(len(whole.synthetic))),
        ):
            groups = table[list(by)].astype(str).agg("\x1f".join, axis=1)
            both.append(Spread.of(numbers_of(column, table[outcome]), groups, size))
        ours, theirs = both
        if ours is not None and theirs is not None:
            spreads[by] = ours, theirs
    return spreads


def section(
    of_each: Sequence[Mapping[str, Compared]],
    unfitted: Mapping[str, str] | None = None,
    statement: Mapping[str, Any] | None = None,
) -> Section:
    """Section that compares regressions and groups on the records and on the data sets.

    Args:
        of_each: regressions of each data set by formula.
        statement: that of the release, for the errors of what readers combine.
        unfitted: by formula, why the records, or the first data set without it, do not have it.
    """
    pictures, tables, missed, partly, wide, endless = [], [], [], [], [], []
    for formula in dict.fromkeys(formula for by_formula in of_each for formula in by_formula):
        fits = [by_formula[formula] for by_formula in of_each if formula in by_formula]
        kept = np.all([of.finite for of in fits], axis=0)
        if not kept.all():
            endless.append(f"{', '.join(fits[0].only(~kept).names)} of {fits[0].formula}")
        fits = [of.only(kept) for of in fits]
        first = fits[0]
        estimates, errors = np.mean([of.theirs for of in fits], axis=0)
        table = _coefficients(first.names, first.ours, (estimates, errors))
        apart = np.abs(estimates - first.ours[0]) > ERRORS * first.ours[1]
        if names := [name for name in table.loc[apart, "coefficient"] if name in first.judged]:
            missed.append(f"{first.formula}: {', '.join(names)}")
        combined = _errors_of_readers(fits, statement or {})
        if combined is not None:
            table.insert(5, "se, readers", combined)
            long = combined > LONG * first.ours[1]
            if long.any():
                wide.append(f"{first.formula}: {', '.join(table.loc[long, 'coefficient'])}")
        caption = f"{first.formula} ({MODELS[first.model]}{of_data_sets(len(fits))})"
        if few := len(of_each) - len(fits):
            partly.append(f"{first.formula}: {few} of {len(of_each)}")
        tables.append(PageTable.of(caption, table))
        both = {
            "data": first.ours,
            "synthetic": (estimates, errors if combined is None else combined),
        }
        figure = figures.regression(first.formula, both, first.names)
        mean = table["interval overlap"].mean()
        text = f"Coefficients of {first.formula}; mean overlap of 95% intervals {mean:.2f}."
        pictures.append(Picture.of(figure, text, text))
        tables += [_groups(by, fits) for by in first.spreads]
    note = (
        "Intervals of one synthetic data set leave out what noise and synthesis add; overlap is of "
        "such 95% intervals, 1 where they are the same and below 0 where they are apart. Rows "
        "with a missing value in a regression are left out of it."
    )
    texts = [note]
    texts += [
        f"Not compared: `{formula}`. {reason}"
        for formula, reason in (unfitted or {}).items()
        if not any(formula in by_formula for by_formula in of_each)
    ]
    if partly:
        texts.append(
            "Data sets are left out in which a level is missing, or a regression cannot be fitted: "
            f"{'; '.join(partly)}."
        )
    if endless:
        texts.append(
            "Without a comparison, as the records or a data set have no row with a level beyond "
            f"it, which makes it infinite: {'; '.join(endless)}."
        )
    if wide:
        texts.append(
            "se, readers, is what `combine` gives from all data sets. More than "
            f"{LONG:g} times the records': {'; '.join(wide)}."
        )
    if missed:
        texts.append(
            f"More than {ERRORS:g} standard errors apart, intercepts beside other coefficients "
            f"left out: {'; '.join(missed)}."
        )
    return Section("Regressions", texts, pictures=pictures, tables=tables)


def _errors_of_readers(fits: Sequence[Compared], statement: Mapping[str, Any]) -> Floats | None:
    """Standard errors of the estimates that readers combine; None if there are none."""
    estimates, errors = (np.array([of.theirs[k] for of in fits]) for k in (0, 1))
    rule = RULES_BY_MECHANISM.get(str(statement.get("mechanism")))
    if rule is None or len(fits) < 2 or not np.isfinite([estimates, errors]).all():
        return None
    settings = statement.get("settings", {})
    ratio = size_ratio(settings, int(settings.get("rows") or records_of(settings) or 1))
    combined = combine(estimates, errors**2, rule, size_ratio=ratio)
    return np.asarray(combined.standard_error, dtype=float)


def _groups(by: tuple[str, ...], fits: Sequence[Compared]) -> PageTable:
    """Table of the spread of an outcome between groups, means over the data sets."""
    pairs = [of.spreads[by] for of in fits if by in of.spreads]
    ours = pairs[0][0]
    alike = float(np.mean([mine.alike(theirs) for mine, theirs in pairs]))
    rows = [
        ["groups", ours.groups, round(float(np.mean([theirs.groups for _, theirs in pairs])))],
        [
            "sd between groups",
            ours.sd,
            _sd(float(np.mean([theirs.variance for _, theirs in pairs]))),
        ],
        ["correlation of the groups' means", 1.0, alike],
    ]
    where = f"{fits[0].outcome} by {', '.join(by)}"
    return PageTable(
        f"Groups: {where}{of_data_sets(len(pairs))}", ["", "records", "synthetic"], rows
    )


def _sd(variance: float) -> float:
    return math.sqrt(max(0.0, variance))


def _lost(
    what: str, value: float, error: float, scale: Callable[[float], float] = float
) -> Callable[[Sequence[float]], str]:
    """Text of a lost estimate, given its distance in standard errors in each data set.

    Args:
        scale: function of the estimate that is shown.
    """

    def text(distances: Sequence[float]) -> str:
        mean = float(np.mean(distances))
        return (
            f"{what}: {shown(scale(value + mean * error))} in place of {shown(scale(value))}, "
            f"{shown(abs(mean))} standard errors apart"
        )

    return text


def _lost_means(what: str, repeated: float) -> Callable[[Sequence[float]], str]:
    """Text of lost means of groups, given how far their correlation is below 1 in each data set."""
    return lambda distances: (
        f"Means of {what}: correlation with the records' {1 - np.mean(distances):.2f}; another "
        f"sample has {repeated:.2f}"
    )


def _coefficients(names: list[str], ours: Estimates, theirs: Estimates) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "coefficient": names, "records": ours[0], "se": ours[1], "synthetic": theirs[0],
            "se, synthetic": theirs[1], "interval overlap": interval_overlap(ours, theirs),
        }
    )  # fmt: skip


def _fitted(
    fit: Callable[[pd.DataFrame], Any], schema: Schema, data: pd.DataFrame
) -> tuple[list[str], Estimates]:
    plain = data.astype({n: object for n, c in schema.columns.items() if c.levels and n in data})
    with warnings.catch_warnings():  # the section says what is left out
        for kind in (UserWarning, RuntimeWarning):
            warnings.simplefilter("ignore", kind)
        result = fit(plain)
    if isinstance(result, tuple):  # a function of the estimates, with variances
        estimates, variances = result
        errors = np.sqrt(np.asarray(variances, dtype=float))
    else:
        estimates, errors = result.params, np.asarray(result.bse, dtype=float)
    return [str(name) for name in estimates.index], (np.asarray(estimates, dtype=float), errors)
