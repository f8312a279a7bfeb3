"""Errors that hang on one record's public values: add/remove is not proved, and has no number."""

import json

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.planning.plan import _made
from dpbayes.privacy.accounting import NOTHING, Budget
from dpbayes.privacy.assumptions import ONLY_CHANGES
from dpbayes.publication.account import Account
from dpbayes.stan.dataflow import prove
from dpbayes.stan.program import StanProgram
from tests.programs import GOOD, write

TERMS = "vector[n] log_lik_i = -0.5 * square(y - mu) - 0.5 * log(2 * pi());"
LOG_LIK = "log_lik = -0.5 * square(y - mu) - 0.5 * log(2 * pi());"
X = ("vector[n] y;", "vector[n] y;\n  int<lower=0> K;\n  matrix[n, K] X;")


def each(term):
    """Terms record by record, of the covariates."""
    loop = "for (i in 1:n) {}[i] = {};"
    return [
        X,
        (TERMS, f"vector[n] log_lik_i;\n  {loop.format('log_lik_i', term)}"),
        (LOG_LIK, loop.format("log_lik", term)),
    ]


def beside(text):
    """A statement before the terms, which are what they were."""
    return [X, (TERMS, f"{text}\n  {TERMS}")]


def computed(text):
    return [X, ("model {\n", f"transformed parameters {{\n  {text}\n}}\nmodel {{\n")]


CLEAN = "-0.5 * square(y[i] - X[i] * rep_vector(mu, K))"
ADDED = {
    "a bound": computed("vector<upper=3>[n] eta = X[, 1] * mu;"),
    "a bound by entry": computed("vector<upper=3>[n] eta;\n"
                                 "  for (i in 1:n) eta[i] = X[i, 1] * mu;"),
    "an order": computed("ordered[n] eta = X[, 1] * mu;"),
    "an sd": each("normal_lpdf(y[i] | X[i, 1] * mu, 3 - X[i, 1] * mu)"),
    "a mean that may be infinite": each("normal_lpdf(y[i] | X[i, 1] * mu, 1)"),
    "a logit that may be no number": each("bernoulli_logit_lpmf(1 | X[i, 1] * mu - X[i, 1] * mu)"),
    "an sd of a constant": each(f"{CLEAN} + 0 * normal_lpdf(0 | 0, 3 - X[i, 1] * mu)"),
    "a logarithm": each(f"{CLEAN} + 0 * log1m(0.3 * X[i, 1] * mu)"),
    "a logarithm of all": [X, (TERMS, TERMS.replace(";", " + 0 * log1m(0.3 * X[, 1] * mu);")),
                           (LOG_LIK, LOG_LIK.replace(";", " + 0 * log1m(0.3 * X[, 1] * mu);"))],
    "a decomposition": each(f"{CLEAN} + 0 * cholesky_decompose([[3 - X[i, 1] * mu]])[1, 1]"),
    "a length": each(f"{CLEAN} + sum(rep_vector(0, X[i, 1] * mu > 3 ? -1 : 1))"),
    "an index": [("parameters {", "transformed data {\n  vector[3] pub = [0, 0, 0]';\n}\n"
                                  "parameters {"),
                 *each(f"{CLEAN} + pub[X[i, 1] * mu > 3 ? 9 : 1]")],
    "a branch": beside("for (i in 1:n) if (X[i, 1] * mu > 3) { real z = log1m(2.0); }"),
    "an error at parameters in a branch on X": beside("for (i in 1:n) if (X[i, 1] > 3)"
                                                      " { real z = log1m(mu); }"),
    "a density in a branch on X": each(f"{CLEAN} + (X[i, 1] > 3 ? normal_lpdf(0 | 0, mu) : 0)"),
    "a division": each(f"{CLEAN} + 0 * (7 %/% (X[i, 1] * mu > 3))"),
    "a remainder": beside("for (i in 1:n) { int z = 7 % (X[i, 1] > mu); }"),
    "reject": beside('for (i in 1:n) if (X[i, 1] * mu > 3) reject("no");'),
    "reject by a record alone": beside('for (i in 1:n) if (X[i, 1] > 9) reject("no");'),
    "a normal distribution function": each(f"{CLEAN} + 0 * Phi(sqrt(X[i, 1] * mu))"),
    "a mixture": each("log_mix(0.5, normal_lpdf(y[i] | X[i, 1] * mu, 1), 0)"),
    "another row's": each("-0.5 * square(y[i] - X[n + 1 - i, 1] * mu)"),
    "a function of one's own": [
        ("}\ndata {\n", "  real f(real x, real m) { if (x * m > 3) return log1m(2.0);"
                        " return 0; }\n}\ndata {\n"),
        *each(f"{CLEAN} + f(X[i, 1], mu)")],
    "a loop": each(f"{CLEAN} + 0 * log1m(0.3 * sum(X[i]) * mu)"),
    "sorted": each(f"{CLEAN} + 0 * sort_asc([log(X[i, 1] * mu), 0])[1]"),
    "generated quantities alone": [X, (LOG_LIK, LOG_LIK + "\n    for (i in 1:n)"
                                                " { real z = log1m(0.3 * X[i, 1] * mu); }")],
}  # fmt: skip
BOTH = {
    "closed form": each(CLEAN),
    "vectors": [X, (TERMS, TERMS.replace("y - mu", "y - X * rep_vector(mu, K)")),
                (LOG_LIK, LOG_LIK.replace("y - mu", "y - X * rep_vector(mu, K)"))],
    "a density of records alone": each("normal_lpdf(y[i] | mu, 1)"),
    "replicates may fail": [X, ("y_rep = normal_rng(rep_vector(mu, n), 1);",
                                "for (i in 1:n) y_rep[i] = normal_rng(0, 3 - X[i, 1] * mu);")],
}  # fmt: skip


