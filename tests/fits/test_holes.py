"""Holes that an attack found, closed. Each of these tests failed before."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.core.errors import EngineError, GuaranteeError
from dpbayes.engines.candidates import LOWEST, UNIT, CandidatesEngine
from dpbayes.mechanisms.posterior import made_up as checks
from dpbayes.mechanisms.posterior import records as bound
from dpbayes.mechanisms.posterior.records import BoundRecords, bind_stage
from dpbayes.mechanisms.posterior.stage import Stage
from dpbayes.publication.ledger import Ledger
from dpbayes.stan.families import FAMILIES
from dpbayes.synthesis.choice import score_programs
from tests.cmdstan import NEEDS_CMDSTAN
from tests.programs import BLOCKS, GOOD, write

ILL = {"type": "binary", "levels": ["no", "yes"]}
PAY = {"type": "continuous", "lower": 0, "upper": 1}
SHORT = dpb.SamplerSettings(chains=2, warmup=100, draws=100)


def schema(rows, **columns):
    return dpb.Schema.from_dict({"rows": rows, "columns": columns})


@pytest.fixture
def ledger(tmp_path):
    made = Ledger.create(str(tmp_path / "ledger.db"))
    made.add_dataset("a", 10.0)
    return made


def states(ledger):
    return list(ledger.history()["state"])


def test_a_refit_has_a_noisy_number_of_its_own():
    """Otherwise it would tell a number that another mechanism's larger epsilon paid for."""
    made = dpb.Synthesizer(schema({"noisy": 0.5}, ill=ILL), dpb.Laplace(50.0))
    fit = made.fit(pd.DataFrame({"ill": ["no", "yes"] * 500}))
    # By chance they agree at most once in 400.
    assert fit.task.rows == 1000
    numbers = {made.with_mechanism(dpb.Laplace(0.01)).refit(fit).task.rows for _ in range(8)}
    assert len(numbers) > 1


@pytest.mark.parametrize("rows", ["public", 20, "noisy"])
def test_no_constant_tells_a_private_number_of_records(rows, tmp_path):
    """Twenty numbers for twenty records: with one more there would be no release."""
    text = GOOD.replace("  vector[n] y;", "  vector[n] y;\n  vector[n] shift;")
    path = write(tmp_path, text.replace("square(y - mu)", "square(y - mu - shift)"))
    model = dpb.Program(path, "pay ~ 1", constants={"shift": [0.1] * 20})
    if rows == "public":
        dpb.Synthesizer(schema(rows, pay=PAY), dpb.Censored(1.0), model)
        return
    with pytest.raises(dpb.ProgramError, match="'shift' follows the number of records"):
        dpb.Synthesizer(schema(rows, pay=PAY), dpb.Censored(1.0), model)


@pytest.mark.parametrize("far", [-1e12, -1e300, 1e12])
def test_no_prior_density_overflows(far):
    """Sums of whole numbers would wrap around, and one record decide where."""
    made = dpb.Synthesizer(
        schema(10, pay=PAY), dpb.Censored(1.0), dpb.Regression("pay ~ 1", "normal"),
        engine=CandidatesEngine(50),
    )  # fmt: skip
    found = []
    for values in ([0.5] * 9, [0.5] * 9 + [1.0]):
        on = BoundRecords(made.task(pd.DataFrame({"pay": values})))
        stage = bind_stage(on, Stage(window=(-0.5, 0.5)))
        stage.candidates.log_prior[7] = far
        weight = stage.bound.among(stage.candidates).choices.log_weight
        found.append(weight - np.logaddexp.reduce(weight))
        assert weight.min() >= LOWEST
    assert np.abs(found[0] - found[1]).max() <= 1 + 1e-9


def test_windows_far_away_cost_no_more():
    """Terms are counted from the lower end."""
    made = dpb.Synthesizer(
        schema(10, pay=PAY), dpb.Censored(1.0), dpb.Regression("pay ~ 1", "beta"),
        engine=CandidatesEngine(50),
    )  # fmt: skip
    on = BoundRecords(made.task(pd.DataFrame({"pay": [0.5] * 9})))
    for low in (-1e6, 999_999.0):
        stage = bind_stage(on, Stage(window=(low, low + 1)))
        assert np.ptp(stage.bound._sums(stage.candidates.points, low, low + 1)) == 0
        assert stage.bound._sums(stage.candidates.points, low, low + 1).max() <= 9 / UNIT
    with pytest.raises(dpb.GuaranteeError, match="lies beyond"):
        dpb.Censored(1.0, window=(2e6, 2e6 + 1)).stages(on.problem())


