"""Which anchor the default takes: by public facts, at no other claim, and said in the release."""

import math

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.mechanisms.posterior.anchored import NEAR_NONE, NEAR_TABLES, distance
from dpbayes.mechanisms.posterior.records import BoundRecords
from dpbayes.mechanisms.posterior.stage import PublicFacts
from dpbayes.privacy.guarantee import SECRET_NOISE
from studies.ours import anchors
from tests.programs import GOOD, write

Y = {"y": {"type": "continuous", "lower": 0, "upper": 10}}
MODEL = dpb.Regression("y ~ 1", "normal")
ENGINE = EmbeddedEngine()


def facts(n, *, discrete=False, counted=True, points=None, parameters=6):
    return PublicFacts(n, parameters, discrete, points, covariates=4, counted=counted)


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1.0, 3.0, 5.0])
@pytest.mark.parametrize("parameters", [2, 6, 12, 30])
def test_the_rule_has_one_threshold_in_records_per_parameter(epsilon, parameters):
    """n ε / p of 125 beside tables, 56 beside none, half as many of levels."""
    mechanism = dpb.Anchored(epsilon, adjacency="add-remove")
    for least, counted, discrete, otherwise in (
        (125.0, True, False, "histogram"),
        (55.6, False, False, "none"),
        (27.8, True, True, "none"),
    ):
        n = least * parameters / epsilon
        for rows, anchor in ((math.ceil(n), "two-stage"), (math.floor(0.99 * n), otherwise)):
            problem = facts(rows, discrete=discrete, counted=counted, parameters=parameters)
            assert mechanism.taken(problem) == anchor
            near = NEAR_TABLES if otherwise == "histogram" else NEAR_NONE
            assert (distance(0.15 * epsilon, problem) <= near) is (anchor == "two-stage")


def test_an_anchor_that_is_named_is_taken():
    for n in (10, 10**6):
        for name in ("two-stage", "histogram", "none"):
            assert dpb.Anchored(1.0, name, adjacency="add-remove").taken(facts(n)) == name
    # Public points lie around draws: there is nothing else.
    assert dpb.Anchored(1.0, adjacency="add-remove").taken(facts(10, points=100)) == "two-stage"


@pytest.mark.parametrize("n", [20, 2_000])
@pytest.mark.parametrize("counted", [True, False])
def test_its_stages_are_those_of_the_anchor_and_cost_no_more_than_is_claimed(n, counted):
    problem = facts(n, counted=counted)
    mechanism = dpb.Anchored(1.0, adjacency="add-remove")
    claim, taken = mechanism.guarantee(), mechanism.taken(problem)
    assert claim.epsilon == pytest.approx(1.0)
    widths = [stage.window[1] - stage.window[0] for stage in mechanism.stages(problem)]
    assert widths[-1] == pytest.approx(claim.each.epsilon)
    if taken == "none":  # the share is left
        assert widths == pytest.approx([0.85])
        return
    assert mechanism.stages(problem) == dpb.Anchored(1.0, taken, adjacency="add-remove").stages(
        problem
    )
    named = dpb.Anchored(1.0, taken, adjacency="add-remove").guarantee()
    for m in (1, 20):
        for delta in (0.0, 1e-6):  # no loss of the claim is below that of the anchor taken
            ours, theirs = (c.for_datasets(m, delta=delta) for c in (claim, named))
            assert ours.epsilon >= theirs.epsilon * (1 - 1e-9)


def test_an_assumption_is_said_once():
    claim = dpb.Anchored(1.0, adjacency="add-remove").guarantee().drawn_by("candidates")
    assert SECRET_NOISE in claim.assumptions
    assert len(set(claim.assumptions)) == len(claim.assumptions)


def problem_of(rows, n):
    schema = dpb.Schema.from_dict({"rows": rows, "columns": Y})
    records = pd.DataFrame({"y": np.linspace(1, 9, n)})
    task = dpb.Synthesizer(
        schema, dpb.Anchored(1.0, adjacency="add-remove"), MODEL, engine=ENGINE
    ).task(records)
    return BoundRecords(task).problem(), task.rows


