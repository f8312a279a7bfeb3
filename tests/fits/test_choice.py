"""The private choice of a program: sensitivity by brute force, cost, and that it chooses."""

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.choice import choose_program
from dpbayes.privacy.noise import StudyNoise

SCHEMA = dpb.Schema.from_dict(
    {"columns": {"x": {"type": "binary"}, "y": {"type": "continuous", "lower": 0, "upper": 20}}}
)


def synthesizers(formula, families, mechanism=None):
    return [
        dpb.Synthesizer(
            SCHEMA, mechanism or dpb.Censored(1.0), dpb.Regression(formula, family, priors)
        )
        for family, priors in families
    ]


BINARY = [("bernoulli", {"intercept": (-2.0, 0.5)}), ("bernoulli", {"intercept": (2.0, 0.5)})]


def records(ones, n):
    return pd.DataFrame({"x": [1] * ones + [0] * (n - ones), "y": np.linspace(1, 19, n)})


class Scores(StudyNoise):
    """Takes the best score and remembers the scale."""

    def select(self, scores, scale):
        self.scale = scale
        return int(np.argmax(scores))


def scores(data, window):
    candidates = synthesizers("x ~ 1", BINARY)
    return np.array(choose_program(candidates, data, 1.0, window=window, noise=Scores(1)).scores)


def test_one_record_moves_score_differences_by_at_most_the_width():
    """Every binary data set of 5 records with both levels, every such neighbour; and the scale."""
    window, known = (-0.4, 0.1), {}
    for n in (4, 5):
        for ones in range(1, n):
            known[ones, n] = scores(records(ones, n), window)
    worst = 0.0
    for ones in range(1, 5):
        for other in ((ones - 1, 4), (ones, 4)):
            if other in known:
                moved = known[ones, 5] - known[other]
                assert (moved >= window[0] - 1e-9).all()
                assert (moved <= window[1] + 1e-9).all()
                worst = max(worst, np.ptp(moved))
    assert 0.2 * 0.5 < worst <= 0.5
    noise = Scores(1)
    candidates = synthesizers("x ~ 1", BINARY)
    choose_program(candidates, records(2, 5), 0.25, window=window, noise=noise)
    assert noise.scale == pytest.approx(0.5 / 0.25)
    choose_program(
        candidates, records(2, 5), 0.25, window=window, adjacency="substitution", noise=noise
    )
    assert noise.scale == pytest.approx(2 * 0.5 / 0.25)


def test_the_better_program_is_chosen_and_paid_for():
    candidates = synthesizers("x ~ 1", BINARY)
    for ones, expected in ((10, 0), (70, 1)):
        found = choose_program(candidates, records(ones, 80), 0.5, noise=Scores(1))
        assert found.index == expected
    claim = found.synthesizer.guarantee()
    assert claim.once.epsilon == 0.5
    assert claim.for_datasets(3).epsilon == pytest.approx(0.5 + 3 * 1.0)
    assert "paid once, for the choice of a program" in claim.for_datasets(3).paragraph()
    fit = found.synthesizer.fit(records(70, 80), allow_nonconvergence=True)
    assert fit.guarantee.for_datasets(3).epsilon == pytest.approx(3.5)
    assert fit.sample(2, seed=1).guarantee.epsilon == pytest.approx(2.5)
    assert fit.guarantee.epsilon_substitution == pytest.approx(3.0)


def test_after_a_drawn_anchor_both_are_named():
    candidates = synthesizers("x ~ 1", BINARY, dpb.Anchored(1.0, share=0.2))
    found = choose_program(
        candidates, records(3, 30), 0.4, adjacency="substitution", noise=Scores(1)
    )
    claim = found.synthesizer.guarantee()
    assert claim.once.epsilon == pytest.approx(0.2 + 0.2)  # half of 0.4 for add/remove
    assert "for the anchor and the choice of a program" in claim.paragraph()


def test_reference_records_place_the_points():
    """Families of one outcome; the reference makes the evidence sharp, at no cost."""
    rng = np.random.default_rng(3)
    data, other = (
        pd.DataFrame({"x": 0, "y": np.clip(rng.lognormal(0.5, 0.8, 200), 0.01, 20)})
        for _ in range(2)
    )
    data.loc[0, "x"] = other.loc[0, "x"] = 1
    candidates = synthesizers("y ~ 1", [("lognormal", None), ("normal", None)])
    found = choose_program(candidates, data, 1.0, reference=other, noise=Scores(1))
    assert found.index == 0
    assert found.scores[0] > found.scores[1] + 5


def test_the_release_noise_is_opendps(monkeypatch):
    monkeypatch.setattr("dpbayes.choice._score", lambda candidate, *_: 0.0)
    picked = {
        choose_program(synthesizers("x ~ 1", BINARY), records(2, 5), 1.0).index for _ in range(40)
    }
    assert picked == {0, 1}  # misses one of two equal scores once in 10^12


def test_bad_input():
    good = synthesizers("x ~ 1", BINARY)
    data = records(2, 5)
    other = dpb.Synthesizer(SCHEMA, dpb.Censored(1), dpb.Regression("y ~ 1", "normal"))
    without = dpb.Synthesizer(SCHEMA, dpb.Laplace(1))
    for candidates, epsilon, window, message in (
        (good[:1], 1.0, (-1, 1), "a choice needs at least two"),
        ([good[0], other], 1.0, (-1, 1), "the same schema and the same outcome"),
        ([without, without], 1.0, (-1, 1), "candidates differ in their model"),
        (good, 0.0, (-1, 1), "epsilon = 0"),
        (good, 1.0, (1, -1), "two finite numbers, the smaller first"),
        (good, 1.0, (-np.inf, 0), "two finite numbers"),
    ):
        with pytest.raises(dpb.GuaranteeError, match=message):
            choose_program(candidates, data, epsilon, window=window, noise=Scores(1))
