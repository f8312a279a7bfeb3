"""Posterior predictive checks, which compare the records with replicates of them. Confidential.

Replicates are compared with the records as data sets, whatever family or program drew them, so that
a family that does not fit is noticed. In-sample checks are lenient: a misfit that they find is
real, but there may be others that they do not find. They are not released, and no release depends
on them.
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
from dpbayes.mechanisms.survival import kaplan_meier, left_at
from dpbayes.schema import Column
from dpbayes.stan.model import Model

REPLICATES = 20
FARTHEST = 4.0  # sds of the replicates beyond which an observed figure does not fit
LEVEL = 0.01  # error probability of the band around a distribution function
_SEED = 7  # of the replicates; it need not be secret, as they are never released
_TAIL = 2.5  # sds beyond which a quantile residual counts as being in the tail
_MOST_COUNTS = 4  # smallest counts whose shares are compared
_QUANTILES = {"5 % quantile": 0.05, "median": 0.5, "95 % quantile": 0.95}


@dataclass(frozen=True, repr=False)
class Check:
    """Observed figures, those of replicates, and quantile residuals. Confidential.

    Attributes:
        columns: the outcomes' columns.
        table: a row for each column and figure: the observed value, mean and sd over the
            replicates, and ``fits``: the observed value is at most 4 sds from the mean (equal to it
            if the sd is 0). For the distribution function of residuals: it is inside the band.
        residuals: rank of each value among its own replicates by numeric column, shape (n,),
            with ties broken at random; uniform on (0, 1) if the model holds.
        observed: the outcomes of the records.
        replicates: replicated outcomes, in the order of the records.
        events: columns that say whether an event was observed, by the name of its duration.
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
        """Compare records with their replicates.

        Args:
            columns: the outcomes' columns.
            observed: the records.
            replicates: replicated outcomes, in the order of the records.
            events: columns that say whether an event was observed, by the name of its duration.
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
            drawn = [replicate[name] for replicate in replicates]
            for figure, value, replicated_values in _figures(column, observed[name], drawn):
                rows.append(_row(name, figure, value, replicated_values))
            if not column.levels:
                numbers = [
                    np.asarray(replicate, dtype=float) for replicate in (observed[name], *drawn)
                ]
                residuals[name] = _residuals(numbers[0], np.stack(numbers[1:]), rng)
                rows += _of_residuals(name, residuals[name])
            if name in events:
                rows += _of_survival(column, events[name], observed, replicates)
        outcomes = observed[[column.name for column in columns]].reset_index(drop=True)
        table = pd.DataFrame(rows)
        return cls(tuple(columns), table, residuals, outcomes, tuple(replicates), events)

    @property
    def misfits(self) -> pd.DataFrame:
        """Rows of the table whose figures do not fit."""
        return self.table[~self.table["fits"]]

    def __repr__(self) -> str:
        return self.table.to_string(index=False, float_format="{:.4g}".format)


def replicated(
    model: Model, blank: BoundModel, draws: xr.DataTree, public: pd.DataFrame, count: int
) -> Iterator[pd.DataFrame]:
    """Draw ``count`` replicates of the records, at draws spread evenly over the posterior's."""
    indices = np.linspace(0, count_draws(draws) - 1, count).astype(int).tolist()
    return replicates_at(model, blank, draws, public, indices)


def replicates_at(
    model: Model,
    blank: BoundModel,
    draws: xr.DataTree,
    public: pd.DataFrame,
    indices: Sequence[int],
) -> Iterator[pd.DataFrame]:
    """Draw a replicate at each of these draws, whose indices count over all chains.

    Values are rounded and validated as in a release.
    """
    seeds = np.random.default_rng(_SEED).integers(2**31, size=len(indices)).tolist()
    for index, seed in zip(indices, seeds, strict=True):

        def y_rep(changes: Mapping[str, object], index: int = index, seed: int = seed) -> Floats:
            bound = blank.rebind(**changes) if changes else blank
            return np.asarray(bound.y_rep(draws, index, seed))

        drawn = model.draw(public, y_rep)
        yield pd.DataFrame({c.name: c.validate(c.rounded(drawn[c.name])) for c in model.outcomes})


