"""Candidate points, one of which a private draw chooses; no confidential value determines them.

They are a function of the program, public data, the public number of rows, a stage's constants and
draws that were paid for. They affect how useful a draw is; the guarantee holds for any points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Floats, Vector
from dpbayes.core.errors import EngineError, ProgramError
from dpbayes.core.lazy import linalg, special, stats, xr
from dpbayes.engines.base import BY_RECORD, SamplerSettings, StanData, by_record
from dpbayes.engines.choices import Candidates, Outcomes
from dpbayes.engines.draws import make_draws, stacked
from dpbayes.engines.evaluator import by_parts
from dpbayes.stan.composition import SEPARATOR

if TYPE_CHECKING:  # it loads the Stan interpreter
    from dpbayes.engines.embedded import EmbeddedModel

MOST_PARAMETERS = 5
SEED = 15  # public: prior draws, quasi-random points and outcomes simulated at an anchor
TAILS = 5.0  # degrees of freedom of t distributions of candidates
WIDE = 0.1  # share of candidates spread like the prior, so that importance weights stay bounded
REFERENCE = 10.0  # variance around a public anchor, in stage posterior variances
STEP = 0.1  # change of a record's log-likelihood by a step of finite differences
MOST_ROWS = 4000  # rows from which the Fisher information of all rows is estimated
_PRIOR_DRAWS = 4000
_CHAINS = 4
_SHRINK = 8  # most times that a step of finite differences is shortened
_NEAREST = 4  # the candidate whose distance from the anchor shows how coarse its stage was


class Proposer:
    """Chooses candidates by a program with public data.

    Args:
        model: the program.
        data: its data with a public constant in place of every confidential value: a row for each
            of the public number of rows, and public covariates as they are.
        count: number of candidates, K.
        outcomes: simulates confidential data at an anchor; without it the Fisher information there
            counts as 0.

    Attributes:
        count: number of candidates, K.
        dimension: number of parameters d.

    Raises:
        EngineError: more parameters than candidates can cover.
    """

    def __init__(
        self, model: EmbeddedModel, data: StanData, count: int, outcomes: Outcomes | None = None
    ) -> None:
        n = int(data["n"])
        self._model = model
        self._bundled = bundled = model.program.bundled
        self.count = count
        self._outcomes = outcomes
        # A bundled program has independent rows; fewer of them take less time.
        self._stride = -(-n // MOST_ROWS) if bundled else 1
        thinned = _rows(data, self._stride) if bundled else data
        self._share = int(thinned["n"]) / n
        self._bound = model.bind({**thinned, **_plain(thinned, 1.0)})
        # Records do not affect the prior, so one row is enough.
        single_row = _rows(data, n) if bundled else data
        self._prior = model.bind({**single_row, **_plain(single_row, 0.0)})
        self.dimension = d = self._prior.unconstrain(self._prior.random_points(1, SEED)).shape[1]
        if not 1 <= d <= MOST_PARAMETERS:
            raise EngineError(
                f"the engine candidates takes 1 to {MOST_PARAMETERS} parameters, the program has "
                f'{d}. Leave out covariates or groups, or take `engine="embedded"`.'
            )

    def candidates(
        self,
        tempering: float,
        anchor: xr.DataTree | None = None,
        before: Candidates | None = None,
        count: int | None = None,
    ) -> Candidates:
        """Choose the candidates of one stage.

        Without an anchor they are draws of the prior. Around an anchor nine tenths follow a t
        distribution whose scale adds the variance of the stage's own posterior and that of the
        anchor around its centre; a tenth follow a t distribution as wide as the prior.

        Args:
            tempering: weight of a record in the stage.
            anchor: a draw that the previous stage has paid for, or a public one.
            before: the candidates that the anchor was drawn from; None for a public anchor.
            count: number of candidates; by default K.
        """
        count = count or self.count
        drawn, points = self._of_prior
        if anchor is None:
            selected = np.random.default_rng(SEED).permutation(len(points))[:count]
            draws, points = drawn.isel(draw=selected), points[selected]
            return self._usable(draws, points, self._prior.log_density(points), tempering)
        prior = _StudentT(points.mean(axis=0), np.atleast_2d(np.cov(points.T)))
        centre = self._prior.unconstrain(anchor)[0]
        information = self._information(anchor, centre, np.sqrt(np.diag(prior.scale)))
        precision = np.linalg.inv(prior.scale)
        own = np.linalg.inv(tempering * information + precision)
        weight = tempering / REFERENCE if before is None else before.tempering
        off = np.linalg.inv(weight * information + precision)
        if before is not None:
            off = off * _coarseness(before.points - centre, off)
        near = _StudentT(centre, own + off)
        far = round(WIDE * count)
        points = np.concatenate([near.points(count - far), prior.points(far)])
        log_proposal = np.logaddexp(
            math.log1p(-WIDE) + near.log_density(points), math.log(WIDE) + prior.log_density(points)
        )
        draws = make_draws(self._prior.constrain(points[None]))
        return self._usable(draws, points, log_proposal, tempering)

    def _usable(
        self, draws: xr.DataTree, points: Floats, log_proposal: Vector, tempering: float
    ) -> Candidates:
        """Keep the points with finite positive densities that map back to coordinates.

        Ordered parameters that are almost equal cannot be mapped back to unconstrained coordinates.
        Points that a user's program rejects with public constants are left out, too; a rejection
        that occurs later, with the records, is an error.
        """
        log_prior = self._prior.log_density(points)
        usable = np.isfinite(self._prior.unconstrain(draws)).all(axis=1)
        usable &= np.isfinite(log_prior) & np.isfinite(log_proposal)
        if not self._bundled:
            usable &= by_parts(self._accepts, points)
        keep = np.flatnonzero(usable)
        if not keep.size:
            raise EngineError("the program's prior density is 0 at every candidate point.")
        return Candidates(
            draws.isel(draw=keep), points[keep], log_prior[keep], log_proposal[keep], tempering
        )

    def _accepts(self, points: Floats) -> NDArray[np.bool_]:
        """Whether the program evaluates log_lik of public constants at points of shape (S, d)."""
        accepted = np.ones(len(points), dtype=bool)
        for k in range(len(points)):
            try:
                # To the end: the evaluator of a generator that is left is not used again.
                list(self._bound.log_lik_at(points[k : k + 1], strict=True))
            except EngineError:
                accepted[k] = False
        return accepted

    @cached_property
    def _of_prior(self) -> tuple[xr.DataTree, Floats]:
        """Draws of the prior as parameters, and their unconstrained coordinates, shape (S, d).

        The seed is public, so that the same program and data give the same draws again: for the
        neighbours of an audit they are not sampled twice.
        """
        length = -(-max(self.count, _PRIOR_DRAWS) // _CHAINS)
        key = self._prior.identity(), length
        for known, found in tuple(self._model.priors):
            if known == key:
                return found
        settings = SamplerSettings(chains=_CHAINS, draws=length, seed=SEED, metric="dense_e")
        drawn = self._prior.sample(settings)
        names = [str(name) for name in drawn["posterior"].data_vars]
        draws = make_draws({name: stacked(drawn, name)[None] for name in names})
        points = self._prior.unconstrain(draws)
        good = np.flatnonzero(np.isfinite(points).all(axis=1))
        found = draws.isel(draw=good), points[good]
        self._model.priors.append((key, found))
        return found

    def _information(self, anchor: xr.DataTree, centre: Vector, step: Vector) -> Floats:
        """Fisher information of the public number of rows at the anchor, shape (d, d).

        Estimated from the scores of outcomes simulated there. It is a matrix of zeros, which
        spreads candidates over the prior, if the program cannot simulate any.
        """

        def replicate(changes: StanData) -> NDArray[Any]:
            bound = self._bound.rebind(**changes) if changes else self._bound
            return bound.y_rep(anchor, 0, SEED)

        try:
            if self._outcomes is None:
                return np.zeros((centre.size, centre.size))
            simulated = self._bound.rebind(**self._outcomes(replicate, self._stride))
            for _ in range(_SHRINK):
                moved = centre + np.concatenate([np.diag(step), -np.diag(step)])
                above, below = np.split(np.stack(list(simulated.log_lik_at(moved))), 2)
                # Differences of infinities are NaN, and count as no change.
                with np.errstate(invalid="ignore"):
                    change = (above - below) / 2
                change[~np.isfinite(change)] = 0.0
                large = np.sqrt(np.mean(change**2, axis=1)) / STEP
                if (large <= 2).all():
                    break
                step = step / np.maximum(large, 1.0)
        except (EngineError, ProgramError):
            return np.zeros((centre.size, centre.size))
        # Information is additive over independent rows: those simulated stand for all.
        scores = change / step[:, None]
        return np.asarray(scores @ scores.T) / self._share


def with_rows(data: StanData) -> dict[str, NDArray[Any]]:
    """Select the data entries with one value or row per record, in a fixed order."""
    n = int(data["n"])
    arrays = {k: np.asarray(v) for k, v in data.items() if by_record(k)}
    order = sorted(arrays, key=lambda name: BY_RECORD.index(name.split(SEPARATOR)[0]))
    return {name: arrays[name] for name in order if len(arrays[name]) == n}


def _rows(data: StanData, stride: int) -> dict[str, Any]:
    """Thin the data to every ``stride``-th row."""
    n = int(data["n"])
    by_row = with_rows(data)
    selected = {key: values[::stride] for key, values in by_row.items()}
    return {**data, **selected, "n": len(range(0, n, stride))}


def _plain(data: StanData, weight: float) -> dict[str, Any]:
    """Data entries of the contract with equal weights, anchor 0 and no window."""
    n = int(data["n"])
    ends = {"clip_lower": -math.inf, "clip_upper": math.inf}
    return {"weights": np.full(n, weight), "anchor": np.zeros(n), **ends}


@dataclass(frozen=True, eq=False)
class _StudentT:
    """A multivariate t distribution."""

    location: Vector
    scale: Floats

    def points(self, count: int) -> Floats:
        """Quasi-random points of the distribution, shape (count, d)."""
        d = self.location.size
        # Sobol points are balanced only in numbers that are powers of 2.
        power = max(1, math.ceil(math.log2(max(count, 1))))
        uniform = stats.qmc.Sobol(d + 1, seed=SEED).random_base2(power)[:count]
        uniform = np.clip(uniform, 1e-12, 1 - 1e-12)  # quantiles at 0 and 1 are infinite
        normal = special.ndtri(uniform[:, :d]) @ np.linalg.cholesky(self.scale).T
        return np.asarray(
            self.location + normal / np.sqrt(stats.chi2.ppf(uniform[:, d:], TAILS) / TAILS)
        )

    def log_density(self, points: Floats) -> Vector:
        """Log density, by the root from which ``points`` come; SciPy's refuses narrow scales."""
        d, root = self.location.size, np.linalg.cholesky(self.scale)
        away = linalg.solve_triangular(root, (points - self.location).T, lower=True)
        squares = (away**2).sum(axis=0)
        constant = special.gammaln((TAILS + d) / 2) - special.gammaln(TAILS / 2)
        constant -= d / 2 * math.log(TAILS * math.pi) + np.log(np.diag(root)).sum()
        return np.atleast_1d(constant - (TAILS + d) / 2 * np.log1p(squares / TAILS))


def _coarseness(away: Floats, spread: Floats) -> float:
    """Factor, at least 1, by which gaps between candidates near an anchor exceed ``spread``.

    A draw cannot be nearer to a stage's posterior than the stage's candidates are.

    Args:
        away: shape (K, d), candidates less the anchor.
        spread: shape (d, d), the covariance compared with.
    """
    distances = np.einsum("ki,ij,kj->k", away, np.linalg.inv(spread), away)
    nearest = min(_NEAREST, len(away) - 1)
    return max(1.0, float(np.sort(distances)[nearest]) / float(away.shape[1]))
