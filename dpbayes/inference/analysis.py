"""Run one analysis on every data set of a release, and combine."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dpbayes.core.errors import InferenceError, SchemaError, refused
from dpbayes.core.lazy import pd
from dpbayes.formula.text import parse
from dpbayes.formula.tree import Binary, Call, LevelName, Name, Node, Number
from dpbayes.inference.combining import RULES, Combined, combine
from dpbayes.inference.counts import (
    CountsPosterior,
    from_clamped_draws,
    from_synthetic_counts,
)
from dpbayes.inference.coverage import (
    DEFAULT_RULE,
    RULES_BY_MECHANISM,
    not_large,
    uncovered,
    unfit,
)
from dpbayes.records.formats import read_records
from dpbayes.schema.values import level_text
from dpbayes.synthesis.release import STATEMENT, Release

_URNS = ("beta-binomial", "multinomial-dirichlet")


@dataclass(frozen=True)
class ReleasedData:
    """Data sets of a release with what its statement says.

    Attributes:
        datasets: m data frames.
        mechanism: its name, or None if unknown.
        basis: ``strict``, ``asymptotic`` or ``none``; None if unknown.
        settings: of the synthesizer, as in the statement.
        levels: declared ones of released columns, in order.
    """

    datasets: tuple[pd.DataFrame, ...]
    mechanism: str | None = None
    basis: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    levels: Mapping[str, Sequence[Any]] = field(default_factory=dict)


def read_release(directory: str | Path) -> ReleasedData:
    """Read a release folder: synthetic_1.csv ... or of another format, and guarantee.json.

    Raises:
        InferenceError: the folder or a file of it is missing or cannot be read.
    """
    directory = Path(directory)
    try:
        with refused(
            InferenceError, f"release {str(directory)!r} cannot be read, or was edited", OSError
        ):
            statement = json.loads((directory / STATEMENT).read_text(encoding="utf-8"))
            count = int(statement["datasets"])
            if count < 1:
                raise ValueError
            frames = tuple(_read_table(directory, f"synthetic_{i}") for i in range(1, count + 1))
            mechanism, basis = str(statement["mechanism"]), str(statement["basis"])
            settings, levels = (dict(statement.get(key, {})) for key in ("settings", "levels"))
            return ReleasedData(frames, mechanism, basis, settings, levels)
    except OSError as error:
        raise InferenceError(
            f"release {str(directory)!r}: {error.strerror} ({Path(str(error.filename)).name}). "
            f"Name the folder that holds {STATEMENT}."
        ) from None


def _read_table(directory: Path, name: str) -> pd.DataFrame:
    """A data set with types, which no other format than CSV leaves open."""
    path = next(directory.glob(f"{name}.*"), directory / f"{name}.csv")
    return pd.read_csv(path) if path.suffix == ".csv" else read_records(path)


def analyse(
    release: Release | ReleasedData | str | Path | Sequence[pd.DataFrame],
    function: Callable[[pd.DataFrame], Any],
    rule: str | None = None,
) -> Combined:
    """Run ``function`` on each data set and combine what it returns.

    Args:
        release: a Release, its folder, or data frames.
        function: takes a data frame; returns a fitted statsmodels result, or (estimates,
            variances) as two numbers, arrays, or Series with the same labels.
        rule: one of ``RULES``; by default the one that fits the release's mechanism.
    Raises:
        InferenceError: as ``combine``; or parameters that differ between data sets.
    """
    released = _as_released(release)
    if rule is not None and rule not in RULES:
        raise InferenceError(f"rule = {rule!r}: expected one of {', '.join(RULES)}.")
    name = released.mechanism or ""
    own, size = RULES_BY_MECHANISM.get(name, DEFAULT_RULE), len(released.datasets[0])
    notes = [uncovered(released.mechanism, released.settings), unfit(rule, released.mechanism)]
    if rule == "mixture":
        n = released.settings.get("public_rows")
        notes.append(not_large(size, n, len(released.datasets)))
    said = tuple(note for note in notes if note is not None)
    for note in said:
        warnings.warn(note, stacklevel=2)
    pairs = [_pair(function(data)) for data in released.datasets]
    estimates, variances = (_stack([pair[k] for pair in pairs]) for k in (0, 1))
    found = combine(
        estimates,
        variances,
        rule or own,
        size_ratio=size / released.settings.get("public_rows", size),
        strict_dp=released.basis == "strict" and own == DEFAULT_RULE,
    )
    return replace(found, notes=said)


def share_posterior(
    release: Release | ReleasedData | str | Path,
    level: Any,
    prior: tuple[float, float] = (1.0, 1.0),
) -> CountsPosterior:
    """Posterior of a share from a release of one column of two levels.

    By family ``bernoulli`` without covariates: reads n, window, weight and prior of the synthesizer
    from the release, and models the clamp (``from_clamped_draws``). By ``beta-binomial`` (or
    ``multinomial-dirichlet``): reads n and α, and models the urn (``from_synthetic_counts``). The
    share is cell 0 of the result.

    Args:
        release: a Release or its folder.
        level: the outcome's level whose share it is.
        prior: the analyst's beta prior.
    Raises:
        InferenceError: another family, covariates, a hidden anchor, weights by record, an urn for
            each stratum of public columns, or a level that the column does not have.
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
    seen, first = _level_counts(released, outcome.strip(), level)
    low, high = stages[0]["window"]
    mean, sd = settings["constants"]["prior_intercept"]
    return from_clamped_draws(
        int(settings["n"]),
        counts=seen,
        size=len(released.datasets[0]),
        weight=stages[0]["alpha"],
        window=(-math.inf if low is None else low, math.inf if high is None else high),
        synthesis_prior=(-mean if first else mean, sd),  # of the second level's logit
        prior=prior,
    )


