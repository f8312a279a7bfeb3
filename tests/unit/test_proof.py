"""The proof of a user's program: what is refused by its line, what is unproved, what is allowed."""

import re

import numpy as np
import pytest

import dpbayes as dpb
from dpbayes.core.errors import ProgramError
from dpbayes.engines.contract import contract_defaults
from dpbayes.engines.draws import make_draws
from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.stan.program import StanProgram
from dpbayes.stan.proof import functions as stan
from dpbayes.stan.proof.check import check_constants, prove, refuse_broken, rows_in, same_bits
from dpbayes.stan.proof.functions import ELEMENTWISE, IN_PLACE_OF
from dpbayes.stan.proof.syntax import parse
from tests.attacks import (
    BASES,
    CALL,
    COVARIATES,
    EMIT,
    GROUPED,
    LOG_LIK,
    PRIOR,
    TERMS,
    Y_REP,
    added,
    attack,
    beforehand,
    computed,
    data,
    functions,
    generated,
    more,
    terms,
)
from tests.programs import BLOCKS, GOOD, UNPROVED, write

PARAMETER = "  real mu;\n"
LIKE = """  real my_log_lik(vector log_lik, vector weights, vector anchor, real low, real high) {
    return sum(fmin(fmax(weights .* (log_lik - anchor), low), high));
  }"""
OVERLOAD = """  real pseudo_log_lik(vector log_lik, vector weights, vector anchor, real low,
                      int high) {
    return sum(log_lik);
  }"""
CENTRED = """  vector centred(vector x) {
    return x - mean(x);
  }"""


def loop(body):
    """The record log-likelihoods by a loop over the records."""
    return (TERMS, f"vector[n] log_lik_i;\n  for (i in 1:n) {{\n    {body}\n  }}")