def test_ordered_parameters_that_are_all_but_equal():
    """Levels that nobody has: some points have no way back to their coordinates."""
    health = {"type": "ordinal", "levels": list("abcd")}
    made = dpb.Synthesizer(
        schema("public", y=health), dpb.Anchored(50.0), dpb.Regression("y ~ 1", "ordinal"),
        engine=CandidatesEngine(2000),
    )  # fmt: skip
    records = pd.DataFrame({"y": ["a", "d"] * 100})
    for _ in range(3):
        release = made.fit(records).sample()
        assert len(release.datasets[0]) == 200
        assert set(release.versions) == {"dpbayes", "stanli", "opendp"}


def test_the_record_that_stands_for_none_counts_nothing():
    """Also where its log-likelihood is not defined and would count as the lower end."""
    made = dpb.Synthesizer(
        schema(10, pay=PAY), dpb.Censored(1.0), dpb.Regression("pay ~ 1", "beta")
    )
    on = BoundRecords(made.task(pd.DataFrame({"pay": []})))
    stage = bind_stage(on, Stage(window=(-0.5, 0.5)))
    assert (stage.changes["clip_lower"], stage.changes["clip_upper"]) == (0.0, 0.0)


def test_a_program_is_checked_once_for_the_same_public_facts(tmp_path, monkeypatch):
    """A rehearsal has those of the fit; another public number of rows is checked anew."""
    asked, check = [], bound.check_on_made_up

    def count(model, compiled, schema, rows, threads, **how):
        asked.append(rows)
        check(model, compiled, schema, rows, threads, **how)

    monkeypatch.setattr(bound, "check_on_made_up", count)
    model = dpb.Program(write(tmp_path, GOOD), "pay ~ 1")
    made = dpb.Synthesizer(schema(1000, pay=PAY), dpb.Censored(1.0), model)
    for n in (9, 12):
        task = made.task(pd.DataFrame({"pay": [0.5] * n}))
        BoundRecords(task)
    assert asked == [1000]
    BoundRecords(replace(task, rows=2000))
    assert asked == [1000, 2000]


def test_a_study_seed_is_no_secret_seed(tmp_path):
    made = dpb.Synthesizer(
        schema(30, pay=PAY), dpb.Censored(1.0), dpb.Regression("pay ~ 1", "beta"), settings=SHORT
    )
    records = pd.DataFrame({"pay": np.linspace(0.1, 0.9, 30)})
    seeded = made.with_settings(dpb.SamplerSettings(chains=2, warmup=100, draws=100, seed=1))
    for synthesizer in (seeded, made):
        fit = synthesizer.fit(records, allow_nonconvergence=True, checkpoint=tmp_path / "chains")
    assert fit.task.entropy > 2**64
    assert fit.checkpoint.reused == 0
    assert "with other seed were" in fit.checkpoint.set_aside


@pytest.mark.parametrize("level", ["", "nan", "NaN"])
def test_levels_that_files_cannot_hold(level):
    with pytest.raises(dpb.SchemaError, match="read back as missing values"):
        schema(10, x={"type": "categorical", "levels": ["a", level]})


def test_the_support_is_open_where_numbers_are_coarse():
    column = dpb.Column("x", "continuous", lower=2.0**52, upper=2.0**52 + 100)
    low, high = FAMILIES["beta"].support(column)
    assert column.lower < low < high < column.upper


