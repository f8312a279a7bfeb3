"""Run one analysis on every data set of a release, and combine the results."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dpbayes.core.errors import InferenceError, SchemaError, listed, refused
from dpbayes.core.files import STATEMENT, open_regular, read_whole
from dpbayes.core.lazy import pd
from dpbayes.formula.text import parse
from dpbayes.formula.tree import Call, LevelName, Name, Node, Number, Operation
from dpbayes.inference.combining import RULES, Combined, Estimates, combine
from dpbayes.inference.counts import (
    CountsPosterior,
    from_clamped_draws,
    from_synthetic_counts,
)
from dpbayes.inference.coverage import (
    DEFAULT_RULE,
    RULES_BY_MECHANISM,
    not_large,
    records_of,
    size_ratio,
    uncovered,
    unfit,
)
from dpbayes.privacy.guarantee import MOST_DATASETS
from dpbayes.records.formats import read_records
from dpbayes.schema.columns import Level
from dpbayes.schema.table import unit_of
from dpbayes.schema.values import level_places, level_text
from dpbayes.synthesis.release import Release

_URNS = ("beta-binomial", "multinomial-dirichlet")
MOST_LEVELS = 20  # that a message lists


@dataclass(frozen=True)
class ReleasedData:
    """Data sets of a release, with the facts that its statement publishes.

    Attributes:
        datasets: m data frames.
        mechanism: name of the mechanism, or None if unknown.
        basis: ``strict``, ``asymptotic`` or ``none``; None if unknown.
        settings: settings of the synthesizer, as in the statement.
        levels: declared levels of released columns, in order.
    """

    datasets: tuple[pd.DataFrame, ...]
    mechanism: str | None = None
    basis: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    levels: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @property
    def unit(self) -> Mapping[str, Any] | None:
        """Declaration of records of several rows, for ``formula_fit``; None if each row is one."""
        return unit_of(self.settings)


def read_release(directory: str | Path) -> ReleasedData:
    """Read a release folder: guarantee.json and synthetic_1.csv ..., or files of another format.

    Raises:
        InferenceError: the folder or a file of it is missing or cannot be read.
    """
    directory = Path(directory)
    try:
        with refused(
            InferenceError, f"release {str(directory)!r} cannot be read, or was edited", OSError
        ):
            statement = json.loads(read_whole(directory / STATEMENT))
            count = int(statement["datasets"])
            if not 1 <= count <= MOST_DATASETS:
                raise ValueError
            mechanism, basis = str(statement["mechanism"]), str(statement["basis"])
            settings, levels = (dict(statement.get(key, {})) for key in ("settings", "levels"))
            names = [f"synthetic_{i}" for i in range(1, count + 1)]
            frames = tuple(_read_table(directory, name, levels) for name in names)
            return ReleasedData(frames, mechanism, basis, settings, levels)
    except OSError as error:
        inside = next((path.parent for path in directory.glob(f"*/{STATEMENT}")), None)
        meant = "" if inside is None else f", such as {str(inside)!r}"
        raise InferenceError(
            f"release {str(directory)!r}: {error.strerror} ({Path(str(error.filename)).name}). "
            f"Name the folder that holds {STATEMENT}{meant}."
        ) from None


def _read_table(directory: Path, name: str, levels: Mapping[str, Sequence[Any]]) -> pd.DataFrame:
    """Read one data set.

    In CSV only an empty field is a missing value, and a field of a column with levels is the level
    that is written so, or the number that it is equal to: None, NA and 01 may be levels, and 6.0
    is the level 6.
    """
    path = next(directory.glob(f"{name}.*"), directory / f"{name}.csv")
    if path.suffix == ".csv":
        types = dict.fromkeys(levels, str)
        with open_regular(path) as stream:
            table = pd.read_csv(stream, keep_default_na=False, na_values=[""], dtype=types)
        for column in table.columns.intersection(list(levels)):
            declared, texts = levels[column], table[column].unique()
            places = level_places(texts, declared)
            known = {text: declared[k] for text, k in zip(texts, places, strict=True) if k >= 0}
            values = [known.get(value, value) for value in table[column]]
            table[column] = pd.Series(values, index=table.index, dtype=object).infer_objects()
        return table
    # Whole numbers beside missing ones are objects as read, and floats for a model.
    return read_records(path).infer_objects()


def analyse(
    release: Release | ReleasedData | str | Path | Sequence[pd.DataFrame],
    function: Callable[[pd.DataFrame], Estimates],
    rule: str | None = None,
) -> Combined:
    """Run ``function`` on each data set of a release and combine the results.

    Args:
        release: a Release, its folder, or data frames.
        function: takes a data frame; returns a fitted statsmodels result, or (estimates,
            variances) as two numbers, arrays, or Series with the same labels. A labelled estimate
            that is infinite in some data set, with variance nan, is left out with a note.
        rule: one of ``RULES``; by default the one that fits the release's mechanism.
    Raises:
        InferenceError: the errors of ``combine``; or parameters differ between data sets.
    """
    released = _as_released(release)
    if rule is not None and rule not in RULES:
        raise InferenceError(f"rule = {rule!r}: expected one of {', '.join(RULES)}.")
    name = released.mechanism or ""
    own, size = RULES_BY_MECHANISM.get(name, DEFAULT_RULE), len(released.datasets[0])
    notes = [uncovered(released.mechanism, released.settings), unfit(rule, released.mechanism)]
    if rule == "mixture":
        n = records_of(released.settings)
        notes.append(not_large(size, n, len(released.datasets)))
    pairs = [_pair(function(data)) for data in released.datasets]
    estimates, variances = (_stack([pair[k] for pair in pairs]) for k in (0, 1))
    if isinstance(estimates, pd.DataFrame) and isinstance(variances, pd.DataFrame):
        counts = estimates.isin([np.inf, -np.inf]).where(variances.isna(), False).sum()
        counts = counts[counts > 0]
        notes.append(_left_out(counts, len(estimates)))
        estimates, variances = (of.drop(columns=counts.index) for of in (estimates, variances))
    messages = tuple(note for note in notes if note is not None)
    for note in messages:
        warnings.warn(note, stacklevel=2)
    combined = combine(
        estimates,
        variances,
        rule or own,
        size_ratio=size_ratio(released.settings, size),
        strict_dp=released.basis == "strict" and own == DEFAULT_RULE,
    )
    return replace(combined, notes=messages)


def share_posterior(
    release: Release | ReleasedData | str | Path,
    level: Level,
    prior: tuple[float, float] = (1.0, 1.0),
) -> CountsPosterior:
    """Posterior of a share from a release of one column with two levels.

    For family ``bernoulli`` without covariates it reads n, window, weight and prior of the
    synthesizer from the release, and models the clamp (``from_clamped_draws``). For
    ``beta-binomial`` (or ``multinomial-dirichlet``) it reads n and α, and models the urn
    (``from_synthetic_counts``). The share is cell 0 of the result.

    Args:
        release: a Release or its folder.
        level: level of the outcome whose share is estimated.
        prior: the analyst's beta prior.
    Raises:
        InferenceError: another family, covariates, a hidden anchor, weights by record, an urn for
            each stratum of public columns, a number of records that is not public, or a level that
            the column does not have.
    """
    released = _as_released(release)
    settings = released.settings
    if released.mechanism in _URNS:
        return _urn_posterior(released, level, prior)
    stages = settings.get("stages", [])
    outcome, _, terms = str(settings.get("formula", "")).partition("~")
    if settings.get("family") != "bernoulli" or terms.strip() != "1":
        raise InferenceError(
            "the share's posterior is for an urn, or family bernoulli with formula 'y ~ 1'; this "
            f"one is {_made(released)}. Use several data sets (dpbayes combine, analyse)."
        )
    if len(stages) != 1 or stages[0]["anchor"] != "none" or stages[0]["alpha"] is None:
        raise InferenceError(
            f"mechanism {released.mechanism!r} hides its anchor or weighs records one by one, "
            "which cannot be summed out. Use several data sets (dpbayes combine, analyse)."
        )
    counts, is_first = _level_counts(released, outcome.strip(), level)
    low, high = stages[0]["window"]
    mean, sd = settings["constants"]["prior_intercept"]
    return from_clamped_draws(
        _public_number(settings),
        counts=counts,
        size=len(released.datasets[0]),
        weight=stages[0]["alpha"],
        window=(-math.inf if low is None else low, math.inf if high is None else high),
        # The synthesizer's prior is for the logit of the second level.
        synthesis_prior=(-mean if is_first else mean, sd),
        prior=prior,
    )


def _made(released: ReleasedData) -> str:
    """Describe how a release was made, for a message."""
    family, formula = (released.settings.get(key) for key in ("family", "formula"))
    return f"{family!r} with {formula!r}" if family else f"by mechanism {released.mechanism!r}"


def of_one(release: ReleasedData, formula: str, level: float = 0.95) -> pd.DataFrame:
    """Interval of a share from a single data set, by a model of the mechanism.

    No combining rule gives an interval for one data set.

    Args:
        formula: a share without covariates, ``y ~ 1`` or ``I(y == 'level') ~ 1``, of a column that
            was released as ``share_posterior`` requires.
        level: probability of the interval.
    Raises:
        InferenceError: no model exists for it; the message says what to ask for instead.
    """
    try:
        parsed = parse(formula)
    except SchemaError as error:
        raise InferenceError(str(error)) from None
    name, share_level = _share_of(parsed.outcome, release.levels)
    if name is None or list(parsed.terms) != [()] or parsed.groups:
        raise InferenceError(
            "there is one data set: the variance between several shows what synthesis and noise "
            "added, and no rule gives an interval without it (raab does, for data without "
            "protection). A model of the mechanism does for a share: formula y ~ 1. Else ask "
            "for more data sets: `datasets=5`."
        )
    posterior = share_posterior(release, share_level)
    low, high = posterior.interval(level)
    row = {"share": float(posterior.mean[0]), "sd": float(posterior.sd[0])}
    ends = {f"{100 * level:g}% low": low, f"{100 * level:g}% high": high}
    return pd.DataFrame({**row, **ends}, index=[f"{name} = {share_level}"])


def _share_of(outcome: Node, levels: Mapping[str, Sequence[Any]]) -> tuple[str | None, Any]:
    """Column and level whose share an outcome describes; the second level if none is named."""
    match outcome:
        case Call("I", (compared,)):
            return _share_of(compared, levels)
        case Name(column) if len(levels.get(column, ())) == 2:
            return column, levels[column][1]
        case Operation("==", (Name(column), LevelName(level) | Number(level))):
            return column, level
    return None, None


def _level_counts(released: ReleasedData, column: str, level: Any) -> tuple[list[int], bool]:
    """Count the rows with a level in each data set, and say whether it is the first level."""
    levels, text = released.levels.get(column), level_text(level)
    if not levels:
        raise InferenceError(
            f"the release does not say which levels column {column!r} has. Use from_clamped_draws "
            "or from_synthetic_counts."
        )
    if text not in map(level_text, levels):
        raise InferenceError(
            f"{level!r} is no level of column {column!r}; it has {listed(levels, MOST_LEVELS)}."
        )
    counts = [int((data[column].map(level_text) == text).sum()) for data in released.datasets]
    return counts, text == level_text(levels[0])


def _public_number(settings: Mapping[str, Any]) -> int:
    """Number n of the records; InferenceError if it is not public."""
    if "n" not in settings:
        raise InferenceError(
            "the share's posterior needs the number of records, which this release does not state: "
            "it was declared or noisy. Use several data sets (analyse), or a release with rows = "
            '"public".'
        )
    return int(settings["n"])


def _urn_posterior(
    released: ReleasedData, level: Any, prior: tuple[float, float]
) -> CountsPosterior:
    settings = released.settings
    columns, alpha = settings.get("synthesised", []), settings.get("alpha")
    if len(columns) != 1 or settings.get("cells") != 2 or not isinstance(alpha, int | float):
        raise InferenceError(
            "the share's posterior is for one synthesised column of two levels without public "
            "columns beside it; use analyse, or from_synthetic_counts with α from the release."
        )
    size = len(released.datasets[0])
    level_counts, _ = _level_counts(released, columns[0], level)
    counts = [[k, size - k] for k in level_counts]
    return from_synthetic_counts(counts, alpha, _public_number(settings), prior=prior)


def _as_released(release: Any) -> ReleasedData:
    if isinstance(release, ReleasedData):
        return release
    if isinstance(release, Release):
        claim = release.guarantee
        return ReleasedData(
            release.datasets, claim.mechanism, claim.basis, release.settings, release.levels
        )
    if isinstance(release, str | Path):
        return read_release(release)
    frames = tuple(release) if isinstance(release, Iterable) else ()
    if not frames or not all(isinstance(frame, pd.DataFrame) for frame in frames):
        raise InferenceError("expected a Release, its folder, or a list of data frames.")
    return ReleasedData(frames)


def _pair(result: Any) -> tuple[Any, Any]:
    """Extract estimates and variances from the result of the user's function."""
    if hasattr(result, "params") and hasattr(result, "bse"):
        return result.params, result.bse**2
    try:
        estimates, variances = result
    except (TypeError, ValueError):
        raise InferenceError(
            "the function must return a statsmodels result or a pair (estimates, variances), not "
            f"{type(result).__name__}."
        ) from None
    return estimates, variances


