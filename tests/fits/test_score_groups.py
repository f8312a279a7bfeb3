"""Noisy sums of clipped scores by group, and the posterior given them."""

import math

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.core.errors import GuaranteeError, SchemaError
from dpbayes.core.lazy import stats
from dpbayes.engines import get_engine
from dpbayes.engines.draws import stacked
from dpbayes.mechanisms import Score
from dpbayes.mechanisms.score.clipped import ClippedScore
from dpbayes.mechanisms.score.grouped import GroupSums, expected_near, group_sizes, terms_of
from dpbayes.mechanisms.score.inference import NoisySum
from dpbayes.mechanisms.score.rounds import Rounds
from dpbayes.mechanisms.score.simulated import Simulator
from dpbayes.privacy.noise import StudyNoise
from dpbayes.stan.program import StanProgram, stan_directory, written_from
from tests.cmdstan import NEEDS_CMDSTAN
from tests.programs import family_of_ones_own

SETTINGS = dpb.SamplerSettings(chains=2, warmup=300, draws=400, seed=3)
A, B = 12, 5
PUBLIC = {
    "x": {"type": "continuous", "lower": -2, "upper": 2, "public": True},
    "a": {"type": "categorical", "levels": [f"a{k}" for k in range(A)], "public": True},
    "b": {"type": "categorical", "levels": [f"b{k}" for k in range(B)], "public": True},
}
OUTCOME = {
    "normal": {"type": "continuous", "lower": -10, "upper": 10},
    "gamma": {"type": "continuous", "lower": 0, "upper": 100},
    "bernoulli": {"type": "binary", "levels": ["no", "yes"]},
    "ordinal": {"type": "ordinal", "levels": ["low", "middle", "high"]},
}


def schema_of(family):
    return dpb.Schema.from_dict({"rows": "public", "columns": {**PUBLIC, "y": OUTCOME[family]}})


