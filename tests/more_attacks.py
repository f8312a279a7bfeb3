"""More programs that break the contract, or may: by functions, lengths, outputs and names."""

from tests.attacks import (
    BODY,
    CALL,
    COMPONENTS,
    COUNTED,
    COUNTS,
    COVARIATES,
    DATA,
    EMIT,
    GROUPED,
    INDICATED,
    LEVELS,
    LOG_LIK,
    OWN,
    PRIOR,
    PUBLIC_X,
    SETS,
    STEP,
    TERMS,
    UPPER,
    XBETA,
    Y_REP,
    added,
    beforehand,
    computed,
    data,
    functions,
    generated,
    more,
    terms,
)
from tests.programs import GOOD

WEIGHTS = "  vector<lower=0, upper=1>[n] weights;\n"
ANCHOR = "  vector[n] anchor;\n"
LOWER = "  real clip_lower;\n"
SWITCH = "  int<lower=0, upper=1> emit_y_rep;\n"
DECLARED = "vector[emit ? n : 0] log_lik;"
REPLICATES = "array[emit_y_rep ? n : 0] real y_rep;"
SUM = CALL.removeprefix("target += ")
COPY = "    y_rep = to_array_1d(z);"

# What reaches target past the clamp, or the clamp itself.
PAST = {
    "a prior by y": (GOOD, [(PRIOR, "mu ~ normal(y[1], 2);")]),
    "a prior by the largest": (GOOD, [(PRIOR, "mu ~ normal(max(y), 2);")]),
    "a prior by what was computed": (GOOD, [
        beforehand("real m = mean(y);"), (PRIOR, "mu ~ normal(m, 2);")]),
    "a prior by covariates": (COVARIATES, [("beta ~ normal(0, 1);", "beta ~ normal(mean(X), 1);")]),
    "a prior truncated at a record": (GOOD, [(PRIOR, "mu ~ normal(0, 2) T[min(y), ];")]),
    "a prior by an anchor": (GOOD, [(PRIOR, "mu ~ normal(anchor[1], 2);")]),
    "a prior by weights": (GOOD, [(PRIOR, "mu ~ normal(sum(weights), 2);")]),
    "a prior by a function": (GOOD, [
        functions("  real middle(vector y) { return mean(y); }"),
        (PRIOR, "mu ~ normal(middle(y), 2);")]),
    "a density of y": (GOOD, [more("y ~ normal(mu, 1);")]),
    "a density at y": (GOOD, [more("target += normal_lpdf(y | mu, 1);")]),
    "a density of one's own": (GOOD, [
        functions("  real near_lpdf(real x, vector y) { return -square(x - mean(y)); }"),
        (PRIOR, "mu ~ near(y);")]),
    "a density in a function": (GOOD, [
        functions("  void near_lp(real x, vector y) { target += -square(x - y[1]); }"),
        more("near_lp(mu, y);")]),
    "one's own function that adds": (GOOD, [
        functions("  real add_lp(real x) { target += -x; return x; }"), added("add_lp(mu)")]),
    "one's own function that adds, in a statement": (GOOD, [
        functions("  real add_lp(real x) { target += -x; return x; }"),
        more("{ real z = add_lp(mu); }")]),
    "a Jacobian": (GOOD, [computed("jacobian += -square(mu - y[1]);")]),
    "a Jacobian of parameters": (GOOD, [computed("jacobian += -square(mu);")]),
    "a function of Stan's that adds": (GOOD, [computed("real z = lower_bound_jacobian(mu, 0.0);")]),
    "a profile": (GOOD, [more('profile("p") { target += -square(mu - y[1]); }')]),
    "a sum of terms": (GOOD, [(CALL, f"{CALL}\n  target += sum(log_lik_i);")]),
    "a sum of weighted terms": (GOOD, [(CALL, f"{CALL}\n  target += sum(weights .* log_lik_i);")]),
    "a term far out": (GOOD, [(CALL, f"{CALL}\n  if (max(y) > 9) target += -1;")]),
    "one term": (GOOD, [(CALL, f"{CALL}\n  target += log_lik_i[1];")]),
    "a comment in a string": (GOOD, [
        more('print("/*"); target += -square(mu - y[1]); print("*/");')]),
    "a string in a comment": (GOOD, [more('/* " */ target += -square(mu - y[1]); /* " */')]),
    "target is read": (GOOD, [(CALL, f"{CALL}\n  target += 0.5 * target();")]),
    "target is read into a term": (GOOD, [added("target()")]),
    "target is read into a condition": (GOOD, [
        (CALL, f"{CALL}\n  if (target() > -50) target += -1;")]),
    "target is read in a function": (GOOD, [
        functions("  real now_lp(real x) { return target(); }"), added("now_lp(mu)")]),
    "target is read in a function of a function": (GOOD, [
        functions("  real now_lp(real x) { return target(); }\n"
                  "  real also_lp(real x) { return now_lp(x); }"),
        (CALL, f"{CALL}\n  {{ real z = also_lp(mu); }}")]),
    "a constant that rounds": (GOOD, [more("target += 3.6e16;")]),
    "the clamp twice": (GOOD, [(CALL, f"{CALL}\n  {CALL}")]),
    "the clamp in a loop": (GOOD, [(CALL, f"for (k in 1:2) {CALL}")]),
    "the clamp in a loop, in a block": (GOOD, [(CALL, f"for (k in 1:2) {{ {CALL} }}")]),
    "the clamp in a loop over nothing": (GOOD, [(CALL, f"for (k in 1:0) {CALL}")]),
    "the clamp under a condition": (GOOD, [(CALL, f"if (mu > 0) {CALL}")]),
    "the clamp in both branches": (GOOD, [(CALL, f"if (mu > 0) {CALL} else {CALL}")]),
    "the clamp in a while loop": (GOOD, [(CALL, f"while (mu > 0) {CALL}")]),
    "the clamp in a profile": (GOOD, [(CALL, f'profile("p") {{ {CALL} }}')]),
    "the clamp doubled": (GOOD, [(CALL, CALL.replace(");", ") * 2;"))]),
    "the clamp and a constant": (GOOD, [(CALL, CALL.replace(");", ") + mu;"))]),
    "the clamp and a vector": (GOOD, [(CALL, CALL.replace(");", ") + rep_vector(0, 3);"))]),
    "the clamp taken away": (GOOD, [(CALL, CALL.replace("+= ", "+= -"))]),
    "the clamp by a choice": (GOOD, [(CALL, f"target += mu > 0 ? 0 : {SUM}")]),
    "the clamp in a variable": (GOOD, [(CALL, f"real c = {SUM}\n  target += c;")]),
    "the clamp in a condition": (GOOD, [(CALL, f"if ({SUM[:-1]} > 0) target += 0;")]),
    "the clamp in an argument": (GOOD, [
        (CALL, CALL.replace("log_lik_i,", f"log_lik_i + {SUM[:-1]},"))]),
    "the clamp in an array": (GOOD, [(CALL, f"target += rep_array({SUM[:-1]}, 2);")]),
    "the clamp in a function": (GOOD, [
        functions("  real sum_of(vector l, vector w, vector a, real lo, real hi) {\n"
                  "    return pseudo_log_lik(l, w, a, lo, hi);\n  }"),
        (CALL, CALL.replace("pseudo_log_lik", "sum_of"))]),
    "the clamp in a function that adds": (GOOD, [
        functions("  void all_lp(vector l, vector w, vector a, real lo, real hi) {\n"
                  "    target += pseudo_log_lik(l, w, a, lo, hi);\n  }"),
        (CALL, CALL.replace("target += pseudo_log_lik", "all_lp"))]),
    "a look-alike": (GOOD, [
        functions("  real like(vector l, vector w, vector a, real lo, real hi) {\n"
                  "    return sum(fmin(fmax(w .* (l - a), lo), hi));\n  }"),
        (CALL, CALL.replace("pseudo_log_lik", "like"))]),
    "a third definition": (GOOD, [
        functions("  real pseudo_log_lik(vector l, vector w, vector a, real lo, int hi) {\n"
                  "    return sum(l);\n  }")]),
    "no clamp": (GOOD, [(CALL, "target += sum(rep_vector(0, 3));")]),
    "another window": (GOOD, [(CALL, CALL.replace("clip_lower, clip_upper", "-9, 9"))]),
    "a window exchanged": (GOOD, [
        (CALL, CALL.replace("clip_lower, clip_upper", "clip_upper, clip_lower"))]),
    "a wider window": (GOOD, [(CALL, CALL.replace("clip_upper", "2 * clip_upper"))]),
    "a window by a parameter": (GOOD, [(CALL, CALL.replace("clip_upper", "mu"))]),
    "a window of one's own": (GOOD, [
        (PRIOR, f"real upper_end = clip_upper;\n  {PRIOR}"),
        (CALL, CALL.replace("clip_upper", "upper_end"))]),
    "no weights": (GOOD, [(CALL, CALL.replace("weights", "ones_vector(n)"))]),
    "weights doubled": (GOOD, [(CALL, CALL.replace("weights", "2 * weights"))]),
    "terms for weights": (GOOD, [(CALL, CALL.replace("weights", "log_lik_i"))]),
    "no anchor": (GOOD, [(CALL, CALL.replace("anchor", "zeros_vector(n)"))]),
    "weights and anchor exchanged": (GOOD, [
        (CALL, CALL.replace("weights, anchor", "anchor, weights"))]),
    "terms by weights": (GOOD, [added("weights")]),
    "terms by the sum of weights": (GOOD, [added("sum(weights)")]),
    "terms by the anchor": (GOOD, [added("anchor[1]")]),
    "terms by the window": (GOOD, [added("clip_upper")]),
    "terms by a switch": (GOOD, [added("emit")]),
    "terms that are the same for all": (GOOD, [(CALL, CALL.replace("log_lik_i", "[mu]'"))]),
    "terms of another length": (GOOD, [PUBLIC_X, (CALL, CALL.replace("log_lik_i", "x"))]),
    "counts left out": (COUNTED, [("clip_upper, multiplicity", "clip_upper")]),
    "counts that are others": (COUNTED, [("clip_upper, multiplicity", "clip_upper, weights")]),
    "counts in the terms": (COUNTED, [added("multiplicity")]),
}  # fmt: skip