def _made(released: ReleasedData) -> str:
    """What a release was made by, for a message."""
    family, formula = (released.settings.get(key) for key in ("family", "formula"))
    return f"{family!r} with {formula!r}" if family else f"by mechanism {released.mechanism!r}"


def of_one(release: ReleasedData, formula: str, level: float = 0.95) -> pd.DataFrame:
    """The interval that a model of the mechanism gives, where no rule does: of one data set.

    Args:
        formula: of a share without covariates, ``y ~ 1``, or ``I(y == 'level') ~ 1``; of a column
            of levels that was released as ``share_posterior`` says.
    Raises:
        InferenceError: there is no model of it: what would have to be asked for.
    """
    try:
        parsed = parse(formula)
    except SchemaError as error:
        raise InferenceError(str(error)) from None
    name, wanted = _share_of(parsed.outcome, release.levels)
    if name is None or list(parsed.terms) != [()] or parsed.groups:
        raise InferenceError(
            "there is one data set: the variance between several shows what synthesis and noise "
            "added, and no rule gives an interval without it (raab does, for data without "
            "protection). A model of the mechanism does for a share, --formula 'y ~ 1'. Else ask "
            "for more data sets: --datasets 5; of measured --set draw=posterior --datasets 20."
        )
    found = share_posterior(release, wanted)
    low, high = found.interval(level)
    row = {"share": float(found.mean[0]), "sd": float(found.sd[0])}
    ends = {f"{100 * level:g}% low": low, f"{100 * level:g}% high": high}
    return pd.DataFrame({**row, **ends}, index=[f"{name} = {wanted}"])


def _share_of(outcome: Node, levels: Mapping[str, Sequence[Any]]) -> tuple[str | None, Any]:
    """A column and the level whose share an outcome is; the second where none is named."""
    if isinstance(outcome, Call) and outcome.name == "I" and len(outcome.arguments) == 1:
        outcome = outcome.arguments[0]
    if isinstance(outcome, Name) and len(levels.get(outcome.value, ())) == 2:
        return outcome.value, levels[outcome.value][1]
    if isinstance(outcome, Binary) and outcome.sign == "==" and isinstance(outcome.left, Name):
        if isinstance(outcome.right, LevelName):
            return outcome.left.value, outcome.right.value
        if isinstance(outcome.right, Number):
            return outcome.left.value, outcome.right.text
    return None, None


def _level_counts(released: ReleasedData, column: str, level: Any) -> tuple[list[int], bool]:
    """Records with a level, by data set: 0 where none has it. And whether it is the first one."""
    levels, text = released.levels.get(column), level_text(level)
    if not levels:
        raise InferenceError(
            f"the release does not say which levels column {column!r} has. Use from_clamped_draws "
            "or from_synthetic_counts."
        )
    if text not in map(level_text, levels):
        raise InferenceError(
            f"{level!r} is no level of column {column!r}; it has {', '.join(map(str, levels))}."
        )
    seen = [int((data[column].map(level_text) == text).sum()) for data in released.datasets]
    return seen, text == level_text(levels[0])


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
    seen, _ = _level_counts(released, columns[0], level)
    counts = [[k, size - k] for k in seen]
    return from_synthetic_counts(counts, alpha, int(settings["n"]), prior=prior)


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
    """Estimates and variances of what the user's function returned."""
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


def _stack(values: list[Any]) -> Any:
    """One row per data set; a DataFrame where every entry is a Series."""
    if not all(isinstance(value, pd.Series) for value in values):
        try:
            return np.asarray(values, dtype=float)
        except (ValueError, TypeError):
            raise InferenceError(
                "the function's results have other lengths from data set to data set."
            ) from None
    first = values[0].index
    for i, value in enumerate(values[1:], start=2):
        if not value.index.equals(first):
            other = sorted(set(map(str, value.index)) ^ set(map(str, first)))
            raise InferenceError(
                f"data set {i} gives other parameters than the first: {', '.join(other)}. A level "
                "may be missing in some data sets; declare the levels in the formula, "
                "C(x, levels=[...]), or merge rare ones."
            )
    return pd.DataFrame([value.to_numpy() for value in values], columns=first)