def test_rows_of_an_urn_are_checked_before_anything_is_drawn(ledger, tmp_path):
    """Whether there are enough would tell a noisy number, time and again for nothing."""
    made = dpb.Synthesizer(schema("noisy", ill=ILL), dpb.BetaBinomial(1.0))
    fit = made.fit(pd.DataFrame({"ill": ["no", "yes"] * 50}))
    for rows in (3, 10_000):
        with pytest.raises(dpb.GuaranteeError, match="their number is noisy") as refused:
            dpb.publish(fit, tmp_path / "out", rows=rows, ledger=ledger, dataset="a")
        assert str(fit.task.rows) not in str(refused.value).replace(str(rows), "")
    assert states(ledger) == []


def test_what_fails_after_a_private_draw_is_paid_for(ledger, tmp_path, monkeypatch):
    """Otherwise a draw could be thrown away for nothing until it is liked."""
    made = dpb.Synthesizer(
        schema(30, ill=ILL), dpb.Anchored(1.0), dpb.Regression("ill ~ 1", "bernoulli"),
        engine=CandidatesEngine(100),
    )  # fmt: skip
    fit = made.fit(pd.DataFrame({"ill": ["no", "yes"] * 15}))

    def fails(self, draws, index, seed):
        raise EngineError("mine.stan cannot generate records at the draw that was chosen.")

    monkeypatch.setattr("dpbayes.engines.candidates.CandidatesBinding.y_rep", fails)
    with pytest.raises(EngineError):
        dpb.publish(fit, tmp_path / "out", ledger=ledger, dataset="a", say=lambda _: None)
    assert states(ledger) == ["lost"]
    assert ledger.account("a").spent[0] == 1.0


def test_errors_of_a_generator_do_not_name_the_draw(tmp_path):
    """Stan's generator stops at means above exp(20.79): here at about half of the draws."""
    text = GOOD.replace(
        "normal_rng(rep_vector(mu, n), 1)", "poisson_log_rng(rep_vector(20.8 + mu, n))"
    )
    made = dpb.Synthesizer(
        schema(20, y={"type": "continuous", "lower": -10.0, "upper": 10.0}),
        dpb.Anchored(1.0),
        dpb.Program(write(tmp_path, text), "y ~ 1"),
        engine=CandidatesEngine(100),
    )
    fit = made.fit(pd.DataFrame({"y": np.linspace(-1, 1, 20)}))
    said = []
    for _ in range(20):
        try:
            fit.sample()
        except EngineError as error:
            said.append(str(error))
    assert set(said) <= {
        f"{made.model.program.name}.stan cannot generate records at the draw that was chosen."
    }
    assert said


def test_nobody_is_taken_for_an_empty_table(ledger, tmp_path):
    """Two tables without records are not the same persons."""
    ledger.add_dataset("b", 10.0)
    made = dpb.Synthesizer(schema(10, ill=ILL), dpb.Laplace(1.0))
    for name in "ab":
        fit = made.fit(pd.DataFrame({"ill": []}))
        dpb.publish(fit, tmp_path / name, ledger=ledger, dataset=name, say=lambda _: None)
    assert states(ledger) == ["released", "released"]


def test_a_choice_among_families_goes_with_candidates():
    made = [
        dpb.Synthesizer(
            schema(50, pay=PAY), dpb.Anchored(1.0), dpb.Regression("pay ~ 1", family),
            engine="candidates",
        )
        for family in ("beta", "normal")
    ]  # fmt: skip
    assert len(score_programs(made, pd.DataFrame({"pay": np.linspace(0.1, 0.9, 50)}))) == 2


def test_a_users_program_is_checked_on_made_up_records(tmp_path, monkeypatch):
    """What the confidential ones are decides nothing: constant, few, none."""
    program = dpb.Program(write(tmp_path, GOOD), "pay ~ 1")
    given = []
    check = checks.check_contract

    def checked(program, model, data, **options):
        given.append(np.asarray(data["y"]).tolist())
        return check(program, model, data, **options)

    monkeypatch.setattr(checks, "check_contract", checked)
    for values in ([], [0.5], [0.5] * 9):
        made = dpb.Synthesizer(schema(30, pay=PAY), dpb.Censored(1.0), program)
        BoundRecords(made.task(pd.DataFrame({"pay": values})))
    assert len(given) == 3
    assert given[0] == given[1] == given[2]