# Functions, and what type a value has: Stan might call another function than the one that is read.
CHOOSE = "  array[] real choose(array[] real y, int k) { return y; }"
APART = "  vector fft(vector y) { return y; }"
SHADOWS = {
    name: (GOOD, [functions(f"  {text}")])
    for name, text in {
        "a logarithm": "vector log(vector a, vector b) { return a; }",
        "square": "real square(real x, real z) { return 1.0; }",
        "sum": "real sum(array[,,] int x) { return 1.0; }",
        "rows": "int rows(array[,,] int x) { return 9; }",
        "size": "int size(real x, real y) { return 9; }",
        "to_vector": "vector to_vector(matrix x, int a, int b) { return x[, 1]; }",
        "rep_vector": "vector rep_vector(real x, int a, int b) { return [x]'; }",
        "pi": "real pi(real x) { return x; }",
        "rows_dot_product": "vector rows_dot_product(matrix a, real b) { return a[, 1]; }",
        "append_col": "matrix append_col(matrix a, matrix b, real c) { return a; }",
        "log_sum_exp": "vector log_sum_exp(vector a, vector b, vector c) { return a; }",
        "two of one name": "real mine(real a) { return a; }\n"
                           "  vector mine(vector a) { return a; }",
        "print": "real mine(real a) { print(a); return a; }",
        "reject": 'real mine(real a) { reject("no"); return a; }',
        "a bundled function": "real linear_predictor(real x) { return x; }",
    }.items()
}  # fmt: skip
FUNCTIONS = {
    **{f"a function that hides: {name}": changes for name, changes in SHADOWS.items()},
    "a sum that is hidden": (GOOD, [
        functions("  real sum(array[,,] int x) { return 1.0; }"),
        beforehand("real s = sum([ones_row_vector(n)]);"), added("s")]),
    # In Stan the absolute values of whole numbers are whole numbers: choose() of those may fail.
    "whole numbers that look real": (COUNTS, [
        functions(CHOOSE), more("int k = mu > 0 ? 500 : 1;"),
        added("0 * to_vector(choose(abs(y), k))")]),
    "complex numbers that look real": (GOOD, [functions(APART), terms("abs(fft(y * 1i)) - mu")]),
    "complex numbers in a sum": (GOOD, [functions(APART), terms("abs(fft(y + 2.5i)) - mu")]),
    "complex numbers in a vector": (COVARIATES, [
        functions(APART), computed("complex_matrix[K, 1] c;"),
        (XBETA, "abs(fft(X * to_vector(c))) - mu")]),
    "complex numbers in a dot product": (COVARIATES, [
        functions(APART), computed("complex_vector[K] c;"),
        (XBETA, "abs(fft(y * dot_product(c, c))) - mu")]),
    "a real number that looks like a vector": (COVARIATES, [
        functions("  vector tcrossprod(vector x) { return x; }\n"
                  "  vector diagonal(vector x) { return x; }\n"
                  "  vector matrix_exp(vector x) { return x; }"),
        (XBETA, "diagonal(matrix_exp(tcrossprod(X * log_mix([0.5, 0.5]', [mu, 1]')))) - mu")]),
    "an entry that looks like a vector": (COVARIATES, [
        functions("  vector tcrossprod(vector x) { return x; }\n"
                  "  vector diagonal(vector x) { return x; }\n"
                  "  vector matrix_exp(vector x) { return x; }"),
        (XBETA, "diagonal(matrix_exp(tcrossprod(X * beta[to_int(1.0)]))) - mu")]),
    "a vector that looks like a matrix": (COVARIATES, [
        functions("  matrix ordered_constrain(matrix x) { return x; }"),
        (XBETA, "rows_dot_self(ordered_constrain(X * append_col([mu], 1.0)')) - mu")]),
    "a function of other types": (GOOD, [
        functions("  vector near(vector y, real mu) { return y - mu; }"), terms("near(y, 1)")]),
    "a function that returns early": (OWN, [(BODY, f"    if (mu > 0) return y;\n{BODY}")]),
    "a function that returns in a loop": (OWN, [
        (BODY, f"    for (k in 1:2) {{ if (mu > k) return y; }}\n{BODY}")]),
    "a function with a condition on records": (OWN, [
        (BODY, f"    if (y[1] > 0) return y;\n{BODY}")]),
    "a function with a choice by records": (OWN, [
        (BODY, "    vector[rows(y)] z = max(y) > 0 ? y - mu : y;\n")]),
    "a function with a loop over records": (OWN, [
        (BODY, f"{BODY}    for (i in 1:rows(y)) z[i] = y[i];\n")]),
    "a function with while": (OWN, [(BODY, f"{BODY}    while (sum(z) > 0) z -= 1;\n")]),
    "a function that fails": (OWN, [(BODY, BODY.replace("y - mu", "log1m(y - mu)"))]),
    "a function that rejects": (OWN, [(BODY, f'{BODY}    if (mu > 9) reject("no");\n')]),
    "a function with a bound of another length": (OWN, [
        (BODY, BODY.replace("rows(y)", "rows(y) + 1"))]),
    "a function of the number of records": (OWN, [
        (BODY, BODY.replace("y - mu", "y - mu * rows(y)"))]),
    "a function of a size": (OWN, [(BODY, BODY.replace("y - mu", "y - mu * size(y)"))]),
    "a function that is given n": (GOOD, [
        functions("  real scaled(real mu, int n) { return mu / n; }"),
        terms("y - scaled(mu, n)")]),
    "a function of itself": (GOOD, [
        functions("  vector again(vector y) { return again(y); }"), terms("again(y) - mu")]),
    "a function that is no function": (GOOD, [
        functions("  vector f(vector x, vector y) { return x; }"),
        terms("y - solve_newton(f, [mu]', y)[1]")]),
}  # fmt: skip

