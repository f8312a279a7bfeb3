"""The contract by behaviour, on the embedded engine: right programs pass, wrong ones do not."""

import numpy as np
import pytest

import dpbayes as dpb
from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.stan.families import FAMILIES
from tests.programs import GOOD, OUTCOME, write

DATA = {"n": 20, "y": np.random.default_rng(3).normal(size=20)}


def check(program, data=DATA, **options):
    return dpb.check_contract(program, EmbeddedEngine().compile(program), data, **options)


def test_a_good_program_passes(tmp_path):
    report = check(dpb.StanProgram.from_file(write(tmp_path, GOOD)))
    assert report.private == ("y",)
    assert report.points == 5
    assert report.not_checked


@pytest.mark.parametrize("formula", ["{} ~ 1", "{} ~ age + sex + (1 | region)"])
@pytest.mark.parametrize("family", FAMILIES)
def test_bundled_programs_keep_the_contract(family, formula, schema, records):
    formula = formula.format(OUTCOME[family])
    model = dpb.Regression(formula, family).on(schema)
    _, data = model.data(schema.validate(records), len(records))
    assert check(model.program, data).private == ("y",)


CALL = "target += pseudo_log_lik(log_lik_i, weights, anchor, clip_lower, clip_upper);"
WRONG = {
    "weights ignored": (
        CALL,
        CALL.replace("weights", "rep_vector(1, n)"),
        r"target moves by|weights are ignored",
    ),
    "anchor ignored": (CALL, CALL.replace("anchor", "rep_vector(0, n)"), "anchor is ignored"),
    "clamp ignored": (
        CALL,
        CALL.replace("clip_lower, clip_upper", "negative_infinity(), positive_infinity()"),
        "clamp is ignored",
    ),
    "likelihood outside the clamp": (
        CALL,
        CALL + "\n  y ~ normal(mu, 1);",
        r"(?s)still depends on the confidential 'y'.*Remove line 21.*\n  y ~ normal\(mu, 1\);",
    ),
    "likelihood twice": (
        CALL,
        CALL + "\n  target += sum(weights .* log_lik_i);",
        r"(?s)target moves by.*Line 20:\n  target \+= pseudo_log_lik",
    ),
    "constant dropped in target": (
        "log_lik_i = -0.5 * square(y - mu) - 0.5 * log(2 * pi())",
        "log_lik_i = -0.5 * square(y - mu)",
        "dropped constants",
    ),
    "prior from the data": (
        "mu ~ normal(0, 2);",
        "mu ~ normal(mean(y), 2);",
        r"(?s)still depends.*Remove line 17.*mu ~ normal\(mean\(y\), 2\);",
    ),
    "centred by the data": (
        "square(y - mu)",
        "square(y - mean(y) - mu)",
        "of one record moves other records' log_lik",
    ),
    "weighted log_lik emitted": (
        "    log_lik = -0.5 * square(y - mu) - 0.5 * log(2 * pi());",
        "    log_lik = weights .* (-0.5 * square(y - mu) - 0.5 * log(2 * pi()));",
        "target moves by|log_lik changes",
    ),
    "log_lik of other length": (
        "vector[emit ? n : 0] log_lik;",
        "vector[emit ? n - 1 : 0] log_lik;",
        "log_lik has 19 entries for 20 records",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_refused_by_behaviour(name, tmp_path):
    old, new, message = WRONG[name]
    assert old in GOOD
    text = GOOD.replace(old, new)
    if name == "log_lik of other length":
        text = text.replace(
            "    log_lik = -0.5 * square(y - mu)", "    log_lik = -0.5 * square(y[1:(n-1)] - mu)"
        )
    with pytest.raises(dpb.ProgramError, match=message):
        check(dpb.StanProgram.from_file(write(tmp_path, text)))


def test_data_that_cannot_show_it(tmp_path):
    program = dpb.StanProgram.from_file(write(tmp_path, GOOD))
    with pytest.raises(dpb.DataError, match="is constant"):
        check(program, {"n": 20, "y": np.ones(20)})
    with pytest.raises(dpb.DataError, match="no entry 'n'"):
        check(program, {"y": np.ones(20)})
    with pytest.raises(dpb.DataError, match="'z' is not in the data"):
        check(program, private=["z"])


def test_missing_data_is_named(tmp_path):
    text = GOOD.replace("vector[n] y;", "vector[n] y;\n  real scale;")
    program = dpb.StanProgram.from_file(write(tmp_path, text))
    with pytest.raises(dpb.ProgramError, match="declares data 'scale', which was not given"):
        check(program)
