"""Candidate points: where a private draw may fall, chosen without any confidential value.

They are a function of the program, public data, the public number of rows, a stage's constants and
draws that were paid for. They decide how useful a draw is; the guarantee holds for any of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Floats, Vector
from dpbayes.core.errors import EngineError, ProgramError
from dpbayes.core.lazy import special, stats, xr
from dpbayes.engines.base import BY_RECORD, SamplerSettings, StanData, by_record
from dpbayes.engines.draws import count_draws, make_draws, one_draw, stacked
from dpbayes.engines.evaluator import by_parts
from dpbayes.stan.composition import SEPARATOR

if TYPE_CHECKING:  # it loads the Stan interpreter
    from dpbayes.engines.embedded import EmbeddedModel

MOST_PARAMETERS = 5
Outcomes = Callable[[Callable[[StanData], NDArray[Any]], int], dict[str, Any]]
SEED = 15  # public: prior draws, quasi-random points and outcomes simulated at an anchor
TAILS = 5.0  # degrees of freedom of the t distributions
WIDE = 0.1  # share of candidates that follow the prior, so that importance weights stay bounded
REFERENCE = 10.0  # variance around a public anchor, in those of the stage's own posterior
STEP = 0.1  # of differences: what it changes in one record's log-likelihood
MOST_ROWS = 4000  # at which the information of all is measured
_PRIOR_DRAWS = 4000
_CHAINS = 4
_SHRINK = 8  # times that a step of differences may be shortened
_NEAREST = 4  # the candidate whose distance from the anchor shows how coarse its stage was


@dataclass(frozen=True, eq=False)
class Candidates:
    """K public points of the parameter space.

    Attributes:
        draws: the points as parameters, one chain of K draws.
        points: shape (K, d), the same in the unconstrained coordinates of the public binding.
        log_prior, log_proposal: shape (K,), log densities there, each up to a constant.
        tempering: weight of a record in the stage that they are for.
    """

    draws: xr.DataTree
    points: Floats = field(repr=False)
    log_prior: Vector = field(repr=False)
    log_proposal: Vector = field(repr=False)
    tempering: float

    @property
    def count(self) -> int:
        """K."""
        return count_draws(self.draws)

    def point(self, index: int) -> xr.DataTree:
        """One of them, as the anchor of the stage after."""
        return one_draw(self.draws, index)


@dataclass(frozen=True, eq=False)
class Choices:
    """The scores of one private draw. Confidential, the points excepted.

    Attributes:
        candidates: the public points.
        log_weight: shape (K,), sum_i clip(...) + log prior - log proposal, less its maximum.
            An index with P(k) proportional to exp(log_weight[k]) is one private output, which
            costs the width of the stage's window.
    """

    candidates: Candidates
    log_weight: Vector = field(repr=False)

    @property
    def points(self) -> xr.DataTree:
        """The public points as parameters, one chain of K draws."""
        return self.candidates.draws

    @property
    def probability(self) -> Vector:
        """Shape (K,). Confidential."""
        return np.asarray(special.softmax(self.log_weight))

    @property
    def effective(self) -> float:
        """1 / sum of squared probabilities: candidates that share the posterior. Confidential."""
        return float(1 / np.sum(self.probability**2))


class Proposer:
    """Makes candidates from a program with public data.

    Args:
        model: the program.
        data: its data with a public constant in place of every confidential value: a row for each
            of the public number of rows, and public covariates as they are.
        count: K.
        outcomes: draws confidential data; without it nothing is known around an anchor.

    Attributes:
        count: K.
        dimension: number of parameters d.

    Raises:
        EngineError: more parameters than candidates can cover.
    """

    def __init__(
        self, model: EmbeddedModel, data: StanData, count: int, outcomes: Outcomes | None = None
    ) -> None:
        n = int(data["n"])
        self._bundled = bundled = model.program.bundled
        self.count = count
        self._outcomes = outcomes
        # A bundled program has independent rows, and is as fast as they are few.
        self._stride = -(-n // MOST_ROWS) if bundled else 1
        some = _rows(data, self._stride) if bundled else data
        self._share = int(some["n"]) / n
        self._bound = model.bind({**some, **_plain(some, 1.0)})
        one = _rows(data, n) if bundled else data
        self._prior = model.bind({**one, **_plain(one, 0.0)})
        self.dimension = d = self._prior.unconstrain(self._prior.random_points(1, SEED)).shape[1]
        if not 1 <= d <= MOST_PARAMETERS:
            raise EngineError(
                f"the engine candidates takes 1 to {MOST_PARAMETERS} parameters, the program has "
                f"{d}. Leave out covariates or groups, or use --engine embedded."
            )

    def candidates(
        self,
        tempering: float,
        anchor: xr.DataTree | None = None,
        before: Candidates | None = None,
        count: int | None = None,
    ) -> Candidates:
        """Points for one stage.

        Without an anchor they are draws of the prior. Around one they follow a t distribution
        that is as wide as the stage's own posterior and the anchor's distance from its centre
        together, and for a tenth of them one of the prior's width.

        Args:
            tempering: weight of a record in the stage.
            anchor: a draw that the stage before has paid for, or a public one.
            before: the candidates that the anchor was drawn from; None for a public anchor.
            count: how many; K unless said.
        """
        count = count or self.count
        drawn, points = self._of_prior
        if anchor is None:
            some = np.random.default_rng(SEED).permutation(len(points))[:count]
            draws, points = drawn.isel(draw=some), points[some]
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
        """Points with densities that are finite and above 0, which can be found back.

        Parameters that are all but equal where they have to be ordered have no way back from them
        to coordinates. At points that a user's program rejects without the records, no records
        have a log-likelihood: they are left out here, and are an error later.
        """
        log_prior = self._prior.log_density(points)
        found = np.isfinite(self._prior.unconstrain(draws)).all(axis=1)
        found &= np.isfinite(log_prior) & np.isfinite(log_proposal)
        if not self._bundled:
            found &= by_parts(self._accepts, points)
        keep = np.flatnonzero(found)
        if not keep.size:
            raise EngineError("the program's prior density is 0 at every candidate point.")
        return Candidates(
            draws.isel(draw=keep), points[keep], log_prior[keep], log_proposal[keep], tempering
        )

    def _accepts(self, points: Floats) -> NDArray[np.bool_]:
        """Whether there is a log_lik of public constants at points of shape (S, d)."""
        found = np.ones(len(points), dtype=bool)
        for k in range(len(points)):
            try:
                next(self._bound.log_lik_at(points[k : k + 1], strict=True))
            except EngineError:
                found[k] = False
        return found

    @cached_property
    def _of_prior(self) -> tuple[xr.DataTree, Floats]:
        """Draws of the prior, and where they are."""
        length = -(-max(self.count, _PRIOR_DRAWS) // _CHAINS)
        settings = SamplerSettings(chains=_CHAINS, draws=length, seed=SEED, metric="dense_e")
        drawn = self._prior.sample(settings)
        names = [str(name) for name in drawn["posterior"].data_vars]
        draws = make_draws({name: stacked(drawn, name)[None] for name in names})
        points = self._prior.unconstrain(draws)
        good = np.flatnonzero(np.isfinite(points).all(axis=1))
        return draws.isel(draw=good), points[good]

    def _information(self, anchor: xr.DataTree, centre: Vector, step: Vector) -> Floats:
        """Fisher information of the public number of rows at the anchor, shape (d, d).

        From the scores of outcomes simulated there; a matrix of zeros, which spreads candidates
        over the prior, where the program cannot simulate any.
        """

        def replicate(changes: StanData) -> NDArray[Any]:
            bound = self._bound.rebind(**changes) if changes else self._bound
            return bound.y_rep(anchor, 0, SEED)

        try:
            if self._outcomes is None:
                return np.zeros((centre.size, centre.size))
            there = self._bound.rebind(**self._outcomes(replicate, self._stride))
            for _ in range(_SHRINK):
                moved = centre + np.concatenate([np.diag(step), -np.diag(step)])
                above, below = np.split(np.stack(list(there.log_lik_at(moved))), 2)
                # Differences of infinities are NaN.
                with np.errstate(invalid="ignore"):
                    change = (above - below) / 2
                change[~np.isfinite(change)] = 0.0
                large = np.sqrt(np.mean(change**2, axis=1)) / STEP
                if (large <= 2).all():
                    break
                step = step / np.maximum(large, 1.0)
        except (EngineError, ProgramError):
            return np.zeros((centre.size, centre.size))
        scores = change / step[:, None]
        return np.asarray(scores @ scores.T) / self._share


def with_rows(data: StanData) -> dict[str, NDArray[Any]]:
    """The data entries that have a value or row a record, in a fixed order."""
    n = int(data["n"])
    found = {k: np.asarray(v) for k, v in data.items() if by_record(k)}
    order = sorted(found, key=lambda name: BY_RECORD.index(name.split(SEPARATOR)[0]))
    return {name: found[name] for name in order if len(found[name]) == n}


def _rows(data: StanData, stride: int) -> dict[str, Any]:
    """Every so many of the rows."""
    n = int(data["n"])
    by_row = with_rows(data)
    some = {key: values[::stride] for key, values in by_row.items()}
    return {**data, **some, "n": len(range(0, n, stride))}


def _plain(data: StanData, weight: float) -> dict[str, Any]:
    """The contract's data without anchor and window."""
    n = int(data["n"])
    ends = {"clip_lower": -math.inf, "clip_upper": math.inf}
    return {"weights": np.full(n, weight), "anchor": np.zeros(n), **ends}


