"""Proper priors, proved from the text: each parameter in one proper density, or bounded."""

import pytest

from dpbayes.core.errors import EngineError
from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.stan.program import StanProgram
from dpbayes.stan.proof.check import prove
from tests.programs import BLOCKS, GOOD, write

PRIOR = "mu ~ normal(0, 2);"
DATA = "  int<lower=0, upper=1> emit_y_rep;\n"
TAU = "real<lower=0> tau;"
HALF = "tau ~ normal(0, 1);"


def program(parameters, model, data="", functions="", computed="", beforehand=""):
    """``GOOD`` with more parameters and priors."""
    text = GOOD.replace("  real mu;\n", f"  real mu;\n  {parameters}\n")
    text = text.replace("}\ndata {\n", f"{functions}\n}}\ndata {{\n")
    text = text.replace(DATA, f"{DATA}  int<lower=1> J;\n  {data}\n")
    if beforehand:
        beforehand = f"transformed data {{\n  {beforehand}\n}}\n"
        text = text.replace("parameters {\n", f"{beforehand}parameters {{\n", 1)
    if computed:
        computed = f"transformed parameters {{\n  {computed}\n}}\n"
    return text.replace("model {\n", f"{computed}model {{\n", 1).replace(
        PRIOR, f"{PRIOR}\n  {model}"
    )


PROPER = {
    "hierarchy": (f"{TAU} vector[J] u;", f"{HALF} u ~ normal(0, tau);"),
    "hierarchy of three": (f"{TAU} real m; vector[J] u;",
                           f"u ~ normal(m, tau); m ~ normal(0, 9); {HALF}"),
    "not centred": (f"{TAU} vector[J] z;", f"{HALF} z ~ std_normal();"),
    "offset and multiplier": (f"{TAU} vector<offset=mu, multiplier=tau>[J] u;",
                              f"{HALF} u ~ normal(mu, tau);"),
    "all of a matrix": ("matrix[J, 2] B;", "to_vector(B) ~ normal(0, 2.5);"),
    "by columns": ("matrix[J, 2] B;", "for (k in 1:2) B[, k] ~ normal(0, 1);"),
    "by entries": ("vector[J] b;", "for (j in 1:J) b[j] ~ student_t(3, 0, 2.5);"),
    "by entries of a matrix": ("matrix[J, 2] B;",
                               "for (j in 1:J) for (k in 1:2) B[j, k] ~ normal(0, 1);"),
    "increments": ("vector[J] b; real a;",
                   "target += normal_lpdf(b | 0, 2) + cauchy_lpdf(a | 0, 1) - log(2);"),
    "half, as others write it": (TAU, "target += normal_lpdf(tau | 0, 1)"
                                      " - 1 * normal_lccdf(0 | 0, 1);"),
    "beside numbers": ("real a; vector[J] b;", "target += normal_lpdf(a | 0, 1) - log(2) + 1 * 3"
                       " + student_t_lpdf(b | 3, g, 1);", "vector[J] g;"),
    "shaped by data": (TAU, "target += gamma_lpdf(tau | g[1], g[2]);", "vector[J] g;"),
    "cut off": (TAU, "tau ~ normal(0, 1) T[0, ];"),
    "bounded": ("real<lower=0, upper=1> p; vector<lower=-3, upper=3>[J] q; simplex[3] s;"
                " unit_vector[2] v; corr_matrix[2] C; cholesky_factor_corr[2] L;", ""),
    "shares": ("simplex[3] s; simplex[2] r;",
               "s ~ dirichlet(rep_vector(2, 3)); r ~ dirichlet([1, 2]');"),
    "correlated slopes": (
        "vector<lower=0>[2] sds; cholesky_factor_corr[2] L; array[J] vector[2] b;",
        "sds ~ exponential(1); L ~ lkj_corr_cholesky(2);"
        " b ~ multi_normal_cholesky(rep_vector(0, 2), diag_pre_multiply(sds, L));"),
    "cutpoints": ("ordered[3] c;", "c ~ normal(0, 5);"),
    "a block": ("vector[J] b;", "{ b ~ normal(0, 1); }"),
    "a scale by a parameter": (f"{TAU} vector[J] u;", f"{HALF} u ~ normal(0, 2 * tau);"),
    "a mean and a scale of parameters": (
        f"{TAU} real<lower=0> r; real<lower=0> w; real<lower=0, upper=1> p; vector[J] m;"
        " vector[J] b; real<lower=0.1, upper=9> k; simplex[3] s;",
        f"{HALF} r ~ gamma(2, tau); w ~ weibull(2, tau); p ~ beta(2 * k, 9 - k);"
        " m ~ normal(0, 1); b ~ normal(m, tau); s ~ dirichlet(rep_vector(k, 3));"),
    "shaped by bounded parameters": (
        f"{TAU} real<lower=0.1, upper=50> a; vector<lower=0.5, upper=9>[2] c;"
        " real<lower=0, upper=1> p;",
        "tau ~ gamma(a, 2); target += beta_lpdf(p | c[1], c[2]);"),
    "any scale with all factors": (f"{TAU} vector[J] u;",
                                   f"{HALF} target += normal_lpdf(u | 0, 1 / sqrt(tau));"),
}  # fmt: skip


