"""MODIPS with several models: one is chosen privately, for a release or for each data set."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from dpbayes.core.arrays import Floats, Ints
from dpbayes.core.errors import GuaranteeError
from dpbayes.core.lazy import pd
from dpbayes.mechanisms.base import ModelFreeFitted, ModelFreeMechanism
from dpbayes.mechanisms.modips.mechanism import FittedModel, Modips
from dpbayes.mechanisms.modips.settings import one_of
from dpbayes.mechanisms.modips.statistic_model import Parameters
from dpbayes.mechanisms.tables.cells import Axis, make_axis
from dpbayes.privacy.accounting import NOTHING, Loss, stated
from dpbayes.privacy.guarantee import EPSILONS, Adjacency, Guarantee, inside
from dpbayes.privacy.noise import Noise
from dpbayes.privacy.statistic import scale_for, shares
from dpbayes.schema import Schema

GROUPS = 5  # bins of a numeric column in the tables by which models are scored
CHOICES = ("once", "each", "average")


@dataclass(frozen=True)
class ChosenModips(ModelFreeMechanism):
    """MODIPS with several models: one chosen privately, or averaged over.

    ``once`` chooses one model for all data sets (algorithm 1, line 1), ``each`` a model for every
    data set, so that inference averages over models by their scores. ``average`` draws each data
    set's model by public ``weights`` and does not use the records.

    Models are scored with their noise. Half of the choice's epsilon is spent on one trial data set
    of each. A score is minus the sum, over tables of one and two columns on public groups, of
    |records in a cell - trial rows in it|; the other half draws a model by the exponential
    mechanism. The paper's criterion, minus the deviance information criterion, has no bounded
    sensitivity.

    Source: liu-2016, algorithm 1; bowen-liu-2020, section 6 averaging.

    Sensitivity: trials have a budget of their own. Given them, a record is in one cell of each of P
    tables: an added or removed one moves a score by at most P, a changed one by at most 2 P. Scores
    are whole numbers.

    Guarantee: strict, by composition: ``share`` of epsilon for the choice, of which each of K
    trials gets the Kth part of one half; the rest for a private draw, as in ``Modips``.

    Attributes:
        epsilon, adjacency: as in ``ModelFreeMechanism``, for one data set.
        models: two names or more.
        choose: ``once``, ``each`` or ``average``.
        share: share of epsilon for the choice, in (0, 1); not used by ``average``.
        weights: for ``average``: probabilities of the models; equal by default.
        settings: settings of each model, by its name.

    Examples:
        >>> import dpbayes as dpb
        >>> health = dpb.Column("health", "ordinal", levels=("bad", "fair", "good"))
        >>> schema = dpb.Schema({"health": health})
        >>> mechanism = dpb.ChosenModips(epsilon=1, models=("sequential", "multinomial"))
        >>> print(f"{mechanism.claim(schema).for_datasets(3).epsilon:.2f}")  # 0.2 once, 0.8 each
        2.60
    """

    epsilon: float
    models: Sequence[str] = ("slomag", "glom")
    adjacency: Adjacency | None = None
    choose: Literal["once", "each", "average"] = "once"
    share: float = 0.2
    weights: Mapping[str, float] | Sequence[float] | None = None
    settings: Mapping[str, Mapping[str, Any]] | None = None
    name: ClassVar[str] = "modips-choice"
    summary: ClassVar[str] = "modips with one of several models, chosen privately; strict ε-DP"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("choose", self.choose, CHOICES)
        names = list(self.models) if isinstance(self.models, list | tuple) else []
        if not all(isinstance(m, str) for m in names) or len(set(names)) < max(2, len(names)):
            raise GuaranteeError(f"models = {self.models!r}: expected two or more different names.")
        object.__setattr__(self, "models", tuple(names))
        if not isinstance(self.settings, Mapping | None):
            raise GuaranteeError(f"settings = {self.settings!r}: expected a table by model.")
        for name in self.settings or {}:
            one_of("a model of settings", name, tuple(names))
        if self.choose != "average" and self.weights is not None:
            raise GuaranteeError("weights are for choose 'average'.")
        if not inside(self.share, 0, 1):
            raise GuaranteeError(
                f"share = {self.share!r} must lie in (0, 1): the part of epsilon for the choice."
            )
        self.drawing()
        self.chances()
        if self.part and self.part / 2 / len(names) * self.epsilon < EPSILONS[0]:
            raise GuaranteeError(
                f"epsilon = {stated(self.epsilon)} leaves less than {EPSILONS[0]:g} for a "
                "trial of each model: take more, a larger share, fewer models, or choose = "
                "'average'."
            )

    @property
    def part(self) -> float:
        """Share of epsilon for the choice of a model."""
        return 0.0 if self.choose == "average" else self.share

    def drawing(self, part: float | None = None) -> list[Modips]:
        """Mechanism of each model with this share of epsilon; by default that of private draws."""
        epsilon = self.epsilon * (1 - self.part if part is None else part)
        settings = self.settings or {}
        return [Modips(epsilon, m, self.neighbours, settings.get(m)) for m in self.models]

    def chances(self) -> Floats:
        """Probabilities of the models for ``average``, shape (models,)."""
        parts = shares(list(self.models), self.weights, "an average over models")
        weights = np.array([parts[m] for m in self.models])
        return np.asarray(weights / weights.sum())

    def trials(self) -> list[Modips]:
        """Mechanism of each model with the budget of one trial data set."""
        return self.drawing(self.part / 2 / len(self.models))

    @property
    def choosing(self) -> float:
        """Epsilon of the exponential mechanism that chooses a model."""
        return self.part / 2 * self.epsilon

    def guarantee(self) -> Guarantee:
        draw = self._pure(self.epsilon * (1 - self.part))
        once, per_set = NOTHING, draw
        if self.part:
            trial = self._pure(self.epsilon * self.part / 2 / len(self.models))
            once = NOTHING.plus(trial, len(self.models))
            chosen = self._pure(self.choosing)
            once, per_set = (
                (once.plus(chosen), draw) if self.choose == "once" else (once, draw.plus(chosen))
            )
        return replace(self._claim(per_set), once=once, once_for="judging models")

    def _pure(self, epsilon: float) -> Loss:
        if self.neighbours == "substitution":
            return Loss.pure(epsilon, changed=epsilon)
        return Loss.pure(epsilon)

    def check_columns(self, schema: Schema) -> None:
        for modips in self.drawing():
            modips.check_columns(schema)
        if self.part:
            axes(schema)

    def prepare(self, schema: Schema, records: pd.DataFrame, rows: int) -> FittedChoice:
        return FittedChoice(self, schema, records, rows)


def axes(schema: Schema) -> list[Axis]:
    """Public groups of every column, by which models are scored."""
    return [make_axis(column, GROUPS, None, 1) for column in schema.columns.values()]


def tables(schema: Schema, data: pd.DataFrame) -> list[Ints]:
    """Counts of every confidential column, and of every pair that includes one."""
    all_axes = axes(schema)
    codes = {axis.column.name: axis.encode(data[axis.column.name]) for axis in all_axes}
    choices: list[tuple[Axis, ...]] = [(axis,) for axis in all_axes]
    choices += itertools.combinations(all_axes, 2)
    counts = []
    for choice in choices:
        if all(axis.column.public for axis in choice):
            continue
        place = np.zeros(len(data), dtype=np.int64)
        for axis in choice:
            place = place * axis.size + codes[axis.column.name]
        size = int(np.prod([axis.size for axis in choice]))
        counts.append(np.bincount(place, minlength=size))
    return counts


class FittedChoice(ModelFreeFitted[tuple[int, Parameters]]):
    """All models with their statistics of the records.

    An output is the number of a model and that model's output.

    Attributes:
        counts: exact counts of the records in ``tables``.
        public: public columns of every record, or None.
    """

    mechanism: ChosenModips

    def __init__(
        self, mechanism: ChosenModips, schema: Schema, records: pd.DataFrame, rows: int
    ) -> None:
        def fitted(mechanisms: list[Modips]) -> list[FittedModel]:
            return [modips.prepare(schema, records, rows) for modips in mechanisms]

        self.fits = fitted(mechanism.drawing())
        self.schema, self.rows = schema, rows
        self.counts = tables(schema, records) if mechanism.part else []
        public = [c.name for c in schema.columns.values() if c.public]
        self.public = records[public].reset_index(drop=True) if public else None
        self.trials = fitted(mechanism.trials()) if mechanism.part else []
        super().__init__(mechanism, schema, {"fits": [fit.settings for fit in self.fits]})

    def draw_private(self, noise: Noise) -> tuple[int, Parameters]:
        return next(self.draw_outputs(1, noise))

    def draw_outputs(self, count: int, noise: Noise) -> Iterator[tuple[int, Parameters]]:
        """Yield outputs that share their trials, and for ``once`` the choice of the model."""
        how = self.mechanism
        scores = self._scores(noise) if how.part else []
        chosen = self._choose(scores, noise) if how.choose == "once" else None
        for _ in range(count):
            k = chosen
            if how.choose == "average":
                k = int(noise.rng.choice(len(self.fits), p=how.chances()))
            elif k is None:
                k = self._choose(scores, noise)
            yield k, self.fits[k].draw_private(noise)

    def _scores(self, noise: Noise) -> list[int]:
        """Score one trial data set of each model."""
        scores = []
        for fit in self.trials:
            data = fit.synthetic(fit.draw_private(noise), self.rows, noise.rng)
            if self.public is not None:
                data = pd.concat([self.public, data], axis=1)
            trial_counts = tables(self.schema, self.schema.validate(data))
            away = (np.abs(a - b).sum() for a, b in zip(self.counts, trial_counts, strict=True))
            scores.append(-int(sum(away)))
        return scores

    def _choose(self, scores: list[int], noise: Noise) -> int:
        moved = len(self.counts)
        if self.mechanism.neighbours == "substitution":
            moved *= 2
        return noise.select(np.array(scores), scale_for(2 * moved, self.mechanism.choosing))

    def synthetic(
        self, output: tuple[int, Parameters], rows: int, rng: np.random.Generator
    ) -> pd.DataFrame:
        k, inner = output
        return self.fits[k].synthetic(inner, rows, rng)
