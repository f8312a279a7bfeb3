"""The contract by dataflow: broken programs are refused by their line, honest ones are proved."""

import numpy as np
import pytest

import dpbayes as dpb
from dpbayes.engines.contract import check_contract
from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.stan.dataflow import prove, refuse_broken
from dpbayes.stan.families import FAMILIES
from dpbayes.stan.program import CONTRACT_DATA, StanProgram
from tests.honest_programs import ELEMENTWISE, HONEST, UNCLEAR
from tests.misbehaviour import N, outcomes, public_data
from tests.programs import BLOCKS, GOOD, write

CALL = "target += pseudo_log_lik(log_lik_i, weights, anchor, clip_lower, clip_upper);"
TERMS = "vector[n] log_lik_i = -0.5 * square(y - mu) - 0.5 * log(2 * pi());"
PRIOR = "mu ~ normal(0, 2);"
Y_REP = "y_rep = normal_rng(rep_vector(mu, n), 1);"
LOG_LIK = "    log_lik = -0.5 * square(y - mu) - 0.5 * log(2 * pi());"
PARAMETER = "  real mu;\n"
MORE_DATA = "parameters {\n"


def transformed(line):
    return (MORE_DATA, f"transformed data {{\n  {line}\n}}\nparameters {{\n")


def terms(line, body="log_lik_i[i] = {};"):
    """The record log-likelihoods by a loop over the records."""
    return (TERMS, f"vector[n] log_lik_i;\n  for (i in 1:n) {{\n    {body.format(line)}\n  }}")


LIKE = """  real my_log_lik(vector log_lik, vector weights, vector anchor, real low, real high) {
    return sum(fmin(fmax(weights .* (log_lik - anchor), low), high));
  }
}
data {
"""
OVERLOAD = """  real pseudo_log_lik(vector log_lik, vector weights, vector anchor, real low,
                      int high) {
    return sum(log_lik);
  }
}
data {
"""
SUM_OF = """  vector centred(vector x) {
    return x - mean(x);
  }
}
data {
"""
BY_RETURN = """  real leaving(vector x) {
    for (i in 1:rows(x)) {
      if (x[i] > 3) return 1;
    }
    return 0;
  }
}
data {
"""

