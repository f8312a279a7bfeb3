"""The private choice of a program: sensitivity by brute force, cost, and that it chooses."""

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.privacy.accounting import Loss
from dpbayes.privacy.noise import SecureNoise, StudyNoise
from dpbayes.synthesis import choice
from dpbayes.synthesis.choice import choose_program, score_programs
from tests.programs import GOOD, UNPROVED, write

SCHEMA = dpb.Schema.from_dict(
    {
        "rows": "public",
        "columns": {"x": {"type": "binary"}, "y": {"type": "continuous", "lower": 0, "upper": 20}},
    }
)


def synthesizers(formula, families, mechanism=None):
    return [
        dpb.Synthesizer(
            SCHEMA,
            mechanism or dpb.Censored(1.0, adjacency="add-remove"),
            dpb.Regression(formula, family, priors),
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


@pytest.fixture
def noise(monkeypatch):
    """Noise of a study in place of a release's, which ``choose_program`` takes always."""
    made = Scores(1)
    monkeypatch.setattr(choice, "SecureNoise", lambda: made)
    return made


def scores(data, window):
    return np.array(score_programs(synthesizers("x ~ 1", BINARY), data, window=window))


def test_one_record_moves_score_differences_by_at_most_the_width(noise):
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
    candidates = synthesizers("x ~ 1", BINARY)
    choose_program(candidates, records(2, 5), 0.25, window=window)
    assert noise.scale == pytest.approx(0.5 / 0.25)
    changed = synthesizers("x ~ 1", BINARY, dpb.Censored(1.0, adjacency="substitution"))
    choose_program(changed, records(2, 5), 0.25, window=window)
    assert noise.scale == pytest.approx(2 * 0.5 / 0.25)


def test_the_better_program_is_chosen_and_paid_for(noise):
    candidates = synthesizers("x ~ 1", BINARY)
    for ones, expected in ((10, 0), (70, 1)):
        found = choose_program(candidates, records(ones, 80), 0.5)
        assert found.index == expected
    claim = found.synthesizer.guarantee()
    assert claim.once.epsilon == 0.5
    assert claim.for_datasets(3).epsilon == pytest.approx(0.5 + 3 * 1.0)
    assert "paid once, for the choice of a program" in claim.for_datasets(3).paragraph()
    fit = found.synthesizer.fit(records(70, 80), allow_nonconvergence=True)
    assert fit.guarantee.for_datasets(3).epsilon == pytest.approx(3.5)
    assert fit.sample(2, seed=1).guarantee.epsilon == pytest.approx(2.5)
    assert fit.guarantee.epsilon_substitution == pytest.approx(3.0)


def best(schema, models, data):
    made = [dpb.Synthesizer(schema, dpb.Censored(1.0), model) for model in models]
    return int(np.argmax(score_programs(made, data)))


def test_programs_are_compared_in_one_unit(tmp_path):
    """A density per cell, per share of the range and per unit of a user's program."""
    rng = np.random.default_rng(4)
    wide = dpb.Schema({"y": dpb.Column("y", "continuous", lower=-500, upper=500)})
    own = dpb.Program(write(tmp_path, GOOD), "y ~ 1")
    of_own = pd.DataFrame({"y": rng.normal(1, 1, 60)})
    assert best(wide, [own, dpb.Regression("y ~ 1", "normal")], of_own) == 0
    humps = pd.DataFrame({"y": 200 * rng.choice([-2, 2], 60) + rng.normal(0, 20, 60)})
    families = [dpb.Regression("y ~ 1", name) for name in ("histogram", "normal")]
    assert best(wide, families, humps) == 0
    far = dpb.Schema({"y": dpb.Column("y", "continuous", lower=900, upper=1000)})
    families = [dpb.Regression("y ~ 1", name) for name in ("normal", "lognormal", "gamma")]
    assert best(far, families, pd.DataFrame({"y": rng.normal(950, 15, 60)})) == 0


def test_records_near_an_atom_count_by_themselves():
    """One within half a step of it is equal to it in the program, and has another unit outside."""
    column = dpb.Column("y", "continuous", lower=900, upper=1000, atoms=(950.0,))
    schema = dpb.Schema({"y": column}, rows=dpb.schema.Rows("declared", 400))
    made = [
        dpb.Synthesizer(schema, dpb.Censored(1.0), dpb.Regression("y ~ 1", family))
        for family in ("semicontinuous_gamma", "semicontinuous_beta", "histogram")
    ]
    base = np.append(np.full(60, 950.0), np.linspace(901, 999, 20))
    before = np.array(score_programs(made, pd.DataFrame({"y": base}), window=(-4.0, 4.0)))
    for value in (950.0, 950.00001, 949.99996, 950.0001, 900.0):
        after = score_programs(made, pd.DataFrame({"y": np.append(value, base)}))
        assert (np.abs(np.array(after) - before) <= 4 + 1e-9).all()


def test_after_a_drawn_anchor_both_are_named(noise):
    candidates = synthesizers(
        "x ~ 1", BINARY, dpb.Anchored(1.0, share=0.2, adjacency="substitution")
    )
    found = choose_program(candidates, records(3, 30), 0.4)
    claim = found.synthesizer.guarantee()
    assert claim.once.epsilon == pytest.approx(0.1 + 0.2)  # half of 0.2 and 0.4 for add/remove
    assert "for drawing anchors and the choice of a program" in claim.paragraph()


def test_reference_records_place_the_points(noise):
    """Families of one outcome; the reference makes the evidence sharp, at no cost."""
    rng = np.random.default_rng(3)
    data, other = (
        pd.DataFrame({"x": 0, "y": np.clip(rng.lognormal(0.5, 0.8, 200), 0.01, 20)})
        for _ in range(2)
    )
    data.loc[0, "x"] = other.loc[0, "x"] = 1
    candidates = synthesizers("y ~ 1", [("lognormal", None), ("normal", None)])
    found = choose_program(candidates, data, 1.0, reference=other)
    assert found.index == 0
    assert found.scores[0] > found.scores[1] + 5


def test_the_release_noise_is_opendps(monkeypatch):
    monkeypatch.setattr("dpbayes.synthesis.choice._score", lambda candidate, *_: 0.0)
    picked = {
        choose_program(synthesizers("x ~ 1", BINARY), records(2, 5), 1.0).index for _ in range(40)
    }
    assert picked == {0, 1}  # misses one of two equal scores once in 10^12


def test_records_are_no_reference_for_their_choice(noise):
    data = pd.DataFrame({"x": [0, 1] * 50, "y": np.linspace(1, 19, 100)})
    candidates = synthesizers("y ~ 1", [("lognormal", None), ("normal", None)])
    with pytest.raises(dpb.GuaranteeError, match="these very records: 100%"):
        choose_program(candidates, data, 1.0, reference=data[10:])


def test_candidates_have_paid_for_the_same():
    """Else what is claimed would hang on which of them is chosen."""
    first, second = synthesizers("x ~ 1", BINARY)
    dearer = second.having_paid(Loss.pure(3.0), "something")
    with pytest.raises(dpb.GuaranteeError, match="paid for the same"):
        choose_program([first, dearer], records(2, 5), 1.0)
    for bad in (-0.9, np.nan):
        with pytest.raises(dpb.GuaranteeError, match="from 0 on"):
            first.having_paid(Loss.pure(bad), "a rebate")


def of_rows(rows):
    """Synthesizers of ``x ~ 1`` where the number of rows is not public."""
    tree = {**SCHEMA.to_dict(), "rows": rows}
    schema = dpb.Schema.from_dict(tree)
    return [
        dpb.Synthesizer(schema, dpb.Censored(1.0), dpb.Regression("x ~ 1", family, priors))
        for family, priors in BINARY
    ]


def test_no_record_and_one_are_neighbours_too():
    """One stands in for none in the program, and must not count."""
    window = (-0.4, 0.1)
    none, one = (
        np.array(score_programs(of_rows(30), data, window=window))
        for data in (records(0, 0), records(1, 1))
    )
    np.testing.assert_allclose(none, 0.0, atol=1e-12)
    assert (one >= window[0] - 1e-9).all()
    assert (one <= window[1] + 1e-9).all()


def test_a_choice_draws_no_number_of_rows(monkeypatch, noise):
    """A noisy one would be drawn for every candidate, and nothing would have paid for it."""
    monkeypatch.setattr(SecureNoise, "counts", lambda *_: pytest.fail("drawn"))
    monkeypatch.setattr(StudyNoise, "counts", lambda *_: pytest.fail("drawn"))
    found = choose_program(of_rows("noisy"), records(20, 30), 1.0)
    assert found.synthesizer.schema.rows.kind == "noisy"


def test_bad_input():
    good = synthesizers("x ~ 1", BINARY)
    data = records(2, 5)
    other = dpb.Synthesizer(SCHEMA, dpb.Censored(1), dpb.Regression("y ~ 1", "normal"))
    without = dpb.Synthesizer(SCHEMA, dpb.Laplace(1))
    dearer = synthesizers("x ~ 1", BINARY, dpb.Censored(2.0))
    for candidates, epsilon, window, message in (
        (good[:1], 1.0, (-1, 1), "a choice needs at least two"),
        ([good[0], other], 1.0, (-1, 1), "the same schema and the same outcome"),
        ([without, without], 1.0, (-1, 1), "candidates differ in their model"),
        ([good[0], dearer[1]], 1.0, (-1, 1), "the same mechanism"),
        (good, 0.0, (-1, 1), "epsilon = 0"),
        (good, 1.0, (1, -1), "two finite numbers, the smaller first"),
        (good, 1.0, (-np.inf, 0), "two finite numbers"),
    ):
        with pytest.raises(dpb.GuaranteeError, match=message):
            choose_program(candidates, data, epsilon, window=window)


@pytest.mark.parametrize("mechanism", [dpb.Censored(1.0), dpb.Unweighted()])
def test_programs_that_nothing_proves_are_not_chosen_among(tmp_path, mechanism):
    """Whatever is claimed of the release, the choice is paid for as a strict one."""

    def candidate(name, text):
        (tmp_path / name).mkdir()
        model = dpb.Program(write(tmp_path / name, text), "y ~ 1")
        return dpb.Synthesizer(SCHEMA, mechanism, model, allow_unproved=True)

    good, unproved = candidate("good", GOOD), candidate("unproved", UNPROVED)
    with pytest.raises(dpb.ProgramError, match=r"'mine' is not proved .* line 21: "):
        choose_program([good, unproved], records(2, 5), 1.0)
    with pytest.raises(dpb.GuaranteeError, match="two candidates have the same model"):
        choose_program([good, good], records(2, 5), 1.0)
    other = candidate("other", GOOD + "\n// with a comment\n")
    chosen = choose_program([good, other], records(2, 5), 1.0)
    assert chosen.scores[0] == chosen.scores[1]


def test_sequences_with_own_programs_are_not_chosen_among(tmp_path):
    def candidate(name, sd):
        (tmp_path / name).mkdir()
        text = GOOD.replace("normal(0, 2)", f"normal(0, {sd})")
        own = dpb.Program(write(tmp_path / name, text), "y ~ 1")
        return dpb.Synthesizer(
            SCHEMA, dpb.Censored(1.0), dpb.Sequence([own, dpb.Regression("x ~ 1", "bernoulli")])
        )

    with pytest.raises(dpb.ProgramError, match="sequences with programs of your own"):
        choose_program([candidate("a", 2), candidate("b", 3)], records(2, 5), 1.0)
