"""Noisy sums of scores by group, and their expectation under a model near a point. Public."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Floats, Ints, Vector
from dpbayes.core.lazy import sparse
from dpbayes.formula.groups import Stacked
from dpbayes.mechanisms.score.clipped import ClippedScore, finite, slopes_along
from dpbayes.mechanisms.score.inference import NoisySum
from dpbayes.mechanisms.score.simulated import Simulator
from dpbayes.stan.model import Model
from dpbayes.stan.scored import fixed_parameters

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_SOME = 1e-6  # least variance of a sum without noise, in units of a score's variance
# Relative singular value below which a regression drops a direction. Slopes are finite differences,
# whose error makes two equal predictors differ by about a tenth of this.
_RANK = 1e-3
_MOVED = 3  # index of the change of the linear predictor among the powers


GroupSizes = tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class GroupColumns:
    """The C columns of a formula's group terms that share the same groups.

    Attributes:
        columns: indices of these columns among the stacked ones.
        first: the program's index of the first group in the first of these columns.
        groups: number of groups, G.
        codes: group of each public row, from 0, shape (n,).
        times: value by which each row multiplies its group's effects, shape (n, C).
    """

    columns: tuple[int, ...]
    first: int
    groups: int
    codes: Ints
    times: Floats

    def by_group(self, values: Floats) -> csr_matrix:
        """Sparse matrix with each row's C values in the columns of its group, shape (n, G C)."""
        n, width = values.shape
        where = self.codes[:, None] * width + np.arange(width)
        rows = np.repeat(np.arange(n), width)
        shape = n, self.groups * width
        return sparse.csr_matrix((values.ravel(), (rows, where.ravel())), shape)


@dataclass(frozen=True, eq=False)
class GroupSums:
    """Noisy sums of clipped scores over the records of each group. Public.

    Attributes:
        term: the term's columns and groups.
        score: the clipped score of a record, along C directions that mix the term's columns.
        total: the noisy sums, shape (G, C).
        sd: standard deviation of the noise in each entry.
        scale: b of radial noise as in ``NoisySum``, for each group by itself; 0 where it is normal.
    """

    term: GroupColumns
    score: ClippedScore
    total: Floats
    sd: float
    scale: float


def grouped(model: Model) -> bool:
    """Whether a model has group effects in a bundled program."""
    return any(column.family and column.formula.groups for column in model.columns)


def group_sizes(model: Model) -> GroupSizes:
    """Number of groups, and of effects of each group, by grouping of the model."""
    return tuple((size, len(columns)) for size, columns in _groupings(model))


def terms_of(model: Model, design: Mapping[str, Any]) -> list[GroupColumns]:
    """Columns and group of each public row, by grouping of the model.

    Args:
        model: the model.
        design: program data of all public rows.
    """
    if not grouped(model):
        return []
    stacked = Stacked(design)
    index = np.asarray(design["group_index"], dtype=np.int64) - 1
    terms = []
    for size, columns in _groupings(model):
        first = stacked.part[columns[0]].start
        times = np.stack([stacked.times(t) for t in columns], axis=1)
        codes = index[:, columns[0]] - first
        terms.append(GroupColumns(columns, first + 1, size, codes, times))
    return terms