def table(n, family, seed=1):
    """Records, and the effects of a."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(A, size=n), rng.integers(B, size=n)
    x, effects = rng.uniform(-2, 2, n), rng.normal(0, 0.6, A)
    eta = 0.3 + 0.5 * x + effects[a] + np.linspace(-0.5, 0.5, B)[b]
    if family == "normal":
        y = np.clip(rng.normal(eta, 1), -10, 10)
    elif family == "gamma":
        y = np.clip(rng.gamma(2, np.exp(eta) / 2), 1e-3, 100)
    elif family == "bernoulli":
        y = np.where(rng.random(n) < 1 / (1 + np.exp(-eta)), "yes", "no")
    else:
        y = np.array(OUTCOME[family]["levels"])[np.digitize(rng.logistic(eta), [-0.5, 1.0])]
    names = {"a": np.array(PUBLIC["a"]["levels"])[a], "b": np.array(PUBLIC["b"]["levels"])[b]}
    return pd.DataFrame({"y": y, "x": x, **names}), effects


def fitted(records, family, formula, mechanism, engine="embedded"):
    made = dpb.Synthesizer(
        schema_of(family), mechanism, dpb.Regression(formula, family), engine=engine,
        settings=SETTINGS,
    )  # fmt: skip
    return made.fit(records, allow_nonconvergence=True)


def test_density_of_a_normal_variable_and_laplace_noise():
    """By Stan, up to a constant, against an integral; b and sd from much less to much more."""
    parts = [
        (stan_directory() / folder / f"{name}.stan").read_text(encoding="utf-8")
        for folder, name in (("include", "log_Phi"), ("inference", "noisy_groups"))
    ]
    text = (
        "functions {\n"
        + "\n".join(parts)
        + (
            "}\ndata { int n; real<lower=0> v; real<lower=0> b; }\nparameters { real r; }\n"
            "model { target += noisy_groups_lpdf([r]' | [v]', b); }\n"
        )
    )
    mixed = written_from("mixed", text, [StanProgram.for_inference("noisy_groups")])
    compiled = get_engine("embedded").compile(mixed)
    for sd, b in ((0.01, 1.0), (1.0, 1.0), (30.0, 1.0), (1.0, 0.0)):
        bound = compiled.bind({"n": 1, "v": sd**2, "b": b})
        at = np.linspace(-4, 4, 9) * (sd + b)
        found = np.array([bound.density(np.array([r]))[0] for r in at])
        if b == 0:
            expected = stats.norm.logpdf(at, 0, sd)
        else:
            z = np.linspace(-9, 9, 200_001)
            noise = stats.laplace.pdf(at[:, None] - sd * z, scale=b)
            expected = np.log(np.trapezoid(noise * stats.norm.pdf(z), z))
        assert np.ptp(found - expected) < 1e-4


@pytest.mark.parametrize(("family", "n"), [("normal", 1500), ("gamma", 1500), ("bernoulli", 1500)])
def test_sums_are_what_they_are_expected_to_be(family, n):
    """Sums of 200 tables that the model draws, at effects that scores are not taken at.

    Of 12 + 3 means each is within 5 standard errors and a bias of 2 % of the largest sum: false
    alarms at 1e-5. Variances within a factor of 1.6, at 1e-4.
    """
    records, _ = table(n, family)
    schema = schema_of(family)
    model = dpb.Regression("y ~ x + (1 | a)", family).on(schema)
    public = model.public(schema.validate(records), n)
    compiled = get_engine("embedded").compile(model.program)
    simulator = Simulator(model, compiled, public, n, n)
    (term,) = terms_of(model, simulator.design)
    d = len(simulator.fixed)
    asked = simulator.without_effects(np.zeros(d + A + 1))
    moved = asked + 0.1 * simulator.directions.sum(axis=0)
    point = simulator.with_effects(moved, np.linspace(-0.7, 0.7, A))
    score = ClippedScore(asked, simulator.whitened(asked, simulator.directions), 3.0)
    way = simulator.whitened(asked, simulator.along_effects(asked, term.columns))
    by_group = ClippedScore(asked, way, 2.0)
    measured = NoisySum(score, np.zeros(d), 0.0, 1.0)
    groups = [GroupSums(term, by_group, np.zeros((A, 1)), 0.0, 1.0)]
    many = Simulator(model, compiled, public, n, 20_000)
    told = expected_near(many, measured, groups, point)
    codes = term.codes[simulator.index]
    sums, wholes = [], []
    for seed in range(200):
        there = simulator.records(point[None], 1000 + seed).bound
        one = by_group.clipped(by_group.slopes(there))[:, 0]
        sums.append(np.bincount(codes, one, A))
        wholes.append(score.clipped(score.slopes(there)).sum(axis=0))
    sums, wholes = np.array(sums), np.array(wholes)
    error = sums.std(axis=0) / math.sqrt(200)
    bias = np.abs(sums.mean(axis=0) + told["score__group_gap"])
    assert (bias < 5 * error + 0.02 * np.abs(sums.mean(axis=0)).max()).all()
    ratio = sums.var(axis=0) / told["score__group_variance"]
    assert ratio.min() > 1 / 1.6
    assert ratio.max() < 1.6
    # The sum over all is told in turned coordinates, which keep lengths.
    gap, error = np.linalg.norm(told["score__gap"]), np.linalg.norm(wholes.std(axis=0))
    assert abs(gap - np.linalg.norm(wholes.mean(axis=0))) < 5 * error / math.sqrt(200) + 0.02 * gap
    away = sums - sums.mean(axis=0)
    left = wholes - wholes.mean(axis=0)
    left = left - away @ np.linalg.lstsq(away, left, rcond=None)[0]
    ratio = (left**2).sum() / (200 - 1 - A) / told["score__variance"].sum()
    assert 1 / 1.4 < ratio < 1.4


def test_an_intercept_is_all_effects_of_a_term_together():
    """Noisy sums tell nothing of how a level is shared between them: to 1e-9 of what they tell."""
    records, _ = table(1500, "ordinal")
    schema = schema_of("ordinal")
    for formula, parts in (("y ~ x + (1 | a)", 1), ("y ~ x + (1 | a) + (1 | b)", 2)):
        model = dpb.Regression(formula, "ordinal").on(schema)
        compiled = get_engine("embedded").compile(model.program)
        public = model.public(schema.validate(records), 1500)
        simulator = Simulator(model, compiled, public, 1500, 2000)
        point = simulator.without_effects(0.1 * np.ones(len(simulator.names)))
        score = ClippedScore(point, simulator.whitened(point, simulator.directions), 3.0)
        groups = []
        for term in terms_of(model, simulator.design):
            way = simulator.whitened(point, simulator.along_effects(point, term.columns))
            total = np.zeros((term.groups, 1))
            groups.append(GroupSums(term, ClippedScore(point, way, 2.0), total, 1.0, 1.0))
        measured = NoisySum(score, np.zeros(len(simulator.fixed)), 0.0, 1.0)
        told = expected_near(simulator, measured, groups, point)
        cutpoint = [simulator.names[place] for place in simulator.fixed].index("first_cutpoint")
        by_effects = told["score__by_effects"].sum(axis=1)
        of_groups = told["score__own"] if parts == 1 else told["score__between"].sum(axis=1)
        assert np.allclose(by_effects, -parts * told["score__change"][:, cutpoint], rtol=1e-9)
        assert np.allclose(of_groups, -parts * told["score__group_change"][:, cutpoint], rtol=1e-9)


@pytest.mark.parametrize("family", OUTCOME)
def test_effects_are_near_those_of_the_fit(family):
    """At ε = 10: means of all effects within 7 sds of the fit's and sds within a factor of 3."""
    records, _ = table(1500, family)
    formula = "y ~ x + (1 | a)"
    output = fitted(
        records, family, formula, Score(10.0, adjacency="add-remove")
    ).fitted.draw_private(StudyNoise(1))
    usual = fitted(records, family, formula, dpb.Unweighted()).fitted.draws
    ours, theirs = stacked(output.draws, "group_effect"), stacked(usual, "group_effect")
    assert (np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) < 7 * theirs.std(axis=0)).all()
    ratio = ours.std(axis=0) / theirs.std(axis=0)
    assert ratio.max() < 3
    assert ratio.min() > 0.7
    assert output.diagnostics.max_rhat < 1.05