# The number of records, and lengths.
NUMBER = {
    "n in a term": (GOOD, [terms("y - mu * n")]),
    "n in a prior": (GOOD, [(PRIOR, "mu ~ normal(0, n);")]),
    "n in a bound": (GOOD, [("  real mu;", "  real<upper=n> mu;")]),
    "a parameter for each record": (GOOD, [("  real mu;", "  real mu;\n  vector[n] u;")]),
    "an array of parameters for each": (GOOD, [("  real mu;", "  real mu;\n  array[n] real u;")]),
    "n copied": (GOOD, [beforehand("int m = n;"), terms("y - mu * m")]),
    "n in a condition": (GOOD, [more("if (n > 40) target += -mu;")]),
    "n in a choice": (GOOD, [terms("y - mu * (n > 40 ? 1 : 2)")]),
    "n in a loop": (GOOD, [
        beforehand("real s = 1;\n  for (i in 1:n) s += 1;"), terms("y - mu * s")]),
    "n in a while loop": (GOOD, [
        beforehand("real s = 1;\n  while (s < n) s += 1;"), terms("y - mu * s")]),
    "n in a density": (GOOD, [(PRIOR, "for (i in 1:n) target += normal_lpdf(mu | 0, 2);")]),
    "n in a division": (GOOD, [more("int z = mu > 1 ? 1 %/% (n - 20) : 0;")]),
    "n in an index": (GOOD, [PUBLIC_X, terms("y - mu * x[n]")]),
    "n as a value": (GOOD, [terms("y - rep_vector(n, n) * mu")]),
    "n as another length": (GOOD, [beforehand("vector[n + 1] w;"), terms("y - sum(w) * mu")]),
    "n in a row": (GOOD, [terms("y - sum(rep_row_vector(1, n)) * mu")]),
    "n in a matrix": (GOOD, [
        beforehand("matrix[3, n] M = rep_matrix(0, 3, n);"), terms("y - mu * size(M)")]),
    "the size of y": (GOOD, [terms("y - mu * size(y)")]),
    "the rows of y": (GOOD, [(PRIOR, "mu ~ normal(0, 1 + rows(y));")]),
    "the rows of X": (COVARIATES, [(XBETA, "y - mu - X * beta / rows(X)")]),
    "the number of entries": (COVARIATES, [(XBETA, "y - mu - X * beta / num_elements(X)")]),
    "the columns of X": (COVARIATES, [(XBETA, "y - mu - X * beta / cols(X)")]),
    "the dimensions": (COVARIATES, [(XBETA, "y - mu - X * beta / dims(X)[1]")]),
    "a sum of ones": (GOOD, [terms("y - mu * sum(ones_vector(n))")]),
    "a sum of ones beforehand": (GOOD, [
        beforehand("vector[n] one = ones_vector(n);\n  real m = sum(one);"),
        (PRIOR, "mu ~ normal(0, m);")]),
    "places": (GOOD, [terms("y - mu * linspaced_vector(n, 1, n)")]),
    "places between two numbers": (GOOD, [terms("y - mu * linspaced_vector(n, 0, 1)")]),
    "places to n": (GOOD, [terms("y - mu * linspaced_vector(5, 1, n)")]),
    "places by a loop": (INDICATED, [(SETS, "for (i in 1:n) large[i] = i;")]),
    "places by a comparison": (INDICATED, [(SETS, "for (i in 1:n) large[i] = i > 1;")]),
    "places by a comparison with y": (INDICATED, [(SETS, "for (i in 1:n) large[i] = y[i] > i;")]),
    "places by a generator": (INDICATED, [(SETS, "for (i in 1:n) large[i] = normal_rng(0, 1);")]),
    "places by an entry": (INDICATED, [(SETS, f"{SETS}\n  large[1] = 5;")]),
    "places by a slice": (INDICATED, [(SETS, f"{SETS}\n  large[1:1] = [5]';")]),
    "places by a short loop": (INDICATED, [(SETS, f"{SETS}\n  for (i in 1:3) large[i] = 5;")]),
    "places until a loop is left": (INDICATED, [
        (SETS, "large = y;\n  for (i in 1:n) { large[i] = 5; break; }")]),
    "places where a loop goes on": (INDICATED, [
        (SETS, "for (i in 1:n) { if (i > 1) continue; large[i] = 5; }")]),
    "places by arithmetic": (INDICATED, [(SETS, "for (i in 1:n) large[i] = y[i] * i;")]),
    "places of public numbers": (INDICATED, [
        PUBLIC_X, (SETS, "for (i in 1:n) large[i] = x[i] > 0;")]),
    "a vector of another length": (GOOD, [PUBLIC_X, terms("y - x * mu")]),
    "a vector of rows": (GOOD, [
        data("int<lower=1> rows;\n  vector[rows] x;"), terms("y - x * mu")]),
    "the larger of another length": (GOOD, [PUBLIC_X, terms("fmax(x, y) - mu")]),
    "a power of another length": (GOOD, [PUBLIC_X, terms("y .^ x - mu")]),
    "a product of another length": (GOOD, [
        data("int<lower=1> G;\n  matrix[G, 2] Q;"), terms("y - Q * [mu, mu]'")]),
    "places of another length": (GOOD, [
        data("int<lower=1> G;\n  array[G] int<lower=1> place;\n  vector[5] x;"),
        terms("y - x[place] * mu")]),
    "another length in a vector of records": (GOOD, [
        PUBLIC_X, beforehand("vector[n] z = x;"), terms("y - z * mu")]),
    "another length in a function": (GOOD, [
        PUBLIC_X, functions("  vector f(vector a, vector b) { return a .* b; }"),
        terms("f(x, y) - mu")]),
    "parts of another length": (GOOD, [
        PUBLIC_X, beforehand("vector[n] z = append_row(x, 1);"), terms("y - z * mu")]),
    "a random vector of parameters": (GOOD, [
        ("  real mu;", "  real mu;\n  vector[5] u;"), (PRIOR, f"{PRIOR}\n  u ~ normal(0, 1);"),
        terms("y - mu - u")]),
    "a matrix of a row for each, read by column": (COVARIATES, [
        (XBETA, "y - mu - to_vector(X * mu)[1:n]")]),
    "more entries than records": (GOOD, [
        beforehand("vector[999] v = linspaced_vector(999, 0, 1);"), terms("y - mu * v[1:n]")]),
    # Variables without entries take values of any length.
    **{
        f"what takes any length, {name}": (GOOD, [
            data("int<lower=0> K;"), beforehand(f"{text} real s = sum({of});"),
            (PRIOR, "target += normal_lpdf(mu | 0, s);")])
        for name, text, of in (
            ("none", "vector[0] w; w = rep_vector(1, n);", "w"),
            ("as it is declared", "vector[0] w = rep_vector(1, n);", "w"),
            ("perhaps none", "vector[K] w; w = ones_vector(n);", "w"),
            ("in a branch", "vector[K] w; if (K > 1) w = ones_vector(n);", "w"),
            ("all of none", "vector[0] w; w[:] = rep_vector(1, n);", "w"),
            ("a row", "row_vector[0] w = rep_row_vector(1, n);", "w"),
            ("a matrix", "matrix[0, 3] w = rep_matrix(1, n, 3);", "w"),
            ("an array", "array[0] real w = rep_array(1.0, n);", "w"),
            ("an entry of an array", "array[2] vector[K] w; w[1] = rep_vector(1, n);", "w[1]"),
            ("vectors in an array", "array[2] vector[2] w = {ones_vector(n), ones_vector(n)};",
             "w[1]"),
            ("records", "vector[0] w = y;", "w"),
        )
    },
    "of a choice in an array": (LEVELS, [
        (TERMS.replace("y - mu", "log(p[y]) - mu"),
         "array[1] vector[C] w;\n  w[1] = mu > 0 ? p : [mu]';\n"
         "  vector[n] log_lik_i = to_vector(w[1, y]);")]),
    "of a choice in an array's list": (LEVELS, [
        (TERMS.replace("y - mu", "log(p[y]) - mu"),
         "array[1] vector[C] w = {mu > 0 ? p : [mu]'};\n"
         "  vector[n] log_lik_i = to_vector(w[1, y]);")]),
    "of a choice in a matrix without columns": (LEVELS, [
        (TERMS.replace("y - mu", "log(p[y]) - mu"),
         "matrix[C, 0] w;\n  w = mu > 0 ? rep_matrix(0, C, 1) : rep_matrix(0, 1, 1);\n"
         "  vector[n] log_lik_i = w[y, 1];")]),
    "a row vector's rows": (GOOD, [
        functions("  vector f(row_vector y) { return rep_vector(1, rows(y)); }"),
        terms("y - mu * sum(f(y'))")]),
}  # fmt: skip

