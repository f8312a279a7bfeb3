"""Statements that are refused by their form, whatever they do, in a user's program."""

import pytest

from dpbayes.stan.dataflow import prove
from dpbayes.stan.program import StanProgram
from tests.programs import GOOD, write

FUNCTIONS = "functions {\n"
MODEL = "  // target += normal_lpdf(y | mu, 1);\n"
EMIT = "  if (emit) {\n"
IN_THE_MODEL = {  # none of it comes near a record
    "while": ("int k = 0; while (k < 1) k += 1;", "while cannot be followed"),
    "for each": ("for (v in {1.0, 2.0}) mu ~ normal(0, v);", "entries of a container"),
    "break": ("for (j in 1:3) break;", "break cannot"),
    "continue": ("for (j in 1:3) continue;", "continue cannot"),
    "print": ("print(1);", "print or reject cannot"),
    "profile": ('profile("a") { real z = 1; }', "profile cannot"),
    "a loop to a variable": ("real z = 3; for (j in 1:to_int(z)) ;", "a loop goes"),
    "a loop by a product": ("for (j in 1:(2 * 3)) ;", "a loop goes"),
    "a sum in a loop": ("real z = 0; for (j in 1:3) z += j;", "write to z[j], or declare"),
    "an entry in a loop": ("vector[2] z; for (j in 1:3) z[1] = j;", "write to z[j]"),
    "an entry in two loops": (
        "vector[2] z; for (i in 1:2) for (j in 1:2) z[j] = i;", "write to z[i]",
    ),
    "a condition on a parameter": ("real z = 0; if (mu > 0) z = 1;", "a condition on mu"),
    "a choice by a parameter": ("real z = mu > 0 ? 1 : 0;", "a condition on mu"),
    "a condition on a variable": ("real z = 0; if (z > 0) z = 1;", "a condition on z"),
    "a condition on a function": ("real z = 0; if (log(clip_upper) > 0) z = 1;", "on log"),
    "a comparison": ("real z = mu > 0;", "> outside of a condition"),
    "no": ("real z = !emit;", "! outside of a condition"),
    "and": ("real z = emit && emit_y_rep;", "&& outside of a condition"),
    "a comparison by a function": ("real z = is_inf(mu);", "is_inf() outside"),
    "a whole number": ("int k = 1;", "a variable of whole numbers"),
    "whole numbers": ("array[2] int k = {1, 2};", "a variable of whole numbers"),
    "a remainder": ("real z = 7 % 2;", "% of whole numbers"),
    "a bound": ("real<lower=0> z = exp(mu);", "leave its bounds out"),
    "a simplex": ("simplex[1] z = [1]';", "leave its bounds out"),
    "complex numbers": ("complex z = 1;", "leave its bounds out"),
}  # fmt: skip
FUNCTION = "  real mine(real a, real b) { %s return a; }\n"
IN_A_FUNCTION = {
    "while": ("while (1) ;", "while cannot"),
    "a whole number": ("int k = 1;", "a variable of whole numbers"),
    "a sum in a loop": ("real z = 0; for (j in 1:3) z += j;", "write to z[j]"),
    "a condition on a variable": ("real z = a; if (z > 0) return 1;", "a condition on z"),
    "a condition on an argument": ("if (b > 0) return 1;", "a condition in mine() on mu"),
    "a choice by an argument": ("real z = b > 0 ? 1 : 2;", "a condition in mine() on mu"),
}
TWICE = "  real mine(real a) { return a; }\n  real mine(vector a) { return 1; }\n"


def proof(tmp_path, *changes):
    text = GOOD
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    return prove(StanProgram.from_file(write(tmp_path, text)))


def said(found):
    return "\n".join(finding.message for finding in found.findings)


@pytest.mark.parametrize("name", IN_THE_MODEL)
def test_statements_of_a_form_that_is_not_followed(name, tmp_path):
    statement, message = IN_THE_MODEL[name]
    for place in (MODEL, EMIT):
        found = proof(tmp_path, (place, place + f"  {{ {statement} }}\n"))
        assert not found.proved
        assert message in said(found)


@pytest.mark.parametrize("name", IN_A_FUNCTION)
def test_statements_in_a_function(name, tmp_path):
    """Where it is called; not where y_rep is drawn."""
    statement, message = IN_A_FUNCTION[name]
    defined = (FUNCTIONS, FUNCTIONS + FUNCTION % statement)
    found = proof(tmp_path, defined, (MODEL, MODEL + "  real w = mine(1.0, mu);\n"))
    assert message in said(found)
    assert proof(tmp_path, defined).proved


def test_a_condition_in_a_function_of_a_function(tmp_path):
    defined = FUNCTION % "if (b > 0) return 1;" + "  real other(real c) { return mine(1.0, c); }\n"
    call = "  real w = other(%s);\n"
    found = proof(tmp_path, (FUNCTIONS, FUNCTIONS + defined), (MODEL, MODEL + call % "mu + 1"))
    assert "a condition in other() on mu" in said(found)
    found = proof(tmp_path, (FUNCTIONS, FUNCTIONS + defined), (MODEL, MODEL + call % "clip_upper"))
    assert found.proved


SUMS = " real s = 0; for (j in 1:3) s += m; return s; "


@pytest.mark.parametrize(
    "body",
    [
        f"real mine(real m, int emit_y_rep) {{ if (emit_y_rep) {{ {SUMS} }} return 0; }}",
        "real mine(real m, int emit_y_rep) { if (emit_y_rep) return other(m); return 0; }",
    ],
)  # fmt: skip
def test_the_switch_of_y_rep_is_the_data_entry(body, tmp_path):
    """Arguments with its name hid what was written in a branch."""
    other = f"  real other(real m) {{ {SUMS} }}\n"
    found = proof(
        tmp_path,
        (FUNCTIONS, f"{FUNCTIONS}{other}  {body}\n"),
        (MODEL, f"{MODEL}  real w = mine(mu, 1);\n"),
    )
    assert "s is carried from one turn" in said(found)


@pytest.mark.parametrize("name", ["rows", "size", "clip_upper"])
def test_names_of_functions_that_mean_something_else(name, tmp_path):
    own = f"  real {name}(real a, real b) {{ return a; }}\n"
    assert f"{name} means something else" in said(proof(tmp_path, (FUNCTIONS, FUNCTIONS + own)))


def test_two_functions_of_one_name(tmp_path):
    assert "mine is defined more than once" in said(proof(tmp_path, (FUNCTIONS, FUNCTIONS + TWICE)))


def test_what_has_its_place(tmp_path):
    """Loops over entries, conditions on data, sums of a loop's own, and anything for y_rep."""
    model = """  vector[3] z;
  for (j in 1:3) {
    vector[2] w;
    for (k in 1:2) w[k] = j;
    if (clip_upper > 0 && !emit) z[j] = sum(w);
    else z[j] = 0;
  }
"""
    drawn = "  if (emit_y_rep) {\n    int k = 0; while (k < 2) k += mu > -9;\n"
    assert proof(tmp_path, (MODEL, MODEL + model), ("  if (emit_y_rep) {\n", drawn)).proved