# name: replacements in GOOD, and a piece of the line that is named
BROKEN = {
    "y_rep is y": ([(Y_REP, "y_rep = to_array_1d(y);")], "to_array_1d(y)"),
    "y_rep near y": ([(Y_REP, "y_rep = normal_rng(y, 0.1);")], "normal_rng(y"),
    "y_rep conditioned on y": (
        [(Y_REP, "for (i in 1:n) y_rep[i] = y[i] > 0 ? 1 : 0;")], "y[i] > 0",
    ),
    "y_rep under a branch": (
        [(Y_REP, Y_REP + "\n    if (y[1] > 0)\n      y_rep[1] = 0;")], "y_rep[1] = 0",
    ),
    "y_rep by way of log_lik": ([(Y_REP, "y_rep = to_array_1d(log_lik);")], "to_array_1d"),
    "y_rep by a function that leaves": (
        [("}\ndata {\n", BY_RETURN), (Y_REP, "y_rep = rep_array(leaving(y), n);")], "leaving(y), n",
    ),
    "random numbers by y": (
        [(Y_REP, "if (y[1] > 0) print(normal_rng(0, 1));\n    " + Y_REP)], "y[1] > 0",
    ),
    "scaled by max(y)": (
        [(TERMS, TERMS.replace("y - mu", "y / max(y) - mu"))], "max(y)",
    ),
    "scaled beforehand": (
        [transformed("vector[n] z = y / max(y);"), (TERMS, TERMS.replace("y - mu", "z - mu"))],
        "max(y)",
    ),
    "prior from max(y)": ([(PRIOR, "mu ~ normal(max(y), 2);")], "max(y)"),
    "prior from one record": ([(PRIOR, "mu ~ normal(y[1], 2);")], "y[1]"),
    "prior from y beforehand": (
        [transformed("real m = sum(y) / n;"), (PRIOR, "mu ~ normal(m, 2);")], "normal(m, 2)",
    ),
    "bound from max(y)": ([(PARAMETER, "  real<upper=max(y)> mu;\n")], "max(y)"),
    "bound from y beforehand": (
        [transformed("real top = max(y);"), (PARAMETER, "  real<upper=top> mu;\n")], "upper=top",
    ),
    "length from y": (
        [transformed("int m = 1 + (max(y) > 1);"), (PARAMETER, "  real mu;\n  vector[m] b;\n")],
        "vector[m]",
    ),
    "centred at the median": (
        [transformed("real m = quantile(y, 0.5);"),
         (TERMS, TERMS.replace("y - mu", "y - m - mu"))],
        "quantile",
    ),
    "centred at a sorted entry": (
        [transformed("real m = sort_asc(y)[n %/% 2];"),
         (TERMS, TERMS.replace("y - mu", "y - m - mu"))],
        "sort_asc",
    ),
    "centred by a function": (
        [("}\ndata {\n", SUM_OF), (TERMS, TERMS.replace("y - mu", "centred(y) - mu"))], "mean(x)",
    ),
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
        [(CALL, "vector[n] w = weights;\n  w[1] = 1;\n  " + CALL.replace("weights", "w"))],
        "log_lik_i, w,",
    ),
    "anchor twice": ([(CALL, CALL.replace("anchor", "anchor * 2"))], "anchor * 2"),
    "anchor and weights exchanged": (
        [(CALL, CALL.replace("weights, anchor", "anchor, weights"))], "anchor, weights",
    ),
    "reject": ([(PRIOR, PRIOR + '\n  if (max(y) > 9) reject("too large");')], "reject"),
    "reject record by record": (
        [(PRIOR, PRIOR + '\n  for (i in 1:n) if (y[i] > 9) reject("too large");')], "reject",
    ),
    "print": ([(PRIOR, PRIOR + "\n  print(y);")], "print(y)"),
    "print under a branch": ([(PRIOR, PRIOR + '\n  if (y[1] > 0) print("large");')], "print("),
    "look-alike": (
        [("}\ndata {\n", LIKE),
         (CALL, "target += my_log_lik(log_lik_i, weights, anchor, clip_lower, clip_upper);\n  "
                + CALL.replace("log_lik_i", "rep_vector(0, n)"))],
        "+= my_log_lik",
    ),
    "second definition": ([("}\ndata {\n", OVERLOAD)], "vector anchor, real low,"),
    "one entry too many": (
        [("vector[emit ? n : 0] log_lik;", "vector[emit ? n + 1 : 0] log_lik;")], "n + 1",
    ),
    "far out, past the clamp": (
        [(CALL, CALL + "\n  if (max(abs(y)) > 100)\n    target += -1;")], "target += -1",
    ),
    "far out, by records": (
        [(CALL, CALL + "\n  for (i in 1:n) if (abs(y[i]) > 100) target += -1;")], "target += -1",
    ),
    "sum by transformed data": (
        [transformed("real m = sum(y);"), (TERMS, TERMS.replace("y - mu", "y - m / n - mu"))],
        "sum(y)",
    ),
    "reversed": ([(TERMS, TERMS.replace("y - mu", "reverse(y) - mu"))], "reverse"),
    "reversed by index": ([terms("-0.5 * square(y[n + 1 - i] - mu)")], "n + 1 - i"),
    "neighbour": ([terms("i < n ? -0.5 * square(y[i + 1] - mu) : 0")], "y[i + 1]"),
    "first record in every term": ([terms("-0.5 * square(y[1] - mu)")], "y[1]"),
    "differences": (
        [terms("-0.5 * square(y[i] - y[1] - mu)")], "y[i] - y[1]",
    ),
    "an index by y": (
        [transformed("array[n] int order = sort_indices_asc(y);"),
         (TERMS, TERMS.replace("y - mu", "y[order] - mu"))],
        "y[order]",
    ),
    "accumulator": (
        [(TERMS, "real s = 0;\n  " + terms("", "s += y[i]; log_lik_i[i] = s * mu;")[1])],
        "for (i in 1:n)",
    ),
    "what was before": (
        [(TERMS, "real last = 0;\n  "
          + terms("", "log_lik_i[i] = -square(last - mu); last = y[i];")[1])],
        "for (i in 1:n)",
    ),
    "entry before": (
        [terms("", "log_lik_i[i] = y[i] * mu + (i > 1 ? log_lik_i[i - 1] : 0);")], "i - 1",
    ),
    "sum of squares by a loop": (
        [(TERMS, "real s = 0;\n  for (i in 1:n) s += y[i]^2;\n  "
          + TERMS.replace("y - mu", "y - s"))],
        "for (i in 1:n)",
    ),
    "dot product": ([(TERMS, TERMS.replace("y - mu", "y - dot_product(y, y)"))], "dot_product"),
    "matrix product": ([(TERMS, TERMS.replace("y - mu", "y - (y' * y) / n"))], "y' * y"),
    "outer product": ([(TERMS, TERMS.replace("y - mu", "(y * y') * y - mu"))], "y * y'"),
    "vectorised density": (
        [(TERMS, "vector[n] log_lik_i = rep_vector(normal_lpdf(y | mu, 1), n);")],
        "rep_vector(norm",
    ),
    "sampling statement": ([(CALL, CALL + "\n  y ~ normal(mu, 1);")], "y ~"),
    "sum of terms": ([(CALL, CALL + "\n  target += sum(log_lik_i);")], "sum(log_lik_i)"),
    "clamped twice": ([(CALL, CALL + "\n" + CALL)], "model {"),
    "clamped and doubled": ([(CALL, CALL.replace(");", ") * 2;"))], "* 2;"),
    "clamped in a loop": ([(CALL, "for (k in 1:2) " + CALL)], "for (k"),
    "prior that reads n": ([(PRIOR, "mu ~ normal(0, 2.0 / n);")], "2.0 / n"),
    "prior that reads size(y)": ([(PRIOR, "mu ~ normal(0, 1 + size(y));")], "size(y)"),
    "prior that counts records": (
        [(PRIOR, PRIOR + "\n  target += sum(rep_vector(mu, n));")], "sum(rep_vector",
    ),
    "prior once a record": (
        [(PRIOR, "for (i in 1:n)\n    target += normal_lpdf(mu | 0, 2);")], "target += normal",
    ),
    "parameter per record": ([(PARAMETER, PARAMETER + "  vector[n] u;\n")], "vector[n] u"),
    "parameter bounded by n": ([(PARAMETER, "  real<upper=n> mu;\n")], "upper=n"),
    "an error at large y": (
        [terms("normal_lpdf(0 | mu, 9 - y[i])")], "9 - y[i]",
    ),
    "an error at large y and mu": ([(TERMS, TERMS.replace("y - mu", "log1m(y * mu)"))], "log1m"),
    "log_lik of others": (
        [(LOG_LIK, LOG_LIK.replace("y - mu", "y - mean(y) - mu"))], "log_lik = -0.5",
    ),
    "tempered by the anchor": (
        [(PRIOR, "mu ~ normal(anchor[1], 2);")], "anchor[1]",
    ),
    "target read": ([(CALL, CALL + "\n  target += 0.5 * target();")], "target()"),
    "left in a loop": (
        [(TERMS, "vector[n] log_lik_i = rep_vector(0, n);\n  for (i in 1:n) {\n"
          "    if (y[i] > 3) break;\n    log_lik_i[i] = mu;\n  }")],
        "for (i in 1:n)",
    ),
}  # fmt: skip
# These are refused a proof, and may be kept all the same for all the analysis knows.
ONLY_UNCLEAR = {
    "accumulator", "an error at large y", "an error at large y and mu",
    "left in a loop", "y_rep by a function that leaves", "parameter per record",
    "prior once a record",
    "prior that counts records", "sum of squares by a loop", "target read", "what was before",
    "outer product",
}  # fmt: skip