def _groupings(model: Model) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Number of groups, and their stacked columns, by grouping of the model."""
    if not grouped(model):
        return
    (model_column,) = model.columns
    columns = model_column.formula.groups
    for by in dict.fromkeys(term.by for term in columns):
        places = tuple(t for t, term in enumerate(columns) if term.by == by)
        yield len(columns[places[0]].levels), places


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Fixed parameters in the coordinates of ``scored_groups``: themselves or their logarithms.

    Attributes:
        at: coordinates at a point, shape (k,).
        bounded: mask of those that are the logarithm of a parameter minus its lower bound.
        lower: the lower bounds; 0 for other parameters.
        slope: change of the coordinate for a step of 1 of the unconstrained one.
    """

    at: Vector
    bounded: np.ndarray[Any, np.dtype[np.bool_]]
    lower: Vector
    slope: Vector

    @classmethod
    def of(cls, simulator: Simulator, point: Vector) -> Coordinates:
        """Compute them at an unconstrained point."""
        unit = np.eye(len(point))[simulator.fixed]
        names = fixed_parameters(simulator.model.program)

        def values(points: Floats) -> Floats:
            parameters = simulator.constrained(points[None])
            return np.concatenate(
                [
                    parameters[name][0].reshape(len(points), -1)
                    for name in names
                    if name in parameters
                ],
                axis=1,
            )

        values_at_point = values(point[None])[0]
        above = np.diag(values(point + unit) - values_at_point)
        below = np.diag(values_at_point - values(point - unit))
        # An exponential changes by e - 1 up and 1 - 1/e down, an unbounded parameter equally.
        bounded = np.abs(above - below) > 0.1 * np.abs(above)
        free = point[simulator.fixed]
        return cls(
            at=np.where(bounded, free, values_at_point),
            bounded=bounded,
            lower=np.where(bounded, values_at_point - np.exp(np.where(bounded, free, 0)), 0.0),
            slope=np.where(bounded, 1.0, above),
        )


class _Rows:
    """Public predictors of each row, for regressions of expected scores on them.

    Args:
        simulator: simulates records of the model.
        asked: the point at which scores are taken, with group effects of 0.
        point: the point at which their expectation is computed.
    """

    def __init__(self, simulator: Simulator, asked: Vector, point: Vector) -> None:
        design = simulator.design
        X = np.asarray(design["X"], dtype=float)
        stacked = Stacked(design)
        index = np.asarray(design["group_index"], dtype=np.int64) - 1
        times = np.stack([stacked.times(t) for t in range(len(stacked.part))], axis=1)
        row = np.repeat(np.arange(len(X)), times.shape[1])
        shape = len(X), stacked.width
        # The value by which each row multiplies each effect, shape (n, J).
        self.effects: csr_matrix = sparse.csr_matrix((times.ravel(), (row, index.ravel())), shape)
        before, after = (simulator.constrained(at[None, None]) for at in (asked, point))
        self.moving, self.along = _moving(simulator, X)
        slope = [
            parameters["coefficient"][0, 0] if X.shape[1] else np.zeros(0)
            for parameters in (before, after)
        ]
        first = X @ slope[0]
        moved = X @ (slope[1] - slope[0]) + self.effects @ simulator.effects(point)
        first, moved, X = _standard(first), _standard(moved), _standard(X)
        second = first + moved
        self._powers = powers = np.column_stack(
            [np.ones_like(first), first, first**2, moved, first * moved, moved**2, moved**3]
        )
        products = [X, X * second[:, None], X * second[:, None] ** 2]
        self._features = np.hstack([powers, *products])
        self._index = simulator.index

    def controls(self, h0: Floats, h: Floats) -> Floats:
        """Control variates: variables of simulated records with expectation 0 in every row.

        Args:
            h0: slopes of log-likelihoods in the linear predictor, shape (M, 1).
            h: slopes along all directions, shape (M, k).
        """
        powers = self._powers[self._index]
        return np.hstack([h0 * powers, h, h * powers[:, [_MOVED]]])

    def predicted(self, values: Floats, controls: Floats) -> Floats:
        """Predict the expectation of values in all rows, by regression over simulated records.

        Args:
            values: values of the simulated records, shape (M, columns).
            controls: control variates, shape (M, any).
        Returns:
            shape (n, columns).
        """
        predictors = np.hstack([self._features[self._index], controls])
        # Predictors of norm 1, so that the rank threshold treats all of them alike.
        norms = np.maximum(np.linalg.norm(predictors, axis=0), 1e-300)
        coefficients = np.linalg.lstsq(predictors / norms, values, rcond=_RANK)[0] / norms[:, None]
        return np.asarray(self._features @ coefficients[: self._features.shape[1]])