def program(changes, tmp_path):
    text = GOOD
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return StanProgram.from_file(write(tmp_path, text))


@pytest.mark.parametrize("name", ADDED)
def test_nothing_is_proved_of_a_record_that_is_added(name, tmp_path):
    mine = program(ADDED[name], tmp_path)
    EmbeddedEngine().compile(mine)
    proof = prove(mine)
    assert proof.findings or proof.added


@pytest.mark.parametrize("name", BOTH)
def test_both_are_proved(name, tmp_path):
    proof = prove(program(BOTH[name], tmp_path))
    assert proof.findings == proof.added == ()


SCHEMA = dpb.Schema.from_dict(
    {
        "columns": {
            "x": {"type": "continuous", "lower": 0, "upper": 1, "public": True},
            "y": {"type": "continuous", "lower": -5, "upper": 5},
        }
    }
)
RECORDS = pd.DataFrame({"x": np.linspace(0, 1, 30), "y": np.linspace(-1, 1, 30)})


def model(tmp_path, name="an sd"):
    program(ADDED[name], tmp_path)
    return dpb.Program(tmp_path / "mine.stan", "y ~ x")


@pytest.mark.parametrize("mechanism", [dpb.Censored, dpb.Anchored])
@pytest.mark.parametrize("word", [False, True])
def test_a_number_that_is_not_proved_is_not_printed(mechanism, word, tmp_path):
    mine = model(tmp_path)
    with pytest.raises(dpb.GuaranteeError, match=r"adjacency = 'add-remove': .* line \d+: .*sub"):
        dpb.Synthesizer(SCHEMA, mechanism(5.0), mine, allow_unproved=word)
    made = dpb.Synthesizer(
        SCHEMA, mechanism(5.0, adjacency="substitution"), mine, allow_unproved=word
    )
    claim = made.guarantee().for_datasets(3)
    tree = claim.to_dict()
    for key in ("epsilon", "epsilon_each", "rho"):
        assert tree[key] is None
    assert claim.once == NOTHING or tree["epsilon_once"] is None
    assert tree["epsilon_substitution"] == pytest.approx(15, rel=0.3)
    assert np.isfinite(tree["rho_substitution"])
    assert tree["holds_for"] == "substitution"
    assert ONLY_CHANGES in tree["assumptions"]
    json.loads(claim.to_json())
    for text in (str(claim), " ".join(claim.lines()), claim.paragraph()):
        assert "inf" not in text.replace("infinit", "")
        assert "removed moves" not in text
        assert "with that number" not in text.lower()
    assert "none for add/remove" in str(claim)
    assert "asymptotic" not in claim.paragraph()
    claim.require("strict")


def test_rows_that_are_not_public_have_no_public_values(tmp_path):
    """No column is public then, and X has no columns: nothing of a record is in it."""
    columns = {"y": {"type": "continuous", "lower": -5, "upper": 5}}
    schema = dpb.Schema.from_dict({"rows": 30, "columns": columns})
    program(each("normal_lpdf(y[i] | X[i] * rep_vector(mu, K), 1)"), tmp_path)
    mine = dpb.Program(tmp_path / "mine.stan", "y ~ 1")
    assert mine.on(schema).proof.added
    assert dpb.Synthesizer(schema, dpb.Censored(5.0), mine).guarantee().epsilon == 5


def test_plans_take_the_other_adjacency(tmp_path):
    made = _made(dpb.Censored, SCHEMA, model(tmp_path).on(SCHEMA), 2.0, 1, None)
    claim = made.guarantee()
    assert made.mechanism.adjacency == "substitution"
    assert claim.epsilon_substitution == pytest.approx(2)
    assert np.isinf(claim.epsilon)


def test_a_budget_for_records_that_are_added_pays_for_no_such_release(tmp_path):
    made = dpb.Synthesizer(
        SCHEMA, dpb.Anchored(1.0, adjacency="substitution"), model(tmp_path)
    ).guarantee()
    for adjacency, refused in (("add-remove", True), ("substitution", False)):
        account = Account(1, "people", adjacency, Budget(100.0, 0.0, NOTHING), {})
        assert ("for a changed record alone" in (account.refusal(made) or "")) is refused
    once, each = account.cost(made)
    assert once.epsilon + each.epsilon == pytest.approx(1)