@pytest.mark.parametrize("name", PROPER)
def test_proper(name, tmp_path):
    mine = StanProgram.from_file(write(tmp_path, program(*PROPER[name])))
    EmbeddedEngine().compile(mine)
    assert prove(mine).findings == ()


FLAT = "vector[J] b;"
INFINITE = "real s_of(int k) { return 1.0 / k; }"
OWN = "real normal_lpdf(vector x, int a, int b) { return 0; }"
ADDS = "int add_lp(vector b) { target += dot_self(b); return 1; }"
FREE = (
    "pseudo_log_lik({}, rep_vector(1, 1), rep_vector(0, 1), "
    "negative_infinity(), positive_infinity())"
)
IMPROPER = {
    "none": (FLAT, ""),
    "none for a scale": (TAU, ""),
    "half bounded": ("real<lower=0> a;", ""),
    "infinite bounds": ("real<lower=negative_infinity(), upper=positive_infinity()> a;", ""),
    "a bound by a parameter": (f"{TAU} real<lower=0, upper=tau> a;", "tau ~ cauchy(0, 1);"),
    "a bound of the window": ("real<lower=clip_lower, upper=clip_upper> a;", ""),
    "a number too large": (FLAT, "b ~ normal(0, 1e999);"),
    "an infinite scale": (FLAT, "b ~ normal(0, positive_infinity());"),
    "a division by nothing": (FLAT, "b ~ normal(0, 1.0 / (J - J));"),
    "an infinite scale of one's own": (FLAT, "b ~ normal(0, s_of(0));", "", INFINITE),
    "a scale by a condition": (FLAT, "b ~ normal(0, 1.0 / (mu > 0));"),
    "a scale by a whole number": (FLAT, "b ~ normal(0, 1.0 * ((mu > 1) + (mu > 2)));"),
    "a scale computed before": (FLAT, "real s = 1.0 / (J - J); b ~ normal(0, s);"),
    "a scale of the window": (FLAT, "b ~ normal(0, clip_upper);"),
    "some entries": (FLAT, "b[1] ~ normal(0, 1);"),
    "some, by a slice": (FLAT, "b[1:(J - 1)] ~ normal(0, 1);"),
    "some, by a loop": (FLAT, "for (j in 2:J) b[j] ~ normal(0, 1);"),
    "some, by a short loop": (FLAT, "for (j in 1:1) b[j] ~ normal(0, 1);"),
    "one of them always": (FLAT, "for (j in 1:J) b[1] ~ normal(0, 1);"),
    "another axis": ("matrix[J, 2] B;", "for (j in 1:J) B[, j] ~ normal(0, 1);"),
    "a diagonal": ("matrix[J, J] B;", "for (j in 1:J) B[j, j] ~ normal(0, 1);"),
    "a loop that is left": (FLAT, "for (j in 1:J) { if (j > 1) break; b[j] ~ normal(0, 1); }"),
    "a loop that skips": (FLAT, "for (j in 1:J) { if (j > 1) continue; b[j] ~ normal(0, 1); }"),
    "a condition": (FLAT, "if (J > 5) b ~ normal(0, 1);"),
    "a condition by a parameter": (FLAT, "if (mu > 0) b ~ normal(0, 1);"),
    "while": (FLAT, "while (J < 0) b ~ normal(0, 1);"),
    "many times in a loop": (f"{TAU} real a;", f"{HALF} for (j in 1:J) a ~ normal(0, tau);"),
    "twice": ("real<lower=0, upper=1> p;", "p ~ beta(0.5, 0.5); p ~ beta(0.5, 0.5);"),
    "many means of one": (f"{TAU} real a;", f"{HALF} a ~ normal(rep_vector(0, 3), tau);"),
    "many means by an index": (f"{TAU} real a;", f"{HALF} a ~ normal(g[many], tau);",
                               "vector[J] g; array[3] int many;"),
    "many shares of one": ("simplex[2] p;", "p ~ dirichlet(all_of);", "array[9] vector[2] all_of;"),
    "many means in a loop": (f"{TAU} {FLAT}",
                             f"{HALF} for (j in 1:J) b[j] ~ normal(rep_vector(0, 3), tau);"),
    "many means by a name of two": (
        f"{TAU} real a;", f"{HALF} {{ vector[3] m = rep_vector(0, 3); a ~ normal(m, tau); }}"
                          " { real m = 0; }"),
    "once for each entry of another summand": (
        FLAT, "target += cauchy_lpdf(b | 0, 1) + rep_vector(0, 5);"),
    "once for each entry of nothing": (
        FLAT, "target += normal_lpdf(b | 0, 1) + rep_vector(0, 0);"),
    "once for each entry of data": (
        FLAT, "target += normal_lpdf(b | 0, 1) + g;", "vector[J] g;"),
    "added in the end of a loop": (
        FLAT, "for (j in 1:add_lp(b)) b[j] ~ normal(0, 1);", "", ADDS),
    "added in an argument": (FLAT, "b ~ normal(add_lp(b), 1);", "", ADDS),
    "added in an argument of a density": (
        FLAT, "target += normal_lpdf(b | add_lp(b), 1);", "", ADDS),
    "added in an end that cuts": (
        f"{FLAT} real a;", "b ~ normal(0, 1); a ~ normal(0, 1) T[add_lp(b), ];", "", ADDS),
    "no vectors of an array": (
        "array[J] vector[2] b;", "b ~ multi_normal(none_of, identity_matrix(2));",
        "array[0] vector[2] none_of;"),
    "a constant of data": (FLAT, "b ~ normal(0, 1); target += g[1];", "vector[J] g;"),
    "a large constant": (FLAT, "b ~ normal(0, 1); target += 2e6;"),
    "a large constant by a function": (FLAT, "b ~ normal(0, 1); target += exp(40);"),
    "a large constant by a product": (FLAT, "target += normal_lpdf(b | 0, 1) - 3 * 1e7;"),
    "a large constant by small numbers": (FLAT, "b ~ normal(0, 1); target += 1e3 * 1e3 * 1e3;"),
    "an infinite constant": (FLAT, "b ~ normal(0, 1); target += log(0);"),
    "a constant by a far end": (FLAT, "b ~ normal(0, 1); target += normal_lccdf(1e6 | 0, 1e-6);"),
    "a constant by one's own": (FLAT, "b ~ normal(0, 1); target += a_lcdf(1 | 2);", "",
                                "real a_lcdf(real x, real z) { return 3.6e16; }"),
    "large where the density is": (TAU, "tau ~ gamma(1e15, 1e15);"),
    "large by data": (TAU, "tau ~ gamma(g[1], g[2]);", "vector[J] g;"),
    "cut off far out": (TAU, "tau ~ normal(0, 1) T[1e6, ];"),
    "another density besides": (FLAT, "b ~ normal(0, 1); target += dot_self(b);"),
    "a Jacobian": (TAU, f"{HALF} target += -2 * log(tau);"),
    "a product": (FLAT, "target += 0.0 * normal_lpdf(b | 0, 1);"),
    "taken away": ("real a;", "a ~ normal(0, 1); target += -normal_lpdf(mu | 0, 1);"),
    "taken away from a sum": ("real a;", "target += 0 - normal_lpdf(a | 0, 1);"),
    "of itself": ("real a;", "a ~ normal(a, 1);"),
    "of each other": ("real a; real c;", "a ~ normal(c, 1); c ~ normal(a, 1);"),
    "of each other, by a variable": ("real a; real c;",
                                     "real m = c; a ~ normal(m, 1); c ~ normal(a, 1);"),
    "of what is computed from itself": (
        f"{TAU} real a;", f"{HALF} a ~ normal(m, tau);", "", "", "real m = a;"),
    "of what is computed": ("real a;", "m ~ normal(0, 1);", "", "", "real m = a - mu;"),
    "no end": ("real a;", "a ~ von_mises(0, 1);"),
    "a density of one's own": ("real a;", "a ~ none();", "", "real none_lpdf(real a)"
                                                             " { return 0; }"),
    "one of Stan's, changed": (FLAT, "b ~ normal(0, 1);", "", OWN),
    "one of Stan's functions, changed": (
        "matrix[2, 2] B;", "to_vector(B) ~ normal(0, 1);", "",
        "vector to_vector(matrix x, int a, int b) { return x[, 1]; }"),
    "sums of zero": (f"{TAU} sum_to_zero_vector[3] z;", f"{HALF} z ~ normal(0, tau);"),
    "shares by another density": (f"{TAU} simplex[3] s;", f"{HALF} s ~ normal(0, tau);"),
    "cut off by a parameter": (f"{TAU} real<lower=0> a;",
                               f"{HALF} a ~ normal(-1e9, tau) T[0, ];"),
    "in a function": (FLAT, "add_lp(b);", "", "void add_lp(vector b) { target += dot_self(b); }"),
    "in transformed parameters": (FLAT, "b ~ normal(0, 1);", "", "", "jacobian += dot_self(b);"),
    "in a local variable": (FLAT, "real p = normal_lpdf(b | 0, 1); target += p;"),
    "a logarithm": (TAU, "log(tau) ~ normal(0, 1);"),
    "a sum": ("real a;", "a + mu ~ normal(0, 1);"),
    "many means by transformed data": (
        f"{TAU} {FLAT}", f"{HALF} b ~ normal(m, tau);", "", "", "",
        "vector[J] m = rep_vector(0, 20);"),
    "by the clamp in a sum": (FLAT, f"target += normal_lpdf(1 | 0, 1) + {FREE.format('b')};"),
    "shaped by a large parameter": (
        f"{TAU} real<lower=0> a;", "a ~ normal(1e15, 1e14); tau ~ gamma(a, a);"),
    "shaped by a large parameter, with all factors": (
        f"{TAU} real<lower=0> a;", "a ~ normal(1e15, 1e14); target += gamma_lpdf(tau | a, a);"),
    "shaped by what is computed": (
        f"{TAU} real<lower=0, upper=9> a;",
        "real s = 1e15 * a; target += gamma_lpdf(tau | s, s);"),
    "shaped by a parameter of a large domain": (
        f"{TAU} real<lower=0, upper=1e15> a;", "tau ~ gamma(a, a);"),
    "by reduce_sum": ("real a;", "a ~ normal(0, 1);"
                      " target += reduce_sum(more, {1, 2}, 1, a);", "",
                      "real more(array[] int x, int b, int e, real a) { return a * a; }"),
}  # fmt: skip


