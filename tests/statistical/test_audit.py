"""The audit confirms what is strict, and catches what is not."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.evaluate.audit import audit
from dpbayes.evaluate.audit_sampled import audit_sampled, log_ratio_bound
from dpbayes.mechanisms.posterior import records as checked_records
from dpbayes.mechanisms.posterior.stage import Stage
from dpbayes.stan.program import written_from
from tests.programs import GOOD, write

SCHEMA = dpb.Schema.from_dict(
    {
        "rows": "public",
        "columns": {
            "y": {"type": "continuous", "lower": 0, "upper": 1},
            "ill": {"type": "binary", "levels": ["no", "yes"]},
        },
    }
)
SETTINGS = dpb.SamplerSettings(warmup=300, draws=600, seed=1)


def draw(seed, n=150):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"y": rng.beta(0.5, 3, n), "ill": rng.choice(["no", "yes"], n)})


RECORDS, REFERENCE = draw(1), draw(2)


@pytest.fixture(scope="module")
def synthesizer():
    return dpb.Synthesizer(
        SCHEMA, dpb.Unweighted(), dpb.Regression("y ~ 1", "beta"),
        settings=SETTINGS,
    )  # fmt: skip


@pytest.fixture(scope="module")
def fit(synthesizer):
    """``fit(mechanism)``: the same records under every mechanism."""
    plain = synthesizer.fit(RECORDS)
    return lambda mechanism: synthesizer.with_mechanism(mechanism).refit(plain)


@pytest.fixture(scope="module")
def reference(synthesizer):
    return synthesizer.reference(REFERENCE)


@pytest.mark.parametrize(("adjacency", "epsilon"), [("add-remove", 5.0), ("substitution", 0.5)])
@pytest.mark.parametrize(
    "kind", ["censored", "reference", "constant", "none", "two-stage", "auto", "ref"]
)
def test_strict_mechanisms_keep_their_epsilon(fit, reference, kind, epsilon, adjacency):
    """To 1e-6, for the worst of the records tried, under both adjacencies."""
    mechanism = {
        "censored": lambda **o: dpb.Censored(epsilon, **{"adjacency": "add-remove", **o}),
        "reference": lambda **o: dpb.CensoredWeighted(
            epsilon, weights=reference, **{"adjacency": "add-remove", **o}
        ),
        "constant": lambda **o: dpb.CensoredWeighted(
            epsilon, weights=dpb.ConstantWeights(0.4), **{"adjacency": "add-remove", **o}
        ),
        "none": lambda **o: dpb.Anchored(epsilon, "none", **{"adjacency": "add-remove", **o}),
        "two-stage": lambda **o: dpb.Anchored(
            epsilon, "two-stage", **{"adjacency": "add-remove", **o}
        ),
        "auto": lambda **o: dpb.Anchored(epsilon, **{"adjacency": "add-remove", **o}),
        "ref": lambda **o: dpb.Anchored(epsilon, reference, **{"adjacency": "add-remove", **o}),
    }[kind](adjacency=adjacency)
    claim = mechanism.guarantee()
    assert claim.basis == "strict"
    nominal = claim.epsilon if adjacency == "add-remove" else claim.epsilon_substitution
    assert nominal == pytest.approx(epsilon)
    found = audit(fit(mechanism), candidates=12)
    assert not found.violated, str(found)
    # Not vacuous: the search comes near the bound where the clamp is meant to act.
    assert found.add_remove > 0.3 * claim.epsilon
    assert found.substitution >= found.add_remove * 0.9


def test_confidential_weights_exceed_their_nominal_epsilon(fit):
    found = audit(fit(dpb.CensoredWeighted(5, adjacency="add-remove")), candidates=20)
    assert found.violated
    assert found.add_remove > 20
    assert "EXCEEDED" in str(found)


def test_a_program_without_a_clamp_is_caught(synthesizer):
    program = synthesizer.model.program
    no_window = "if (is_inf(clip_lower) && is_inf(clip_upper)) {"
    text = program.text.replace(no_window, "if (1) {")
    assert text != program.text
    model = replace(synthesizer.model, program=written_from(program.name, text, [program]))
    broken = replace(synthesizer, mechanism=dpb.Censored(5, adjacency="add-remove"), model=model)
    found = audit(broken.fit(RECORDS), candidates=20)
    assert found.violated
    assert found.add_remove > 10


def test_equal_records_of_a_users_program_are_ranked_one_by_one(tmp_path):
    """The program has one row for all that are equal, and copies at both ends."""
    counted = "  vector[n] anchor;\n", "  vector[n] anchor;\n  vector<lower=0>[n] multiplicity;\n"
    sums = "clip_lower, clip_upper);", "clip_lower, clip_upper, multiplicity);"
    text = GOOD.replace(*counted).replace(*sums)
    schema = dpb.Schema.from_dict(
        {"rows": 60, "columns": {"y": {"type": "continuous", "lower": -9, "upper": 9, "digits": 1}}}
    )
    made = dpb.Synthesizer(
        schema, dpb.Censored(1.0), dpb.Program(write(tmp_path, text), "y ~ 1"), settings=SETTINGS
    )
    records = pd.DataFrame({"y": np.round(np.random.default_rng(1).normal(1, 1, 60), 0)})
    found = audit(made.fit(records), candidates=20)
    assert not found.violated, str(found)
    assert found.add_remove == pytest.approx(1.0, abs=1e-6)  # a record at the end costs all of it


@pytest.mark.parametrize("wide", [False, True])
def test_a_program_with_a_public_value_for_each_record_is_audited(tmp_path, wide, monkeypatch):
    """One record more has the value of one that is there; twice the window is found."""
    text = GOOD.replace("  vector[n] y;\n", "  vector[n] y;\n  vector[n] offset_i;\n")
    text = text.replace("square(y - mu)", "square(y - offset_i - mu)")
    text = text.replace("rep_vector(mu, n)", "mu + offset_i")
    schema = dpb.Schema.from_dict(
        {"rows": "public", "columns": {"y": {"type": "continuous", "lower": -9, "upper": 9}}}
    )
    rng = np.random.default_rng(1)
    offsets = rng.normal(0, 1, 60)
    model = dpb.Program(write(tmp_path, text), "y ~ 1", {"offset_i": offsets.tolist()})
    mechanism = dpb.Censored(1.0, adjacency="add-remove")
    if wide:
        stage = Stage(window=(-1.0, 1.0), centre=-2.9)
        monkeypatch.setattr(dpb.Censored, "stages", lambda *_: (stage,))
    made = dpb.Synthesizer(schema, mechanism, model, settings=SETTINGS)
    records = pd.DataFrame({"y": (offsets + rng.normal(1, 1, 60)).round(2)}, index=range(60, 0, -1))
    found = audit(made.fit(records, allow_nonconvergence=True), candidates=20)
    assert found.violated == wide, str(found)
    assert found.add_remove > (1.2 if wide else 0.9)


@pytest.mark.parametrize("anchor", ["two-stage", "histogram"])
def test_a_program_with_public_columns_and_an_anchor_is_audited(tmp_path, anchor):
    """Whether the anchor can be drawn is asked of public facts, which neighbours share."""
    text = GOOD.replace(
        "  vector[n] y;\n", "  vector[n] y;\n  int<lower=0> K;\n  matrix[n, K] X;\n"
    )
    text = text.replace("  real mu;\n", "  real mu;\n  vector[K] slope;\n")
    text = text.replace("  mu ~ normal(0, 2);", "  mu ~ normal(0, 2);\n  slope ~ normal(0, 1);")
    text = text.replace("square(y - mu)", "square(y - mu - X * slope)")
    text = text.replace("rep_vector(mu, n)", "mu + X * slope")
    columns = {
        "x": {"type": "continuous", "lower": -1, "upper": 1, "public": True},
        "y": {"type": "continuous", "lower": -9, "upper": 9},
    }
    schema = dpb.Schema.from_dict({"rows": "public", "columns": columns})
    model = dpb.Program(write(tmp_path, text), "y ~ x")
    mechanism = dpb.Anchored(1.0, adjacency="add-remove", anchor=anchor)
    made = dpb.Synthesizer(schema, mechanism, model, settings=SETTINGS)
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, 40)
    records = pd.DataFrame({"x": x, "y": x + rng.normal(0, 1, 40)})
    found = audit(made.fit(records, allow_nonconvergence=True), candidates=10)
    assert not found.violated, str(found)
    assert found.add_remove > 0.3


def test_discrete_outcome_and_negative_window():
    for mechanism in (
        dpb.Censored(0.7, adjacency="add-remove"),
        dpb.Anchored(0.7, adjacency="add-remove"),
    ):
        model = dpb.Regression("ill ~ 1", "bernoulli")
        synthesizer = dpb.Synthesizer(SCHEMA, mechanism, model, settings=SETTINGS)
        # Half of each: the clamped posterior has two modes, which chains do not have to meet.
        found = audit(synthesizer.fit(RECORDS, allow_nonconvergence=True), candidates=8)
        assert not found.violated, str(found)
        assert found.add_remove > 0.2


def test_sampled_audit_bounds_from_below():
    """A lower bound that is wrong with probability 0.05 at most stays below a true ε of 0.1.

    At ε = 0.1 20 runs a side can refute it; at ε = 1 they could not.
    """
    few = RECORDS.iloc[:30]
    extreme = pd.DataFrame({"y": [1e-9], "ill": ["no"]})
    strict = dpb.Synthesizer(
        SCHEMA,
        dpb.Censored(0.1, adjacency="add-remove"),
        dpb.Regression("y ~ 1", "beta"),
        settings=SETTINGS,
    )
    assert not audit_sampled(strict, few, extreme, runs=20).violated
    loose = strict.with_mechanism(dpb.Unweighted())
    found = audit_sampled(loose, few, pd.DataFrame({"y": [1 - 1e-9], "ill": ["no"]}), runs=40)
    assert found.epsilon_lower > 1.0  # one record at the far end moves 30 others' posterior


def test_sampled_audit_of_two_group_terms():
    """Chains whose coordinates come from the records keep ε, where the record is alone in a group.

    A lower bound is wrong with probability 0.05 at most. 30 runs a side can refute ε = 1, and 20
    could not. Without a clamp the same record shows.
    """
    public = {"type": "categorical", "public": True}
    schema = dpb.Schema.from_dict(
        {
            "columns": {
                "y": {"type": "continuous", "lower": 0, "upper": 1},
                "g": {**public, "levels": ["a", "b", "c"]},
                "h": {**public, "levels": ["u", "v", "w", "x"]},
            }
        }
    )
    rng = np.random.default_rng(3)
    y = np.clip(rng.normal(0.5, 0.1, 40), 0, 1)
    g, h = (np.array(list(names))[rng.integers(0, 3, 40)] for names in ("abc", "uvw"))
    records = pd.DataFrame({"y": y, "g": g, "h": h})
    alone = pd.DataFrame({"y": [1.0], "g": ["a"], "h": ["x"]})
    strict = dpb.Synthesizer(
        schema,
        dpb.Censored(1.0, adjacency="add-remove"),
        dpb.Regression("y ~ (1 | g) + (1 | h)", "normal"),
        settings=SETTINGS,
    )
    assert not audit_sampled(strict, records, alone, runs=30).violated
    loose = audit_sampled(strict.with_mechanism(dpb.Unweighted()), records, alone, runs=40)
    assert loose.epsilon_lower > 1.0


def test_sampled_audit_exceeds_the_nominal_epsilon_of_confidential_weights(synthesizer):
    """Chains alone show the violation: one record at the edge moves every other's weight."""
    records = pd.DataFrame({"y": np.random.default_rng(5).beta(6, 6, 300), "ill": "no"})
    edge = pd.DataFrame({"y": [1 - 1e-9], "ill": ["no"]})
    mechanism = synthesizer.with_mechanism(dpb.CensoredWeighted(1.5, adjacency="add-remove"))
    found = audit_sampled(mechanism, records, edge, runs=60)
    assert found.violated, str(found)


