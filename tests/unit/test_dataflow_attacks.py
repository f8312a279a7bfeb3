"""Programs that leak in ways that are easy to overlook: none of them is proved."""

import pytest

from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.stan.dataflow import prove
from dpbayes.stan.program import StanProgram
from tests.programs import BLOCKS, GOOD, write

CALL = "target += pseudo_log_lik(log_lik_i, weights, anchor, clip_lower, clip_upper);"
TERMS = "vector[n] log_lik_i = -0.5 * square(y - mu) - 0.5 * log(2 * pi());"
SUM = CALL.removeprefix("target += ")
NEVER = f"if (emit)\n    {CALL}\n  else "  # what the check by name looks for
NEVER_BLOCK = """if (emit)
    target += reduce_sum_static(block, record, 4000, y, mu, weights, anchor, clip_lower,
                                clip_upper);
  else
    """
PRIOR = "mu ~ normal(0, 2);"
COUNTS = GOOD.replace("vector[n] y;", "array[n] int<lower=0> y;").replace(
    "square(y - mu)", "square(to_vector(y) - mu)"
)
COUNT_TERMS = TERMS.replace("y - mu", "to_vector(y) - mu")


def functions(text):
    return ("}\ndata {\n", text + "}\ndata {\n")


def beforehand(text):
    return ("parameters {\n", f"transformed data {{\n  {text}\n}}\nparameters {{\n")


def computed(text):
    return ("model {\n", f"transformed parameters {{\n  {text}\n}}\nmodel {{\n")


def more(text):
    """After the prior."""
    return (PRIOR, f"{PRIOR}\n  {text}")


def each(text):
    """For every record, after the prior."""
    return more(f"for (i in 1:n) {{ {text} }}")


PUBLIC_X = ("vector[n] y;", "vector[n] y;\n  int<lower=1> rows;\n  vector[5] x;")
MATRIX = ("int<lower=0> y;", "int<lower=0> y;\n  int K;\n  matrix[n, K] X;")

FIRST = """  vector first(vector u) {
    vector[rows(u)] v = u;
    for (i in 1:rows(u)) {
      v[i] = 5;
      return v;
    }
    return v;
  }
"""

# name: the program, and replacements in it
BY_FIRST = "  real f(vector y) {\n    real k = y[1] > 0.6 ? 9.0 : 0.0;\n    return k;\n  }\n"
FAILS = """  real f(vector y, real m) {
    return -20 + 0 * size({log1m(exp(m) * y[1])});
  }
"""