@pytest.mark.parametrize(
    "mechanism", [dpb.Unweighted(), dpb.Weighted(), dpb.CensoredWeighted(1.0)], ids=lambda m: m.name
)
def test_weights_and_no_weights_go_with_candidates(mechanism):
    """The unweighted fit, by which risk is measured, is one of chains under this engine too."""
    made = dpb.Synthesizer(
        schema("public", pay=PAY), mechanism, dpb.Regression("pay ~ 1", "beta"),
        engine=CandidatesEngine(200),
    )  # fmt: skip
    fit = made.fit(pd.DataFrame({"pay": np.linspace(0.1, 0.9, 60)}))
    assert fit.fitted.unweighted.choices is None or mechanism.name == "unweighted"
    assert np.isfinite(fit.findings().by_record["lipschitz_unweighted"]).all()
    assert len(fit.sample(accept="none").datasets[0]) == 60


ENGINES = [
    "embedded",
    "candidates",
    pytest.param("cmdstan", marks=NEEDS_CMDSTAN),
]


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_released_is_generated_from_public_constants(engine, tmp_path, monkeypatch):
    """A program that releases its records, let through all checks, has none to release."""
    monkeypatch.setattr("dpbayes.stan.model.refuse_broken", lambda *_: None)
    monkeypatch.setattr(checks, "check_contract", lambda *_, **__: None)
    copies = GOOD.replace("normal_rng(rep_vector(mu, n), 1)", "to_array_1d(y)")
    made = dpb.Synthesizer(
        schema(30, pay=PAY), dpb.Censored(1.0), dpb.Program(write(tmp_path, copies), "pay ~ 1"),
        engine=engine, settings=SHORT, allow_unproved=True,
    )  # fmt: skip
    fit = made.fit(pd.DataFrame({"pay": np.linspace(0.6, 0.9, 30)}), allow_nonconvergence=True)
    assert (fit.sample().datasets[0]["pay"] == 0.5).all()  # the middle of the declared domain


def test_candidates_are_those_of_public_constants():
    made = dpb.Synthesizer(
        schema(30, pay=PAY), dpb.Censored(1.0), dpb.Regression("pay ~ 1", "beta"),
        engine=CandidatesEngine(200),
    )  # fmt: skip
    points = [
        bind_stage(BoundRecords(made.task(pd.DataFrame({"pay": values}))), Stage()).candidates
        for values in (np.linspace(0.1, 0.2, 30), np.linspace(0.6, 0.9, 7))
    ]
    np.testing.assert_array_equal(points[0].points, points[1].points)
    np.testing.assert_array_equal(points[0].log_proposal, points[1].log_proposal)


def test_an_anchor_is_not_refused_by_what_records_say(monkeypatch):
    """Whether a drawn anchor is of use to these records decides nothing."""
    made = dpb.Synthesizer(
        schema(9, pay=PAY), dpb.Censored(1.0), dpb.Regression("pay ~ 1", "beta"),
    )  # fmt: skip
    on = BoundRecords(made.task(pd.DataFrame({"pay": np.linspace(0.1, 0.9, 9)})))
    drawn = on.blank.random_points(1, 1)
    monkeypatch.setattr(BoundRecords, "log_lik", lambda *_: iter([np.full(9, np.nan)]))
    stage = bind_stage(on, Stage(anchor="draw", window=(-0.5, 0.5)), drawn)
    assert (stage.anchor == 0).all()


def test_a_model_of_public_rows_is_no_model_of_private_ones(tmp_path):
    """Constants with a value for each row would tell n, by whether there is a release."""
    text = GOOD.replace("vector[n] y;", "vector[n] y;\n  vector[n] shift;")
    text = text.replace("y - mu", "y - shift - mu")
    choice = dpb.Program(write(tmp_path, text), "pay ~ 1", {"shift": np.zeros(50)})
    public = schema("public", pay=PAY)
    model = choice.on(public)
    dpb.Synthesizer(public, dpb.Censored(1.0), model)
    with pytest.raises(GuaranteeError, match="made for a public number of records"):
        dpb.Synthesizer(schema(50, pay=PAY), dpb.Censored(1.0), model)


