"""Posterior predictive checks: records beside replicates of them. Confidential, all of it.

Whatever family or program drew the replicates: they are compared as data sets are, so that a
family that does not fit shows. In-sample checks are lenient: what they find is there, what they do
not find need not be absent. Nothing of them is released, and no release hangs on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dpbayes.core.arrays import Floats, Vector
from dpbayes.core.errors import DataError
from dpbayes.core.lazy import pd, special, xr
from dpbayes.engines.base import BoundModel
from dpbayes.engines.draws import count_draws
from dpbayes.mechanisms.posterior.survival import kaplan_meier, left_at
from dpbayes.schema import Column
from dpbayes.stan.model import Model

REPLICATES = 20
FARTHEST = 4.0  # sds of replicates, from which an observed figure is marked
LEVEL = 0.01  # of the band around a distribution function
_SEED = 7  # of the replicates: they stay with the records
_TAIL = 2.5  # sds, of quantile residuals
_MOST_COUNTS = 4  # counts that have a row each
_QUANTILES = {"5 % quantile": 0.05, "median": 0.5, "95 % quantile": 0.95}


@dataclass(frozen=True, repr=False)
class Check:
    """Observed figures beside those of replicates, and quantile residuals. Confidential.

    Attributes:
        table: a row for each column and figure: observed, mean and sd of the replicates, and
            ``fits``: no more than 4 sds away, and not for a figure that no replicate varies in;
            of the distribution function of residuals, inside the band.
        residuals: by numeric column shape (n,): where each value lies among its own replicates, at
            random where some are equal; uniform on (0, 1) if the model holds.
        observed: the outcomes.
        replicates: of them, in the order of the records.
        events: by the name of a duration, the column that says whether its event was seen.
    """

    columns: tuple[Column, ...]
    table: pd.DataFrame
    residuals: Mapping[str, Vector]
    observed: pd.DataFrame
    replicates: tuple[pd.DataFrame, ...]
    events: Mapping[str, Column] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        columns: Sequence[Column],
        observed: pd.DataFrame,
        replicates: Sequence[pd.DataFrame],
        events: Mapping[str, Column] | None = None,
    ) -> Check:
        """Compare them.

        Raises:
            DataError: there is no record.
        """
        if observed.empty:
            raise DataError("there is no record to check the model on.")
        rng = np.random.default_rng(_SEED)
        rows: list[dict[str, object]] = []
        residuals: dict[str, Vector] = {}
        events = events or {}
        for column in columns:
            name = column.name
            drawn = [one[name] for one in replicates]
            for figure, value, others in _figures(column, observed[name], drawn):
                rows.append(_row(name, figure, value, others))
            if not column.levels:
                numbers = [np.asarray(one, dtype=float) for one in (observed[name], *drawn)]
                residuals[name] = _residuals(numbers[0], np.stack(numbers[1:]), rng)
                rows += _of_residuals(name, residuals[name])
            if name in events:
                rows += _of_survival(column, events[name], observed, replicates)
        kept = observed[[column.name for column in columns]].reset_index(drop=True)
        table = pd.DataFrame(rows)
        return cls(tuple(columns), table, residuals, kept, tuple(replicates), events)

    @property
    def misfits(self) -> pd.DataFrame:
        """The rows of figures that do not fit."""
        return self.table[~self.table["fits"]]

    def __repr__(self) -> str:
        return self.table.to_string(index=False, float_format="{:.4g}".format)


def replicated(
    model: Model, blank: BoundModel, draws: xr.DataTree, public: pd.DataFrame, count: int
) -> Iterator[pd.DataFrame]:
    """Replicates of the records at draws spread over the posterior, as a release has them."""
    at = np.linspace(0, count_draws(draws) - 1, count).astype(int).tolist()
    return replicates_at(model, blank, draws, public, at)


def replicates_at(
    model: Model,
    blank: BoundModel,
    draws: xr.DataTree,
    public: pd.DataFrame,
    at: Sequence[int],
) -> Iterator[pd.DataFrame]:
    """A replicate at each of these draws, counted over chains."""
    seeds = np.random.default_rng(_SEED).integers(2**31, size=len(at)).tolist()
    for index, seed in zip(at, seeds, strict=True):

        def y_rep(changes: Mapping[str, object], index: int = index, seed: int = seed) -> Floats:
            bound = blank.rebind(**changes) if changes else blank
            return np.asarray(bound.y_rep(draws, index, seed))

        drawn = model.draw(public, y_rep)
        yield pd.DataFrame({c.name: c.validate(c.rounded(drawn[c.name])) for c in model.outcomes})


def _figures(
    column: Column, observed: pd.Series, replicates: Sequence[pd.Series]
) -> Iterator[tuple[str, float, Vector]]:
    """Names of figures, observed, and shape (R,) of the replicates."""
    if column.levels:
        for level in column.levels:
            shares = [
                float((one.astype(object) == level).mean()) for one in (observed, *replicates)
            ]
            yield f"share of {level}", shares[0], np.asarray(shares[1:])
        return
    all_of = [np.asarray(one, dtype=float) for one in (observed, *replicates)]
    for value in _points(column):
        shares = [float((one == value).mean()) for one in all_of]
        yield f"share of {column.shown(value)}", shares[0], np.asarray(shares[1:])
    by_set = {
        "mean": [one.mean() for one in all_of],
        "sd": [one.std() for one in all_of],
        "largest": [one.max() for one in all_of],
    }
    for name, found in by_set.items():
        yield name, float(found[0]), np.asarray(found[1:])
    for name, q in _QUANTILES.items():
        at = [float(np.quantile(one, q)) for one in all_of]
        yield name, at[0], np.asarray(at[1:])


def _points(column: Column) -> list[float]:
    """Values whose shares are told: bounds, atoms, and the smallest counts."""
    low = column.lower or 0
    counts = [low + k for k in range(_MOST_COUNTS)] if column.type == "count" else []
    ends = [end for end in (column.lower, column.upper) if end is not None]
    found = sorted({float(x) for x in (*ends, *column.atoms, *counts)})
    return [x for x in found if column.upper is None or x <= column.upper]


def _row(column: str, figure: str, value: float, others: Vector) -> dict[str, object]:
    mean, sd = float(others.mean()), float(others.std(ddof=1)) if len(others) > 1 else 0.0
    fits = abs(value - mean) <= FARTHEST * sd or (sd == 0 and value == mean)
    return {
        "column": column, "figure": figure, "observed": value, "replicates": mean, "sd": sd,
        "fits": bool(fits),
    }  # fmt: skip


def _residuals(observed: Vector, replicates: Floats, rng: np.random.Generator) -> Vector:
    """Randomised quantile residuals on the uniform scale (Dunn & Smyth 1996), by replicates.

    Args:
        observed: shape (n,).
        replicates: shape (R, n).
    """
    below = (replicates < observed).sum(axis=0)
    equal = (replicates == observed).sum(axis=0)
    place = below + rng.random(observed.shape) * (equal + 1)
    return np.asarray(place / (len(replicates) + 1))


def _of_residuals(column: str, residuals: Vector) -> list[dict[str, object]]:
    """How far residuals are from uniform, and in normal terms their mean, sd and tails."""
    n = len(residuals)
    z = special.ndtri(np.clip(residuals, 1e-9, 1 - 1e-9))
    far = float(2 * special.ndtr(-_TAIL))
    expected = {
        "residuals: largest ECDF difference": (ecdf_difference(residuals), 0.0, band(n) / FARTHEST),
        "residuals: mean": (float(z.mean()), 0.0, 1 / np.sqrt(n)),
        "residuals: sd": (float(z.std()), 1.0, 1 / np.sqrt(2 * n)),
        f"residuals: share beyond {_TAIL:g} sd": (
            float((np.abs(z) > _TAIL).mean()), far, np.sqrt(far * (1 - far) / n),
        ),
    }  # fmt: skip
    return [
        {
            "column": column, "figure": name, "observed": value, "replicates": mean, "sd": sd,
            "fits": bool(abs(value - mean) <= FARTHEST * sd),
        }
        for name, (value, mean, sd) in expected.items()
    ]  # fmt: skip


def _of_survival(
    time: Column, event: Column, observed: pd.DataFrame, replicates: Sequence[pd.DataFrame]
) -> list[dict[str, object]]:
    """Kaplan-Meier shares after the quartiles of the times."""
    quartiles = np.quantile(observed[time.name].to_numpy(dtype=float), (0.25, 0.5, 0.75))
    left = [left_at(kaplan_meier(time, event, one), quartiles) for one in (observed, *replicates)]
    names = [f"without {event.name} after {time.shown(float(at))}" for at in quartiles]
    others = np.stack(left[1:])
    return [_row(time.name, name, float(left[0][k]), others[:, k]) for k, name in enumerate(names)]


def ecdf_difference(residuals: Vector) -> float:
    """Kolmogorov's distance of residuals from the uniform distribution."""
    ordered = np.sort(residuals)
    n = len(ordered)
    above, below = np.arange(1, n + 1) / n - ordered, ordered - np.arange(n) / n
    return float(max(above.max(), below.max()))


def band(n: int) -> float:
    """Half-width of a simultaneous band around a distribution function (Massart 1990)."""
    return float(np.sqrt(np.log(2 / LEVEL) / (2 * n)))