ATTACKS = {
    # What a function declares where it is called in a block of parameters.
    "a bound by a function's variable": (
        GOOD, [functions(BY_FIRST), ("  real mu;", "  real<lower=f(y)> mu;")],
    ),
    "an offset by a function's variable": (
        GOOD, [functions(BY_FIRST), ("  real mu;", "  real<offset=f(y)> mu;")],
    ),
    "a bound that fails": (
        GOOD, [functions(FAILS), ("  real mu;", "  real m;\n  real<lower=f(y, m)> mu;"),
               (PRIOR, PRIOR + "\n  m ~ normal(0, 2);")],
    ),
    # Beside a large number a record's term is rounded to many times the window.
    "a constant that rounds": (GOOD, [more("target += 3.6e16;")]),
    # The switch of y_rep, as a variable of the user's own.
    "what is computed where y_rep is said to be drawn": (
        GOOD.replace("  int<lower=0, upper=1> emit_y_rep;\n", ""),
        [beforehand("int emit_y_rep = 1;"),
         ("normal_rng(rep_vector(mu, n), 1)", "rep_array(mu, n)"),
         more("if (emit_y_rep) { int k = 0; while (k < 3) k += 1; }")],
    ),
    "a condition on a name of an inner block": (
        GOOD, [beforehand("{ real theta = 1; }"),
               more("real theta = mu;\n  if (theta > 0) target += 0;")],
    ),
    "a condition in a block that is summed": (
        BLOCKS, [("    return pseudo_log_lik",
                  "    if (mu > 0) log_lik_i = log_lik_i + 0.1;\n    return pseudo_log_lik")],
    ),
    "a name of another column": (GOOD, [more("real z__b = 1;")]),
    "a function of Stan's own that adds to target": (
        GOOD, [computed("for (i in 1:n) { real z = lower_bound_jacobian(mu, 0.0); }")],
    ),
    # What Stan calls in place of a user's function of the same name may fail.
    "a function that hides one of Stan's": (
        COUNTS, [functions("  complex log1m(complex z) { return z; }\n"), (
            COUNT_TERMS, "vector[n] log_lik_i;\n  for (i in 1:n) { real w = 0; "
            "if (y[i] == 1) w = log1m(exp(mu)); log_lik_i[i] = w; }")],
    ),
    "a function that hides the number of records": (
        GOOD, [functions("  real sum(array[,,] int x) { return 1.0; }\n"),
               beforehand("real s = sum([ones_row_vector(n)]);"),
               (PRIOR, "mu ~ normal(s, 2);")],
    ),
    # Which rounding takes above its bound.
    "a share below a large bound": (
        COUNTS, [("  real mu;", "  real mu;\n  real<lower=-1.0e16, upper=1> p;"),
                 (PRIOR, PRIOR + "\n  p ~ normal(0, 1);"),
                 (COUNT_TERMS, "vector[n] log_lik_i;\n  for (i in 1:n) "
                  "log_lik_i[i] = log1m(y[i] == 1 ? p : 0.5);")],
    ),
    "a floor that may be 0": (
        GOOD, [("vector[n] y;", "vector[n] y;\n  int<lower=0> J;"),
               (TERMS, "vector[n] log_lik_i;\n  for (i in 1:n) "
                "log_lik_i[i] = log1p(exp(-exp(mu)) / fmax(J, -y[i]));")],
    ),
    "a loop in a block that is summed": (
        BLOCKS,
        [("return pseudo", "int k = 0;\n    while (k < 3) k += 1;\n    return pseudo")],
    ),
    "a block of a block": (
        BLOCKS, [("weights[first:last]", "weights[first:last][first:last]")],
    ),
    # The clamped sum, more than once or not everywhere.
    "clamped sum and a vector": (
        GOOD, [(CALL, CALL.replace(");", ") + rep_vector(0, 3);"))],
    ),
    "clamped sum in a vector's assignment": (
        GOOD, [(CALL, NEVER + f"{{ vector[3] v = rep_vector(0, 3); v += {SUM} target += v; }}")],
    ),
    "clamped sum by a condition": (
        GOOD, [(CALL, NEVER + f"target += mu > 0 ? 0 : {SUM}")],
    ),
    "clamped sum by a condition, stored": (
        GOOD, [(CALL, NEVER + f"{{ real c = 0; if (mu > 0) c = {SUM} target += c; }}")],
    ),
    "all records in every block": (
        BLOCKS, [("y[first:last]", "y"), ("weights[first:last]", "weights"),
                 ("anchor[first:last]", "anchor"), ("vector[last - first + 1]", "vector[rows(y)]")],
    ),
    # Names.
    "a function of Stan's for whole numbers": (
        COUNTS, [functions("  real lmgamma(real a, real b) { return 0; }\n"),
                 (PRIOR, "mu ~ normal(lmgamma(y[1], 2.0), 2);")],
    ),
    "a function of Stan's for a sum": (
        COUNTS, [functions("  real lmgamma(real a, real b) { return 0; }\n"),
                 (PRIOR, "mu ~ normal(lmgamma(sum(y), 1.0), 2);")],
    ),
    "a function of Stan's for a square root": (
        COUNTS, [functions("  real inc_beta(int a, int b, int c) { return 0; }\n"),
                 (PRIOR, "mu ~ normal(inc_beta(sqrt(y[1]), 1, 1), 2);")],
    ),
    "a function of Stan's for a shallower array": (
        COUNTS, [functions("  int sum(array[,] int x) { return 0; }\n"),
                 (PRIOR, "mu ~ normal(sum(y), 2);")],
    ),
    "an overload by what is drawn": (
        GOOD, [functions("  real f(array[] real a, vector y) { return 0; }\n"
                         "  real f(vector a, vector y) { return sum(y); }\n"),
               beforehand("real m = f(dirichlet_rng(rep_vector(1, 3)), y);"),
               (PRIOR, "mu ~ normal(m, 2);")],
    ),
    "an overload by a whole sum": (
        GOOD, [functions("  real f(real a, vector y) { return 0; }\n"
                         "  real f(int a, vector y) { return sum(y); }\n"),
               (PRIOR, "mu ~ normal(f(sum({1, 2}), y), 2);")],
    ),
    "an overload by complex numbers": (
        GOOD, [functions("  real f(vector a, vector y) { return 0; }\n"
                         "  real f(complex_vector a, vector y) { return sum(y); }\n"),
               beforehand("complex_vector[1] c = [1i]';\n  real m = f(c, y);"),
               (PRIOR, "mu ~ normal(m, 2);")],
    ),
    # An error where a record and parameters meet: the density is zero there.
    "a division of whole numbers": (GOOD, [each("int z = 1 %/% (mu < y[i]);")]),
    "a remainder": (GOOD, [each("int z = 1 % (mu < y[i]);")]),
    "a division of whole numbers, in place": (GOOD, [each("int z = 1; z /= (mu < y[i]);")]),
    "a length below zero": (GOOD, [each("vector[1] z = [sum(rep_vector(0, -(mu < y[i])))]';")]),
    "a head that is too long": (
        GOOD, [PUBLIC_X, each("real z = sum(head(x, mu < y[i] ? 1 : 99));")],
    ),
    "sorting what is not a number": (GOOD, [each("vector[2] z = sort_asc([log(mu - y[i]), 1]');")]),
    "a loop that moves its end": (
        GOOD, [more("int k = 1; real s = 0; for (j in 1:k) { for (i in 1:n)"
                    " if (y[i] == 0.25 && k < 9) k += 1; s += 1; } mu ~ normal(s, 1);")]),
    "a loop that moves its end by an entry": (
        GOOD, [more("array[1] int k = {1}; real s = 0; for (j in 1:k[1]) { for (i in 1:n)"
                    " if (y[i] == 0.25 && k[1] < 9) k[1] += 1; s += 1; } mu ~ normal(s, 1);")]),
    "a loop that moves its end by the number of records": (
        GOOD, [more("int k = 1; real s = 0; for (j in 1:k) { if (k < n) k += 1; s += 0.1; }"
                    " mu ~ normal(s, 1);")]),
    "a loop that changes what it goes through": (
        GOOD, [more("array[3] real v = {0, 0, 0}; real s = 0; for (u in v) { for (i in 1:n)"
                    " if (y[i] == 0.25) v[3] = 5; s += u; } mu ~ normal(s, 1);")]),
    "a bound by the name of a function's variable": (
        GOOD, [functions("  real f(real u) { real d = u; return d; }\n"),
               computed("vector<lower=-1>[n] d;\n  real q = f(1.0);\n  d = mu - y;")]),
    "a whole number that is too large": (
        GOOD, [each("int k = mu < y[i] ? 2147483647 : 0; real z = k + k;")]),
    "a whole number that has no opposite": (
        GOOD, [each("int k = mu < y[i] ? -2147483647 - 1 : 0; real z = -k;")]),
    "a division by -1": (
        GOOD, [each("int k = mu < y[i] ? -2147483647 - 1 : 0; real z = k %/% -1;")]),
    "a length by parameters": (
        GOOD, [("  if (emit) {", "  if (emit) {\n    vector[mu > 0 ? 6 : 0] v;\n    for (i in 1:n)"
                " if (y[i] == 0.25) for (j in 1:6) log_lik[i] += fmin(0, v[j]);")]),
    "a root of -0": (GOOD, [each("real z = log1p(exp(mu) / sqrt(-y[i]));")]),
    "the larger of 0 and -0": (GOOD, [each("real z = log1p(exp(mu) / fmax(0.0, -y[i]));")]),
    "an even power by numbers that are rounded": (
        GOOD, [each("real z = log1p((mu * y[i]) ^ (9999999999.0 * 9999999999.0 + 2.0"
                    " - 9999999999.0 * 9999999999.0));")]),
    "the larger of not a number": (GOOD, [each("real z = log1p(fmax(sqrt(mu - y[i]), -5));")]),
    "a bound that is checked": (GOOD, [computed("vector<lower=0>[n] d;\n  d = y - mu;")]),
    "a bound that is checked, by entry": (
        GOOD, [computed("vector<lower=0>[n] d;\n  for (i in 1:n) d[i] = y[i] - mu;")],
    ),
    "an order that is checked": (GOOD, [computed("ordered[n] d = y * mu;")]),
    "a simplex that is checked": (GOOD, [computed("simplex[2] d;\n  d = [y[1] * mu, 1]';")]),
    "a decomposition that is not used": (
        GOOD, [each("matrix[1, 1] L = cholesky_decompose([[y[i] - mu]]);")],
    ),
    "an error in a branch": (GOOD, [each("if (mu < y[i]) { real z = log1m(2.0); }")]),
    "an error at parameters in a branch on a record": (
        GOOD, [each("if (y[i] > 3) { real z = log1m(mu); }")],
    ),
    "an error in one side of a ternary": (GOOD, [each("real z = mu < y[i] ? log1m(2.0) : 0;")]),
    "an error after and": (GOOD, [each("int z = (mu < y[i]) && (log1m(2.0) > 0);")]),
    "an index in a branch": (GOOD, [PUBLIC_X, each("if (mu < y[i]) { real z = x[99]; }")]),
    "an index to assign to in a branch": (
        GOOD, [each("vector[1] z; if (mu < y[i]) z[2] = 1;")],
    ),
    "an index by a loop in a branch": (
        GOOD, [PUBLIC_X, each("if (mu < y[i]) for (k in 1:99) { real z = x[k]; }")],
    ),
    "a length in a branch": (GOOD, [each("if (mu < y[i]) { vector[2] z = rep_vector(0, 3); }")]),
    "lengths that differ in a branch": (
        GOOD, [PUBLIC_X, each("if (mu < y[i]) { real z = dot_product(x, x[1:2]); }")],
    ),
    "a density in a branch": (
        GOOD, [each("if (y[i] > 3) { real z = normal_lpdf(0 | 0, mu); }")],
    ),
    "a probability that is no number": (
        GOOD, [each("if (y[i] > 3) { real z = bernoulli_lpmf(1 | inv_logit(log(mu))); }")],
    ),
    "a probability that may be below zero": (
        GOOD, [("  real mu;\n", "  real mu;\n  real<upper=1> p;\n"),
               each("if (y[i] > 3) { real z = bernoulli_lpmf(1 | p); }")],
    ),
    "an impossible probability in a branch": (
        GOOD, [each("if (y[i] > 3) { real z = bernoulli_lpmf(1 | mu); }")],
    ),
    "a record's index of a length by parameters": (
        COUNTS, [MATRIX, each("real z = X[1:(mu > 0 ? 1 : n)][y[i], 1];")],
    ),
    "an index of a length by records": (
        GOOD, [PUBLIC_X, each("if (mu > 0) { real z = x[1:(y[i] > 0 ? 2 : 5)][4]; }")],
    ),
    "a head of a length by records": (
        GOOD, [PUBLIC_X, each("if (mu > 0) { real z = sum(head(x[1:(y[i] > 0 ? 2 : 5)], 4)); }")],
    ),
    "a line that goes down": (
        GOOD, [each("if (mu > 0) { real z = sum(linspaced_vector(3, y[i], 0.0)); }")],
    ),
    "a distance from infinity": (
        GOOD, [each("real z = distance([log(fmax(mu - y[i], 0))]', [1.0]');")],
    ),
    "lengths by a condition": (
        GOOD, [PUBLIC_X, each("vector[2] z = mu < y[i] ? x[1:2] : x[1:3];")],
    ),
    "lengths by what a function returns": (
        GOOD, [PUBLIC_X,
               functions("  vector cut(vector x, real y, real mu) {\n"
                         "    if (mu < y) return x[1:2];\n    return x;\n  }\n"),
               each("vector[2] z = cut(x, y[i], mu);")],
    ),
    "a binomial's number by parameters": (
        COUNTS, [each("real z = binomial_lpmf(y[i] | mu > 0 ? 10 : 2, 0.5);")],
    ),
    "an error in generated quantities": (
        GOOD, [("  if (emit) {",
                "  if (emit) {\n    for (i in 1:n) { real z = log1p(mu - y[i]); }")],
    ),
    # Places and lengths.
    "columns by records": (
        COUNTS, [MATRIX, (COUNT_TERMS, "vector[n] log_lik_i;\n  matrix[n, n] Z = X[:, y];\n"
                          "  for (i in 1:n) log_lik_i[i] = Z[i, 1] * mu;")],
    ),
    "rows and columns by records": (
        COUNTS, [MATRIX, (COUNT_TERMS, "vector[n] log_lik_i;\n  matrix[n, n] Z = X[y, y];\n"
                          "  for (i in 1:n) log_lik_i[i] = Z[i, 1] * mu;")],
    ),
    "columns assigned by records": (
        COUNTS, [MATRIX, (COUNT_TERMS, "vector[n] log_lik_i;\n"
                          "  matrix[n, n] Z = rep_matrix(0, n, n);\n"
                          "  Z[:, y] = rep_matrix(1, n, n);\n"
                          "  for (i in 1:n) log_lik_i[i] = Z[i, 1] * mu;")],
    ),
    "the length of a choice": (
        GOOD, [PUBLIC_X,
               beforehand("int k = size(y[1] > 0 ? x[1:(4 %/% 2)] : x[1:(3 %/% 1)]);"),
               (PRIOR, "mu ~ normal(k, 2);")],
    ),
    "the length of what was empty": (
        GOOD, [PUBLIC_X, beforehand("vector[0] z;\n  if (y[1] > 0) z = x;\n  int k = size(z);"),
               (PRIOR, "mu ~ normal(k, 2);")],
    ),
    "how often a loop runs": (
        GOOD, [PUBLIC_X,
               beforehand("int k = 0;\n  for (v in (y[1] > 0 ? x[1:(4 %/% 2)] : x[1:(3 %/% 1)]))"
                          " k += 1;"),
               (PRIOR, "mu ~ normal(k, 2);")],
    ),
    # More errors, and doors.
    "an error beside a shared density": (
        GOOD, [each("if (y[i] > 3) { if (mu > 0) continue; real z = normal_lpdf(0 | 0, mu); }"
                    " else { real z = normal_lpdf(0 | 0, mu); }")],
    ),
    "a shared density of something else": (
        GOOD, [each("real s = 1; if (y[i] > 3) { s = mu; real z = normal_lpdf(0 | 0, s); }"
                    " else { real z = normal_lpdf(0 | 0, s); }")],
    ),
    "a density after one that was skipped": (
        GOOD, [each("if (mu < -9) { real z = normal_lpdf(0 | 0, mu); }"
                    " if (y[i] > 3) { real z = normal_lpdf(0 | 0, mu); }")],
    ),
    "a density after its variable changed": (
        GOOD, [each("real s = 1; real z = normal_lpdf(0 | 0, s); s = mu;"
                    " if (y[i] > 3) z = normal_lpdf(0 | 0, s);")],
    ),
    "a density in a function of a branch": (
        GOOD, [functions("  real g(real s) { return normal_lpdf(0 | 0, s); }\n"),
               each("if (y[i] > 3) { real z = g(mu); }")],
    ),
    "an error after leaving a function": (
        GOOD, [functions("  real g(real y, real mu) {\n    if (mu < y) return 0;\n"
                         "    return log1m(2.0);\n  }\n"),
               each("real z = g(y[i], mu);")],
    ),
    "a record's error at some parameters": (
        GOOD, [each("if (mu > 0) { real z = log1m(y[i]); }")],
    ),
    "a record's index at some parameters": (
        COUNTS, [MATRIX, each("if (mu > 0) { real z = X[1, y[i]]; }")],
    ),
    "a record's density at some parameters": (
        COUNTS, [each("if (mu > 0) { real z = bernoulli_lpmf(y[i] | 0.5); }")],
    ),
    "a loop's end in an index": (
        GOOD, [PUBLIC_X, each("int k = 0; while (k < 9) { k += 1; if (mu < y[i]) {"
                              " real z = x[k]; } }")],
    ),
    "a loop to the length of another": (
        GOOD, [PUBLIC_X, each("for (k in 1:rows) if (mu < y[i]) { real z = x[k]; }")],
    ),
    "a choice by and": (
        GOOD, [PUBLIC_X, each("int z = mu < y[i] || x[99] > 0;")],
    ),
    "records by a transposed choice": (
        COUNTS, [MATRIX, (COUNT_TERMS, "vector[n] log_lik_i;\n  matrix[n, n] Z = X[, y]';\n"
                          "  for (i in 1:n) log_lik_i[i] = Z[1, i] * mu;")],
    ),
    "a clamped sum that a loop over nothing leaves out": (
        GOOD, [(CALL, NEVER + f"for (k in 1:(mu > 0)) {CALL}")],
    ),
    "a clamped sum in a while loop": (
        GOOD, [(CALL, NEVER + f"{{ int k = 0; while (k < 2) {{ k += 1; {CALL} }} }}")],
    ),
    "a clamped sum by a function with a branch": (
        GOOD, [functions("  real g(real s, vector l, vector w, vector a, real lo, real hi) {\n"
                         "    if (s > 0) return 0.0;\n"
                         "    return pseudo_log_lik(l, w, a, lo, hi);\n  }\n"),
               (CALL, NEVER + "target += g(mu, log_lik_i, weights, anchor,"
                              " clip_lower, clip_upper);")],
    ),
    "a clamped sum in an array": (
        GOOD, [(CALL, NEVER + f"{{ array[2] real c = rep_array({SUM[:-1]}, 2); target += c; }}")],
    ),
    "blocks in blocks": (
        BLOCKS.replace("linspaced_int_array(n, 1, n), 4000", "record, 4000").replace(
            "  real block(", "  real outer(array[] int record, int first, int last, vector y,"
            " real mu,\n    vector weights, vector anchor, real clip_lower, real clip_upper) {\n"
            "    return reduce_sum(block, linspaced_int_array(rows(y), 1, rows(y)), 1, y, mu,"
            " weights, anchor, clip_lower, clip_upper);\n  }\n  real block(").replace(
            "model {", "transformed data {\n  array[n] int record = ones_int_array(n);\n}\n"
            "model {").replace("parameters {\n  real mu;\n}\ntransformed data {\n  array[n] int "
            "record = ones_int_array(n);\n}", "transformed data {\n  array[n] int record = "
            "ones_int_array(n);\n}\nparameters {\n  real mu;\n}"),
        [("target += reduce_sum_static(block, record",
          NEVER_BLOCK + "target += reduce_sum_static(outer, record")],
    ),
    "a name of Stan's with an array of whole numbers": (
        COUNTS, [functions("  real variance(array[,] real x) { return 1; }\n"),
                 (PRIOR, "mu ~ normal(0, variance(y));")],
    ),
    "an offset from the records": (
        GOOD, [("  real mu;\n", "  real<offset=mean(y), multiplier=sd(y)> mu;\n")],
    ),
    "truncated at a record": (GOOD, [(PRIOR, "mu ~ normal(0, 2) T[min(y), ];")]),
    "a density of a record's own": (
        GOOD, [functions("  real near_lpdf(real x, vector y) { return -square(x - mean(y)); }\n"),
               (PRIOR, "mu ~ near(y);")],
    ),
    "an added density in a function": (
        GOOD, [functions("  void near_lp(real x, vector y) { target += -square(x - y[1]); }\n"),
               more("near_lp(mu, y);")],
    ),
    "a profile block": (GOOD, [more('profile("p") { target += -square(mu - y[1]); }')]),
    "target read into a branch": (
        GOOD, [(CALL, CALL + "\n  if (target() > -50) target += -1;")],
    ),
    "the Jacobian's door": (
        GOOD, [computed("jacobian += -square(mu - y[1]);")],
    ),
    "an algebraic solution": (
        GOOD, [functions("  vector f(vector x, vector y) { return x - mean(y); }\n"),
               beforehand("vector[1] s = solve_newton(f, [0.0]', y);"),
               (PRIOR, "mu ~ normal(s[1], 2);")],
    ),
    "imaginary parts": (
        GOOD, [beforehand("complex c = to_complex(0, y[1]);"),
               (PRIOR, "mu ~ normal(get_imag(c), 2);")],
    ),
    "whole numbers of records": (
        GOOD, [beforehand("int k = to_int(round(y[1]));"), (PRIOR, "mu ~ normal(k, 2);")],
    ),
    "a comment in a string": (
        GOOD, [more('print("/*"); target += -square(mu - y[1]); print("*/");')],
    ),
    "a string in a comment": (
        GOOD, [more('/* " */ target += -square(mu - y[1]); /* " */')],
    ),
    "weights squared": (
        GOOD, [(TERMS, TERMS.replace("log_lik_i = ", "log_lik_i = sum(weights) * "))],
    ),
    "log_lik of the record before": (
        GOOD, [("    log_lik = -0.5 * square(y - mu)", "    log_lik = -0.5 *"
                " square(append_row(y[2:n], y[1]) - mu)")],
    ),
    "replicates by weights": (
        GOOD, [("y_rep = normal_rng(rep_vector(mu, n), 1);",
                "y_rep = normal_rng(mu + anchor, 1);")],
    ),
    "as many random numbers as records say": (
        GOOD, [("    y_rep = normal", "    for (i in 1:n) if (y[i] > 0) { real z ="
                " normal_rng(0, 1); }\n    y_rep = normal")],
    ),
    # The number of records.
    "an entry at n": (
        GOOD, [PUBLIC_X, more("vector[rows] z = rep_vector(0, rows);\n  z[n] = 1;\n"
                              "  target += -mu^2 * z[1];")],
    ),
    "entries up to n": (
        GOOD, [PUBLIC_X, more("vector[rows] z = rep_vector(0, rows);\n"
                              "  for (i in 1:n) z[i] = 1;\n  target += -mu^2 * sum(z);")],
    ),
    # The place of a record: with one less before it, all others would have other terms.
    **{
        f"terms by place, {how}": (
            GOOD, [functions(FIRST), beforehand(f"vector[n] s = ones_vector(n);\n  {text}"),
                   (TERMS, TERMS.replace("y - mu", "y - mu * s"))],
        )
        for how, text in {
            "of the first": "s[1] = 5;",
            "of the first, by a range": "s[1:1] = [5]';",
            "of the first, by a short loop": "for (i in 1:3) s[i] = 5;",
            "each by the one before": "for (i in 2:n) s[i] = -s[i - 1];",
            "all by the first": "for (i in 1:n) s[i] = s[1] + 1;",
            "put together": "s = append_row(5, s[2:n]);",
            "read row by row": "s = to_vector(rep_matrix([1, 5]', n %/% 2));",
            "from a matrix": "matrix[n, 2] M = rep_matrix(1, n, 2); M[1, 1] = 9; s = M[, 1];",
            "of more entries": "vector[999] v = linspaced_vector(999, 0, 1); s = v[1:n];",
            "of more entries, by a loop": "vector[999] v = linspaced_vector(999, 0, 1);\n"
                                          "  for (i in 1:n) s[i] = v[i];",
            "until a loop is left": "for (i in 1:n) { s[i] = 5; break; }",
            "until a function is left": "s = first(s);",
            "at random": "for (i in 1:n) s[i] = normal_rng(0, 1);",
        }.items()
    },
    "log_lik by place, of other tables than those that are tried": (
        GOOD, [("    y_rep =", "    if (n != 40) log_lik[1] = 0;\n    y_rep =")],
    ),
    "log_lik by place": (
        GOOD, [("    y_rep =", "    log_lik[1] = 0;\n    y_rep =")],
    ),
}  # fmt: skip


def attack(text, changes):
    """The program with the replacements."""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("name", ATTACKS)
def test_no_proof(name, tmp_path):
    assert not prove(StanProgram.from_file(write(tmp_path, attack(*ATTACKS[name])))).proved


def test_attacks_are_stan(tmp_path):
    """What does not compile would be no attack."""
    engine = EmbeddedEngine()
    for program in ATTACKS.values():
        engine.compile(StanProgram.from_file(write(tmp_path, attack(*program))))