def test_neighbours_have_the_same_anchor():
    """A declared number of rows decides, and neither records nor how many there are; so a noisy
    one."""
    for rows, anchor in ((40, "histogram"), (400, "two-stage")):
        for n in (0, 1, 39, 40, 4_000):
            assert dpb.Anchored(1.0, adjacency="add-remove").taken(problem_of(rows, n)[0]) == anchor
    noisy = [problem_of("noisy", 250) for _ in range(10)]
    assert all(problem.rows == rows for problem, rows in noisy)
    assert len({rows for _, rows in noisy}) > 1  # 1 by chance: below 1e-6


def test_sequences_and_two_outcomes_are_not_counted():
    schema = dpb.Schema.from_dict({"rows": "public", "columns": {**Y, "z": Y["y"]}})
    pair = dpb.Sequence([MODEL, dpb.Regression("z ~ y", "normal")])
    assert not PublicFacts.of(pair.on(schema), 100).counted
    assert PublicFacts.of(
        MODEL.on(dpb.Schema.from_dict({"rows": "public", "columns": Y})), 100
    ).counted


def test_the_study_puts_the_default_beside_the_best():
    """Of made-up distances: geometric means, and what the default takes."""
    cases = [("none", 4.0), ("two-stage", 2.0), ("histogram", 1.0)]
    rows = [
        {"family": "normal", "n": n, "p": 6, "epsilon": 1.0, "anchor": name, "piece": piece,
         "distance": value * scale, "clamped": 0.0}
        for n in (600, 2_000)
        for piece, scale in enumerate((1.0, 4.0), start=n)
        for name, value in cases
    ]  # fmt: skip
    made = anchors.table(pd.DataFrame(rows)).set_index("n")
    assert list(made["taken"]) == ["histogram", "two-stage"]
    assert list(made["default"]) == pytest.approx([2.0, 4.0])
    found = anchors.bands(pd.DataFrame(rows)).set_index("band")
    assert list(found["histogram"]) == pytest.approx([1.0, 0.5])
    assert list(found["none"]) == pytest.approx([4.0, 2.0])
    assert list(found["none se"]) == pytest.approx([0.0, 0.0])


@pytest.mark.parametrize("family", ["normal", "beta", "bernoulli"])
def test_records_of_the_study(family):
    for p in (2, 7):
        frame, schema, model = anchors.records(50, p, family, np.random.default_rng(1))
        assert len(schema.validate(frame)) == 50
        assert model.on(schema).parameters == p + (family == "bernoulli")


def test_windows_lie_where_log_densities_of_a_users_program_are(tmp_path):
    """In the outcome's own units they are all near -7 for a range of 1,000."""
    schema = dpb.Schema({"y": dpb.Column("y", "continuous", lower=0, upper=1000)})
    own = dpb.Program(write(tmp_path, GOOD), "y ~ 1").on(schema)
    for mechanism in (dpb.Censored(4.0), dpb.Anchored(4.0, anchor="none")):
        for model, middle in (
            (own, -math.log(1000)),
            (dpb.Regression("y ~ 1", "normal").on(schema), 0.0),
        ):
            (stage,) = mechanism.stages(PublicFacts.of(model, 100))
            assert stage.centre == pytest.approx(middle)
            assert stage.window == pytest.approx((-1.0, 1.0))
    text = GOOD.replace("real clip_lower;", "real clip_lower;\n  real C;")
    named = dpb.Program(write(tmp_path, text), "y ~ 1", {"C": 1e6}).on(schema)
    assert PublicFacts.of(named, 100) == PublicFacts.of(own, 100)
    (stage,) = dpb.Censored(4.0, window="symmetric").stages(PublicFacts.of(own, 100))
    assert stage.centre == sum(stage.window) == 0