def test_confidence_bound_by_simulation():
    """Coverage of the lower bound on log(p1/p0): misses in at most 5 % of 2000 runs (+ 3 se)."""
    rng = np.random.default_rng(1)
    p1, p0, n = 0.6, 0.3, 100
    bounds = [log_ratio_bound(*rng.binomial(n, [p1, p0]), n, 0.025) for _ in range(2000)]
    misses = np.mean(np.array(bounds) > np.log(p1 / p0))
    assert misses <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 2000)
    assert np.mean(bounds) > 0.1
    assert log_ratio_bound(0, 10, 20, 0.025) == 0.0


SHIFTED = GOOD.replace("real mu;", "real mu;\n  real<lower=0> shift;").replace(
    "mu ~ normal(0, 2);", "mu ~ normal(0, 1);\n  shift ~ normal(0, 0.6);"
).replace("square(y - mu)", "square(log1p(y - shift) - mu)")  # fmt: skip


def test_a_record_that_makes_impossible_what_public_constants_do(tmp_path, monkeypatch):
    """At points of the prior, without those that y = 0 rejects, both posteriors are above 0."""
    monkeypatch.setattr(checked_records, "check_on_made_up", lambda *_, **__: None)
    schema = dpb.Schema.from_dict(
        {"rows": "public", "columns": {"y": {"type": "count", "upper": 12}}}
    )
    program = dpb.Program(write(tmp_path, SHIFTED), "y ~ 1")
    y = np.floor(3 + np.random.default_rng(1).lognormal(0.8, 0.5, 300)).clip(0, 12).astype(int)
    synthesizer = dpb.Synthesizer(
        schema, dpb.Anchored(4.0, "none"), program, settings=SETTINGS, allow_unproved=True
    )
    fit = synthesizer.fit(pd.DataFrame({"y": y}), allow_nonconvergence=True)
    assert (fit.fitted.draws["posterior"]["shift"] > 1).any()
    assert math.isinf(audit(fit, candidates=20).add_remove)


