"""Programs that leak where a value has another type or length than it seems: none is proved."""

import pytest

from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.errors import ProgramError
from dpbayes.stan.dataflow import check_constants, prove
from dpbayes.stan.program import StanProgram
from tests.programs import GOOD, write
from tests.unit.test_dataflow_attacks import (
    COUNTS,
    PRIOR,
    PUBLIC_X,
    TERMS,
    attack,
    beforehand,
    each,
    functions,
    more,
)

COUNT = "array[n] int<lower=0> y;"


def chosen(real, other, argument, before=""):
    """A function by the type of an argument: 0 as it looks, the sum of the records as it is."""
    definitions = "".join(
        f"  real f({kind} a, vector y) {{ return {result}; }}\n"
        for kind, result in ((real, "0"), (other, "sum(y)"))
    )
    return [
        functions(definitions),
        beforehand(f"{before}real m = f({argument}, y);"),
        (PRIOR, "mu ~ normal(m, 2);"),
    ]


PREDICTOR = "linear_predictor(1, n, mu, {}, {}, {}, {}, rep_matrix(0, n, 0))"
NOTHING = "rep_vector(0, 0)"


def predicted(*arguments, factor=""):
    """Terms by the bundled linear_predictor."""
    return [
        ("#include pseudo", "#include linear_predictor.stan\n#include pseudo"),
        ("vector[n] y;", "vector[n] y;\n  array[n, 0] int none;\n  array[n, 1] int g;"),
        (TERMS, f"vector[n] log_lik_i = {factor}{PREDICTOR.format(*arguments)};"),
    ]


