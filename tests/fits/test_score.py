"""Noisy sums of clipped scores, and the posterior given them."""

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.errors import GuaranteeError, SchemaError
from dpbayes.heavy import stats
from dpbayes.mechanisms import Score
from dpbayes.mechanisms.score.rounds import Rounds
from dpbayes.privacy.noise import StudyNoise
from tests.programs import UNPROVED, write

SETTINGS = dpb.SamplerSettings(chains=2, warmup=200, draws=300, seed=3)
COLUMN = {"type": "continuous", "lower": 0, "upper": 10}


def table(n, rng):
    sex = rng.choice(["f", "m"], n)
    y = np.clip(rng.normal(4 + 1.5 * (sex == "m"), 1), 0, 10)
    return pd.DataFrame({"sex": sex, "y": y})


@pytest.fixture
def plain():
    sex = {"type": "categorical", "levels": ["f", "m"], "public": True}
    return dpb.Schema.from_dict({"columns": {"sex": sex, "y": COLUMN}})


def fitted(schema, records, mechanism, formula="y ~ sex"):
    model = dpb.Regression(formula, "normal")
    made = dpb.Synthesizer(schema, mechanism, model, settings=SETTINGS)
    return made.fit(records, allow_nonconvergence=True)


def test_noise_is_a_mixture_of_normal_ones():
    """exp(-|z| / b) in d dimensions: normal with variance b² times a chi-squared variable."""
    for d in (1, 2, 7):
        at = np.linspace(0.1, 12, 9)
        found = []
        for r in at:
            v = np.linspace(0, 400, 400_001)[1:]
            density = v ** (-d / 2) * np.exp(-(r**2) / (2 * v)) * stats.chi2.pdf(v, d + 1)
            found.append(np.trapezoid(density, v))
        assert np.ptp(np.log(found) + at) < 1e-3


def test_a_draw_is_near_the_posterior(plain):
    """Within 6 sds, at n = 1,000 and ε = 5, where noise adds little to the spread."""
    records = table(1000, np.random.default_rng(1))
    output = fitted(plain, records, Score(5.0)).fitted.private(StudyNoise(1))
    usual = fitted(plain, records, dpb.Unweighted()).fitted.draws
    for name in ("intercept", "coefficient", "sigma"):
        found, expected = (
            draws["posterior"][name].to_numpy().reshape(600, -1)[:, 0]
            for draws in (output.draws, usual)
        )
        assert abs(found.mean() - expected.mean()) < 6 * expected.std()
        assert 0.8 < found.std() / expected.std() < 2


def test_any_number_of_data_sets_costs_what_one_costs(plain):
    fit = fitted(plain, table(200, np.random.default_rng(2)), Score(1.0))
    release = fit.sample(3, seed=1)
    assert len(release.datasets) == 3
    assert not release.datasets[0]["y"].equals(release.datasets[1]["y"])
    assert release.guarantee.epsilon == 1
    assert release.guarantee.epsilon_substitution == 2
    assert sorted(release.datasets[0]["sex"]) == sorted(fit.records["sex"])


def test_a_release_follows_its_seed(plain):
    fit = fitted(plain, table(100, np.random.default_rng(2)), Score(1.0, delta=1e-6))
    one, two = (fit.sample(1, seed=5).datasets[0] for _ in range(2))
    assert one.equals(two)
    assert fit.guarantee.delta == 1e-6


@pytest.mark.parametrize("rows", ["public", 50, {"noisy": 0.1}])
def test_few_records_and_none(rows):
    schema = dpb.Schema.from_dict({"rows": rows, "columns": {"y": COLUMN}})
    for n in (0, 1, 3):
        if n == 0 and rows == "public":
            continue  # a release without rows
        records = pd.DataFrame({"y": np.full(n, 4.0)})
        release = fitted(schema, records, Score(0.5), "y ~ 1").sample(1, seed=1)
        assert np.isfinite(release.datasets[0]["y"]).all()


def test_a_users_program_needs_no_proof(tmp_path):
    schema = dpb.Schema.from_dict({"columns": {"y": {**COLUMN, "lower": -10}}})
    records = pd.DataFrame({"y": np.random.default_rng(4).normal(1, 1, 150)})
    model = dpb.Program(write(tmp_path, UNPROVED), "y ~ 1")
    with pytest.raises(dpb.errors.ProgramError, match="not proved"):
        dpb.Synthesizer(schema, dpb.Censored(1.0), model, settings=SETTINGS)
    made = dpb.Synthesizer(schema, Score(3.0), model, settings=SETTINGS)
    assert made.guarantee().basis == "strict"
    assert "each record alone" in " ".join(made.guarantee().assumptions).replace(
        "given each", "each"
    )
    output = made.fit(records, allow_nonconvergence=True).fitted.private(StudyNoise(2))
    mu = output.draws["posterior"]["mu"].to_numpy()
    assert abs(mu.mean() - records["y"].mean()) < 6 * mu.std()


class TestRounds:
    def test_parts_sum_to_the_whole(self):
        for rows in (30, 1000, 10**6):
            rounds = Rounds(1.0, None, 2, rows, 4)
            assert np.isclose(rounds.table + sum(rounds.sums), 1)
            assert 0 < rounds.table <= 0.15

    def test_scores_are_longer_the_more_the_records_tell(self):
        lengths = [Rounds(1.0, None, 1, rows, 4).length(0.7) for rows in (100, 10**4, 10**6)]
        assert lengths == sorted(lengths)
        assert lengths[0] >= 1.6

    def test_normal_noise_is_less_for_many_parameters(self):
        pure, normal = (Rounds(1.0, rho, 1, 1000, 20).sd(1.0) for rho in (None, 0.04))
        assert normal < 1.1 * pure


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"model": None}, GuaranteeError, "needs a model"),
        ({"formula": "y ~ (1 | sex)"}, SchemaError, "group terms"),
        ({"upper": None}, SchemaError, "add upper"),
        ({"clip": -1.0}, GuaranteeError, "clip = -1.0"),
        ({"epsilon": 0.0}, GuaranteeError, "epsilon"),
    ],
)
def test_what_it_refuses(change, error, match):
    sex = {"type": "categorical", "levels": ["f", "m"], "public": True}
    y = {"type": "count", "upper": change.get("upper", 10)}
    if y["upper"] is None:
        del y["upper"]
    schema = dpb.Schema.from_dict({"columns": {"sex": sex, "y": y}})
    model = dpb.Regression(change.get("formula", "y ~ sex"), "poisson")
    with pytest.raises(error, match=match):
        dpb.Synthesizer(
            schema,
            Score(change.get("epsilon", 1.0), clip=change.get("clip")),
            change.get("model", model),
        )


def test_too_many_parameters_for_a_pure_epsilon(plain):
    levels = [str(k) for k in range(30)]
    sex = {"type": "categorical", "levels": levels, "public": True}
    schema = dpb.Schema.from_dict({"columns": {"sex": sex, "y": COLUMN}})
    records = pd.DataFrame({"sex": np.resize(levels, 90), "y": 5.0})
    with pytest.raises(GuaranteeError, match="give a delta"):
        fitted(schema, records, Score(1.0))
