"""Variables that take values of any length, and data of records under another length than n.

Stan compares no sizes where a variable is empty, nor inside an array. By such a variable target and
the terms of records followed the number of records, or the terms came from entries of others.
"""

import pytest

from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.stan.dataflow import prove
from dpbayes.stan.program import StanProgram
from dpbayes.stan.syntax import parse
from tests.programs import GOOD, write
from tests.unit.test_dataflow_attacks import CALL, PRIOR, TERMS, attack, beforehand, functions

MORE = """vector[n] y;
  int<lower=0> K;
  int<lower=1> G;
  matrix[n, K] X;
  vector[n] u;
  vector[G] x;
  matrix[G, 2] Q;
  array[G] int<lower=1> place;
"""
DATA = ("vector[n] y;", MORE)
LOG_LIK = "    log_lik = -0.5 * square(y - mu) - 0.5 * log(2 * pi());"
BY_S = (PRIOR, "target += normal_lpdf(mu | 0, s);")
OTHER = "takes values of any length"
ROWS = "declare vector[n], array[n] or matrix[n, K]"


def scale(text, of="w"):
    """A prior's scale by the sum of a variable."""
    return [DATA, beforehand(f"{text} real s = sum({of});"), BY_S]


def terms(of):
    return [DATA, (TERMS, TERMS.replace("y - mu", of)), (LOG_LIK, LOG_LIK.replace("y - mu", of))]


FILL = "  vector fill(int k, int n) { vector[k] w; w = rep_vector(1, n); return w; }\n"
ANY_LENGTH = {
    "none": scale("vector[0] w; w = rep_vector(1, n);"),
    "none, as it is declared": scale("vector[0] w = rep_vector(1, n);"),
    "perhaps none": scale("vector[K] w; w = rep_vector(1, n);"),
    "in a branch": scale("vector[K] w; if (G > 1) w = rep_vector(1, n); else w = ones_vector(K);"),
    "all of none": scale("vector[K] w; w[:] = rep_vector(1, n);"),
    "all of none, by brackets": scale("vector[0] w; w[] = rep_vector(1, n);"),
    "a row": scale("row_vector[0] w = rep_row_vector(1, n);"),
    "a matrix": scale("matrix[0, 3] w = rep_matrix(1, n, 3);"),
    "an array": scale("array[0] real w = rep_array(1.0, n);"),
    "an entry of an array": scale("array[2] vector[K] w; w[1] = rep_vector(1, n);", "w[1]"),
    "vectors in an array": scale(
        "array[2] vector[2] w = {rep_vector(1, n), rep_vector(1, n)};", "w[1]"),
    "arrays in an array": scale(
        "array[2, 2] real w = {rep_array(1.0, n), rep_array(1.0, n)};", "w[1]"),
    "data of records": scale("vector[0] w = u;"),
    "in a function": [functions(FILL), *scale("vector[n] w = fill(K, n);")],
    "its length": [DATA, beforehand("vector[K] w; w = rep_vector(1, n); real s = rows(w);"), BY_S],
    "in the model": [DATA, (PRIOR, "vector[0] w; w = rep_vector(1, n);"
                                   " target += normal_lpdf(mu | 0, sum(w));")],
    "in a term": [beforehand("vector[0] w; w = rep_vector(1, n); real s = sum(w);"),
                  *terms("y - s * mu")],
    "of a record, by place": [DATA, (TERMS, "vector[n] log_lik_i; for (i in 1:n) { vector[0] w;"
                                            " w = rep_vector(y[i], i); log_lik_i[i] = sum(w); }")],
    "what is empty beside log_lik": [
        DATA, (LOG_LIK, f"    vector[emit_y_rep ? n : 0] w; w = rep_vector(1, G);\n{LOG_LIK}"
                        " log_lik += 0 * w;")],
    "log_lik by another switch": [("vector[emit ? n : 0] log_lik", "vector[emit_y_rep ? n : 0]"
                                                                   " log_lik")],
}  # fmt: skip
BESIDE = {  # a changed record is proved, one that is added is not
    "a vector": terms("y - x * mu"),
    "a product": terms("y - Q * [mu, mu]'"),
    "places": terms("y - x[place] * mu"),
    "the larger": terms("fmax(x, y) - mu"),
    "a power": terms("y .^ x - mu"),
    "in a vector[n]": [beforehand("vector[n] z = x;"), *terms("y - z * mu")],
    "in all of a vector[n]": [beforehand("vector[n] z; z[1:n] = x;"), *terms("y - z * mu")],
    "in a function": [functions("  vector f(vector a, vector b) { return a .* b; }\n"),
                      *terms("f(x, y) - mu")],
    "as many as public rows": [("vector[n] y;", "vector[n] y;\n  int<lower=1> rows;\n"
                                                "  vector[rows] w;")],
    "in the clamp": [DATA, (TERMS, ""), (CALL, CALL.replace("log_lik_i", "x * mu"))],
}  # fmt: skip
SURE = {
    "sizes that are the same": "vector[K] w = to_vector(M[1]) .* rep_vector(1, K);",
    "numbers": "vector[2] w = [1, 2]';",
    "an array of numbers": "array[2] real w = {1.0, 2.0};",
    "vectors in an array": "array[2] vector[G] w = {x, x};",
    "nothing of records": "vector[K] w = x[2:G];",
}


def made(changes, tmp_path):
    text = attack(GOOD, changes)
    program = StanProgram.from_file(write(tmp_path, text))
    EmbeddedEngine().compile(program)  # what does not compile would be no attack
    return prove(program)


@pytest.mark.parametrize("name", ANY_LENGTH)
def test_what_takes_any_length(name, tmp_path):
    proof = made(ANY_LENGTH[name], tmp_path)
    assert not proof.proved
    if name != "log_lik by another switch":
        assert any(OTHER in finding.message for finding in proof.findings)


Y_REP = "    y_rep = normal_rng(rep_vector(mu, n), 1);"


@pytest.mark.parametrize(
    "given", ["if (y[1] > 0) w = [1.0]';", "w = y[1] > 0 ? [1.0]' : rep_vector(0, 0);"]
)
def test_a_length_that_a_record_chose_is_no_scale_of_y_rep(given, tmp_path):
    drawn = Y_REP.replace("1);", "1 + size(w));")
    assert not made([(Y_REP, f"    vector[0] w; {given}\n{drawn}")], tmp_path).proved


@pytest.mark.parametrize("name", BESIDE)
def test_data_of_records_under_another_length(name, tmp_path):
    proof = made(BESIDE[name], tmp_path)
    assert proof.proved
    assert any("declare " in finding.message for finding in proof.added)


@pytest.mark.parametrize("name", SURE)
def test_lengths_that_are_known(name, tmp_path):
    change = [("vector[n] y;", MORE.replace("matrix[n, K] X", "matrix[G, K] M"))]
    proof = made([*change, beforehand(SURE[name])], tmp_path)
    assert proof.findings == proof.added == ()


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