# name: replacements in GOOD, and a piece of the line that is named
BROKEN = {
    "y_rep is y": ([(Y_REP, "    y_rep = to_array_1d(y);")], "to_array_1d(y)"),
    "y_rep near y": ([(Y_REP, "    y_rep = normal_rng(y, 0.1);")], "normal_rng(y"),
    "y_rep conditioned on y": (
        [(Y_REP, "    for (i in 1:n) y_rep[i] = y[i] > 0 ? 1 : 0;")], "y[i] > 0",
    ),
    "y_rep under a branch": (
        [(Y_REP, f"{Y_REP}\n    if (y[1] > 0)\n      y_rep[1] = 0;")], "y[1] > 0",
    ),
    "y_rep by way of log_lik": ([(Y_REP, "    y_rep = to_array_1d(log_lik);")], "to_array_1d"),
    "random numbers by y": (
        [(Y_REP, f"    if (y[1] > 0) print(normal_rng(0, 1));\n{Y_REP}")], "y[1] > 0",
    ),
    "prior from max(y)": ([(PRIOR, "mu ~ normal(max(y), 2);")], "max(y)"),
    "prior from one record": ([(PRIOR, "mu ~ normal(y[1], 2);")], "y[1]"),
    "prior from y beforehand": (
        [beforehand("vector[n] z = 2 * y;"), (PRIOR, "mu ~ normal(z[1], 2);")], "normal(z[1], 2)",
    ),
    "prior that reads size(y)": ([(PRIOR, "mu ~ normal(0, 1 + size(y));")], "size(y)"),
    "bound from max(y)": ([(PARAMETER, "  real<upper=max(y)> mu;\n")], "max(y)"),
    "bound from one record": ([(PARAMETER, "  real<upper=y[1]> mu;\n")], "y[1]"),
    "mirrored window": ([(CALL, CALL.replace("clip_upper", "-clip_lower"))], "-clip_lower"),
    "window exchanged": (
        [(CALL, CALL.replace("clip_lower, clip_upper", "clip_upper, clip_lower"))],
        "clip_upper, clip_lower",
    ),
    "window opened": (
        [(CALL, CALL.replace("clip_lower", "negative_infinity()"))], "negative_infinity",
    ),
    "weights replaced": ([(CALL, CALL.replace("weights", "ones_vector(n)"))], "ones_vector"),
    "weights changed": ([(CALL, CALL.replace("weights", "2 * weights"))], "2 * weights"),
    "weights changed beforehand": (
        [(CALL, f"vector[n] w = weights;\n  w[1] = 1;\n  {CALL.replace('weights', 'w')}")],
        "log_lik_i, w,",
    ),
    "anchor twice": ([(CALL, CALL.replace("anchor", "anchor * 2"))], "anchor * 2"),
    "anchor and weights exchanged": (
        [(CALL, CALL.replace("weights, anchor", "anchor, weights"))], "anchor, weights",
    ),
    "print": ([more("print(y);")], "print(y)"),
    "reject": ([more('reject("too large", y[1]);')], "reject"),
    "look-alike": (
        [functions(LIKE), (CALL, f"{CALL.replace('pseudo_log', 'my_log')}\n  "
                                 f"{CALL.replace('log_lik_i', 'rep_vector(0, n)')}")],
        "+= my_log_lik",
    ),
    "second definition": ([functions(OVERLOAD)], "vector anchor, real low,"),
    "sampling statement": ([(CALL, f"{CALL}\n  y ~ normal(mu, 1);")], "y ~"),
    "sum of terms": ([(CALL, f"{CALL}\n  target += sum(log_lik_i);")], "sum(log_lik_i)"),
    "clamped twice": ([(CALL, f"{CALL}\n{CALL}")], "model {"),
    "clamped and doubled": ([(CALL, CALL.replace(");", ") * 2;"))], "* 2;"),
    "tempered by the anchor": ([(PRIOR, "mu ~ normal(anchor[1], 2);")], "anchor[1]"),
}  # fmt: skip
# These may keep the contract for all that the text shows. By behaviour they are refused, on which
# tests/fits/test_contract.py insists.
UNCLEAR = {
    "scaled by max(y)": ([terms("y / max(y) - mu")], "max(y)"),
    "scaled beforehand": ([beforehand("vector[n] z = y / max(y);"), terms("z - mu")], "max(y)"),
    "centred at the median": ([beforehand("real m = quantile(y, 0.5);"), terms("y - m - mu")],
                              "quantile"),
    "centred at a sorted entry": (
        [beforehand("real m = sort_asc(y)[n %/% 2];"), terms("y - m - mu")], "sort_asc",
    ),
    "centred by a function": ([terms("centred(y) - mu"), functions(CENTRED)], "mean(x)"),
    "length from y": (
        [beforehand("int m = 1 + (max(y) > 1);"), (PARAMETER, "  real mu;\n  vector[m] b;\n"),
         more("b ~ normal(0, 1);")], "vector[m]",
    ),
    "far out, past the clamp": (
        [(CALL, f"{CALL}\n  if (max(abs(y)) > 100) target += -1;")], "max(abs(y))",
    ),
    "sum by transformed data": (
        [beforehand("real m = sum(y);"), terms("y - m / 20 - mu")], "sum(y)",
    ),
    "reversed": ([terms("reverse(y) - mu")], "reverse"),
    "an index by y": (
        [beforehand("array[n] int order = sort_indices_asc(y);"), terms("y[order] - mu")],
        "order = sort",
    ),
    "dot product": ([terms("y - dot_product(y, y)")], "dot_product"),
    "matrix product": ([terms("y - (y' * y) / 9")], "y' * y"),
    "outer product": ([terms("(y * y') * y - mu")], "y * y'"),
    "vectorised density": (
        [(TERMS, "vector[n] log_lik_i = rep_vector(normal_lpdf(y | mu, 1), n);")],
        "rep_vector(norm",
    ),
    "prior that reads n": ([(PRIOR, "mu ~ normal(0, 2.0 / n);")], "2.0 / n"),
    "prior that counts records": ([more("target += sum(rep_vector(mu, n));")], "sum(rep_vector"),
    "prior once a record": (
        [(PRIOR, "for (i in 1:n)\n    target += normal_lpdf(mu | 0, 2);")], "for (i in",
    ),
    "parameter per record": ([(PARAMETER, "  real mu;\n  vector[n] u;\n")], "vector[n] u"),
    "parameter bounded by n": ([(PARAMETER, "  real<upper=n> mu;\n")], "upper=n"),
    "clamped in a loop": ([(CALL, f"for (k in 1:2) {CALL}")], "for (k"),
    "an error at large y and mu": ([terms("log1m(y * mu)")], "log1m"),
    "log_lik of others": ([(LOG_LIK, LOG_LIK.replace("y - mu", "y - mean(y) - mu"))], "mean(y)"),
    "target read": ([(CALL, f"{CALL}\n  target += 0.5 * target();")], "target()"),
    # Loops over records.
    "reversed by index": ([loop("log_lik_i[i] = -square(y[n + 1 - i] - mu);")], "for (i in"),
    "neighbour": ([loop("log_lik_i[i] = i < n ? -square(y[i + 1] - mu) : 0;")], "for (i in"),
    "first record in every term": ([loop("log_lik_i[i] = -square(y[1] - mu);")], "for (i in"),
    "accumulator": (
        [loop("log_lik_i[i] = y[i] * mu + (i > 1 ? log_lik_i[i - 1] : 0);")], "for (i in",
    ),
    "what was before": (
        [(TERMS, "real last = 0;\n  " + loop(
            "log_lik_i[i] = -square(last - mu); last = y[i];")[1])], "for (i in",
    ),
    "sum of squares by a loop": (
        [(TERMS, f"real s = 0;\n  for (i in 1:n) s += y[i]^2;\n  "
                 f"{TERMS.replace('y - mu', 'y - s')}")], "for (i in",
    ),
    "left in a loop": ([loop("if (y[i] > 3) break; log_lik_i[i] = mu;")], "for (i in"),
    "an error at large y": ([loop("log_lik_i[i] = normal_lpdf(0 | mu, 9 - y[i]);")], "for (i in"),
    "far out, by records": (
        [(CALL, f"{CALL}\n  for (i in 1:n) if (abs(y[i]) > 100) target += -1;")], "for (i in",
    ),
}  # fmt: skip
NOT_SEEN = {  # nor by behaviour
    "reject by y": ([more('if (max(y) > 9) reject("too large");')], "reject"),
    "reject record by record": (
        [more('for (i in 1:n) if (y[i] > 9) reject("too large");')], "reject",
    ),
    "print under a branch": ([more('if (y[1] > 0) print("large");')], "print("),
    "one entry too many": ([("[emit ? n : 0]", "[emit ? n + 1 : 0]")], "n + 1"),
}  # fmt: skip