def _moving(simulator: Simulator, X: Floats) -> tuple[NDArray[np.bool_], Floats]:
    """Mask of the fixed parameters that only shift linear predictors, and the shift by row."""
    names = [simulator.names[index] for index in simulator.fixed]
    ones = np.ones((len(X), 1))
    slopes = {"intercept": ones, "first_cutpoint": -ones, "coefficient": X}
    along = [slopes[name] for name in dict.fromkeys(names) if name in slopes]
    return np.array([name in slopes for name in names]), np.hstack(along)


def _standard(values: Floats) -> Floats:
    """Standardise columns to mean 0 and sd 1; a constant column becomes 0."""
    centred = values - values.mean(axis=0)
    sd = centred.std(axis=0)
    return np.asarray(np.where(sd > 0, centred / np.where(sd > 0, sd, 1.0), 0.0))


class _Sums(NamedTuple):
    """First-order description of J sums by group at a point.

    Attributes:
        gap: noisy sums minus their expectation, shape (J,).
        slopes: derivatives of the expectation in each effect, sparse (J, J).
        by_fixed: derivatives of the expectation in the k fixed parameters, shape (J, k).
        roots: sparse (n, J); ``roots.T @ roots`` is the covariance without noise.
        noise: variance of the noise, shape (J,).
        shared: covariance with the sum over all records, shape (k, J).
    """

    gap: Vector
    slopes: csr_matrix
    by_fixed: Floats
    roots: csr_matrix
    noise: Vector
    shared: Floats


def expected_near(
    simulator: Simulator, measured: NoisySum, groups: Sequence[GroupSums], point: Vector
) -> dict[str, Any]:
    """Program data of ``scored_groups``: expected noisy sums near an unconstrained point.

    The expectation is linearised at the point. A record's score along group effects is a multiple
    of its slope in the linear predictor. The expectation of this slope, and of its products with
    other scores, is smooth in public values of the row: it is regressed on these over simulated
    records, and summed over all rows.

    Args:
        measured: the noisy sum over all records.
        groups: the noisy sums by group, for each term.
    """
    simulated = simulator.records(point[None]).bound
    k = len(measured.total)
    h = finite(slopes_along(simulated, point, measured.score.directions))
    h0 = finite(slopes_along(simulated, point, simulator.shift(point)[None]))
    g = measured.score.clipped(measured.score.slopes(simulated))
    rows = _Rows(simulator, measured.score.point, point)
    controls = rows.controls(h0, h)
    mean, by_shift = np.split(rows.predicted(np.hstack([g, g * h0]), controls), 2, axis=1)
    places = Coordinates.of(simulator, point)
    # Slopes in the program's parameters. Those of parameters that shift the linear predictor follow
    # from its slope: estimated separately, they would be inconsistent, and a change of the
    # intercept would seem to differ from the same change of all effects of a term.
    way = np.linalg.inv(measured.score.directions[:, simulator.fixed]).T / places.slope
    others = h @ way[:, ~rows.moving]

    def by_fixed(shifted: Callable[[Floats], Floats], rest: Floats) -> Floats:
        slopes = np.empty((len(rest), k))
        slopes[:, rows.moving], slopes[:, ~rows.moving] = shifted(rows.along), rest
        return slopes

    def sums(group: GroupSums) -> _Sums:
        mixed = group.term.times @ simulator.mixed(group.score.directions, group.term.columns).T
        mixed_of_record = mixed[simulator.index]
        clipped = group.score.clipped(group.score.slopes(simulated))
        s = (clipped * mixed_of_record).sum(axis=1, keepdims=True)
        s /= np.maximum((mixed_of_record**2).sum(axis=1, keepdims=True), 1e-300)
        predictions = rows.predicted(np.hstack([s, s * h0, s**2, s * others, s * g]), controls)
        parts = np.cumsum([1, 1, 1, others.shape[1]])
        average, tilt, square, with_others, with_g = np.split(predictions, parts, axis=1)
        score = group.term.by_group(mixed)
        tilted = score.multiply(np.maximum(tilt, 0.0)).tocsr()
        return _Sums(
            gap=group.total.ravel() - (score.T @ average)[:, 0],
            slopes=tilted.T @ rows.effects,
            by_fixed=by_fixed(lambda along: tilted.T @ along, score.T @ with_others),
            roots=score.multiply(np.sqrt(np.maximum(square - average**2, 0.0))),
            noise=np.full(group.total.size, group.sd**2),
            shared=(score.T @ (with_g - average * mean)).T,
        )

    joined = _joined([sums(group) for group in groups])
    crossed = len(groups) > 1 or groups[0].total.shape[1] > 1
    group_data, share = _crossed(joined) if crossed else _apart(joined, groups[0])
    means = mean[simulator.index]
    covariance = simulator.n * (g.T @ g - means.T @ means) / len(g) - share @ joined.shared.T
    values, turned = np.linalg.eigh((covariance + covariance.T) / 2)
    normal = 0.0 if measured.scale else measured.sd**2
    rest = simulator.n * (g - means).T @ others / len(g)
    change = by_fixed(lambda along: by_shift.T @ along, rest)
    return {
        "score__length": k,
        "score__bounded": places.bounded.astype(int),
        "score__lower": places.lower,
        "score__at": places.at,
        "score__effects": simulator.effects(point),
        "score__change": turned.T @ change,
        "score__by_effects": turned.T @ (rows.effects.T @ by_shift).T,
        "score__gap": turned.T @ (measured.total - mean.sum(axis=0)),
        "score__variance": np.maximum(values, _SOME * simulator.n) + normal,
        "score__scale": measured.scale,
        "score__group_change": group_data.pop("by_fixed"),
        "score__share": turned.T @ share,
        **{f"score__{name}": value for name, value in group_data.items()},
    }