@dataclass(frozen=True, eq=False)
class _StudentT:
    """A multivariate t distribution."""

    location: Vector
    scale: Floats

    def points(self, count: int) -> Floats:
        """Quasi-random, shape (count, d)."""
        d = self.location.size
        power = max(1, math.ceil(math.log2(max(count, 1))))
        uniform = stats.qmc.Sobol(d + 1, seed=SEED).random_base2(power)[:count]
        uniform = np.clip(uniform, 1e-12, 1 - 1e-12)
        normal = special.ndtri(uniform[:, :d]) @ np.linalg.cholesky(self.scale).T
        return np.asarray(
            self.location + normal / np.sqrt(stats.chi2.ppf(uniform[:, d:], TAILS) / TAILS)
        )

    def log_density(self, points: Floats) -> Vector:
        return np.atleast_1d(stats.multivariate_t(self.location, self.scale, TAILS).logpdf(points))


def _coarseness(away: Floats, spread: Floats) -> float:
    """How much wider than ``spread`` the gaps between candidates are near an anchor, at least 1.

    A draw cannot be nearer to where a stage's posterior is than its candidates are.

    Args:
        away: shape (K, d), candidates less the anchor.
    """
    distances = np.einsum("ki,ij,kj->k", away, np.linalg.inv(spread), away)
    nearest = min(_NEAREST, len(away) - 1)
    return max(1.0, float(np.sort(distances)[nearest]) / float(away.shape[1]))
