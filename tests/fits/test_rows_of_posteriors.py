"""Releases where the number of rows is declared or noisy, and of every kind of table."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.core.errors import DpbayesError, ProgramError
from dpbayes.engines import get_engine
from dpbayes.engines.candidates import CandidatesEngine
from dpbayes.engines.contract import contract_defaults
from dpbayes.engines.draws import one_draw
from dpbayes.mechanisms.posterior.made_up import check_on_made_up
from dpbayes.mechanisms.posterior.records import BoundRecords, bind_stage
from dpbayes.synthesis.choice import score_programs
from tests.programs import GOOD, write
from tests.unit.test_rows_of_posteriors import COLUMNS, MODELS, SETTINGS, schema, table


@pytest.mark.parametrize("rows", [37, "noisy"])
def test_a_release_tells_no_other_number(rows):
    model = dpb.Regression("ill ~ 1", "bernoulli")
    synthesizer = dpb.Synthesizer(schema(rows, "ill"), dpb.Anchored(1), model, settings=SETTINGS)
    settings = []
    for n in (20, 21):
        fit = synthesizer.fit(table(n), allow_nonconvergence=True)
        release = fit.sample(2, seed=1)
        assert "n" not in release.settings
        assert [len(data) for data in release.datasets] == [fit.task.rows] * 2
        assert len(fit.sample(rows=5, seed=1).datasets[0]) == 5
        settings.append(release.settings)
        assert release.guarantee.holds_for == "add-remove"
    if rows == 37:
        assert settings[0] == settings[1]


@pytest.mark.parametrize(("outcome", "family"), MODELS)
def test_every_table_of_the_domain_is_accepted(outcome, family):
    """Constant outcomes, values on the bounds, one record, none."""
    names = outcome.removeprefix("Surv(").removesuffix(")").split(", ")
    columns = [COLUMNS[name] for name in names]
    ends = [c.get("levels") or [c.get("lower", 0), c["upper"]] for c in columns]
    low, high = zip(*((each[0], each[1]) for each in ends), strict=True)
    synthesizer = dpb.Synthesizer(
        schema(30, *names), dpb.Censored(1), dpb.Regression(f"{outcome} ~ 1", family),
        settings=SETTINGS,
    )  # fmt: skip
    for values in ([], [low], [high], [low] * 9, [low, high] * 5):
        records = pd.DataFrame(values, columns=names)
        fit = synthesizer.fit(records, allow_nonconvergence=True)
        (data,) = fit.sample(seed=1).datasets
        assert len(data) == 30
        fit.task.schema.validate(data)


def points_of(model, outcome, n, rows=300):
    """The candidates of each stage, anchored at points that do not depend on the records."""
    synthesizer = dpb.Synthesizer(
        schema(rows, outcome), dpb.Anchored(1), model, engine=CandidatesEngine(300)
    )
    on = BoundRecords(synthesizer.task(table(n)))
    found, drawn, before = [], None, None
    for stage in synthesizer.mechanism.stages(on.problem()):
        before = bind_stage(on, stage, drawn, before).candidates
        drawn = one_draw(before.draws, 7)
        found.append(before)
    return found


@pytest.mark.parametrize("outcome", ["own", "earnings", "visits", "health"])
def test_candidates_are_the_same_for_any_number_of_records(outcome, tmp_path):
    if outcome == "own":
        model = dpb.Program(write(tmp_path, GOOD), "earnings ~ 1")
    else:
        model = dpb.Regression(f"{outcome} ~ 1", dict(MODELS)[outcome])
    one, *others = (points_of(model, "earnings" if outcome == "own" else outcome, n)
                    for n in (0, 20, 21, 400))  # fmt: skip
    assert len(one) > 1
    for other in others:
        for here, there in zip(one, other, strict=True):
            np.testing.assert_array_equal(here.points, there.points)
            np.testing.assert_array_equal(here.log_prior, there.log_prior)
            np.testing.assert_array_equal(here.log_proposal, there.log_proposal)


def test_constants_for_each_record_leave_their_number_no_choice(tmp_path):
    """Refused by a job and a fit, before anything is paid."""
    text = GOOD.replace("vector[n] y;", "vector[n] y;\n  vector[n] shift;")
    text = text.replace("y - mu", "y - mu - shift").replace("rep_vector(mu, n)", "mu + shift")
    column = {"type": "continuous", "lower": -5, "upper": 5}
    where = dpb.Schema.from_dict({"columns": {"y": column}, "rows": "public"})
    model = dpb.Program(write(tmp_path, text), "y ~ 1", {"shift": np.zeros(20)})
    synthesizer = dpb.Synthesizer(where, dpb.Censored(1), model, engine=CandidatesEngine(300))
    records = pd.DataFrame({"y": np.linspace(-2, 2, 20)})
    with pytest.raises(dpb.GuaranteeError, match="'shift' has a value for each record"):
        dpb.Job((synthesizer,), tmp_path / "out", rows=30).run(records)
    fit = synthesizer.fit(records)
    with pytest.raises(dpb.GuaranteeError, match="'shift' has a value for each record"):
        fit.sample(rows=30, seed=1)
    assert len(fit.sample(rows=20, seed=1).datasets[0]) == 20


@pytest.mark.parametrize("mechanism", [dpb.Anchored(1.0, "two-stage"), dpb.Score(1.0)])
def test_other_rows_are_tried_before_anything_is_paid_for(mechanism, tmp_path, ledger):
    """A public table that is long enough for the records, and too short for the release."""
    text = GOOD.replace("  vector[n] y;", "  vector[n] y;\n  int<lower=1> M;\n  vector[M] z;")
    text = text.replace("normal_rng(rep_vector(mu, n), 1)", "normal_rng(mu + z[1:n], 1)")
    column = {"type": "continuous", "lower": -5, "upper": 5}
    where = dpb.Schema.from_dict({"columns": {"y": column}, "rows": 20})
    model = dpb.Program(write(tmp_path, text), "y ~ 1", {"M": 30, "z": np.zeros(30)})
    synthesizer = dpb.Synthesizer(where, mechanism, model)
    records = pd.DataFrame({"y": np.linspace(-2, 2, 20)})
    job = dpb.Job((synthesizer,), tmp_path / "out", rows=40, ledger=ledger, dataset="cps")
    with pytest.raises(dpb.ProgramError, match="y_rep cannot be generated"):
        job.run(records)
    assert ledger.history().empty


TERMS = "to_vector(y) * mu - log1p_exp(rep_vector(mu, n))"
WRONG = {
    "bernoulli_logit_rng(rep_vector(mu, n))": None,
    "bernoulli_logit_rng(rep_vector(mu + 9, n))": None,
    "to_vector(bernoulli_logit_rng(rep_vector(mu, n))) + 1": "is 2, which is none of its levels",
    "to_vector(bernoulli_logit_rng(rep_vector(mu, n))) - 1": "is -1, which is none of its levels",
}


@pytest.mark.parametrize("drawn", WRONG)
def test_draws_that_are_no_levels_are_refused_before_records_are_read(drawn, tmp_path):
    text = GOOD.replace("  vector[n] y;", "  array[n] int<lower=0, upper=1> y;")
    text = text.replace("-0.5 * square(y - mu) - 0.5 * log(2 * pi())", TERMS)
    text = text.replace("normal_rng(rep_vector(mu, n), 1)", f"to_array_1d({drawn})")
    _checked(text, {"type": "binary"}, WRONG[drawn], tmp_path)


SOME = "y_rep[2:n] = to_array_1d(normal_rng(rep_vector(mu, n - 1), 1));"
HUGE = "y_rep = to_array_1d(rep_vector(mu, n) * 1e300 * 1e300);"


@pytest.mark.parametrize(("drawn", "message"), [(SOME, "y_rep of 'y' is no number"), (HUGE, None)])
def test_draws_that_are_no_numbers_are_refused(drawn, message, tmp_path):
    text = GOOD.replace("y_rep = normal_rng(rep_vector(mu, n), 1);", drawn)
    _checked(text, {"type": "continuous", "lower": -9, "upper": 9}, message, tmp_path)


def _checked(text, column, message, tmp_path):
    where = dpb.Schema.from_dict({"columns": {"y": column}, "rows": "public"})
    model = dpb.Program(write(tmp_path, text), "y ~ 1").on(where)
    compiled = get_engine("embedded").compile(model.program)
    if message is None:
        assert check_on_made_up(model, compiled, where, 50, 1).passed
        return
    with pytest.raises(ProgramError, match=message):
        check_on_made_up(model, compiled, where, 50, 1)


@pytest.mark.parametrize("mechanism", [dpb.Censored(5.0), dpb.Score(5.0)])
def test_numbers_that_a_paid_draw_does_not_give_are_said(mechanism, tmp_path):
    """A root of what is negative only near the records: no check on public values can see it."""
    text = GOOD.replace(
        "y_rep = normal_rng(rep_vector(mu, n), 1);", "y_rep = rep_array(sqrt(mu - 1), n);"
    )
    where = dpb.Schema.from_dict(
        {"columns": {"y": {"type": "continuous", "lower": -5, "upper": 5}}, "rows": "public"}
    )
    settings = dpb.SamplerSettings(chains=2, warmup=300, draws=600, seed=1)
    made = dpb.Synthesizer(
        where, mechanism, dpb.Program(write(tmp_path, text), "y ~ 1"), settings=settings,
        allow_unproved=True,
    )  # fmt: skip
    fit = made.fit(pd.DataFrame({"y": np.linspace(-4, 2, 60)}))
    with pytest.warns(UserWarning, match=r"mine\.stan is no number in 60 of 60 rows"):
        fit.sample(datasets=1, seed=1)


PAID_BEFORE = {  # what a fit refuses for public reasons
    "does not compile": ("mu ~ normal(0, 2);", "mu ~ normal(0, 2, 3);"),
    "y_rep of 'y' is no number": (
        "normal_rng(rep_vector(mu, n), 1)",
        "rep_array(not_a_number(), n)",
    ),
    "y_rep cannot be drawn": ("(rep_vector(mu, n), 1)", "(rep_vector(mu, n), -1)"),
    "target has no gradient": ("square(y - mu)", "square(log(y) - mu)"),
    "y = 1, target has no gradient": ("square(y - mu)", "square(log(abs(y - 1)) - mu)"),
}


@pytest.mark.parametrize("message", PAID_BEFORE)
@pytest.mark.parametrize("mechanism", [dpb.Censored(1.0), dpb.Score(1.0)])
def test_a_program_is_checked_before_a_noisy_number_of_rows_is_paid_for(
    mechanism, message, tmp_path
):
    if mechanism.name == "score" and "gradient" in message:
        return  # its scores are clipped where there is none
    text = GOOD.replace(*PAID_BEFORE[message])
    column = {"type": "continuous", "lower": 0, "upper": 5}
    where = dpb.Schema.from_dict({"columns": {"y": column}, "rows": "noisy"})
    synthesizer = dpb.Synthesizer(
        where, mechanism, dpb.Program(write(tmp_path, text), "y ~ 1"), allow_unproved=True
    )
    paid = []
    with pytest.raises(ProgramError, match=message):
        synthesizer.fit(pd.DataFrame({"y": np.linspace(1, 4, 50)}), pay=lambda: paid.append(1))
    assert not paid


EIGHT, THIRTY = ([f"level {k}" for k in range(count)] for count in (8, 30))
ORDERED, NORMAL = (dpb.Regression("y ~ 1", family) for family in ("ordinal", "normal"))
PAIR = GOOD.replace("int<lower=1> n;", "int<lower=2> n;")
FAR_OUT = GOOD.replace("square(y - mu)", "square(log(5 - y) - mu)").replace(
    "normal_rng(rep_vector(mu, n), 1)", "normal_rng(rep_vector(100 + mu, n), 1)"
)
PUBLIC_MISTAKES = {
    "no record that it draws": (dpb.Score(1.0), FAR_OUT, "embedded", None),
    "takes 1 to 5 parameters, the program has 7": (dpb.Anchored(1.0), ORDERED, "candidates", EIGHT),
    "draws from given points": (dpb.Score(1.0), ORDERED, "candidates", EIGHT),
    "the model has 29 parameters": (dpb.Score(1.0), ORDERED, "embedded", THIRTY),
    "does not take one record by itself": (dpb.Score(1.0), PAIR, "embedded", None),
    "the reference fit has another": (
        "anchor",
        dpb.Regression("y ~ 1", "normal"),
        "embedded",
        None,
    ),
    "reference fit has another": ("weights", NORMAL, "embedded", None),
}


@pytest.fixture(params=PUBLIC_MISTAKES)
def mistaken(request, tmp_path):
    """A synthesizer with a mistake that has nothing to do with the records, and its message."""
    mechanism, model, engine, levels = PUBLIC_MISTAKES[request.param]
    number = {"type": "continuous", "lower": -5, "upper": 5}
    column = {"type": "ordinal", "levels": levels} if levels else number
    if isinstance(model, str):
        model = dpb.Program(write(tmp_path, model), "y ~ 1")
    if isinstance(mechanism, str):
        where = dpb.Schema.from_dict({"columns": {"y": column}, "rows": 50})
        other = dpb.Regression("y ~ 1", "normal", priors={"intercept": (0.4, 1)})
        tuned = dpb.Synthesizer(where, dpb.Censored(1.0), other)
        reference = tuned.reference(pd.DataFrame({"y": np.linspace(-2, 2, 50)}))
        mechanism = (
            dpb.Anchored(1.0, anchor=reference)
            if mechanism == "anchor"
            else dpb.CensoredWeighted(1.0, weights=reference)
        )
    where = dpb.Schema.from_dict({"columns": {"y": column}, "rows": "noisy"})
    synthesizer = dpb.Synthesizer(where, mechanism, model, engine=engine, settings=SETTINGS)
    values = np.resize(levels, 200) if levels else np.linspace(-4, 4, 200)
    return synthesizer, pd.DataFrame({"y": values}), request.param


def test_a_public_mistake_is_refused_before_a_noisy_number_of_rows_is_paid_for(mistaken):
    synthesizer, records, message = mistaken
    paid = []
    with pytest.raises(DpbayesError, match=message):
        synthesizer.fit(records, pay=lambda: paid.append(1))
    assert not paid


def test_a_public_mistake_of_one_candidate_is_refused_before_a_choice(mistaken):
    """Whichever is chosen: the choice is not drawn, and has cost nothing."""
    synthesizer, records, message = mistaken
    where = replace(synthesizer.schema, rows=dpb.schema.Rows("declared", 200))
    family = "ordinal_probit" if where.columns["y"].levels else "student_t"
    candidates = [
        dpb.Synthesizer(
            where,
            synthesizer.mechanism,
            model,
            engine=synthesizer.engine,
            settings=SETTINGS,
        )
        for model in (dpb.Regression("y ~ 1", family), synthesizer.model)
    ]
    # A program for two records or more is not proved, which a choice demands.
    with pytest.raises(DpbayesError, match=f"{message}|is not proved"):
        score_programs(candidates, records)


def test_chains_of_scores_begin_inside_the_constraints_of_a_program(tmp_path):
    """A constraint between parameters: half of the points around the mode break it."""
    text = GOOD.replace("real mu;", "real mu;\n  real low;\n  real high;").replace(
        "model {",
        "transformed parameters {\n  real<lower=0.1> gap = high - low;\n}\nmodel {\n"
        "  low ~ normal(0, 1); high ~ normal(0, 1);",
        1,
    )
    where = dpb.Schema.from_dict(
        {"columns": {"y": {"type": "continuous", "lower": -5, "upper": 5}}, "rows": "public"}
    )
    model = dpb.Program(write(tmp_path, text), "y ~ 1")
    synthesizer = dpb.Synthesizer(where, dpb.Score(3.0), model, settings=SETTINGS)
    records = pd.DataFrame({"y": np.random.default_rng(1).normal(1, 1, 100).clip(-5, 5)})
    fit = synthesizer.fit(records, allow_nonconvergence=True)
    for seed in range(3):
        draws = fit.sample(1, seed=seed).posterior["posterior"]
        assert float((draws["high"] - draws["low"]).min()) > 0.1


def test_a_program_that_declares_the_bounds_of_its_outcome_has_scores(tmp_path):
    """Simulated records are clipped as released ones are: those beyond the bounds were refused."""
    text = GOOD.replace("  vector[n] y;", "  vector<lower=0, upper=5>[n] y;")
    column = {"type": "continuous", "lower": 0, "upper": 5}
    where = dpb.Schema.from_dict({"columns": {"y": column}, "rows": "public"})
    model = dpb.Program(write(tmp_path, text), "y ~ 1")
    synthesizer = dpb.Synthesizer(where, dpb.Score(3.0), model, settings=SETTINGS)
    records = pd.DataFrame({"y": np.random.default_rng(1).normal(4.5, 1, 300).clip(0, 5)})
    release = synthesizer.fit(records, allow_nonconvergence=True).sample(1, seed=1)
    assert abs(release.datasets[0]["y"].mean() - records["y"].mean()) < 0.5


def test_a_search_for_a_mode_begins_where_there_is_a_density(tmp_path):
    """At the origin a transformed parameter is outside of its bounds."""
    text = GOOD.replace("model {", "transformed parameters { real<lower=1> far = mu; }\nmodel {")
    where = dpb.Schema.from_dict(
        {"columns": {"y": {"type": "continuous", "lower": -9, "upper": 9}}, "rows": "public"}
    )
    model = dpb.Program(write(tmp_path, text), "y ~ 1").on(where)
    data = model.data(where.validate(pd.DataFrame({"y": np.full(50, 3.0)})), 50)
    compiled = get_engine("embedded").compile(model.program)
    bound = compiled.bind({**data, **contract_defaults(50)}).density_model()
    found = bound.constrain(bound.mode()[None, None])
    assert found["mu"].item() == pytest.approx(3 * 50 / (50 + 1 / 4), rel=1e-3)


@pytest.mark.parametrize("n", [29, 30, 31])
def test_a_constant_as_long_as_the_table_is_not_of_its_rows(n, tmp_path):
    text = GOOD.replace("vector[n] y;", "vector[n] y;\n  vector[30] h;")
    text = text.replace("mu ~ normal(0, 2)", "mu ~ normal(mean(h), 2)")
    where = dpb.Schema.from_dict(
        {"columns": {"y": {"type": "continuous", "lower": -9, "upper": 9}}, "rows": "public"}
    )
    model = dpb.Program(write(tmp_path, text), "y ~ 1", {"h": np.arange(30.0)}).on(where)
    assert model.constants_at(np.arange(n), n) == {}


def test_a_sequence_keeps_the_constants_of_its_rows(tmp_path):
    """Beside a family, too: its priors may have any length."""
    text = GOOD.replace("vector[n] y;", "vector[n] y;\n  vector[n] shift;")
    text = text.replace("y - mu", "y - mu - shift").replace("rep_vector(mu, n)", "mu + shift")
    columns = {"y": {"type": "continuous", "lower": -5, "upper": 5}, "ill": {"type": "binary"}}
    where = dpb.Schema.from_dict({"columns": columns, "rows": "public"})
    own = dpb.Program(write(tmp_path, text), "y ~ 1", {"shift": np.linspace(0, 1, 40)})
    model = dpb.Sequence([own, dpb.Regression("ill ~ 1", "bernoulli")])
    synthesizer = dpb.Synthesizer(where, dpb.Censored(1.0), model, settings=SETTINGS)
    rng = np.random.default_rng(1)
    records = pd.DataFrame({"y": rng.normal(0, 1, 40), "ill": rng.integers(2, size=40)})
    fit = synthesizer.fit(records, allow_nonconvergence=True)
    assert len(fit.sample(1, seed=1).datasets[0]) == 40
    with pytest.raises(dpb.GuaranteeError, match="has a value for each record"):
        fit.sample(1, rows=30, seed=1)