ATTACKS = {
    # What type a value has decides which function is called, and whether a division can fail.
    "a sign before a real": (
        COUNTS, [functions("  real inc_beta(int a, int b, int c) { return 0; }\n"),
                 (PRIOR, "mu ~ normal(inc_beta(-(-1.0) * y[1], 1, 1), 2);")],
    ),
    "a function of Stan's for public numbers": (
        GOOD, [functions("  real lmgamma(real a, real b) { return 0; }\n"),
               each("real z = log1p(lmgamma(1, exp(mu)) + square(y[i]));")],
    ),
    "a whole number of 10 digits": (GOOD, chosen("real", "int", "2000000000")),
    "a whole number in parts": (GOOD, chosen("real", "int", "1_0")),
    "a whole number as answer": (GOOD, chosen("real", "int", "is_inf(1.0)")),
    "a row of complex numbers": (
        GOOD, chosen("row_vector", "complex_row_vector", "[c]", "complex c = 1;\n  "),
    ),
    "an order": (GOOD, [PUBLIC_X, *chosen("vector", "array[] int", "sort_indices_asc(x)")]),
    "two quantiles": (GOOD, [PUBLIC_X, *chosen("real", "array[] real", "quantile(x, {.1, .9})")]),
    "whole numbers in a row": (
        GOOD, chosen("array[] real", "array[] int", "to_array_1d({{1, 2}, {3, 4}})"),
    ),
    "an entry at a rank": (GOOD, [PUBLIC_X, *chosen("vector", "real", "x[rank(x, 1)]")]),
    "an array of matrices": (
        GOOD, chosen("row_vector", "matrix", "S[1]",
                     "array[2] cov_matrix[2] S = rep_array(identity_matrix(2), 2);\n  "),
    ),
    "a division by an answer": (GOOD, [each("int z = 1 %/% int_step(mu - y[i]);")]),
    "a division by another": (GOOD, [each("int z = 1 %/% is_nan(sqrt(mu - y[i]));")]),
    "a division of 10 digits": (GOOD, [each("int z = 2000000000 %/% (mu < y[i]);")]),
    "a division of parts": (GOOD, [each("int z = 1_0 %/% (mu < y[i]);")]),
    "a division by too large a number": (
        GOOD, [each("if (mu < y[i]) { int z = 1 %/% (65536 * 65536); }")],
    ),
    "too large a number in a logarithm": (
        COUNTS, [each("int a = mu > 0 ? 65536 : 1; real z = log1p(a * y[i]);")],
    ),
    "a density after its variable changed in a branch": (
        GOOD, [PUBLIC_X, each("real s = 1; real z = normal_lpdf(0 | 0, s); if (rows > 5) s = mu;"
                              " if (y[i] > 3) z = normal_lpdf(0 | 0, s);")],
    ),
    "a density from a parameter on": (
        GOOD, [each("real z = pareto_type_2_lpdf(y[i] | mu, 1.0, 1.0);")],
    ),
    "a density of nothing": (
        GOOD, [PUBLIC_X, each("real z = pareto_lpdf(x[1:(y[i] > 3 ? 2 : 0)] | 1, mu);")],
    ),
    "levels by a parameter": (
        COUNTS, [(COUNT, f"{COUNT}\n  simplex[2] a;\n  simplex[5] b;"),
                 each("real z = categorical_lpmf(y[i] | mu > 0 ? a : b);")],
    ),
    "a density that is no number at 0": (
        GOOD, [each("real z = log_mix(.5, weibull_lpdf(y[i] | mu > 0 ? 1.0 : 2.0, 1), 0);")],
    ),
    "a density that is no number at its mean": (
        GOOD, [each("real z = log_mix(.5, normal_lpdf(y[i] | 5, mu > 0 ? 1e-320 : 1.0), 0);")],
    ),
    # The bundled linear_predictor, of what it was not made for.
    "records as coefficients": (
        GOOD, predicted("rep_matrix(1, n, n)", "y", NOTHING, "none"),
    ),
    "records as effects": (
        GOOD, predicted("rep_matrix(1, n, 0)", NOTHING, "y", "g"),
    ),
    "a column for each record": (
        GOOD, predicted("rep_matrix(1, n, n)", "ones_vector(n)", NOTHING, "none", factor="y .* "),
    ),
    # The number of records.
    "an error by place": (GOOD, [each("real z = log1m(mu * i / 20.0);")]),
    "an error by n": (GOOD, [more("int z = mu > 1 ? 1 %/% (n - 20) : 0;")]),
    "a scale by place": (GOOD, [each("real z = normal_lpdf(0 | 0, 1 - mu * i / 20.0);")]),
    "rows of n, multiplied": (
        GOOD, [beforehand("row_vector[n] u = ones_row_vector(n);\n"
                          "  vector[1] s = rows_dot_product(u, u);"),
               more("target += -mu^2 * s[1];")],
    ),
    "rows of n, in a matrix": (
        GOOD, [more("target += -mu^2 * sum(rep_matrix(ones_row_vector(n), 3)[1]);")],
    ),
    "as many entries as a matrix has": (
        GOOD, [beforehand("matrix[3, n] M = rep_matrix(0, 3, n);"),
               more("target += -mu^2 * size(M);")],
    ),
    "a constant between limits": (
        GOOD, [("vector[n] y;", "vector[n] y;\n  int<lower=n, upper=n> fifty;")],
    ),
    "limits of their own": (GOOD, [("int<lower=1> n;", "int<lower=1, upper=50> n;")]),
    "places in a row": (
        GOOD, [beforehand("row_vector[n] s = append_col([5], ones_row_vector(n - 1));"),
               (TERMS, TERMS.replace("y - mu", "y - mu * s'"))],
    ),
    "random numbers by place": (
        GOOD, [("  }\n  if (emit_y_rep)", "    vector[n] l = log_lik;\n"
                "    for (i in 1:n) { real u = normal_rng(0, 9); l[i] += u; }\n"
                "    log_lik = l;\n  }\n  if (emit_y_rep)")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_no_proof(name, tmp_path):
    program = StanProgram.from_file(write(tmp_path, attack(*ATTACKS[name])))
    assert not prove(program).proved
    EmbeddedEngine().compile(program)  # what does not compile would be no attack


Y_REP = "y_rep = normal_rng(rep_vector(mu, n), 1);"
FAILING = {  # y_rep[i]
    "by place": "log1m(mu * i / 20.0)",
    "by n": "mu > 1 ? 1 %/% (n - 19) : 0",
    "at random": "poisson_log_rng(18 + mu + u)",
    "at random, computed": "log1m(u - mu)",
    "at random, within": "neg_binomial_2_log_rng(mu, 0.1)",
}


@pytest.mark.parametrize("name", FAILING)
def test_replicates_that_fail_for_one_of_n(name, tmp_path):
    """Where y_rep fails there is no log_lik, if both are evaluated together."""
    each = f"for (i in 1:n) {{ real u = normal_rng(0, 1); y_rep[i] = {FAILING[name]}; }}"
    text = GOOD.replace(Y_REP, each)
    program = StanProgram.from_file(write(tmp_path, text))
    assert prove(program).proved
    EmbeddedEngine().compile(program)
    for condition in ("emit", "emit || emit_y_rep", "emit_y_rep == 0", "1"):
        other = text.replace("if (emit_y_rep)", f"if ({condition})")
        assert not prove(StanProgram.from_file(write(tmp_path, other))).proved


@pytest.mark.parametrize(("effects", "proved"), [("x", True), ("mu > 0 ? x : x[1:2]", False)])
def test_effects_of_confidential_groups(effects, proved, tmp_path):
    """Their number must not follow parameters: a record's group may be among the missing ones."""
    text = GOOD.replace("vector[n] y;", "vector[n] y;\n  vector[5] x;")
    changes = predicted("rep_matrix(1, n, 0)", NOTHING, effects, "g", factor="y .* ")
    program = StanProgram.from_file(write(tmp_path, attack(text, changes)))
    assert prove(program, ("y", "g")).proved is proved


@pytest.mark.parametrize(
    "declared", ["vector[n + 1] c;", "matrix[3, n] c;", "complex_vector[n] c;"]
)
def test_constants_of_other_lengths_that_tell_n(declared, tmp_path):
    text = GOOD.replace("vector[n] y;", f"vector[n] y;\n  {declared}")
    program = StanProgram.from_file(write(tmp_path, text))
    check_constants(program, ("y",), ["c"], rows_public=True)
    with pytest.raises(ProgramError, match="'c' follows the number of"):
        check_constants(program, ("y",), ["c"], rows_public=False)
