"""A density counts as evaluated for all records only where it shows that arguments are right."""

import re

import numpy as np
import pytest

from dpbayes.engines.contract import contract_defaults
from dpbayes.engines.draws import make_draws
from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.stan.dataflow import prove
from dpbayes.stan.failures import IN_PLACE_OF
from dpbayes.stan.program import StanProgram
from tests.programs import GOOD, write

TERM = "-0.5 * square(y[i] - mu) - 0.5 * log(2 * pi())"
FUNCTIONS = """
  real ignored(real density) { return 0; }
  real unused(real mu, real y) { real z = normal_lpdf(1 | 0, mu); return y; }
  real half(real y, real mu) {
    if (y > 0.5) return normal_lpdf(y | 0, exp(mu));
    else return normal_lcdf(0.5 | 0, exp(mu));
  }
"""
WHOLE = "-0.5 * square(y - mu) - 0.5 * log(2 * pi())"
HALF = "if (y[i] > 0.5)"


def program(tmp_path, body):
    """``GOOD`` with its terms made record by record; TERM stands for a record's."""
    text = GOOD.replace(
        f"  vector[n] log_lik_i = {WHOLE};",
        f"  vector[n] log_lik_i;\n  for (i in 1:n) {{ {body.replace('TERM', 'log_lik_i[i]')} }}",
    ).replace(
        f"    log_lik = {WHOLE};", f"    for (i in 1:n) {{ {body.replace('TERM', 'log_lik[i]')} }}"
    )
    assert text.count("for (i in") == 2
    text = re.sub(r"functions \{", lambda start: start[0] + FUNCTIONS, text, count=1)
    assert "real ignored" in text
    return StanProgram.from_file(write(tmp_path, text))


LEAKS = {
    # Of the two branches one looks at mu, which may leave the support, and the other does not.
    "another outcome in the other branch": f"TERM = {TERM} + (y[i] > 0.5 ? "
    "0 * lognormal_lpdf(mu | 0.0, 1.0) : 0 * lognormal_lpdf(1 | 0.0, 1.0));",
    "another outcome before": "real z = lognormal_lpdf(1 | 0.0, 1.0); "
    f"TERM = {TERM} + 0 * z; {HALF} TERM += 0 * lognormal_lpdf(mu | 0.0, 1.0);",
    # Of no outcome some densities do not look at their arguments.
    "no outcome before": "real z = beta_lpdf(rep_vector(0, 0) | mu, 1); "
    f"TERM = {TERM} + z; {HALF} TERM += 0 * beta_lpdf(0.7 | mu, 1);",
    "no outcome, cauchy": "real z = cauchy_lpdf(rep_vector(0, 0) | 0, mu); "
    f"TERM = {TERM} + z; {HALF} TERM += 0 * cauchy_lpdf(0.7 | 0, mu);",
    # An engine leaves out what nobody uses: in one branch, or where both are not taken.
    "unused in the other branch": f"{HALF} TERM = normal_lpdf(y[i] | 0, mu); "
    f"else {{ real z = normal_lpdf(1 | 0, mu); TERM = {TERM}; }}",
    "unused before": f"real z = normal_lpdf(1 | 0, mu); TERM = {TERM}; "
    f"{HALF} TERM += 0 * normal_lpdf(0.7 | 0, mu);",
    "replaced in the other branch": f"real z; {HALF} z = normal_lpdf(y[i] | 0, mu); "
    f"else {{ z = normal_lpdf(1 | 0, mu); z = {TERM}; }} TERM = z;",
    "replaced where the branch is taken": f"real z = normal_lpdf(1 | 0, mu); {HALF} "
    f"z = normal_lpdf(0.7 | 0, mu); else z = {TERM}; TERM = z;",
    "replaced before": "real z = normal_lpdf(1 | 0, mu); z = 0; "
    f"{HALF} z += normal_lpdf(0.7 | 0, mu); TERM = {TERM} + z;",
    "an entry of what nobody uses": f"{HALF} TERM = normal_lpdf(y[i] | 0, mu); "
    f"else {{ vector[2] z; z[1] = normal_lpdf(1 | 0, mu); TERM = {TERM}; }}",
    "of nothing in the other branch": f"vector[0] e; {HALF} TERM = 0 * beta_lpdf(0.7 | mu, 1.0); "
    "else TERM = beta_lpdf(e | mu, 1.0);",
    "of nothing in the other value": f"vector[0] e; TERM = {TERM} + (y[i] > 0.5 ? "
    "0 * cauchy_lpdf(0.7 | 0.0, mu) : cauchy_lpdf(e | 0.0, mu));",
    "used by one branch alone": f"real z; {HALF} {{ z = normal_lpdf(0.7 | 0, mu); "
    f"TERM = {TERM} + 0 * z; }} else {{ z = normal_lpdf(0.5 | 0, mu); TERM = {TERM}; }}",
    "left early": f"real z; {HALF} {{ z = normal_lpdf(y[i] | 0, mu); TERM = 0; continue; }} "
    "else z = normal_lpdf(y[i] | 0, mu); TERM = z;",
    "given to a function that does not look": f"{HALF} TERM = normal_lpdf(y[i] | 0, mu); "
    "else TERM = ignored(normal_lpdf(1 | 0, mu));",
    "given to such a function before": f"TERM = {TERM} + ignored(normal_lpdf(1 | 0, mu)); "
    f"{HALF} TERM += 0 * normal_lpdf(0.7 | 0, mu);",
    "unused in a function": f"{HALF} TERM = normal_lpdf(y[i] | 0, mu); "
    "else TERM = unused(mu, y[i]);",
    "asked for only": f"{HALF} TERM = normal_lpdf(y[i] | 0, mu); "
    f"else {{ if (normal_lpdf(1 | 0, mu) > 0) {{ }} TERM = {TERM}; }}",
}
HONEST = {
    "in both branches": f"{HALF} TERM = normal_lpdf(y[i] | 0, exp(mu)); "
    "else TERM = normal_lpdf(y[i] | 0, exp(mu));",
    "in both branches, in a variable": f"real z; {HALF} z = normal_lpdf(y[i] | 0, exp(mu)); "
    "else z = normal_lpdf(0.5 | 0, exp(mu)); TERM = z;",
    "in a function": "TERM = half(y[i], mu);",
    "in both values": "TERM = y[i] > 0.5 ? normal_lpdf(y[i] | 0, exp(mu)) : "
    "normal_lcdf(0.5 | 0, exp(mu));",
    "in three branches": f"{HALF} TERM = normal_lpdf(y[i] | 0, exp(mu)); else if (y[i] > 0.2) "
    "{ real z = normal_lcdf(0.5 | 0, exp(mu)); TERM = z + normal_lpdf(y[i] | 0, exp(mu)); } "
    "else TERM = normal_lcdf(0.2 | 0, exp(mu));",
}


