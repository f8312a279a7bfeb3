"""Noisy sums of scores by group, and what a model expects of them near a point. Public."""

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

_SOME = 1e-6  # variance of a sum without noise at least, in those of a record's score
# Singular value of a regression, beside the largest: slopes are differences, and two of them that
# are the same differ by about a tenth of it.
_RANK = 1e-3
_MOVED = 3  # place of the step of the linear predictor among powers


GroupSizes = tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class GroupColumns:
    """The columns of a formula's group terms that have the same groups: C of them.

    Attributes:
        columns: their numbers among the stacked ones.
        first: what the program calls the first of its groups in the first of them.
        groups: number of groups, G.
        codes: group of each public row, from 0, shape (n,).
        times: what effects are multiplied by in each row, shape (n, C).
    """

    columns: tuple[int, ...]
    first: int
    groups: int
    codes: Ints
    times: Floats

    def by_group(self, values: Floats) -> csr_matrix:
        """A sparse matrix with a row's C values in the places of its group, shape (n, G C)."""
        n, width = values.shape
        where = self.codes[:, None] * width + np.arange(width)
        rows = np.repeat(np.arange(n), width)
        shape = n, self.groups * width
        return sparse.csr_matrix((values.ravel(), (rows, where.ravel())), shape)


@dataclass(frozen=True, eq=False)
class GroupSums:
    """Sums of clipped scores of the records of each group, with noise. Public.

    Attributes:
        term: whose groups.
        score: of a record, along C directions that mix the term's columns.
        total: shape (G, C).
        sd: of the noise in each entry.
        scale: as in ``NoisySum``, of each group by itself.
    """

    term: GroupColumns
    score: ClippedScore
    total: Floats
    sd: float
    scale: float


def grouped(model: Model) -> bool:
    """Whether a model has group effects of a bundled program."""
    return any(column.family and column.formula.groups for column in model.columns)


def group_sizes(model: Model) -> GroupSizes:
    """For each set of groups of the model how many there are, and of effects of each."""
    return tuple((size, len(columns)) for size, columns in _alike(model))


def terms_of(model: Model, design: Mapping[str, Any]) -> list[GroupColumns]:
    """The same with the groups of rows, from program data."""
    if not grouped(model):
        return []
    stacked = Stacked(design)
    index = np.asarray(design["group_index"], dtype=np.int64) - 1
    found = []
    for size, columns in _alike(model):
        first = stacked.part[columns[0]].start
        times = np.stack([stacked.times(t) for t in columns], axis=1)
        codes = index[:, columns[0]] - first
        found.append(GroupColumns(columns, first + 1, size, codes, times))
    return found


def _alike(model: Model) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Numbers of groups, and the stacked columns that have these groups."""
    if not grouped(model):
        return
    (column,) = model.columns
    columns = column.formula.groups
    for by in dict.fromkeys(one.by for one in columns):
        places = tuple(t for t, one in enumerate(columns) if one.by == by)
        yield len(columns[places[0]].levels), places


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Fixed parameters as ``scored_groups`` has them: as they are, or by their logarithms.

    Attributes:
        at: at a point, shape (k,).
        bounded: which are told by the logarithm of what they are above their lower bound.
        lower: that bound, 0 for others.
        each: change for a step of 1 of the unconstrained coordinate.
    """

    at: Vector
    bounded: np.ndarray[Any, np.dtype[np.bool_]]
    lower: Vector
    each: Vector

    @classmethod
    def of(cls, simulator: Simulator, point: Vector) -> Coordinates:
        """At an unconstrained point."""
        unit = np.eye(len(point))[simulator.fixed]
        names = fixed_parameters(simulator.model.program)

        def values(points: Floats) -> Floats:
            found = simulator.constrained(points[None])
            return np.concatenate(
                [found[name][0].reshape(len(points), -1) for name in names if name in found], axis=1
            )

        here = values(point[None])[0]
        above = np.diag(values(point + unit) - here)
        below = np.diag(here - values(point - unit))
        bounded = np.abs(above - below) > 0.1 * np.abs(above)  # by exp(1) and exp(-1), or alike
        free = point[simulator.fixed]
        return cls(
            at=np.where(bounded, free, here),
            bounded=bounded,
            lower=np.where(bounded, here - np.exp(np.where(bounded, free, 0)), 0.0),
            each=np.where(bounded, 1.0, above),
        )


