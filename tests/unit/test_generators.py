"""Random numbers outside `if (emit_y_rep)`, in whatever way: none of these programs is proved.

A generator that fails for one of n, at a place that follows n, took away the log_lik of all.
"""

import pytest

from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.stan.dataflow import prove
from dpbayes.stan.program import StanProgram
from tests.programs import GOOD, write

Y_REP = "    y_rep = normal_rng(rep_vector(mu, n), 1);\n"
UNDER = "  if (emit_y_rep) {\n"
EMIT = "  if (emit) {\n"
MODEL = "model {\n"
FUNCTION = "}\ndata {\n"
DRAW = "  real draw_rng(real m) { return normal_rng(m, 1); }\n"
SWITCH = "  int<lower=0, upper=1> emit_y_rep;\n"


def under_emit(draws, before=""):
    """y_rep where log_lik is, as older programs have it."""
    return [(Y_REP, ""), (EMIT, f"{EMIT}    {before}\n    for (i in 1:n) y_rep[i] = {draws};\n"),
            ("array[emit_y_rep ?", "array[emit ?"), (f"{UNDER}  }}\n", "")]  # fmt: skip


def beside(statement):
    """A statement where log_lik is."""
    return [(EMIT, f"{EMIT}    {statement}\n")]


def everywhere(statement):
    """A statement of the generated quantities."""
    return [(EMIT, f"  {statement}\n{EMIT}")]


def beforehand(statement):
    return [("parameters {", f"transformed data {{\n  {statement}\n}}\nparameters {{")]


ATTACKS = {
    "constants, of which the 6,010th fails": under_emit("neg_binomial_2_log_rng(18.5, 0.8)"),
    "a shape near 0": under_emit(
        "beta_binomial_rng(5, a, a)",
        "real a = exp(-709.3 * exp(-square((inv_logit(mu) - 0.3) / 0.02)));"),
    "parameters": under_emit("poisson_log_rng(18 + mu)"),
    "what never fails": under_emit("normal_rng(0, 1)"),
    "a number drawn by another": under_emit("poisson_log_rng(normal_rng(18, 1))"),
    "not used": beside("for (i in 1:n) { real z = normal_rng(0, 1); }"),
    "in a condition": beside("if (normal_rng(0, 1) > 9) log_lik[1] = 0;"),
    "in an index": beside("for (i in 1:n) if (i == poisson_rng(3)) log_lik[i] = 0;"),
    "in a loop's end": beside("for (k in 1:poisson_rng(3)) log_lik += 0;"),
    "in a while loop": beside("while (normal_rng(0, 1) > 3) log_lik += 0;"),
    "in a ternary": beside("log_lik += emit ? 0 : normal_rng(0, 1);"),
    "the other side of the switch": beside("log_lik += emit_y_rep ? 0 : normal_rng(0, 1);"),
    "where the switch is off": everywhere("if (!emit_y_rep) { real z = normal_rng(0, 1); }"),
    "else": everywhere("if (emit_y_rep) ; else { real z = normal_rng(0, 1); }"),
    "or": everywhere("if (emit || emit_y_rep) { real z = normal_rng(0, 1); }"),
    "or, the other way": everywhere("if (emit_y_rep || mu > 0) { real z = normal_rng(0, 1); }"),
    "a comparison": everywhere("if (emit_y_rep < 1) { real z = normal_rng(0, 1); }"),
    "a sum": everywhere("if (emit_y_rep + emit) { real z = normal_rng(0, 1); }"),
    "a sign": everywhere("if (-emit_y_rep + 1) { real z = normal_rng(0, 1); }"),
    "another switch": [(SWITCH, f"{SWITCH}  int<lower=0, upper=1> emit_more;\n"),
                       *everywhere("if (emit_more) { real z = normal_rng(0, 1); }")],
    "the switch, changed before": everywhere(
        "int e = emit_y_rep; e = 1; if (e) { real z = normal_rng(0, 1); }"),
    "the switch, changed in a loop": everywhere(
        "int e = emit_y_rep; for (k in 1:2) { if (e) { real z = normal_rng(0, 1); } e = 1; }"),
    "the switch, changed in a branch": everywhere(
        "int e = emit_y_rep; if (emit) e = 1; if (e) { real z = normal_rng(0, 1); }"),
    "the switch in a vector": everywhere(
        "vector[2] e = [emit_y_rep, 1]'; if (e[2] > 0) { real z = normal_rng(0, 1); }"),
    "after the block": everywhere("if (emit_y_rep) { } real z = normal_rng(0, 1);"),
    "by a function": [(FUNCTION, DRAW + FUNCTION),
                      *beside("log_lik += 0 * draw_rng(mu);")],
    "by a function of a function": [
        (FUNCTION, "  real inner_rng(real m) { return normal_rng(m, 1); }\n"
                   "  real draw_rng(real m) { return inner_rng(m); }\n" + FUNCTION),
        *under_emit("draw_rng(mu)")],
    "by a function with a switch of its own": [
        (FUNCTION, "  real draw_rng(int emit_y_rep) { if (emit_y_rep) return normal_rng(0, 1);"
                   " return 0; }\n" + FUNCTION),
        *beside("log_lik += 0 * draw_rng(1);")],
    "as an argument": [(FUNCTION, "  real same(real m) { return m; }\n" + FUNCTION),
                       *beside("log_lik += 0 * same(normal_rng(0, 1));")],
    "in transformed data": beforehand("real z = normal_rng(0, 1);"),
    "in transformed data, under the switch's other side": beforehand(
        "if (emit_y_rep == 0) { real z = normal_rng(0, 1); }"),
    "vectors": beside("array[n] real z = normal_rng(rep_vector(mu, n), 1);"),
    "levels": beside("for (i in 1:n) { int z = categorical_rng([0.5, 0.5]'); }"),
    "many numbers at once": beside("vector[2] z = dirichlet_rng([1, 1]');"),
}  # fmt: skip
UNDER_THE_SWITCH = {
    "in a condition": everywhere(
        "if (emit_y_rep && clip_upper > 0) { real z = normal_rng(0, 1); }"
    ),
    "the other way": everywhere(
        "if (clip_upper > 0 && emit_y_rep) { real z = normal_rng(0, 1); }"
    ),
    "in a ternary": everywhere("real z = emit_y_rep ? normal_rng(0, 1) : 0;"),
    "as it is written too": everywhere("if (emit_y_rep == 1) ;"),
    "by a function": [(FUNCTION, DRAW + FUNCTION),
                      (Y_REP, "    for (i in 1:n) y_rep[i] = draw_rng(mu);\n")],
    "again and again": [(Y_REP, "    for (i in 1:n) { real z = 9; while (z > 0)"
                                " z = normal_rng(mu, 1); y_rep[i] = z; }\n")],
}  # fmt: skip


def program(changes, tmp_path):
    text = GOOD
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return StanProgram.from_file(write(tmp_path, text))


@pytest.mark.parametrize("name", ATTACKS)
def test_no_generator_beside_log_lik(name, tmp_path):
    mine = program(ATTACKS[name], tmp_path)
    EmbeddedEngine().compile(mine)
    proof = prove(mine)
    assert not proof.proved
    assert any("outside `if (emit_y_rep)`" in finding.message for finding in proof.findings)


@pytest.mark.parametrize("name", UNDER_THE_SWITCH)
def test_generators_where_nothing_else_is_evaluated(name, tmp_path):
    mine = program(UNDER_THE_SWITCH[name], tmp_path)
    EmbeddedEngine().compile(mine)
    assert prove(mine).proved