def _left_out(counts: pd.Series, datasets: int) -> str | None:
    """Say which estimates are left out, as some data set has none; None if every one has all.

    Args:
        counts: number of data sets where they are infinite, by name.
        datasets: number of all.
    """
    if counts.empty:
        return None
    names = [f"{name} (infinite in {n} of {datasets} data sets)" for name, n in counts.items()]
    return (
        f"no estimate of {listed(names, MOST_LEVELS)}: no row there has a level beyond such a "
        "cutpoint, and a mean over the others would be that of data sets in which the level "
        "happens to occur. Merge rare levels to have one"
    )


def _stack(values: list[Any]) -> Any:
    """Stack the results, one row per data set; a DataFrame if every result is a Series."""
    if not all(isinstance(value, pd.Series) for value in values):
        try:
            return np.asarray(values, dtype=float)
        except (ValueError, TypeError):
            raise InferenceError(
                "the function's results have other lengths from data set to data set."
            ) from None
    labels = values[0].index
    for i, value in enumerate(values[1:], start=2):
        if not value.index.equals(labels):
            differ = sorted(set(map(str, value.index)) ^ set(map(str, labels)))
            raise InferenceError(
                f"data set {i} gives other parameters than the first: {', '.join(differ)}. A level "
                "may be missing in some data sets, which then say nothing of it: merge rare "
                "levels, or leave the column out."
            )
    return pd.DataFrame([value.to_numpy() for value in values], columns=labels)