# What is emitted, drawn and declared.
DRAW = "  real draw_rng(real m) { return normal_rng(m, 1); }"
OUTPUTS = {
    "y_rep of y": (GOOD, [(Y_REP, "    y_rep = to_array_1d(y);")]),
    "y_rep near y": (GOOD, [(Y_REP, "    y_rep = normal_rng(y, 0.1);")]),
    "y_rep of one record": (GOOD, [(Y_REP, f"{Y_REP}\n    y_rep[1] = y[1];")]),
    "y_rep by a condition": (GOOD, [(Y_REP, f"{Y_REP}\n    if (max(y) > 0) y_rep[1] = 0;")]),
    "y_rep by a choice": (GOOD, [
        (Y_REP, "    for (i in 1:n) y_rep[i] = y[i] > 0 ? 1 : 0;")]),
    "y_rep by a loop's end": (GOOD, [
        (Y_REP, f"{Y_REP}\n    for (k in 1:to_int(sum(y))) y_rep[1] += 1;")]),
    "y_rep by random numbers": (GOOD, [
        (Y_REP, f"    for (i in 1:n) if (y[i] > 0) {{ real u = normal_rng(0, 1); }}\n{Y_REP}")]),
    "y_rep of log_lik": (GOOD, [(Y_REP, "    y_rep = to_array_1d(log_lik);")]),
    "y_rep of weights": (GOOD, [(Y_REP, "    y_rep = to_array_1d(weights);")]),
    "y_rep of the anchor": (GOOD, [(Y_REP, Y_REP.replace("rep_vector(mu, n)", "mu + anchor"))]),
    "y_rep of the window": (GOOD, [(Y_REP, Y_REP.replace("mu, n", "clip_upper, n"))]),
    "y_rep of counts": (COUNTED, [
        (Y_REP, Y_REP.replace("rep_vector(mu, n)", "multiplicity"))]),
    "y_rep of a function": (OWN, [(Y_REP, Y_REP.replace("rep_vector(mu, n)", "apart(y, mu)"))]),
    "y_rep of indicators": (INDICATED, [(Y_REP, Y_REP.replace("rep_vector(mu, n)", "large * mu"))]),
    "y_rep of what was computed": (GOOD, [
        computed("vector[n] z = y - mu;"), (Y_REP, COPY)]),
    "y_rep of a copy": (GOOD, [beforehand("vector[n] z = y;"), (Y_REP, COPY)]),
    "y_rep of a copy of a copy": (GOOD, [
        beforehand("vector[n] x = y;"), computed("vector[n] z = 0 * x;"), (Y_REP, COPY)]),
    "y_rep of a column": (GOOD, [
        computed("matrix[n, 2] Z;\n  Z[:, 1] = y;"),
        (Y_REP, "    y_rep = to_array_1d(Z[:, 2]);")]),
    "y_rep of what a branch assigns": (GOOD, [
        computed("vector[n] z = zeros_vector(n);\n  if (mu > 0) z = y;"), (Y_REP, COPY)]),
    "y_rep of what the other branch assigns": (GOOD, [
        computed("vector[n] z = y;\n  if (mu > 0) z = zeros_vector(n);"), (Y_REP, COPY)]),
    "y_rep of what a loop assigns": (GOOD, [
        computed("vector[n] z = zeros_vector(n);\n  for (k in 1:2) z += y;"), (Y_REP, COPY)]),
    "y_rep of what a loop over nothing leaves": (GOOD, [
        computed("vector[n] z = y;\n  for (k in 1:0) z = zeros_vector(n);"), (Y_REP, COPY)]),
    "y_rep of what a loop carries": (GOOD, [
        computed("vector[n] z = zeros_vector(n);\n  vector[n] w = z;\n  vector[n] v = z;\n"
                 "  for (k in 1:3) { z = w; w = v; v = y; }"), (Y_REP, COPY)]),
    "y_rep of what a choice takes": (GOOD, [
        computed("vector[n] z = mu > 0 ? y : zeros_vector(n);"), (Y_REP, COPY)]),
    "y_rep of what a left loop leaves": (GOOD, [
        computed("vector[n] z = zeros_vector(n);\n  for (k in 1:2) { z = y; if (mu > -9) break;"
                 " z = zeros_vector(n); }"), (Y_REP, COPY)]),
    "y_rep of what a continued loop leaves": (GOOD, [
        computed("vector[n] z = zeros_vector(n);\n  for (k in 1:2) { z = y; if (mu > -9) continue;"
                 " z = zeros_vector(n); }"), (Y_REP, COPY)]),
    "y_rep of what is cleared under emit": (GOOD, [
        (EMIT, f"  vector[n] z = y;\n{EMIT}    z = zeros_vector(n);\n"), (Y_REP, COPY)]),
    "y_rep of what is cleared under another condition": (GOOD, [
        generated("vector[n] z = y;\n  if (mu > 0) z = zeros_vector(n);"), (Y_REP, COPY)]),
    "y_rep of what is set under emit": (GOOD, [
        (EMIT, f"  vector[n] z = zeros_vector(n);\n{EMIT}    z = y;\n"), (Y_REP, COPY)]),
    "y_rep of a left loop in a function": (OWN, [
        (BODY, "    vector[rows(y)] z = 0 * y;\n    for (k in 1:2) {\n      z = y;\n"
               "      if (mu > -9) break;\n      z = zeros_vector(rows(y));\n    }\n"),
        computed("vector[n] z = apart(y, mu);"), (Y_REP, COPY)]),
    "y_rep among the transformed parameters": (GOOD, [
        computed("vector[n] y_rep = y;"), (f"  {REPLICATES}\n", ""), (f"{Y_REP}\n", "")]),
    "y_rep outside of its condition": (GOOD, [
        (f"  if (emit_y_rep) {{\n{Y_REP}\n  }}\n", f"{Y_REP.strip()}\n")]),
    "y_rep in its declaration": (GOOD, [
        (REPLICATES, REPLICATES.replace(";", " = normal_rng(rep_vector(mu, n), 1);"))]),
    "y_rep by another condition": (GOOD, [
        (SWITCH, f"{SWITCH}  int<lower=0, upper=1> also;\n"), ("if (emit_y_rep)", "if (also)")]),
    "y_rep where log_lik is": (GOOD, [("if (emit_y_rep)", "if (emit)")]),
    "y_rep where the switch is off": (GOOD, [("if (emit_y_rep)", "if (!emit_y_rep)")]),
    "y_rep where either is on": (GOOD, [("if (emit_y_rep)", "if (emit || emit_y_rep)")]),
    "y_rep where the switch is not 2": (GOOD, [("if (emit_y_rep)", "if (emit_y_rep < 2)")]),
    "y_rep in the other branch": (GOOD, [("if (emit_y_rep)", "if (emit_y_rep) ; else")]),
    "y_rep of another length": (GOOD, [(REPLICATES, "array[emit ? n : 0] real y_rep;")]),
    "a switch of one's own": (GOOD, [
        (SWITCH, ""), beforehand("int emit_y_rep = 1;"),
        more("if (emit_y_rep) { int k = 0; while (k < 3) k += 1; }")]),
    "no switch": (GOOD, [(SWITCH, ""), ("emit_y_rep", "emit")]),
    "print where y_rep is drawn": (GOOD, [(Y_REP, f"    print(mu);\n{Y_REP}")]),
    "reject where y_rep is drawn": (GOOD, [(Y_REP, f'    if (mu > 9) reject("no");\n{Y_REP}')]),
    "log_lik by another switch": (GOOD, [(DECLARED, DECLARED.replace("emit", "emit_y_rep"))]),
    "log_lik of one entry more": (GOOD, [(DECLARED, DECLARED.replace("n : 0", "n + 1 : 0"))]),
    "log_lik of always": (GOOD, [(DECLARED, "vector[n] log_lik;")]),
    "log_lik of others": (GOOD, [(LOG_LIK, LOG_LIK.replace("y - mu", "y - mean(y) - mu"))]),
    "log_lik of the record before": (GOOD, [
        (LOG_LIK, LOG_LIK.replace("y - mu", "append_row(y[2:n], y[1]) - mu"))]),
    "log_lik by place": (GOOD, [(LOG_LIK, f"{LOG_LIK}\n    log_lik[1] = 0;")]),
    "log_lik by a slice": (GOOD, [(LOG_LIK, f"{LOG_LIK}\n    log_lik[1:2] = [0, 0]';")]),
    "log_lik by n": (GOOD, [(LOG_LIK, f"{LOG_LIK}\n    if (n != 40) log_lik += 1;")]),
    "log_lik by its own sum": (GOOD, [(LOG_LIK, f"{LOG_LIK}\n    log_lik += sum(log_lik);")]),
    "log_lik by weights": (GOOD, [(LOG_LIK, f"{LOG_LIK}\n    log_lik = weights .* log_lik;")]),
    "log_lik by random numbers": (GOOD, [
        (LOG_LIK, f"{LOG_LIK}\n    log_lik += normal_rng(0, 1);")]),
    "log_lik by y_rep": (GOOD, [(LOG_LIK, f"{LOG_LIK}\n    log_lik += y_rep[1];")]),
    "log_lik where it fails": (GOOD, [(LOG_LIK, LOG_LIK.replace("y - mu", "log1m(y - mu)"))]),
    "log_lik outside of its condition": (GOOD, [generated("log_lik = y;")]),
    "log_lik where y_rep is drawn": (GOOD, [(Y_REP, f"{Y_REP}\n    log_lik = zeros_vector(n);")]),
    "log_lik in a loop over records": (GOOD, [
        (LOG_LIK, "    for (i in 1:n) log_lik[i] = -square(y[i] - mu);")]),
    "an error beside log_lik": (GOOD, [(EMIT, f"{EMIT}    vector[n] z = log1m(y * mu);\n")]),
    "an error at a parameter and n": (GOOD, [(EMIT, f"{EMIT}    real z = 1 %/% (n - 30);\n")]),
    # Random numbers where log_lik is: that of one of n may fail.
    "a generator in transformed data": (GOOD, [beforehand("real u = normal_rng(0, 1);")]),
    "generators in transformed data": (GOOD, [
        beforehand("array[n] real u = normal_rng(rep_vector(0, n), 1);")]),
    "a generator beside log_lik": (GOOD, [(EMIT, f"{EMIT}    real u = normal_rng(0, 1);\n")]),
    "a generator by a function": (GOOD, [
        functions(DRAW), (EMIT, f"{EMIT}    real u = draw_rng(mu);\n")]),
    "a generator by a function of a function": (GOOD, [
        functions(f"{DRAW}\n  real also_rng(real m) {{ return draw_rng(m); }}"),
        (EMIT, f"{EMIT}    real u = also_rng(mu);\n")]),
    "a generator before": (GOOD, [generated("real u = normal_rng(0, 1);")]),
    "a generator under no switch": (GOOD, [
        generated("if (mu > 0) { real u = normal_rng(0, 1); }")]),
    "a generator where either is on": (GOOD, [
        generated("if (emit || emit_y_rep) { real u = normal_rng(0, 1); }")]),
    "a generator by a switch and a parameter": (GOOD, [
        generated("if (emit_y_rep || mu > 0) { real u = normal_rng(0, 1); }")]),
    "a generator by a copy of the switch": (GOOD, [
        generated("int e = emit_y_rep;\n  e = 1;\n  if (e) { real u = normal_rng(0, 1); }")]),
    "a generator by a sum of switches": (GOOD, [
        generated("if (emit_y_rep + emit) { real u = normal_rng(0, 1); }")]),
    "a generator in an index": (GOOD, [(EMIT, f"{EMIT}    log_lik[poisson_rng(3) + 1] = 0;\n")]),
    "a generator in a while loop": (GOOD, [generated("while (normal_rng(0, 1) > 3) ;")]),
}  # fmt: skip
DECLARATIONS = {
    "a bound by a function": (GOOD, [
        functions("  real f(vector y) { return max(y); }"),
        ("  real mu;", "  real<lower=f(y)> mu;")]),
    "a bound by a function of constants": (GOOD, [
        PUBLIC_X, functions("  real f(vector x) { return max(x); }"),
        ("  real mu;", "  real<lower=f(x)> mu;")]),
    "a bound by y": (GOOD, [("  real mu;", "  real<upper=max(y)> mu;")]),
    "a bound by what was computed": (GOOD, [
        beforehand("real top = max(y);"), ("  real mu;", "  real<upper=top> mu;")]),
    "a bound by a record": (GOOD, [("  real mu;", "  real<lower=y[1]> mu;")]),
    "an offset by y": (GOOD, [("  real mu;", "  real<offset=mean(y), multiplier=sd(y)> mu;")]),
    "a length by y": (GOOD, [
        beforehand("int m = 1 + (max(y) > 1);"), ("  real mu;", "  real mu;\n  vector[m] u;"),
        (PRIOR, f"{PRIOR}\n  u ~ normal(0, 1);")]),
    "a length by a level": (LEVELS, [
        ("  real mu;", "  real mu;\n  vector[y[1]] u;"), (PRIOR, f"{PRIOR}\n  u ~ normal(0, 1);")]),
    "a bound that is computed": (GOOD, [computed("real<lower=y[1]> top = mu;")]),
    "a bound in transformed data, by y": (GOOD, [
        beforehand("real<lower=min(y), upper=max(y)> top = 0;")]),
    "a bound in the generated quantities, by y": (GOOD, [
        generated("real<upper=max(y)> top = mu;")]),
    "a bound of y by a function": (GOOD, [
        (DATA, "vector[5] x;\n  vector<lower=f(x[1])>[n] y;"),
        functions("  real f(real x) { return x; }")]),
    "a constant between limits by n": (GOOD, [data("int<lower=n, upper=n> m;")]),
    "a constant as long as n and 1": (GOOD, [data("vector[n + 1] c;")]),
    "a constant with a column for each": (GOOD, [data("matrix[3, n] c;")]),
    "records that are a covariance": (GOOD, [data("cov_matrix[n] c;")]),
    "y of another length": (GOOD, [
        (DATA, "int<lower=1> m;\n  vector[m] y;"), terms("y[1:n] - mu")]),
    # An engine may take the data of that name for the variable.
    "y that is no data": (GOOD, [
        (f"  {DATA}\n", ""), beforehand("vector[9] y;"), (PRIOR, "mu ~ normal(y[1], 2);"),
        (TERMS, "vector[n] log_lik_i = rep_vector(mu, n);"),
        (LOG_LIK, "    log_lik = rep_vector(mu, n);")]),
    "y that is no data, in a block": (GOOD, [
        (f"  {DATA}\n", ""), beforehand("real m;\n  {\n    vector[9] y;\n    m = y[1];\n  }"),
        (PRIOR, "mu ~ normal(m, 2);"), (TERMS, "vector[n] log_lik_i = rep_vector(mu, n);"),
        (LOG_LIK, "    log_lik = rep_vector(mu, n);")]),
    "y in a matrix": (GOOD, [(DATA, "matrix[2, n] y;"), terms("to_vector(y[1]) - mu")]),
    "counts of another length": (COUNTED, [("vector<lower=0>[n] mult", "vector<lower=0>[3] mult")]),
    "an anchor of another length": (GOOD, [(ANCHOR, "  vector[3] anchor;\n")]),
    "bounds of weights": (GOOD, [(WEIGHTS, "  vector<lower=0, upper=0.5>[n] weights;\n")]),
    "a bound of the anchor": (GOOD, [(ANCHOR, "  vector<lower=-3>[n] anchor;\n")]),
    "a bound of counts": (COUNTED, [("vector<lower=0>[n] mult", "vector<upper=2>[n] mult")]),
    "weights of one's own": (GOOD, [(WEIGHTS, ""), beforehand("vector[n] weights = y;")]),
    "a window of one's own": (GOOD, [(LOWER, ""), beforehand("real clip_lower = -1e300;")]),
    "a window that is a parameter": (GOOD, [
        (LOWER, ""), ("  real mu;", "  real mu;\n  real<lower=-9, upper=0> clip_lower;")]),
    "a name of another column": (GOOD, [more("real z__b = 1;")]),
    "a name of another column in a loop": (GOOD, [more("for (z__b in 1:2) ;")]),
    "a function's name of another column": (GOOD, [
        functions("  real f__b(real x) { return x; }")]),
    "a tuple": (GOOD, [more("tuple(real, real) pair = (1, 2);")]),
    "a group that is confidential": (GROUPED, [
        (Y_REP, Y_REP.replace("rep_vector(mu, n)", "mu + u[group] + 0 * y"))]),
    "whole numbers of records": (GOOD, [
        beforehand("int k = to_int(round(y[1]));"), (PRIOR, "mu ~ normal(k, 2);")]),
    "imaginary parts": (GOOD, [
        beforehand("complex c = to_complex(0, y[1]);"), (PRIOR, "mu ~ normal(get_imag(c), 2);")]),
    "a variable that ends with its block": (GOOD, [
        computed("vector[n] kept;\n  {\n    vector[n] z = y;\n    kept = z;\n  }"),
        (Y_REP, "    y_rep = to_array_1d(kept);")]),
    "a loop's variable that ends with it": (COMPONENTS, [
        (STEP, "{ vector[n] z = y; log_lik_i = log_sum_exp(log_lik_i, reverse(z)); }")]),
    "an index with bounds in a list": (GROUPED, [(UPPER, "array[n, 1] int<lower=1> group;"),
                                                 ("u[group]", "u[group[:, 1]]")]),
}  # fmt: skip