class _Rows:
    """What is public of rows, for regressions of what their scores are expected to be.

    Args:
        simulator: of the model.
        asked: the point at which scores are taken, at group effects 0.
        point: the point at which they are expected.
    """

    def __init__(self, simulator: Simulator, asked: Vector, point: Vector) -> None:
        design = simulator.design
        X = np.asarray(design["X"], dtype=float)
        stacked = Stacked(design)
        index = np.asarray(design["group_index"], dtype=np.int64) - 1
        times = np.stack([stacked.times(t) for t in range(len(stacked.part))], axis=1)
        place = np.repeat(np.arange(len(X)), times.shape[1])
        shape = len(X), stacked.width
        self.effects: csr_matrix = sparse.csr_matrix(
            (times.ravel(), (place, index.ravel())), shape
        )  # what each effect is multiplied by
        before, after = (simulator.constrained(one[None, None]) for one in (asked, point))
        self.moving, self.along = _moving(simulator, X)
        slope = [
            found["coefficient"][0, 0] if X.shape[1] else np.zeros(0) for found in (before, after)
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
        """Variables of simulated records of which the mean is 0 in every row.

        Args:
            h0: slopes in the linear predictor, shape (M, 1).
            h: along all directions, shape (M, k).
        """
        powers = self._powers[self._index]
        return np.hstack([h0 * powers, h, h * powers[:, [_MOVED]]])

    def predicted(self, values: Floats, controls: Floats) -> Floats:
        """For all rows what simulated records say of values, shape (n, columns)."""
        some = np.hstack([self._features[self._index], controls])
        size = np.maximum(np.linalg.norm(some, axis=0), 1e-300)
        found = np.linalg.lstsq(some / size, values, rcond=_RANK)[0] / size[:, None]
        return np.asarray(self._features @ found[: self._features.shape[1]])


def _moving(simulator: Simulator, X: Floats) -> tuple[NDArray[np.bool_], Floats]:
    """Which fixed parameters move linear predictors alone, and by how much in each row."""
    names = [simulator.names[place] for place in simulator.fixed]
    one = np.ones((len(X), 1))
    found = {"intercept": one, "first_cutpoint": -one, "coefficient": X}
    along = [found[name] for name in dict.fromkeys(names) if name in found]
    return np.array([name in found for name in names]), np.hstack(along)


def _standard(values: Floats) -> Floats:
    """With mean 0 and sd 1 in each column, or 0."""
    away = values - values.mean(axis=0)
    sd = away.std(axis=0)
    return np.asarray(np.where(sd > 0, away / np.where(sd > 0, sd, 1.0), 0.0))


class _Sums(NamedTuple):
    """Of sums by group, J of them, at a point.

    Attributes:
        gap: what the noisy sums are above what is expected, shape (J,).
        slopes: of what is expected, in each effect, sparse (J, J).
        by_fixed: the same in the k fixed parameters, shape (J, k).
        roots: sparse (n, J); ``roots.T @ roots`` is the covariance without noise.
        noise: variance of that, shape (J,).
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
    """Data of ``scored_groups``: what noisy sums are expected to be near an unconstrained point.

    It is told to first order. A record's score along group effects is a multiple of its slope in
    the linear predictor, of which the expectation, and that of products with other scores, is
    smooth in public values of its row: it is regressed on these over simulated records, and summed
    over all rows.

    Args:
        measured: the noisy sum over all records.
        groups: those by group.
    """
    there = simulator.records(point[None]).bound
    k = len(measured.total)
    h = finite(slopes_along(there, point, measured.score.directions))
    h0 = finite(slopes_along(there, point, simulator.shift(point)[None]))
    g = measured.score.clipped(measured.score.slopes(there))
    rows = _Rows(simulator, measured.score.point, point)
    controls = rows.controls(h0, h)
    mean, by_shift = np.split(rows.predicted(np.hstack([g, g * h0]), controls), 2, axis=1)
    places = Coordinates.of(simulator, point)
    # Slopes in the program's parameters. Those that move the linear predictor are known by it: were
    # they measured by themselves, an intercept and all effects of a term would seem to differ.
    way = np.linalg.inv(measured.score.directions[:, simulator.fixed]).T / places.each
    others = h @ way[:, ~rows.moving]

    def by_fixed(shifted: Callable[[Floats], Floats], rest: Floats) -> Floats:
        found = np.empty((len(rest), k))
        found[:, rows.moving], found[:, ~rows.moving] = shifted(rows.along), rest
        return found

    def sums(group: GroupSums) -> _Sums:
        mixed = group.term.times @ simulator.mixed(group.score.directions, group.term.columns).T
        own = mixed[simulator.index]
        clipped = group.score.clipped(group.score.slopes(there))
        s = (clipped * own).sum(axis=1, keepdims=True)
        s /= np.maximum((own**2).sum(axis=1, keepdims=True), 1e-300)
        told = rows.predicted(np.hstack([s, s * h0, s**2, s * others, s * g]), controls)
        parts = np.cumsum([1, 1, 1, others.shape[1]])
        average, tilt, square, with_others, with_g = np.split(told, parts, axis=1)
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

    found = _joined([sums(group) for group in groups])
    crossed = len(groups) > 1 or groups[0].total.shape[1] > 1
    told, share = _crossed(found) if crossed else _apart(found, groups[0])
    seen = mean[simulator.index]
    inside = simulator.rows * (g.T @ g - seen.T @ seen) / len(g) - share @ found.shared.T
    values, turned = np.linalg.eigh((inside + inside.T) / 2)
    normal = 0.0 if measured.scale else measured.sd**2
    rest = simulator.rows * (g - seen).T @ others / len(g)
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
        "score__variance": np.maximum(values, _SOME * simulator.rows) + normal,
        "score__scale": measured.scale,
        "score__group_change": told.pop("by_fixed"),
        "score__share": turned.T @ share,
        **{f"score__{name}": value for name, value in told.items()},
    }


def _joined(parts: Sequence[_Sums]) -> _Sums:
    """Of all terms behind each other."""
    return _Sums(
        gap=np.concatenate([part.gap for part in parts]),
        slopes=sparse.vstack([part.slopes for part in parts]).tocsr(),
        by_fixed=np.concatenate([part.by_fixed for part in parts]),
        roots=sparse.hstack([part.roots for part in parts]).tocsr(),
        noise=np.concatenate([part.noise for part in parts]),
        shared=np.hstack([part.shared for part in parts]),
    )


def _apart(found: _Sums, group: GroupSums) -> tuple[dict[str, Any], Floats]:
    """Where no two sums share a record; and what each that is off says of the sum over all."""
    variance = np.asarray(found.roots.multiply(found.roots).sum(axis=0))[0]
    share = found.shared / (variance + found.noise)
    normal = 0.0 if group.scale else group.sd**2
    return {
        "by_fixed": found.by_fixed,
        "own": found.slopes.diagonal(),
        "crossed": 0,
        "between": np.empty((0, 0)),
        "group_gap": found.gap,
        "group_variance": np.maximum(variance, _SOME) + normal,
        "group_scale": group.scale,
    }, share


def _crossed(found: _Sums) -> tuple[dict[str, Any], Floats]:
    """The same for any, told so that what is off has variance 1 and no correlation.

    Noise counts as normal.
    """
    root = np.linalg.cholesky((found.roots.T @ found.roots).toarray() + np.diag(found.noise))
    size = len(found.gap)
    return {
        "by_fixed": np.linalg.solve(root, found.by_fixed),
        "own": np.zeros(size),
        "crossed": size,
        "between": np.linalg.solve(root, found.slopes.toarray()),
        "group_gap": np.linalg.solve(root, found.gap),
        "group_variance": np.ones(size),
        "group_scale": 0.0,
    }, np.asarray(np.linalg.solve(root, found.shared.T).T)
