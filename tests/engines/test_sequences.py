"""The one program of a sequence does what the programs of its columns do, on every engine."""

import numpy as np
import pytest
from conftest import family_data

from dpbayes.engines.contract import check_contract, contract_defaults
from dpbayes.engines.draws import make_draws, stacked
from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.mechanisms.posterior.coordinates import group_coordinates
from dpbayes.stan.composition import COLUMN, Piece, composed, entry
from dpbayes.stan.families import FAMILIES
from dpbayes.stan.joined import named
from dpbayes.stan.program import StanProgram
from tests.programs import one_of_each_program

N, POINTS = 12, 3
FEW = ("bernoulli", "ordinal", "poisson")  # of programs that CmdStan compiles
SHAPES = [(2, "terms"), (0, 0)]


class Together:
    """Families in one program, and each by itself, at the same points."""

    def __init__(self, engine, families, K=2, J=0, n=N):
        pieces = [Piece(f, f"{f} ~ x", StanProgram.for_family(f)) for f in families]
        self.families, self.program = tuple(families), composed(pieces)
        self.of_family = {f: family_data(f, K, J, n) for f in families}
        self.data = {COLUMN: 0}
        for family, data in self.of_family.items():
            self.data |= {entry(name, family): value for name, value in data.items()}
        self.private = [entry("y", f) for f in families]
        self.compiled = engine.compile(self.program)
        self.bound = self.compiled.bind(self.data)
        self.points = self.bound.random_points(POINTS, seed=4, width=1.0)
        alone = {p.label: engine.compile(p.program).bind(self.of_family[p.label]) for p in pieces}
        self.alone = alone

    def points_of(self, family):
        names = [str(name) for name in self.points["posterior"].data_vars]
        ending = entry("", family)
        own = [name for name in names if name.endswith(ending)]
        return make_draws({n.removesuffix(ending): stacked(self.points, n)[None] for n in own})

    def each(self, method, **changes):
        """What a method of every family's own binding gives at the points."""
        return {
            f: np.stack(list(getattr(bound.rebind(**changes), method)(self.points_of(f))))
            for f, bound in self.alone.items()
        }


@pytest.fixture(scope="module")
def embedded():
    return EmbeddedEngine()  # which compiles each program once


@pytest.fixture(scope="module", params=SHAPES, ids=str)
def together(request, embedded):
    return Together(embedded, one_of_each_program(), *request.param)


def rows(generator):
    return np.stack(list(generator))


def test_a_record_has_the_sum_of_its_columns(together):
    apart = together.each("log_lik")
    whole = rows(together.bound.log_lik(together.points))
    np.testing.assert_array_equal(whole, sum(apart.values(), np.zeros_like(whole)))
    for number, family in enumerate(together.families, start=1):
        one = together.bound.rebind(**{COLUMN: number})
        np.testing.assert_array_equal(rows(one.log_lik(together.points)), apart[family])


def test_the_prior_is_that_of_the_columns(together):
    zero = np.zeros(N)
    whole = together.bound.rebind(weights=zero).log_prob(together.points)
    apart = sum(together.each("log_prob", weights=zero).values())
    np.testing.assert_allclose(np.diff(whole), np.diff(apart), rtol=1e-9)


def test_the_sum_is_anchored_weighted_and_clamped_once(together):
    """By NumPy; and clamping every column by itself is something else."""
    rng = np.random.default_rng(2)
    apart = together.each("log_lik")
    f = sum(apart.values())
    weights, anchor = rng.uniform(0.1, 1, N), f[0] + rng.normal(size=N)
    low, high = -1.0, 0.5
    ends = {"clip_lower": low, "clip_upper": high}
    bound = together.bound.rebind(weights=weights, anchor=anchor, **ends)
    base = together.bound.rebind(weights=np.zeros(N)).log_prob(together.points)
    expected = np.clip(weights * (f - anchor), low, high).sum(axis=1)
    np.testing.assert_allclose(bound.log_prob(together.points) - base, expected, atol=1e-8)
    by_column = sum(np.clip(weights * one, low, high) for one in apart.values()).sum(axis=1)
    assert (np.abs(by_column - expected) > 1).all()


def test_a_column_is_drawn_as_its_own_program_draws_it(together):
    """Bit by bit, by the same seed: no other column takes random numbers."""
    for number, family in enumerate(together.families, start=1):
        one = together.bound.rebind(**{COLUMN: number})
        own = together.points_of(family)
        s = number % POINTS
        found = one.y_rep(together.points, s, seed=s + 7)
        np.testing.assert_array_equal(found, together.alone[family].y_rep(own, s, seed=s + 7))


def test_scores_are_added_up(embedded):
    """With the beta-divergence, of columns with levels and counts; SciPy-free, from log p."""
    families = ("bernoulli", "categorical", "ordinal")
    together = Together(embedded, families)
    b = 0.7
    bound = together.bound.rebind(divergence=b)
    base = bound.rebind(weights=np.zeros(N)).log_prob(together.points)
    scores = 0.0
    for family, alone in together.alone.items():
        own = together.points_of(family)
        scored = alone.rebind(divergence=b)
        scores += scored.log_prob(own) - scored.rebind(weights=np.zeros(N)).log_prob(own)
    np.testing.assert_allclose(bound.log_prob(together.points) - base, scores, atol=1e-9)
    # log_lik stays the log-likelihood.
    np.testing.assert_array_equal(
        rows(bound.log_lik(together.points)), rows(together.bound.log_lik(together.points))
    )


def test_a_record_leaves_those_of_others_alone(together):
    """Its covariates too: in a sequence they are confidential."""
    before = rows(together.bound.log_lik(together.points))
    changes = {}
    for family in together.families:
        designs = [named("X", part) for part in FAMILIES[family].parts or ("",)]
        for name in ("y", *designs):
            value = together.data[entry(name, family)].copy()
            if len(value):
                value[0] = value[1]
            changes[entry(name, family)] = value
    after = rows(together.bound.rebind(**changes).log_lik(together.points))
    np.testing.assert_array_equal(before[:, 1:], after[:, 1:])
    assert (before[:, 0] != after[:, 0]).all()


def test_coordinates_of_group_effects_are_those_of_each_column(embedded):
    """Modes of a sum of independent parts are those of the parts, to a fraction of an sd."""
    together = Together(embedded, ("normal", "poisson", "categorical"), K=2, J=3, n=200)
    found = group_coordinates(together.bound, together.data, labels=together.families)
    for family, alone in together.alone.items():
        own = group_coordinates(alone, together.of_family[family])
        assert {entry(name, family) for name in own} <= found.keys()
        information, estimate = (
            (own[name], found[entry(name, family)])
            for name in ("group_information", "group_estimate")
        )
        np.testing.assert_allclose(information[1], information[0], rtol=0.01)
        away = (estimate[1] - estimate[0]) * np.sqrt(information[0])
        assert (np.abs(away) < 0.1).all()


def test_every_engine_keeps_the_contract(engine):
    together = Together(engine, FEW, n=40)
    report = check_contract(together.program, together.compiled, together.data, together.private)
    assert report.points
    whole = rows(together.bound.log_lik(together.points))
    np.testing.assert_allclose(whole, sum(together.each("log_lik").values()), rtol=1e-12)
    for number, family in enumerate(FEW, start=1):
        one = together.bound.rebind(**{COLUMN: number, **contract_defaults(40)})
        y = one.y_rep(together.points, 0, seed=3)
        assert y.shape == (40,)
        own = together.alone[family].y_rep(together.points_of(family), 0, seed=3)
        np.testing.assert_array_equal(y, own)