@pytest.mark.parametrize(
    ("formula", "delta"),
    [
        ("y ~ x + (x | a)", 0.0),
        ("y ~ x + (1 | a) + (1 | b)", 0.0),
        ("y ~ (1 | a) + (1 | a:b)", 1e-6),
        ("y ~ x + (x | a) + (1 | b)", 1e-6),
        ("y ~ 1 + (1 | a)", 1e-6),
    ],
)
def test_terms_of_all_kinds(formula, delta):
    """A release of two data sets, whose posterior has the names of groups on its axes."""
    records, effects = table(1200, "normal")
    fit = fitted(records, "normal", formula, Score(4.0, delta=delta, adjacency="add-remove"))
    release = fit.sample(2, seed=1)
    assert 3.9 < release.guarantee.epsilon <= 4
    assert len(release.datasets) == 2
    draws = release.posterior["posterior"].to_dataset()
    assert {"group_effect", "group_sd", "intercept"} <= set(draws)
    assert "score__noise" not in draws
    found = draws["group_effect"].to_numpy().reshape(800, -1).mean(axis=0)
    if formula.endswith("(1 | a)"):
        assert np.corrcoef(found, effects)[0, 1] > 0.8
    cost = fit.findings()
    assert cost.by_record["lipschitz"].max() <= cost.epsilon / 2 + 1e-12