def program(text, path):
    return StanProgram.from_file(write(path, text))


def line_of(text, piece):
    return next(k for k, line in enumerate(text.splitlines(), 1) if piece in line)


@pytest.mark.parametrize("name", BASES)
def test_the_programs_that_attacks_change_are_proved(name, tmp_path):
    mine = program(BASES[name], tmp_path)
    EmbeddedEngine().compile(mine)
    assert prove(mine).findings == ()


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_program_is_refused_by_its_line(name, tmp_path):
    changes, piece = BROKEN[name]
    text = attack(GOOD, changes)
    mine = program(text, tmp_path)
    named = [finding.line for finding in prove(mine).broken]
    assert line_of(text, piece) in named
    with pytest.raises(ProgramError, match=rf"line {named[0]}: "):
        refuse_broken(mine)


@pytest.mark.parametrize("name", UNCLEAR | NOT_SEEN)
def test_what_may_keep_the_contract_is_unproved_by_its_line(name, tmp_path):
    changes, piece = (UNCLEAR | NOT_SEEN)[name]
    text = attack(GOOD, changes)
    mine = program(text, tmp_path)
    EmbeddedEngine().compile(mine)
    assert line_of(text, piece) in [finding.line for finding in prove(mine).findings]
    if name in UNCLEAR and name != "length from y":
        refuse_broken(mine)


def test_a_remedy_does_not_repeat_the_users_line(tmp_path):
    with pytest.raises(ProgramError) as caught:
        refuse_broken(program(GOOD.replace(PRIOR, "mu ~ normal(max(y), 2);"), tmp_path))
    assert "normal(max(y), 2)" not in str(caught.value)