def program(text, path):
    return StanProgram.from_file(write(path, text))


def line_of(text, piece):
    return next(k for k, line in enumerate(text.splitlines(), 1) if piece in line)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_program_is_refused_by_its_line(name, tmp_path):
    changes, piece = BROKEN[name]
    text = GOOD
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    mine = program(text, tmp_path)
    proof = prove(mine)
    assert not proof.proved
    assert line_of(text, piece) in [finding.line for finding in proof.findings]
    if name in ONLY_UNCLEAR:
        assert not proof.broken
        refuse_broken(mine)
    else:
        named = [finding.line for finding in proof.broken]
        assert line_of(text, piece) in named
        with pytest.raises(dpb.ProgramError, match=rf"line {named[0]}: "):
            refuse_broken(mine)


def test_a_remedy_does_not_repeat_the_users_line(tmp_path):
    with pytest.raises(dpb.ProgramError) as caught:
        refuse_broken(program(GOOD.replace(PRIOR, "mu ~ normal(max(y), 2);"), tmp_path))
    assert "normal(max(y), 2)" not in str(caught.value)


@pytest.mark.parametrize("family", FAMILIES)
def test_bundled_programs_are_proved(family):
    assert prove(StanProgram.for_family(family)).findings == ()


@pytest.mark.parametrize("text", [GOOD, BLOCKS])
def test_programs_of_the_tests_are_proved(text, tmp_path):
    assert prove(program(text, tmp_path)).findings == ()


