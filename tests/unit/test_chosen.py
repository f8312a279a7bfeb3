"""Private choice among MODIPS models, draws on standardised grids, and noise at a delta."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.mechanisms.modips import chosen
from dpbayes.mechanisms.modips.grid import WIDE, CellGrid
from dpbayes.privacy.accounting import zcdp_epsilon
from dpbayes.privacy.noise import StudyNoise

NUMBER = dpb.Schema.from_dict(
    {"rows": "public", "columns": {"x": {"type": "continuous", "lower": -4.0, "upper": 4.0}}}
)
MIXED = dpb.Schema.from_dict(
    {
        "columns": {
            "g": {"type": "binary", "levels": ["n", "y"]},
            "z": {"type": "continuous", "lower": 0.0, "upper": 1.0},
            "r": {"type": "binary", "levels": ["a", "b"], "public": True},
        }
    }
)


class Spy(StudyNoise):
    """Keeps what it is asked for."""

    def __init__(self, seed):
        super().__init__(seed)
        self.selected, self.added = [], []

    def select(self, scores, scale):
        self.selected.append((np.array(scores), scale))
        return super().select(scores, scale)

    def counts(self, values, scale):
        self.added.append(scale)
        return super().counts(values, scale)


@pytest.mark.parametrize("adjacency", ["add-remove", "substitution"])
def test_a_score_moves_by_no_more_than_its_noise_is_for(adjacency):
    """Brute force over tables of three records and their neighbours, trials held fixed."""
    domain = list(itertools.product("ny", [0.05, 0.95], "ab"))
    frame = MIXED.validate(pd.DataFrame(domain, columns=["g", "z", "r"]))
    fixed = chosen.tables(MIXED, frame.iloc[[0, 3, 3]])

    def score(rows):
        made = chosen.tables(MIXED, frame.iloc[list(rows)])
        return -sum(np.abs(a - b).sum() for a, b in zip(made, fixed, strict=True))

    worst = 0
    for rows in itertools.combinations_with_replacement(range(len(domain)), 3):
        others = [rows[:2]] if adjacency == "add-remove" else [(*rows[:2], k) for k in range(8)]
        worst = max([worst, *(abs(score(rows) - score(other)) for other in others)])
    moved = len(fixed) * (2 if adjacency == "substitution" else 1)
    assert len(fixed) == 5  # g, z, and their pairs with each other and with r
    assert worst == moved


def test_choices_and_draws_compose_to_epsilon():
    rng = np.random.default_rng(1)
    records = NUMBER.validate(pd.DataFrame({"x": rng.normal(0, 1, 50)}))
    for choose, choices in (("once", 1), ("each", 3), ("average", 0)):
        mechanism = dpb.ChosenModips(
            2.0, ("normal", "multinomial"), choose=choose, adjacency="add-remove"
        )
        claim = mechanism.guarantee()
        assert claim.epsilon == pytest.approx(2.0)
        part = 0.0 if choose == "average" else 0.4
        each = 2.0 - part if choose != "each" else 1.8
        assert claim.for_datasets(3).epsilon == pytest.approx(2.0 + 2 * each)
        fitted, noise = mechanism.prepare(NUMBER, records, 50), Spy(1)
        drawn = list(fitted.draw_outputs(3, noise))
        assert len(noise.selected) == choices
        if choose == "once":
            assert len({k for k, _ in drawn}) == 1
        for scores, scale in noise.selected:
            assert len(scores) == 2
            assert 2 * len(fitted.counts) / scale <= 0.2  # of the exponential mechanism
            assert 2 * len(fitted.counts) / scale == pytest.approx(0.2)
        trials = [modips.epsilon for modips in mechanism.trials()] if part else []
        assert sum(trials) == pytest.approx(part / 2)
        assert [m.epsilon for m in mechanism.drawing()] == pytest.approx([2.0 - part] * 2)
    changed = dpb.ChosenModips(1.0, ("normal", "multinomial"), "substitution").guarantee()
    assert changed.epsilon_substitution == pytest.approx(1.0)


def test_the_better_model_is_chosen_and_averages_follow_their_weights():
    """Two modes, for which no normal distribution will do."""
    rng = np.random.default_rng(2)
    two = rng.choice([-2.5, 2.5], 400) + rng.normal(0, 0.2, 400)
    records = NUMBER.validate(pd.DataFrame({"x": two}))
    models = ("normal", "multinomial")
    fitted = dpb.ChosenModips(20.0, models, choose="each", adjacency="add-remove").prepare(
        NUMBER, records, 400
    )
    assert [k for k, _ in fitted.draw_outputs(10, StudyNoise(3))] == [1] * 10
    little = dpb.ChosenModips(0.02, models, choose="each", adjacency="add-remove").prepare(
        NUMBER, records, 400
    )
    assert {k for k, _ in little.draw_outputs(40, StudyNoise(3))} == {0, 1}
    weights = {"normal": 0.9, "multinomial": 0.1}
    averaged = dpb.ChosenModips(1.0, models, choose="average", weights=weights)
    average = averaged.prepare(NUMBER, records, 400)
    share = np.mean([k == 0 for k, _ in average.draw_outputs(400, StudyNoise(4))])
    assert abs(share - 0.9) < 5 * math.sqrt(0.09 / 400)


@pytest.mark.parametrize("draw", ["sdd", "sphc"])
def test_standardised_grids_spend_epsilon_in_two_parts(draw):
    records = NUMBER.validate(pd.DataFrame({"x": np.linspace(-2, 2, 40)}))
    mechanism = dpb.Modips(
        1.0, "normal", draw=draw, standardise=0.25, cells=8, adjacency="add-remove"
    )
    fitted, noise = mechanism.prepare(NUMBER, records, 40), Spy(5)
    mu, sigma = fitted.draw_private(noise)
    assert -4 <= mu <= 4
    assert 0 < sigma <= 4
    changes = [s.change["add-remove"].l1 for s in fitted.model.statistics]
    placed = sum(c / scale for c, scale in zip(changes, noise.added, strict=False))
    assert placed == pytest.approx(0.25)
    assert placed <= 0.25
    if draw == "sdd":
        ((scores, scale),) = noise.selected
        assert np.ptp(scores) <= WIDE**2 + 1e-9  # p = 2 parameters: 2 A = p WIDE^2 / 2
        assert 2 * WIDE**2 / scale == pytest.approx(0.75)
    else:
        most = math.floor(1000 * math.erf(WIDE / 8 / math.sqrt(2)) ** 2)
        assert min(2000, most * 64) / noise.added[2] == pytest.approx(0.75, rel=1e-2)
    assert mechanism.guarantee().epsilon_substitution == 2.0


def test_a_standardised_grid_holds_a_normal_posterior():
    """The bounds that follow from it: no cell has more mass, no density is outside A."""
    rng = np.random.default_rng(6)
    points = np.stack([rng.normal(0.3, 0.05, 20_000), rng.normal(1.1, 0.2, 20_000)])
    grid, bound, density = CellGrid.standard(points, [(-4, 4), (0.01, 4)], 12)
    counts, _ = np.histogramdd(points.T, grid.edges)
    most = density * grid.volume
    assert most == pytest.approx(math.erf(WIDE / 12 / math.sqrt(2)) ** 2)
    assert counts.max() / 20_000 < 1.1 * most
    assert counts.sum() / 20_000 > 0.99
    sd = points.std(axis=1)
    logs = -0.5 * (((grid.midpoints() - [0.3, 1.1]) / sd) ** 2).sum(axis=1)
    logs -= math.log(2 * math.pi) + np.log(sd).sum() + grid.middle
    assert np.abs(logs).max() < bound
    assert np.abs(logs).max() > 0.7 * bound


def test_a_standardised_grid_is_sharper_than_a_public_one():
    """Posterior sd 0.1 on a range of 8: cells of the public grid are 0.8 wide."""
    records = NUMBER.validate(pd.DataFrame({"x": np.linspace(-2, 2, 200)}))

    def spread(**how):
        mechanism = dpb.Modips(40.0, "normal", draw="sphc", cells=10, **how, adjacency="add-remove")
        fitted, noise = mechanism.prepare(NUMBER, records, 200), StudyNoise(7)
        return np.std([fitted.draw_private(noise)[0] for _ in range(60)])

    assert spread(standardise=0.5) < 0.5 * spread(bound=20.0)


@pytest.mark.parametrize("adjacency", ["add-remove", "substitution"])
@pytest.mark.parametrize("allocation", ["individual", "communal"])
def test_gaussian_noise_of_a_model_composes_to_delta(adjacency, allocation):
    """rho of every statistic, from sigma and the L2 sensitivity, sums to what (ε, δ) buys."""

    class Sigmas(StudyNoise):
        found = ()

        def gaussian(self, values, scale):
            self.found = (*self.found, scale)
            return super().gaussian(values, scale)

    rng = np.random.default_rng(8)
    schema = dpb.Schema({k: c for k, c in MIXED.columns.items() if k != "r"}, rows="public")
    records = schema.validate(
        pd.DataFrame({"g": rng.choice(["n", "y"], 30), "z": rng.uniform(0, 1, 30)})
    )
    other = "substitution" if adjacency == "add-remove" else "add-remove"
    cases = {"glom": schema, "slomag": schema, "multinomial": schema,
             "bernoulli": dpb.Schema({"g": schema["g"]}, rows="public"),
             "normal": dpb.Schema({"z": schema["z"]}, rows="public")}  # fmt: skip
    for model, where in cases.items():
        mechanism = dpb.Modips(1.0, model, adjacency, allocation=allocation, delta=1e-5)
        fitted, noise = mechanism.prepare(where, records, 30), Sigmas(9)
        fitted.synthetic(fitted.draw_private(noise), 30, noise.rng)

        def cost(which, fitted=fitted, noise=noise, adjacency=adjacency):
            """Rho by sigma; a real number's is of grains for ``adjacency``."""
            moved = [
                s.change[which].l2 * (1 if s.integer else 2**20 / s.change[adjacency].l2)
                for s in fitted.model.statistics
            ]
            return sum(m**2 / (2 * s**2) for m, s in zip(moved, noise.found, strict=True))

        assert cost(adjacency) <= mechanism.rho
        assert cost(adjacency) == pytest.approx(mechanism.rho, rel=1e-3)
        loss = mechanism.loss
        claimed = {"add-remove": loss.rho, "substitution": loss.substitution().rho}
        assert claimed[adjacency] == mechanism.rho
        assert cost(other) <= claimed[other]
        if model in ("multinomial", "bernoulli"):  # a table's is known exactly
            assert cost(other) == pytest.approx(claimed[other], rel=1e-3)
            ratio = 1 if model == "bernoulli" else 2
            assert loss.substitution().rho == ratio * loss.rho
        assert zcdp_epsilon(mechanism.rho, 1e-5) == pytest.approx(1.0, rel=1e-6)
        claim = mechanism.guarantee()
        assert claim.delta == 1e-5
        assert claim.epsilon_setting == pytest.approx(1.0, rel=1e-6)
        assert claim.for_datasets(4).epsilon < 2.2  # half of what pure composition would be