def test_parts_sum_to_the_whole():
    model = dpb.Regression("y ~ x + (x | a) + (1 | b)", "normal").on(schema_of("normal"))
    assert group_sizes(model) == ((A, 2), (B, 1))
    rounds = Rounds(2.0, None, 1, 1000, 4, groups=group_sizes(model))
    assert np.isclose(rounds.table + sum(rounds.sums) + 2 * rounds.by_group, 1)
    most = np.array([np.inf])
    assert np.isclose(rounds.cost(most, [most, most])[0], 2.0)
    assert rounds.cost(np.zeros(1), [np.zeros(1)] * 2)[0] < 0.5


@pytest.mark.parametrize("engine", [pytest.param("cmdstan", marks=NEEDS_CMDSTAN)])
def test_cmdstan_draws_from_the_same_posterior(engine):
    """Of the same noisy sums: means of 800 draws within half an sd, sds within a third."""
    records, _ = table(800, "normal")
    found = [
        stacked(
            fitted(records, "normal", "y ~ x + (1 | a)", Score(3.0, adjacency="add-remove"), by)
            .fitted.draw_private(StudyNoise(1))
            .draws,
            "group_effect",
        )
        for by in ("embedded", engine)
    ]
    ours, theirs = found
    assert (np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) < 0.5 * ours.std(axis=0)).all()
    ratio = ours.std(axis=0) / theirs.std(axis=0)
    assert 2 / 3 < ratio.min() < ratio.max() < 1.5


def test_what_it_refuses(registries, tmp_path):
    levels = [f"g{k}" for k in range(600)]
    column = {"type": "categorical", "levels": levels, "public": True}
    schema = dpb.Schema.from_dict({"columns": {**PUBLIC, "g": column, "y": OUTCOME["normal"],
                     "z": {"type": "categorical", "levels": ["p", "q", "r"]},
                     "c": {"type": "count", "upper": 9},
                     "d": OUTCOME["bernoulli"]}}
    )  # fmt: skip
    dpb.register_family(family_of_ones_own(tmp_path / "mine.stan", divergence=True))
    for formula, family, match in (
        ("z ~ (1 | a)", "categorical", "one linear predictor"),
        ("c ~ (1 | a)", "zero_inflated_poisson", "one linear predictor"),
        ("y ~ (1 | a)", "mixture", "one linear predictor"),
        ("y ~ x + (x | g)", "normal", "these are 1,200"),
        ("d ~ (1 | a)", "mine", "your own"),
    ):
        with pytest.raises(SchemaError, match=match):
            dpb.Synthesizer(
                schema, Score(1.0, adjacency="add-remove"), dpb.Regression(formula, family)
            )
    made = dpb.Synthesizer(
        schema, Score(1.0, adjacency="add-remove"), dpb.Regression("y ~ x + (1 | g)", "normal")
    )
    assert made.guarantee().epsilon == 1


def test_effects_of_a_group_are_not_more_than_noise_is_drawn_for():
    """Before anything is paid for."""
    names = [f"z{k}" for k in range(30)]
    number = {"type": "continuous", "lower": 0, "upper": 1, "public": True}
    columns = {**PUBLIC, **dict.fromkeys(names, number), "y": OUTCOME["normal"]}
    records, _ = table(60, "normal")
    rng = np.random.default_rng(1)
    records = records.assign(**{name: rng.random(60) for name in names})
    made = dpb.Synthesizer(
        dpb.Schema.from_dict({"columns": columns}), Score(1.0, adjacency="add-remove"),
        dpb.Regression(f"y ~ 1 + ({' + '.join(names)} | a)", "normal"), settings=SETTINGS,
    )  # fmt: skip
    with pytest.raises(GuaranteeError, match="effects of a group"):
        made.fit(records)


def test_few_rows_to_a_group_are_refused():
    """Of any term: there are 60 pairs of a and b."""
    for rows, formula in ((239, "y ~ (1 | a)"), (1199, "y ~ (1 | a) + (1 | a:b)")):
        with pytest.raises(GuaranteeError, match="needs 20 rows to a group"):
            fitted(table(rows, "normal")[0], "normal", formula, Score(1.0, adjacency="add-remove"))
    fitted(table(240, "normal")[0], "normal", "y ~ (1 | a)", Score(1.0, adjacency="add-remove"))