def _figures(
    column: Column, observed: pd.Series, replicates: Sequence[pd.Series]
) -> Iterator[tuple[str, float, Vector]]:
    """Figures of a column: name, observed value, and values of the R replicates."""
    if column.levels:
        for level in column.levels:
            shares = [
                float((values.astype(object) == level).mean()) for values in (observed, *replicates)
            ]
            yield f"share of {level}", shares[0], np.asarray(shares[1:])
        return
    all_of = [np.asarray(values, dtype=float) for values in (observed, *replicates)]
    for value in _points(column):
        shares = [float((values == value).mean()) for values in all_of]
        yield f"share of {column.shown(value)}", shares[0], np.asarray(shares[1:])
    by_set = {
        "mean": [values.mean() for values in all_of],
        "sd": [values.std() for values in all_of],
        "largest": [values.max() for values in all_of],
    }
    for name, statistics in by_set.items():
        yield name, float(statistics[0]), np.asarray(statistics[1:])
    for name, q in _QUANTILES.items():
        quantiles = [float(np.quantile(values, q)) for values in all_of]
        yield name, quantiles[0], np.asarray(quantiles[1:])


def _points(column: Column) -> list[float]:
    """Values whose shares are compared: bounds, atoms, and the smallest counts."""
    low = column.lower or 0
    counts = [low + k for k in range(_MOST_COUNTS)] if column.type == "count" else []
    ends = [end for end in (column.lower, column.upper) if end is not None]
    values = sorted({float(x) for x in (*ends, *column.atoms, *counts)})
    return [x for x in values if column.upper is None or x <= column.upper]


def _row(column: str, figure: str, value: float, others: Vector) -> dict[str, object]:
    mean, sd = float(others.mean()), float(others.std(ddof=1)) if len(others) > 1 else 0.0
    fits = abs(value - mean) <= FARTHEST * sd or (sd == 0 and value == mean)
    return {
        "column": column, "figure": figure, "observed": value, "replicates": mean, "sd": sd,
        "fits": bool(fits),
    }  # fmt: skip


def _residuals(observed: Vector, replicates: Floats, rng: np.random.Generator) -> Vector:
    """Randomised quantile residuals on the uniform scale (Dunn & Smyth 1996), from replicates.

    Args:
        observed: values of the records, shape (n,).
        replicates: replicated values, shape (R, n).
        rng: breaks ties.
    """
    below = (replicates < observed).sum(axis=0)
    equal = (replicates == observed).sum(axis=0)
    place = below + rng.random(observed.shape) * (equal + 1)
    return np.asarray(place / (len(replicates) + 1))


def _of_residuals(column: str, residuals: Vector) -> list[dict[str, object]]:
    """Rows that test residuals: distance from uniform; mean, sd and tails on the normal scale."""
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
    """Rows that compare Kaplan-Meier shares after the quartiles of the observed times."""
    quartiles = np.quantile(observed[time.name].to_numpy(dtype=float), (0.25, 0.5, 0.75))
    shares = [
        left_at(kaplan_meier(time, event, data), quartiles) for data in (observed, *replicates)
    ]
    names = [f"without {event.name} after {time.shown(float(at))}" for at in quartiles]
    others = np.stack(shares[1:])
    return [
        _row(time.name, name, float(shares[0][k]), others[:, k]) for k, name in enumerate(names)
    ]


def ecdf_difference(residuals: Vector) -> float:
    """Kolmogorov-Smirnov distance of residuals from the uniform distribution."""
    ordered = np.sort(residuals)
    n = len(ordered)
    above, below = np.arange(1, n + 1) / n - ordered, ordered - np.arange(n) / n
    return float(max(above.max(), below.max()))


def band(n: int) -> float:
    """Half-width of a simultaneous band around an ECDF of n values (Massart 1990)."""
    return float(np.sqrt(np.log(2 / LEVEL) / (2 * n)))