@pytest.mark.parametrize("name", LEAKS)
def test_leaks_are_not_proved(tmp_path, name):
    proof = prove(program(tmp_path, LEAKS[name]))
    assert not proof.proved
    assert any("is evaluated depends on records" in str(finding) for finding in proof.findings)


@pytest.mark.parametrize("name", HONEST)
def test_honest_programs_are(tmp_path, name):
    assert prove(program(tmp_path, HONEST[name])).proved


def test_covariates_under_another_length_have_no_number_for_added_records(tmp_path):
    """Their mean moves with a record as much as that of ``matrix[n, K] X``."""
    for length, added in (("rows", False), ("n", False)):
        text = GOOD.replace(
            "  vector[n] y;",
            f"  vector[n] y;\n  int<lower=0> rows;\n  int<lower=0> K;\n  matrix[{length}, K] X;",
        ).replace("mu ~ normal(0, 2);", "real m = mean(X[, 1]);\n  mu ~ normal(m, 2);")
        proof = prove(StanProgram.from_file(write(tmp_path, text)))
        assert (not proof.added) == added


PLACES = {"p": "inv_logit(mu)", "f": "y[i] * mu", "g": "mu", "x": "y[i] * mu",
          "a": "exp(y[i] + mu)", "b": "0.5 * exp(mu)", "n": "y[i] * mu", "k": "mu"}  # fmt: skip
AS_CALLED = {"log_mix": "p, f, g", "lbeta": "a, b", "lchoose": "n, k", "log_inv_logit_diff": "a, b"}


def filled(text):
    return re.sub(r"\b[pfgxabnk]\b", lambda name: f"({PLACES[name[0]]})", text)


@pytest.mark.parametrize("name", IN_PLACE_OF)
def test_what_a_message_says_to_write_is_proved_and_is_the_same(tmp_path, name):
    call = f"TERM = {name}({filled(AS_CALLED.get(name, 'x'))});"
    proof = prove(program(tmp_path, call))
    assert any(f"(write {IN_PLACE_OF[name]})" in finding.message for finding in proof.findings)
    instead = program(tmp_path, f"TERM = {filled(IN_PLACE_OF[name])};")
    assert prove(instead).proved
    difference = f"{call} TERM -= {filled(IN_PLACE_OF[name])};"
    y = np.array([0.2, 0.5, 0.7])
    bound = EmbeddedEngine().compile(program(tmp_path, difference))
    bound = bound.bind({"n": 3, "y": y, **contract_defaults(3)})
    (terms,) = bound.log_lik(make_draws({"mu": np.array([[0.6]])}))
    np.testing.assert_allclose(terms, 0, atol=1e-12)