def _joined(parts: Sequence[_Sums]) -> _Sums:
    """Concatenate the sums of all terms."""
    return _Sums(
        gap=np.concatenate([part.gap for part in parts]),
        slopes=sparse.vstack([part.slopes for part in parts]).tocsr(),
        by_fixed=np.concatenate([part.by_fixed for part in parts]),
        roots=sparse.hstack([part.roots for part in parts]).tocsr(),
        noise=np.concatenate([part.noise for part in parts]),
        shared=np.hstack([part.shared for part in parts]),
    )


def _apart(sums: _Sums, group: GroupSums) -> tuple[dict[str, Any], Floats]:
    """Program data where no two sums share a record, and regression of the overall sum on them."""
    variance = np.asarray(sums.roots.multiply(sums.roots).sum(axis=0))[0]
    share = sums.shared / (variance + sums.noise)
    normal = 0.0 if group.scale else group.sd**2
    return {
        "by_fixed": sums.by_fixed,
        "own": sums.slopes.diagonal(),
        "crossed": 0,
        "between": np.empty((0, 0)),
        "group_gap": sums.gap,
        "group_variance": np.maximum(variance, _SOME) + normal,
        "group_scale": group.scale,
    }, share


def _crossed(sums: _Sums) -> tuple[dict[str, Any], Floats]:
    """Program data for sums that may share records, and regression of the overall sum on them.

    The sums are whitened, so that their deviations have variance 1 and are uncorrelated; their
    noise is treated as normal.
    """
    root = np.linalg.cholesky((sums.roots.T @ sums.roots).toarray() + np.diag(sums.noise))
    size = len(sums.gap)
    return {
        "by_fixed": np.linalg.solve(root, sums.by_fixed),
        "own": np.zeros(size),
        "crossed": size,
        "between": np.linalg.solve(root, sums.slopes.toarray()),
        "group_gap": np.linalg.solve(root, sums.gap),
        "group_variance": np.ones(size),
        "group_scale": 0.0,
    }, np.asarray(np.linalg.solve(root, sums.shared.T).T)