def test_rows_that_are_asked_for_are_not_the_number_that_a_program_reads(tmp_path):
    text = GOOD.replace("int<lower=1> n;", "int<lower=1> n;\n  int<lower=1> rows;")
    text = text.replace("real mu;", "real total;").replace(
        "mu ~ normal(0, 2);", "total ~ normal(0, 400);"
    )
    text = text.replace(
        "model {", "transformed parameters {\n  real mu = total / rows;\n}\nmodel {"
    )
    made = dpb.Synthesizer(
        schema(200, pay={**PAY, "lower": -10, "upper": 10}), dpb.Unweighted(),
        dpb.Program(write(tmp_path, text), "pay ~ 1"), settings=SHORT,
    )  # fmt: skip
    records = pd.DataFrame({"pay": np.random.default_rng(1).normal(5, 1, 200)})
    fit = made.fit(records, allow_nonconvergence=True)
    release = fit.sample(1, rows=2000, accept="none", seed=1)
    assert abs(release.datasets[0]["pay"].mean() - 5) < 0.6  # it was .5: eight errors of a mean


@pytest.mark.parametrize("mechanism", [dpb.Score(4.0), dpb.Censored(4.0)])
def test_what_needs_no_gradient_takes_a_program_without_one(mechanism, tmp_path):
    text = GOOD.replace("y - mu", "log(y) - mu").replace("log(2 * pi())", "log(2 * pi()) - log(y)")
    made = dpb.Synthesizer(
        schema(60, pay=PAY), mechanism,
        dpb.Program(write(tmp_path, text), "pay ~ 1"), settings=SHORT,
    )  # fmt: skip
    records = pd.DataFrame({"pay": np.random.default_rng(1).uniform(0.1, 0.9, 60)})
    if mechanism.name == "score":
        made.fit(records, allow_nonconvergence=True)
        return
    with pytest.raises(dpb.ProgramError, match="no gradient"):
        made.fit(records)
    made.with_engine(CandidatesEngine(100)).fit(records)


def test_a_fit_with_another_anchor_shares_no_randomness_with_the_one_before(tmp_path):
    """Chains of one seed under anchors of two tables were correlated with 1.000, draw by draw."""
    made = dpb.Synthesizer(
        schema(1000, pay=PAY),
        dpb.Anchored(1.0, anchor="histogram"),
        dpb.Program(write(tmp_path, GOOD), "pay ~ 1"),
        settings=SHORT,
    )
    records = pd.DataFrame({"pay": np.random.default_rng(0).uniform(0, 1, 1000)})
    draws = []
    for _ in range(3):
        fit = made.fit(records, allow_nonconvergence=True, checkpoint=tmp_path / "chains")
        assert fit.checkpoint.reused == 0
        draws.append(fit.fitted.draws["posterior"]["mu"].to_numpy().ravel())
    correlated = np.corrcoef(draws)[np.triu_indices(3, 1)]
    assert np.abs(correlated).max() < 0.5  # of 200 draws with a third of that in effect: 4 sds


def test_a_program_whose_blocks_differ_gets_one_thread(tmp_path):
    """The embedded engine does not compare its draws with one thread, as CmdStan's are."""
    text = BLOCKS.replace("linspaced_int_array(n, 1, n), 4000", "linspaced_int_array(n, 1, n), 10")
    wrong = text.replace(
        "return pseudo_log_lik(", "if (first > 1) log_lik_i += 5 * mu;\n    return pseudo_log_lik("
    )
    assert wrong.count("5 * mu") == 1
    made = dpb.Synthesizer(
        schema(60, pay=PAY),
        dpb.Censored(1.0),
        dpb.Program(write(tmp_path, wrong), "pay ~ 1"),
        settings=dpb.SamplerSettings(chains=2, warmup=100, draws=100, seed=1, threads_per_chain=2),
        allow_unproved=True,
    )
    records = pd.DataFrame({"pay": np.linspace(0.1, 0.9, 60)})
    fitted = made.fit(records, allow_nonconvergence=True).fitted
    bound, draws = fitted.posteriors[-1].bound_stage.bound, fitted.draws
    moved = draws["sample_stats"]["lp"].to_numpy().ravel() - np.ravel(bound.log_prob(draws))
    assert np.ptp(moved) < 1e-9