def test_what_delta_allows_is_no_violation():
    """An event of probability δ on one side and none on the other tells nothing of ε."""
    assert log_ratio_bound(60, 0, 1000, 0.025) > 2
    assert log_ratio_bound(60, 0, 1000, 0.025, delta=0.06) == 0.0
    assert log_ratio_bound(600, 10, 1000, 0.025, delta=1e-9) == pytest.approx(
        log_ratio_bound(600, 10, 1000, 0.025), abs=1e-8
    )


def test_ranges_of_many_parameters_confirm_and_catch(synthesizer):
    """With group effects there is no constant; the range of the log ratio is the window's width."""
    public = {"type": "categorical", "public": True, "levels": ["a", "b", "c"]}
    schema = dpb.Schema.from_dict({"columns": {"y": SCHEMA.to_dict()["columns"]["y"], "g": public}})
    records = RECORDS[["y"]].assign(g=np.random.default_rng(3).choice(list("abc"), len(RECORDS)))
    model = dpb.Regression("y ~ (1 | g)", "beta")
    settings = replace(SETTINGS, warmup=50, draws=20)
    strict = dpb.Synthesizer(
        schema, dpb.Censored(1.0, adjacency="add-remove"), model, settings=settings
    )
    found = audit(strict.fit(records, allow_nonconvergence=True), candidates=6)
    assert found.wide
    assert 0.9 < found.add_remove <= 1 + 1e-6
    assert 1.5 < found.substitution <= 2 + 2e-6
    loose = strict.with_mechanism(dpb.CensoredWeighted(1.0, adjacency="add-remove"))
    wrong = audit(loose.fit(records, allow_nonconvergence=True), candidates=6)
    assert wrong.violated
    assert "range of a log ratio" in str(wrong)