@pytest.mark.parametrize("name", IMPROPER)
def test_not_known_to_be_proper(name, tmp_path):
    mine = StanProgram.from_file(write(tmp_path, program(*IMPROPER[name])))
    proof = prove(mine)
    assert not proof.proved
    assert not proof.broken


def test_attacks_are_stan(tmp_path):
    for attack in IMPROPER.values():
        EmbeddedEngine().compile(StanProgram.from_file(write(tmp_path, program(*attack))))


def test_the_line_is_named_with_what_to_write(tmp_path):
    mine = StanProgram.from_file(write(tmp_path, program(FLAT, "")))
    (finding,) = prove(mine).findings
    assert mine.source.splitlines()[finding.line - 1] == f"  {FLAT}"
    assert "write b ~ normal(0, 1);" in finding.message


@pytest.mark.parametrize(
    ("declared", "prior", "told"),
    [
        ("cov_matrix[2] S;", "S ~ inv_wishart(3, identity_matrix(2));", "no density of a cov_mat"),
        ("sum_to_zero_vector[3] u;", "u ~ normal(0, 1);", "no density of a sum_to_zero_vector"),
        ("array[1] vector[2] z;", "z[1] ~ normal(0, 1);", "each entry its density in a loop"),
    ],
)
def test_advice_can_be_followed(declared, prior, told, tmp_path):
    mine = StanProgram.from_file(write(tmp_path, program(declared, prior)))
    assert any(told in finding.message for finding in prove(mine).findings)


def test_without_the_prior_of_mu_nothing_is_proved(tmp_path):
    """The base of all of these is proved, and is not without it."""
    nothing = StanProgram.from_file(write(tmp_path, program("", "")))
    assert prove(nothing).findings == ()
    for text in (program("", "").replace(PRIOR, ""), BLOCKS.replace(PRIOR, "")):
        proof = prove(StanProgram.from_file(write(tmp_path, text)))
        assert any("mu has no prior" in finding.message for finding in proof.findings)


def test_constants_are_finite(tmp_path):
    """A flat prior by data: normal(0, scale) with an infinite scale."""
    text = program("real a;", "a ~ normal(0, scale);", "real scale;")
    mine = StanProgram.from_file(write(tmp_path, text))
    assert prove(mine).proved
    data = {"n": 2, "y": [0.0, 1], "J": 2, "weights": [1.0, 1], "anchor": [0.0, 0]}
    ends = {"clip_lower": float("-inf"), "clip_upper": float("inf")}
    model = EmbeddedEngine().compile(mine)
    model.bind({**data, **ends, "scale": 2.0})
    with pytest.raises(EngineError, match="'scale' holds NaN or infinite values"):
        model.bind({**data, **ends, "scale": float("inf")})