# An error at some parameter values that only some records meet: they would make it impossible.
RECORDS_DECIDE = {
    "if": "if (y[i] == 0) log_lik_i[i] = bernoulli_lpmf(0 | mu); else log_lik_i[i] = mu;",
    "else": "if (y[i] == 0) log_lik_i[i] = mu; else log_lik_i[i] = poisson_lpmf(2 | mu);",
    "other arguments": "if (y[i] > 0) log_lik_i[i] = normal_lpdf(y[i] | 0, mu);"
                       " else log_lik_i[i] = normal_lpdf(y[i] | 0, -mu);",
    "changed between": "real s = 1; if (y[i] > 0) { s = mu; log_lik_i[i] = normal_lpdf(1 | 0, s); }"
                       " else log_lik_i[i] = normal_lpdf(1 | 0, s);",
    "in both, but for a condition": "if (y[i] > 0) { if (mu > 1) log_lik_i[i] = normal_lpdf(1 | 0,"
                                    " mu); } else log_lik_i[i] = normal_lpdf(1 | 0, mu);",
    "ternary": "log_lik_i[i] = y[i] > 0 ? normal_lpdf(1 | 0, mu) : 0;",
    "and": "log_lik_i[i] = y[i] > 0 && normal_lpdf(1 | 0, mu) > 0;",
    "or": "log_lik_i[i] = y[i] > 0 || log1m(mu) > 0;",
    "continue": "log_lik_i[i] = 0; if (y[i] > 0) continue; log_lik_i[i] = log1m(mu);",
    "first argument": "log_lik_i[i] = y[i] > 0 ? lognormal_lpdf(mu | 0, 1) : 0;",
    "matrices": "log_lik_i[i] = y[i] > 0 ? sum(cholesky_decompose([[mu]])) : 0;",
    "sorted": "log_lik_i[i] = y[i] > 0 ? sort_asc([log(mu), 0])[1] : 0;",
    "sorted with a record": "log_lik_i[i] = sort_asc([log(y[i] * mu), 0])[1];",
    "index": "log_lik_i[i] = y[i] > 0 ? [1, 2][1 + 9 * (mu > 0)] : 0;",
    "index assigned to": "vector[2] v; if (y[i] > 0) v[1 + 99 * (mu > 0)] = 1; log_lik_i[i] = mu;",
    "length": "vector[1 + (mu > 0)] v; log_lik_i[i] = y[i] > 0 ? sum(v + [mu]') : 0;",
    "length filled": "log_lik_i[i] = y[i] > 0 ? sum(rep_vector(mu, 1 - 2 * (mu > 0))) : 0;",
    "length of a slice": "log_lik_i[i] = y[i] > 0 ? sum([1, 2][1:(1 + 5 * (mu > 0))]) : 0;",
    "length of a head": "log_lik_i[i] = y[i] > 0 ? sum(head([1, 2], 5 * (mu > 0))) : 0;",
    "a probability that is not a number": "log_lik_i[i] = y[i] > 0 ?"
                                          " bernoulli_lpmf(1 | inv_logit(log(mu))) : 0;",
    "distance": "log_lik_i[i] = distance([log(mu * y[i])], [1]);",
    "modulus": "log_lik_i[i] = 7 % (y[i] > mu);",
    "modulus under a condition": "log_lik_i[i] = y[i] > 0 ? 7 % (mu > 0) : 0;",
}  # fmt: skip
FOR_ALL = {
    "same in both": "if (y[i] > 0) log_lik_i[i] = normal_lpdf(y[i] | 0, exp(mu));"
                    " else log_lik_i[i] = normal_lcdf(0 | 0, exp(mu));",
    "same ternary": "log_lik_i[i] = y[i] > 0 ? normal_lpdf(y[i] | 0, mu) : normal_lcdf(0 | 0, mu);",
    "nested": "if (y[i] > 0) { if (y[i] > 1) log_lik_i[i] = normal_lpdf(y[i] | 0, mu);"
              " else log_lik_i[i] = normal_lpdf(1 | 0, mu); }"
              " else log_lik_i[i] = normal_lpdf(0 | 0, mu);",
    "mixture": "log_lik_i[i] = log_sum_exp(log_inv_logit(mu) + normal_lpdf(y[i] | mu, 1),"
               " log1m_inv_logit(mu) + normal_lpdf(y[i] | 0, 1));",
    "a condition that is public": "log_lik_i[i] = emit > 0 ? normal_lpdf(y[i] | 0, mu) : 0;",
    "before": "real p = normal_lpdf(1 | 0, mu); log_lik_i[i] = y[i] > 0 ? p : 0;",
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDS_DECIDE)
def test_records_that_decide_whether_there_is_an_error(name, tmp_path):
    text = GOOD.replace(*terms("", RECORDS_DECIDE[name].replace("{", "{{").replace("}", "}}")))
    EmbeddedEngine().compile(program(text, tmp_path))
    proof = prove(program(text, tmp_path))
    assert not proof.proved
    assert not proof.broken