# Constructs that are not followed, whatever they do: the base, changes in it, what is said.
LOOP = "a loop over the records"
DENSITY = "of records sums over them"
CONSTRUCTS = {
    "a loop over records": (GOOD, [loop("log_lik_i[i] = -square(y[i] - mu);")], LOOP),
    "a loop that reads records": (GOOD, [more("for (i in 1:n) { real z = y[i]; }")], LOOP),
    "a loop to the rows of y": (GOOD, [more("for (i in 1:rows(y)) ;")], LOOP),
    "a loop from n": (GOOD, [more("for (i in n:9) ;")], LOOP),
    "a loop over records in transformed data, by arithmetic": (
        GOOD, [beforehand("vector[n] z;\n  for (i in 1:n) z[i] = 2 * y[i];")], LOOP),
    "a loop over records in transformed parameters": (
        GOOD, [computed("vector[n] z;\n  for (i in 1:n) z[i] = y[i] > mu;")], LOOP),
    "a loop over records of log_lik": (
        GOOD, [(LOG_LIK, "    for (i in 1:n) log_lik[i] = -square(y[i] - mu);")], LOOP),
    "a loop over the entries of y": (
        GOOD, [more("for (u in y) { real z = u; }")], "a loop over a container"),
    "while": (GOOD, [more("while (y[1] > 9) ;")], "while"),
    "a record": (GOOD, [added("y[1]")], "an entry of records by its place"),
    "a slice": (GOOD, [terms("y[:] - y[1:] - mu")], "an entry of records by its place"),
    "a density": (GOOD, [added("normal_lpdf(y | mu, 1)")], DENSITY),
    "a distribution function": (GOOD, [added("normal_lccdf(y | mu, 1)")], DENSITY),
    "a condition on a record": (GOOD, [more("if (y[1] > 9) target += 0;")], "y"),
    "a condition on records": (GOOD, [more("if (max(y) > 9) target += 0;")], "max()"),
    "a condition on n": (GOOD, [more("if (n > 9) target += 0;")], "n is a length"),
    "a condition on a switch": (GOOD, [more("if (emit) target += 0;")], "emit cannot stand"),
    "a condition on the window": (
        GOOD, [more("if (clip_upper > 0) target += 0;")], "clip_upper cannot stand"),
    "a comparison": (GOOD, [more("real z = y[1] > mu;")], "by its place"),
    "a choice by records": (GOOD, [terms("(max(y) > 0 ? y : 2 * y) - mu")], "max()"),
    "a choice between records and a number": (
        GOOD, [terms("y - (mu > 0 ? y : rep_row_vector(mu, 3)')")], "a choice between"),
    "division of vectors": (GOOD, [terms("y - (y / y[1]) * mu")], "by its place"),
    "a product of a vector and records": (COVARIATES, [
        ("X * beta", "(y * [mu, mu])[:, 1]")], "a product with records"),
    "a list of records": (GOOD, [more("array[1] vector[9] z = {y};")], "a list puts records"),
    "a vector that meets records": (GOOD, [
        data("vector[5] x;"), terms("y - x * mu")], "not known to be one number"),
    "profile": (GOOD, [more('profile("a") { real z = 1; }')], "profile cannot be followed"),
    "print": (GOOD, [more("print(mu);")], "print or reject cannot be followed"),
    "reject": (GOOD, [more('if (mu > 99) reject("no");')], "print or reject cannot be followed"),
    "print in a function": (
        GOOD, [functions("  real f(real x) { print(x); return x; }")], "print or reject"),
    "two functions of one name": (
        GOOD, [functions("  real f(real x) { return x; }\n  real f(vector x) { return 1; }")],
        "another function f()"),
    "a function of Stan's name": (
        GOOD, [functions("  real rows(real x) { return x; }")], "another function rows()"),
    "a function that reads target": (
        GOOD, [functions("  real f_lp(real x) { return target(); }")], "reads target"),
    "sums over blocks": (BLOCKS, [], "reduce_sum_static() is not proved"),
    "sums by scheduling": (
        BLOCKS, [("reduce_sum_static", "reduce_sum")], "reduce_sum() is not proved"),
    "sums over blocks, and the clamp": (
        BLOCKS, [more(f"{TERMS}\n  {CALL}")], "more than once"),
    "weights of all in a block": (BLOCKS, [("weights[first:last]", "weights")], "reduce_sum"),
    "the program of the tests that nothing proves": (UNPROVED, [], LOOP),
    "no switch of y_rep": (
        GOOD, [("  int<lower=0, upper=1> emit_y_rep;\n", ""), ("emit_y_rep", "emit")],
        "declare int<lower=0, upper=1> emit_y_rep;"),
    "tuples": (GOOD, [more("tuple(real, real) two = (1, 2);")], "cannot be followed"),
    "a column's name": (GOOD, [more("real a__b = 1;")], "names columns"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_a_construct_that_is_not_followed(name, tmp_path):
    base, changes, message = CONSTRUCTS[name]
    mine = program(attack(base, changes), tmp_path)
    EmbeddedEngine().compile(mine)
    proof = prove(mine)
    assert not proof.broken or "the clamp" in name
    assert message in " ".join(finding.message for finding in proof.findings)


# What may stand in a program that is proved: the base, and changes in it.
FREE = """real s = 0;
  {
    vector[3] w = rep_vector(mu, 3);
    for (k in 1:3) { w[k] = k > 1 ? w[k - 1] : mu; s += w[k]; }
    while (s > 100) s /= 2;
    if (mu > 0 && s < 3) s = normal_lpdf(mu | 0, 1);
    for (v in w) { if (v > 9) break; if (v > 8) continue; s += v; }
  }
  real k = mu > 0 ? 1 : 0;
  matrix[2, 2] L = cholesky_decompose([[2, 1], [1, 2 + k]]);
  simplex[2] q = [0.5, 0.5]';
  real<lower=0> t = exp(s);"""
LOCAL = FREE.replace("simplex[2]", "vector[2]").replace("real<lower=0>", "real")
ALLOWED = {
    "free statements in transformed parameters": (GOOD, [computed(FREE), terms("y - mu - s")]),
    "free statements in the model": (GOOD, [more(LOCAL), added("s + L[2, 2]")]),
    "free statements in the generated quantities": (
        GOOD, [generated(FREE), (LOG_LIK, LOG_LIK.replace("y - mu", "y - mu - 0 * s"))]),
    "free statements where log_lik is": (GOOD, [(EMIT, f"{EMIT}    {LOCAL}\n")]),
    "free statements in transformed data": (GOOD, [
        data("int<lower=1> J;\n  vector[J] x;"),
        beforehand("real m = mean(x);\n  real s = 0;\n  for (j in 1:J) s += square(x[j] - m);\n"
                   "  matrix[J, J] L = cholesky_decompose(diag_matrix(square(x) + 1));"),
        terms("y - m - s * mu")]),
    "a function with conditions and loops": (GOOD, [
        functions("  real f(real x) {\n    if (x > 0) return 1;\n    real s = 0;\n"
                  "    while (s < 3) s += 1;\n    return log1p(s) + normal_lpdf(x | 0, 1);\n  }"),
        more("real z = f(mu);"), added("z")]),
    "a density of one's own for a number": (GOOD, [
        functions("  real near_lpdf(real x, real m) { return -square(x - m); }"),
        more("real z = near_lpdf(mu | 1);"), added("z")]),
    "an error at parameters": (GOOD, [more("real z = log1m(mu);"), added("0 * z")]),
    "a solution": (GOOD, [
        functions("  vector f(vector x, real m) { return x - m; }"),
        computed("vector[1] z = solve_newton(f, [0.0]', 0.5);")]),
    "a random walk": (GOOD, [
        data("int<lower=1> knots;\n  matrix[n, knots] B;"),
        (PARAMETER, "  real mu;\n  vector[knots] raw;\n"), more("raw ~ std_normal();"),
        computed("vector[knots] a;\n  a[1] = raw[1];\n"
                 "  for (k in 2:knots) a[k] = a[k - 1] + raw[k];"), terms("y - mu - B * a")]),
    "indicators": (GOOD, [
        beforehand("vector[n] z;\n  array[n] int k;\n"
                   "  for (i in 1:n) { z[i] = y[i] > 0 && y[i] < 2 ? y[i] : 1; k[i] = y[i] < 0; }"),
        terms("y - mu * (z + to_vector(k))")]),
    "indicators by constants": (GOOD, [
        data("real cut;\n  real top;"),
        beforehand("vector[n] z;\n  for (i in 1:n) z[i] = y[i] < cut || y[i] > top;"),
        terms("y - mu * z")]),
    "indicators by a covariate": (COVARIATES, [
        beforehand("vector[n] z;\n  for (i in 1:n) z[i] = X[i, 1] > 0;"), added("z")]),
    "columns that are put together": (COVARIATES, [
        beforehand("matrix[n, K + 1] Z = append_col(ones_vector(n), X);"),
        added("rows_dot_self(Z) + Z[:, 1]")]),
    "columns that are assigned": (COVARIATES, [
        computed("matrix[n, 2] Z;\n  Z[:, 1] = y;\n  Z[:, 2] = X * beta;\n  Z[:, 2] += mu;"),
        added("Z[:, 1] .* Z[:, 2]")]),
    "loops that carry records": (COVARIATES, [
        more("vector[n] total = zeros_vector(n);\n"
             "  for (k in 1:K) { total += X[:, k] * beta[k]; if (mu > 0) total *= 2; }"),
        added("total")]),
    "a choice by parameters": (GOOD, [terms("(mu > 0 ? y : 2 * y) - mu")]),
    "branches by parameters": (GOOD, [
        more("vector[n] z;\n  if (mu > 0) z = y; else { vector[n] w = 2 * y; z = w; }"),
        added("z")]),
    "a switch of log_lik and y_rep": (GOOD, [
        (EMIT, "  if (emit || emit_y_rep) { vector[n] z = y; real u = mu; }\n" + EMIT)]),
    "log_lik in steps": (GOOD, [
        (LOG_LIK, f"{LOG_LIK}\n    log_lik += mu;\n    {{ vector[n] z = log_lik; }}")]),
    "a statement without braces": (GOOD, [
        (f"{EMIT}{LOG_LIK}\n  }}", f"  if (emit) {LOG_LIK.strip()}")]),
    "a function given records": (GOOD, [
        data("matrix[n, 2] Z;\n  array[2] real w;"), terms("part(y, Z, mu, w)"),
        functions("  vector part(vector y, matrix Z, real mu, array[] real w) {\n"
                  "    vector[rows(y)] z = y - mu;\n    z[:] = z * w[1];\n    z += Z[:, 1];\n"
                  "    for (k in 1:2) { if (w[k] > 0) z += w[k]; else z[:] -= Z[:, k]; }\n"
                  "    return z;\n  }")]),
    "functions in functions": (GOOD, [
        terms("two(y, mu)"),
        functions("  vector one(vector y) { return 2 * y; }\n"
                  "  vector two(vector y, real m) { return one(y - m) + one(one(y)); }")]),
    "effects of groups in groups": (GROUPED, [
        data("int<lower=1> R;\n  array[J] int<lower=1, upper=R> region_of;", "int<lower=1> J;"),
        (PARAMETER, "  real mu;\n  vector[R] v;\n"), more("v ~ normal(0, 1);"),
        added("v[region_of[group]]")]),
    "rows of a matrix by groups": (GROUPED, [
        (PARAMETER, "  real mu;\n  matrix[J, 2] V;\n"), more("to_vector(V) ~ normal(0, 1);"),
        added("V[group, 1] + rows_dot_self(V[group])")]),
    "groups in a matrix of whole numbers": (GROUPED, [
        data("array[n, 2] int<lower=1, upper=J> pair;", "int<lower=1> J;"),
        added("u[pair[:, 2]]")]),
    "signs": (GOOD, [terms("-(-y + +mu) / 2 - (y - mu) ./ 3")]),
    "rows and back": (GOOD, [terms("(y')' - mu")]),
    "anything where y_rep is drawn": (COVARIATES, [(Y_REP, """    {
      int k = 0;
      while (k < n) { k += 1; if (k > 3) break; }
      for (i in 1:n) y_rep[i] = normal_rng(X[i] * beta + sum(X[1]), 1 + mean(X));
      for (i in 1:n) if (y_rep[i] > 9) y_rep[i] = log1m(beta_rng(1, 2));
    }""")]),
    "replicates by a function": (GOOD, [
        functions("  real draw_rng(real m) { if (m > 9) return 9; return normal_rng(m, 1); }"),
        (Y_REP, "    for (i in 1:n) y_rep[i] = draw_rng(mu);")]),
    "comments": (GOOD, [more("// y ~ normal(mu, 1);\n  /* target += y[1]; */")]),
}  # fmt: skip


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_proved(name, tmp_path):
    mine = program(attack(*ALLOWED[name]), tmp_path)
    EmbeddedEngine().compile(mine)
    assert prove(mine).findings == ()


ODD = np.array([0, -1, 1, 0.5, -0.5, -2, -3, 2, 1e-320, 1e308, -1e308, 1e154, -700, 700, 1e5])
AT = np.array([0.0, 1, -1, 0.5, 3, 1e300, -1e300])
TWO = ("fmin", "fmax", "pow", "log_diff_exp", "lmultiply", "log_sum_exp")
OLD = {"cloglog"}  # which Stan has under another name


def of_odd_numbers(expression, tmp_path):
    """log_lik of odd records at odd parameters, shape (points, records), and target there."""
    text = attack(GOOD, [
        (TERMS, f"vector[n] log_lik_i = {expression};"), (LOG_LIK, f"    log_lik = {expression};"),
    ])  # fmt: skip
    mine = program(text, tmp_path)
    assert prove(mine).findings == ()
    model = EmbeddedEngine().compile(mine)
    window = {**contract_defaults(len(ODD)), "clip_lower": -1.0, "clip_upper": 1.0}
    values = []
    for y in (ODD, ODD[::-1].copy()):
        bound = model.bind({"n": len(ODD), "y": y, **window})
        target = bound.log_density(AT[:, None])
        without = bound.rebind(clip_lower=0.0, clip_upper=0.0).log_density(AT[:, None])
        terms_at = np.stack(list(bound.log_lik(make_draws({"mu": AT[None]}))))
        values.append((terms_at, target, without))
    return values


@pytest.mark.parametrize("name", sorted(ELEMENTWISE - OLD))
def test_a_function_of_records_works_entry_by_entry_and_never_fails(name, tmp_path):
    forms = [f"{name}(y, mu)", f"{name}(mu, y)", f"{name}(y * mu, y)"] if name in TWO else [
        f"{name}(y * mu)", f"{name}(y * mu - y * mu)"]  # fmt: skip
    for form in forms:
        (there, target, without), (back, _, _) = of_odd_numbers(form, tmp_path)
        np.testing.assert_array_equal(there, back[:, ::-1])
        assert np.array_equal(np.isfinite(target), np.isfinite(without))
        assert np.isfinite(without).any()
        assert np.isfinite(there).any() or form.endswith("(y * mu - y * mu)")


@pytest.mark.parametrize(
    "form",
    ["rows_dot_self(append_col(y, y * mu) ^ 2)", "rows_dot_self(append_col(y, y * mu) / 2)",
     "rows_dot_product(append_col(y, y), exp(append_col(y, mu * y)))", "y ^ mu", "mu ^ y", "y ^ y",
     "y / mu", "mu / y", "append_col(y, y) * [mu, 1]'", "to_vector(append_col(y, y)[:, 1])",
     "(append_col(y, y) * rep_matrix(mu, 2, 2))[:, 2]", "(y' / mu)'", "y ./ (y * mu)"],
)  # fmt: skip
def test_operators_work_row_by_row(form, tmp_path):
    (there, target, without), (back, _, _) = of_odd_numbers(form, tmp_path)
    np.testing.assert_array_equal(there, back[:, ::-1])
    assert np.array_equal(np.isfinite(target), np.isfinite(without))


PLACES = {"p": "inv_logit(mu)", "x": "(0.3 * inv_logit(y * mu))", "a": "exp(y + mu)", "b": "exp(y)",
          "n": "(9 + y)", "k": "(2 + y)"}  # fmt: skip
CALLED = {"lbeta": "a, b", "lchoose": "n, k", "log_inv_logit_diff": "n, k"}


def filled(text, names):
    return re.sub(rf"\b[{names}]\b", lambda name: PLACES[name[0]], text)


@pytest.mark.parametrize("name", sorted(IN_PLACE_OF.keys() - {"log_mix"}))
def test_what_a_message_says_to_write_is_proved_and_is_the_same(name, tmp_path):
    """``log_mix`` takes no vectors: there is no program of records with it."""
    formula, _, include = IN_PLACE_OF[name].partition(", by ")
    included = ("#include pseudo", f"{include}\n#include pseudo")
    if name == "log_inv_logit_diff":
        formula = re.sub(r"\ba\b", "n", re.sub(r"\bb\b", "k", formula))
    names = "".join({"lbeta": "ab", "lchoose": "nk", "log_inv_logit_diff": "nk"}.get(name, "x"))
    call = filled(f"{name}({CALLED.get(name, 'x')})", names)
    instead = filled(formula, names)
    text = attack(GOOD, [(TERMS, f"vector[n] log_lik_i = {call};")])
    proof = prove(program(text, tmp_path))
    assert any(f"Write {IN_PLACE_OF[name]}." in finding.message for finding in proof.findings)
    text = attack(GOOD, [(TERMS, f"vector[n] log_lik_i = {instead};"), included])
    assert prove(program(text, tmp_path)).proved
    text = attack(GOOD, [(LOG_LIK, f"    log_lik = {call} - ({instead});"), included])
    bound = EmbeddedEngine().compile(program(text, tmp_path))
    bound = bound.bind({"n": 3, "y": np.array([0.2, 0.5, 0.7]), **contract_defaults(3)})
    (difference,) = bound.log_lik(make_draws({"mu": np.array([[0.6]])}))
    np.testing.assert_allclose(difference, 0, atol=1e-12)


def test_other_confidential_names(tmp_path):
    text = attack(GOOD, [data("vector[n] z;"), (Y_REP, Y_REP.replace("rep_vector(mu, n)", "z"))])
    mine = program(text, tmp_path)
    assert prove(mine).proved
    assert [f.line for f in prove(mine, ("y", "z")).broken] == [line_of(text, "normal_rng(z")]
    assert prove(mine, ("y", "z"), ("z",)).proved  # drawn before y


def test_a_definition_of_ones_own_is_not_trusted(tmp_path):
    (tmp_path / "pseudo_likelihood.stan").write_text(
        "real pseudo_log_lik(vector l, vector w, vector a, real low, real high)"
        " { return sum(w .* l); }"
    )
    (finding, *_) = prove(program(GOOD, tmp_path)).broken
    assert finding.line == line_of(GOOD, "#include")


@pytest.mark.parametrize(
    "call",
    ["log1m()", "log_mix()", "normal_lpdf()", "beta_rng()", "exp()", "rep_vector()", "sum()",
     "diag_pre_multiply(X)", "fma()", "to_vector()", "append_col()", "log_sum_exp()"],
)  # fmt: skip
def test_a_call_without_arguments(call, tmp_path):
    """Found by scrambled programs: no more than the compiler is there to refuse it."""
    prove(program(GOOD.replace(PRIOR, f"real nothing = {call};\n  {PRIOR}"), tmp_path))
    prove(program(attack(GOOD, [terms(f"y - {call}")]), tmp_path))


def test_deep_or_long_programs_end(tmp_path):
    deep = GOOD.replace(PRIOR, f"mu ~ normal({'(' * 3000}0{')' * 3000}, 2);")
    assert not prove(program(deep, tmp_path)).broken
    doubling = "  real f40(real x) { return x; }\n" + "".join(
        f"  real f{k}(real x) {{ return f{k + 1}(x) + f{k + 1}(x); }}\n" for k in range(39, -1, -1)
    )
    text = attack(GOOD, [functions(doubling), (PRIOR, "mu ~ normal(f0(0), 2);")])
    assert not prove(program(text, tmp_path)).proved
    of_records = doubling.replace("real", "vector")
    text = attack(GOOD, [functions(of_records), terms("f0(y) - mu")])
    assert not prove(program(text, tmp_path)).broken


def test_data_with_a_row_for_each_record(tmp_path):
    text = attack(COVARIATES, [data("array[n] int k;\n  vector[3] z;\n  array[n, 2] real w;")])
    mine = program(text, tmp_path)
    assert set(prove(mine).rows) == {"y", "X", "k", "w", "weights", "anchor"}
    assert rows_in(mine) == prove(mine).rows
    assert set(rows_in(program(BLOCKS, tmp_path))) >= {"y"}  # of any program
    unread = program(GOOD.replace(PRIOR, f"tuple(real, real) t = (1, 2);\n  {PRIOR}"), tmp_path)
    assert rows_in(unread) == ()


DRAWN = "to_vector(L) ~ normal(0, 1);"
BY_ROWS = {
    "a Cholesky factor": ("cholesky_factor_corr[J] L;", "", "rows_dot_self(L[group])"),
    "correlations": ("corr_matrix[J] L;", "", "rows_dot_self(L[group])"),
    "a matrix": ("matrix[J, J] L;", DRAWN, "rows_dot_self(L[group])"),
    "a product": ("matrix[J, J] L;", DRAWN, "L[group] * u"),
    "a column": ("matrix[J, J] L;", DRAWN, "L[group][:, 1]"),
}


@pytest.mark.parametrize("name", BY_ROWS)
def test_products_of_rows_may_have_other_bits_beside_other_records(tmp_path, name):
    """However the matrix is named: only vectors are known to have the same in any number."""
    declared, prior, product = BY_ROWS[name]
    counted = [
        data("vector<lower=0>[n] multiplicity;"),
        ("clip_upper);\n}", "clip_upper, multiplicity);\n}"),
    ]
    vectors = program(attack(GROUPED, counted), tmp_path)
    assert prove(vectors).proved
    assert same_bits(vectors, None)
    changes = [
        (PARAMETER, f"{PARAMETER}  {declared}\n"), more(prior), ("- u[group]", f"- {product}"),
    ]  # fmt: skip
    rows = program(attack(GROUPED, [*counted, *changes]), tmp_path)
    assert prove(rows).proved
    assert not same_bits(rows, None)


def test_constants_that_tell_n(tmp_path):
    mine = program(attack(GOOD, [data("vector[n] c;\n  vector[3] d;")]), tmp_path)
    check_constants(mine, ("y",), ["c", "d"], rows_public=True)
    check_constants(mine, ("y",), ["d"], rows_public=False)
    with pytest.raises(ProgramError, match="'c' follows the number of"):
        check_constants(mine, ("y",), ["c"], rows_public=False)
    with pytest.raises(ProgramError, match="'weights' is given by dpbayes"):
        check_constants(mine, ("y",), ["weights"], rows_public=True)


@pytest.mark.parametrize(
    ("text", "as_stan_reads_it"),
    [("a * b %/% c", "a * (b %/% c)"), ("a %/% b * c", "(a %/% b) * c"),
     ("a % b %/% c", "a % (b %/% c)"), ("a %/% b \\ c", "a %/% (b \\ c)"),
     ("-a %/% b", "(-a) %/% b"), ("-a ^ b'", "-(a ^ (b'))")],
)  # fmt: skip
def test_what_binds_more_tightly(text, as_stan_reads_it):
    first, second = (
        parse(f"model {{ z = {expression}; }}") for expression in (text, as_stan_reads_it)
    )
    assert first == second


def test_a_proved_program_is_proved_for_records_that_are_added(tmp_path):
    """One number for each adjacency, in a strict claim too."""
    columns = {"y": {"type": "continuous", "lower": -5, "upper": 5}}
    schema = dpb.Schema.from_dict({"rows": "public", "columns": columns})
    write(tmp_path, GOOD)
    model = dpb.Program(tmp_path / "mine.stan", "y ~ 1")
    for adjacency in ("add-remove", "substitution"):
        claim = dpb.Synthesizer(schema, dpb.Censored(2.0, adjacency=adjacency), model).guarantee()
        assert np.isfinite([claim.epsilon, claim.epsilon_substitution]).all()


def test_names_that_the_proof_knows_are_stans():
    """A user's function of such a name would be taken for it in another column of a sequence."""
    known = (
        stan.ELEMENTWISE | stan.SUMMING | stan.SAME_TYPE | stan.VECTORS | stan.MATRICES
        | stan.CONSTANTS | stan.SIZES | frozenset(stan.IN_PLACE_OF)
    )  # fmt: skip
    assert [name for name in sorted(known) if not stan.is_of_stan(name)] == []


def test_a_name_of_the_sequence_is_not_a_loop_variable(tmp_path):
    """The composed program's sum of the other columns, behind a loop that seems to declare it."""
    text = attack(GOOD, [
        beforehand("for (log_lik_i in 1:1) ;"), (PRIOR, "mu ~ normal(sum(log_lik_i), 2);"),
        ("vector[n] log_lik_i =", "vector[n] terms ="), ("lik(log_lik_i", "lik(terms"),
    ])  # fmt: skip
    findings = prove(StanProgram.from_file(write(tmp_path, text))).findings
    assert "log_lik_i is not declared." in [finding.message for finding in findings]


@pytest.mark.parametrize("character", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"])
def test_a_comment_ends_where_its_line_does(character, tmp_path):
    text = GOOD.replace(PRIOR, f"// a remark.{character}mu ~ normal(y[1], 1);\n  {PRIOR}")
    with pytest.raises(ProgramError, match="use plain line ends"):
        StanProgram.from_file(write(tmp_path, text))


def test_programs_that_differ_in_an_include_within_a_comment(tmp_path):
    """They have one text, and other listings, of which a sequence is made."""
    proofs = []
    for folder, included in (("one", ""), ("two", "// x */ mu ~ normal(y[1], 0.1); /*")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.stan").write_text(included)
        text = GOOD.replace(f"  {PRIOR}", f"  {PRIOR}\n/*\n#include a.stan\n*/")
        proofs.append(prove(StanProgram.from_file(write(tmp_path / folder, text))))
    assert not proofs[1].proved


@pytest.mark.parametrize("terms", ["- " * 800 + "mu", " + ".join(["mu", *["0.001"] * 1200])])
def test_an_expression_of_a_thousand_terms_is_refused(terms, tmp_path):
    path = write(tmp_path, GOOD.replace("square(y - mu)", f"square(y - ({terms}))", 1))
    assert not prove(StanProgram.from_file(path)).proved
    schema = {"rows": 20, "columns": {"y": {"type": "continuous", "lower": 0, "upper": 1}}}
    with pytest.raises(ProgramError, match=r"cannot be followed|too deep"):
        dpb.Synthesizer(dpb.Schema.from_dict(schema), dpb.Censored(1.0), dpb.Program(path, "y ~ 1"))