# What a second reading found: names of data, priors of one entry, bounds far out.
SECOND = {
    "a function's variable by the name of data": (GOOD, [
        functions("  real f(real a) { vector[1] y; return y[1] > 3; }"),
        beforehand("real s = f(1.0);"), (PRIOR, "mu ~ normal(10 * s, 0.1);")]),
    "a function's variable by the name of n": (GOOD, [
        functions("  real f(real a) { int n; return n; }"),
        beforehand("real s = f(1.0);"), (PRIOR, "mu ~ normal(s, 1);")]),
    "a variable by the name of covariates": (GOOD, [
        beforehand("matrix[1, 1] X;\n  real s = rows(X) > 100;"),
        (PRIOR, "mu ~ normal(10 * s, 0.1);")]),
    "a variable by the name of groups in a block": (GOOD, [
        beforehand("real s;\n  { array[1] int group; s = size(group); }"),
        (PRIOR, "mu ~ normal(s, 1);")]),
    "one scale for twenty densities": (GOOD, [
        ("  real mu;", "  real mu;\n  vector<lower=0>[1] u;"),
        more("u ~ gamma(rep_vector(0.1, 20), 1);")]),
    "one location for as many densities as there are scales": (GOOD, [
        ("  real mu;", "  real mu;\n  vector[1] u;\n  vector<lower=0>[20] s;"),
        more("u ~ normal(0, s);\n  s ~ gamma(0.1, 1);")]),
    "a bound far out": (GOOD, [
        ("  real mu;", "  real mu;\n  real<lower=1e18> x;"), more("x ~ exponential(1);")]),
    "a bound that is calculated": (GOOD, [
        (DATA, f"{DATA}\n  int<lower=1> rows;"),
        ("  real mu;", "  real mu;\n  real<lower=rows * 1.0 * rows * rows> x;"),
        more("x ~ exponential(1);")]),
    "a density far from its bounds": (GOOD, [
        ("  real mu;", "  real mu;\n  real<lower=0, upper=1> x;"), more("x ~ normal(1e10, 1);")]),
    "a narrow density outside of its bounds": (GOOD, [
        ("  real mu;", "  real mu;\n  real<lower=1> x;"), more("x ~ normal(0, 1e-10);")]),
}  # fmt: skip
# What a third reading found: sizes that are only written alike, errors of some records alone.
THIRD = {
    "a name declared twice, in two lengths": (GOOD, [
        ("  real mu;", "  real mu;\n  vector<lower=0>[1] u;"),
        more("{ vector[1] s; }\n  vector[20] s = rep_vector(0.1, 20);\n"
             "  target += gamma_lpdf(u | s, 1.0);")]),
    "a length that is assigned again": (GOOD, [
        beforehand("int J = 20;\n  vector[J] s = rep_vector(0.1, J);\n  J = 1;"),
        ("  real mu;", "  real mu;\n  vector<lower=0>[J] u;"),
        more("target += gamma_lpdf(u | s, 1.0);")]),
    "a loop over the second axis": (GOOD, [
        ("  real mu;", "  real mu;\n  matrix<lower=0>[1, 20] u;"),
        more("for (k in 1:20) u[:, k] ~ gamma(rep_vector(0.1, 20), 1);")]),
    "a loop over the second axis, of a name": (GOOD, [
        ("  real mu;", "  real mu;\n  matrix<lower=0>[1, 20] u;"),
        more("vector[20] s = rep_vector(0.1, 20);\n"
             "  for (k in 1:20) u[:, k] ~ gamma(s, 1);")]),
    "an index that only some records come to": (GOOD, [
        (DATA, f"{DATA}\n  vector[3] c;"),
        beforehand("vector[n] z;\n  for (i in 1:n) z[i] = y[i] == 1.5 ? c[9] : 0;")]),
    "an index behind a comparison": (GOOD, [
        (DATA, f"{DATA}\n  vector[3] c;"),
        beforehand("vector[n] z;\n  for (i in 1:n) z[i] = y[i] > 1 && c[9] > 0;")]),
    "a column that only some records come to": (COVARIATES, [
        beforehand("vector[n] z;\n  for (i in 1:n) z[i] = y[i] == 1.5 ? X[i, 9] : 0;")]),
    "a column behind a comparison": (COVARIATES, [
        beforehand("vector[n] z;\n  for (i in 1:n) z[i] = y[i] > 1 && X[i, 9] > 0;")]),
    "a division that only some records come to": (GOOD, [
        (DATA, f"{DATA}\n  int zero;"),
        beforehand("vector[n] z;\n  for (i in 1:n) z[i] = y[i] == 1.5 ? 1 %/% zero : 0;")]),
}  # fmt: skip
# What a fourth reading found: the clamp itself, as a door for what is no record.
FREE = "pseudo_log_lik({}, rep_vector(1, 1), rep_vector(0, 1), negative_infinity(), 1e300)"
ODD = FREE.format("rep_vector(mu, 1)")
EMITTED = ") - 0.5 * log(2 * pi());\n  }"  # the end of log_lik, and not of the terms in target
FOURTH = {
    "a clamp of a parameter": (GOOD, [more(f"target += {ODD};")]),
    "a clamp of a large constant": (
        GOOD, [more(f"target += {FREE.format('rep_vector(3.6e16, 1)')};")]),
    "a clamp under a condition": (GOOD, [more(f"if (mu > 0) target += {ODD};")]),
    "a clamp in a loop": (GOOD, [more(f"for (k in 1:3) target += {ODD};")]),
    "a clamp in a block": (GOOD, [more(f"{{ target += {ODD}; }}")]),
    "a clamp in a sum": (GOOD, [more(f"target += normal_lpdf(1 | mu, 1) + {ODD};")]),
    "a clamp in a variable": (GOOD, [more(f"real z = {ODD};\n  target += z;")]),
    "a clamp before the model": (GOOD, [computed(f"real z = {ODD};"), more("target += z;")]),
    "a clamp of constants": (GOOD, [
        beforehand(f"real z = {FREE.format('rep_vector(3.6e16, 1)')};"), more("target += z;")]),
    "a clamp in an argument": (GOOD, [(PRIOR, f"mu ~ normal(0, exp({ODD}));")]),
    "a clamp in a function": (GOOD, [
        functions(f"  real odd(real mu) {{ return {ODD}; }}"), more("target += odd(mu);")]),
    "a clamp in a function of the terms": (GOOD, [
        functions(f"  real odd(real mu) {{ return {ODD}; }}"), added("odd(mu)")]),
    "an index into what is shorter at some parameters": (GROUPED, [
        generated("vector[J] w = u;\n  if (mu > 0) w = rep_vector(mu, 1);"),
        (f"mu - u[group]{EMITTED}", f"mu - w[group]{EMITTED}")]),
    "an index into what is shorter where it is emitted": (GROUPED, [
        (EMIT, f"{EMIT}    vector[J] w = mu > 0 ? rep_vector(mu, 1) : u;\n"),
        (f"mu - u[group]{EMITTED}", f"mu - w[group]{EMITTED}")]),
    "a level of what is shorter at some parameters": (LEVELS, [
        generated("vector[C] w = p;\n  if (mu > 0) w = rep_vector(mu, 1);"),
        (f"log(p[y]) - mu{EMITTED}", f"log(w[y]) - mu{EMITTED}")]),
    "rows of other lengths at some records": (GOOD, [
        beforehand("matrix[n, 3] W;\n  matrix[n, 2] V;\n  V[, 1] = y;\n  V[, 2] = y;\n"
                   "  W[, 1] = y;\n  W[, 2] = y;\n  W[, 3] = y;\n  matrix[n, 2] z = V;\n"
                   "  for (i in 1:n) z[i] = y[i] == 1.5 ? W[i] : V[i];")]),
    "an index by records into what is shorter": (GROUPED, [
        beforehand("vector[J] w = rep_vector(0, 1);"), terms("y - mu - u[group] - w[group]")]),
    "an index into what one's own function returns": (GROUPED, [
        functions("  vector shortened(real x) { return rep_vector(x, 1); }"),
        computed("vector[J] w = shortened(mu);"),
        terms("y - mu - u[group] - w[group]")]),
    "an index into what one's own function sets later": (GROUPED, [
        functions("  vector shortened(real x) { return rep_vector(x, 1); }"),
        computed("vector[J] w = rep_vector(mu, J);\n  w = 2 * shortened(mu);"),
        terms("y - mu - u[group] - w[group]")]),
    "an index by records into what is set later": (GROUPED, [
        beforehand("vector[J] w;\n  w = rep_vector(0, 1);"),
        terms("y - mu - u[group] - w[group]")]),
}  # fmt: skip
TABLES = {
    "past the clamp": PAST, "functions": FUNCTIONS, "numbers and lengths": NUMBER,
    "outputs": OUTPUTS, "declarations": DECLARATIONS, "second reading": SECOND,
    "third reading": THIRD, "fourth reading": FOURTH,
}  # fmt: skip