@pytest.mark.parametrize("name", FOR_ALL)
def test_errors_that_are_the_same_for_all_records(name, tmp_path):
    text = GOOD.replace(*terms("", FOR_ALL[name].replace("{", "{{").replace("}", "}}")))
    EmbeddedEngine().compile(program(text, tmp_path))
    assert prove(program(text, tmp_path)).findings == ()


def test_a_random_number_that_only_some_records_draw(tmp_path):
    """Those after it are others."""
    text = GOOD.replace(Y_REP, "real z = y[1] > 0 ? normal_rng(0, 1) : 0;\n    " + Y_REP)
    assert prove(program(text, tmp_path)).broken


BLOCK_WRONG = {
    "weights of all": (
        "weights[first:last], anchor", "weights, anchor",
    ),
    "another slice": ("square(y[first:last] - mu)", "square(y[1:(last - first + 1)] - mu)"),
    "reversed": ("square(y[first:last] - mu)", "square(reverse(y)[first:last] - mu)"),
    "added in every block": (
        "clip_lower, clip_upper);\n  }", "clip_lower, clip_upper) + normal_lpdf(mu | 0, 1);\n  }",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BLOCK_WRONG)
def test_blocks_that_are_not_the_records_first_to_last(name, tmp_path):
    old, new = BLOCK_WRONG[name]
    assert old in BLOCKS
    assert not prove(program(BLOCKS.replace(old, new, 1), tmp_path)).proved


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_program_is_proved(name, tmp_path):
    proof = prove(program(HONEST[name], tmp_path))
    assert not proof.broken
    assert proof.proved == (name not in UNCLEAR), proof.findings


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_program_keeps_the_contract(name, tmp_path):
    given = {**public_data(name), "y": outcomes(name, np.random.default_rng(1))}
    data = {k: np.tile(v, (4, 1)[: np.ndim(v)]) if np.shape(v)[:1] == (N,) else v
            for k, v in given.items()}  # fmt: skip
    mine = program(HONEST[name], tmp_path)
    known = {k: data[k] for k in mine.declared("data") if k not in CONTRACT_DATA}
    known = {k: v for k, v in known.items() if k != "emit_y_rep"}
    check_contract(mine, EmbeddedEngine().compile(mine), {**known, "n": 4 * N}, private=["y"])


def test_most_honest_programs_are_proved():
    assert len(ELEMENTWISE) >= 12
    assert not set(UNCLEAR) & set(ELEMENTWISE)


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_program_compiles(name, tmp_path):
    EmbeddedEngine().compile(program(HONEST[name], tmp_path))


def test_other_confidential_names(tmp_path):
    text = GOOD.replace("vector[n] y;", "vector[n] y;\n  vector[n] z;").replace(
        PRIOR, "mu ~ normal(z[1], 2);"
    )
    mine = program(text, tmp_path)
    assert prove(mine).proved
    assert [f.line for f in prove(mine, ("y", "z")).broken] == [line_of(text, "z[1]")]


def test_what_the_grammar_does_not_know_is_unclear(tmp_path):
    text = GOOD.replace(PRIOR, "tuple(real, real) two = (1, 2);\n  " + PRIOR)
    (finding,) = prove(program(text, tmp_path)).findings
    assert (finding.line, finding.broken) == (line_of(text, "tuple"), False)


@pytest.mark.parametrize(
    "call",
    [
        "log1m()",
        "log_mix()",
        "normal_lpdf()",
        "beta_rng()",
        "exp()",
        "rep_vector()",
        "diag_pre_multiply(X)",
        "sum()",
        "fma()",
    ],
)
def test_a_call_without_arguments(call, tmp_path):
    """Found by scrambled programs: no more than the compiler is there to refuse it."""
    prove(program(GOOD.replace(PRIOR, f"real nothing = {call};\n  " + PRIOR), tmp_path))


def test_a_definition_of_ones_own_is_not_trusted(tmp_path):
    (tmp_path / "pseudo_likelihood.stan").write_text(
        "real pseudo_log_lik(vector l, vector w, vector a, real low, real high)"
        " { return sum(w .* l); }"
    )
    (finding, *_) = prove(program(GOOD, tmp_path)).broken
    assert finding.line == line_of(GOOD, "#include")


def test_deep_or_long_programs_end(tmp_path):
    deep = GOOD.replace(PRIOR, f"mu ~ normal({'(' * 3000}0{')' * 3000}, 2);")
    assert not prove(program(deep, tmp_path)).broken
    doubling = "".join(
        f"  real f{k}(real x) {{ return f{k + 1}(x) + f{k + 1}(x); }}\n" for k in range(40)
    )
    doubling = f"  real f40(real x) {{ return x; }}\n{doubling}}}\ndata {{\n"
    text = GOOD.replace("}\ndata {\n", doubling).replace(PRIOR, "mu ~ normal(f0(0), 2);")
    assert not prove(program(text, tmp_path)).proved
