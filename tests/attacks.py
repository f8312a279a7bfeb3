"""Programs that break the contract, or may: a proved program with one thing changed in each.

``ATTACKS`` has, by name, a proved program and replacements in it. tests/more_attacks.py has those
of functions, lengths, numbers of records and outputs.
"""

from tests.programs import GOOD

CALL = "target += pseudo_log_lik(log_lik_i, weights, anchor, clip_lower, clip_upper);"
TERMS = "vector[n] log_lik_i = -0.5 * square(y - mu) - 0.5 * log(2 * pi());"
LOG_LIK = "    log_lik = -0.5 * square(y - mu) - 0.5 * log(2 * pi());"
PRIOR = "mu ~ normal(0, 2);"
Y_REP = "    y_rep = normal_rng(rep_vector(mu, n), 1);"
DATA = "vector[n] y;"
EMIT = "  if (emit) {\n"


def attack(text, changes):
    """The program with the replacements."""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def functions(text):
    return ("}\ndata {\n", f"{text}\n}}\ndata {{\n")


def data(text, declared=DATA):
    return (declared, f"{declared}\n  {text}")


def beforehand(text):
    """In transformed data."""
    return ("parameters {\n", f"transformed data {{\n  {text}\n}}\nparameters {{\n")


def computed(text):
    """In transformed parameters."""
    return ("model {\n", f"transformed parameters {{\n  {text}\n}}\nmodel {{\n")


def more(text):
    """After the prior."""
    return (PRIOR, f"{PRIOR}\n  {text}")


def terms(text):
    """Another expression for y - mu, in target and in log_lik."""
    return ("y - mu", text)


def added(text):
    """Something that is added to the terms in target."""
    return ("vector[n] log_lik_i = ", f"vector[n] log_lik_i = {text} + ")


def generated(text):
    """In the generated quantities, before what is emitted."""
    return (EMIT, f"  {text}\n{EMIT}")


# Proved programs, of which the attacks change one thing.
COVARIATES = attack(GOOD, [
    data("int<lower=0> K;\n  matrix[n, K] X;"), ("real mu;", "real mu;\n  vector[K] beta;"),
    (PRIOR, f"{PRIOR}\n  beta ~ normal(0, 1);"), terms("y - mu - X * beta"),
])  # fmt: skip
XBETA = "y - mu - X * beta"
GROUPED = attack(GOOD, [
    data("int<lower=1> J;\n  array[n] int<lower=1, upper=J> group;"),
    ("real mu;", "real mu;\n  vector[J] u;"), (PRIOR, f"{PRIOR}\n  u ~ normal(0, 1);"),
    terms("y - mu - u[group]"),
])  # fmt: skip
UPPER = "array[n] int<lower=1, upper=J> group;"
COUNTS = attack(GOOD, [
    (DATA, "array[n] int<lower=0> y;"), terms("to_vector(y) - mu"),
])  # fmt: skip
COUNT = "array[n] int<lower=0> y;"
LEVELS = attack(GOOD, [
    (DATA, "int<lower=2> C;\n  array[n] int<lower=1, upper=C> y;"),
    ("real mu;", "real mu;\n  simplex[C] p;"), terms("log(p[y]) - mu"),
])  # fmt: skip
OWN = attack(GOOD, [
    terms("apart(y, mu)"),
    functions("  vector apart(vector y, real mu) {\n    vector[rows(y)] z = y - mu;\n"
              "    return z;\n  }"),
])  # fmt: skip
BODY = "    vector[rows(y)] z = y - mu;\n"
INDICATED = attack(GOOD, [
    beforehand("vector[n] large;\n  for (i in 1:n) large[i] = y[i] > 0.5;"),
    terms("y - mu * large"),
])  # fmt: skip
SETS = "for (i in 1:n) large[i] = y[i] > 0.5;"
COMPONENTS = attack(GOOD, [
    data("int<lower=1> G;\n  vector[G] shift;"),
    (TERMS, "vector[n] log_lik_i = rep_vector(negative_infinity(), n);\n"
            "  for (g in 1:G) log_lik_i = log_sum_exp(log_lik_i, -square(y - shift[g] * mu));"),
])  # fmt: skip
STEP = "log_lik_i = log_sum_exp(log_lik_i, -square(y - shift[g] * mu));"
COUNTED = attack(GOOD, [
    data("vector<lower=0>[n] multiplicity;"), ("clip_upper);\n}", "clip_upper, multiplicity);\n}"),
])  # fmt: skip
BASES = {
    "good": GOOD, "covariates": COVARIATES, "groups": GROUPED, "counts": COUNTS, "levels": LEVELS,
    "a function": OWN, "indicators": INDICATED, "components": COMPONENTS, "counted": COUNTED,
}  # fmt: skip

PUBLIC_X = data("int<lower=1> rows;\n  vector[5] x;")

# What the terms of a record are made of: values of others.
OTHERS = {
    "reversed": (GOOD, [terms("reverse(y) - mu")]),
    "sorted": (GOOD, [terms("sort_asc(y) - mu")]),
    "summed up": (GOOD, [terms("cumulative_sum(y) - mu")]),
    "shares of a sum": (GOOD, [terms("softmax(y) - mu")]),
    "the largest": (GOOD, [terms("y / max(y) - mu")]),
    "centred": (GOOD, [terms("y - mean(y) - mu")]),
    "scaled": (GOOD, [terms("y / sd(y) - mu")]),
    "the sum of exponentials": (GOOD, [terms("y - log_sum_exp(y) - mu")]),
    "a quantile": (GOOD, [terms("y - quantile(y, 0.5) - mu")]),
    "a distance": (GOOD, [terms("y - distance(y, y) - mu")]),
    "a dot product": (GOOD, [terms("y - dot_product(y, y) - mu")]),
    "a dot product of its own": (GOOD, [terms("y - dot_self(y) - mu")]),
    "a norm": (GOOD, [terms("y / norm2(y) - mu")]),
    "an inner product": (GOOD, [terms("y - (y' * y) - mu")]),
    "an outer product": (GOOD, [terms("(y * y') * y - mu")]),
    "a projection": (COVARIATES, [(XBETA, "y - mu - X * (X' * y)")]),
    "a diagonal": (GOOD, [terms("diagonal(diag_matrix(y)) - mu")]),
    "a matrix of all": (GOOD, [terms("diag_matrix(y) * ones_vector(n) - mu")]),
    "a column of all rows": (COVARIATES, [(XBETA, "y - mu - mean(X)")]),
    "columns that are scaled": (COVARIATES, [(XBETA, "y - mu - X * beta / max(X)")]),
    "a row of another": (COVARIATES, [(XBETA, "y - mu - X[1] * beta")]),
    "the first record": (GOOD, [terms("y - y[1] - mu")]),
    "the last record": (GOOD, [terms("y - y[n] - mu")]),
    "a slice": (GOOD, [terms("append_row(y[2:n], y[1]) - mu")]),
    "a slice by numbers": (GOOD, [terms("append_row(y[2:5], y[1]) - mu")]),
    "a head": (GOOD, [terms("append_row(tail(y, n - 1), head(y, 1)) - mu")]),
    "an order": (GOOD, [terms("y[sort_indices_asc(y)] - mu")]),
    "an order of numbers": (GOOD, [terms("y[linspaced_int_array(n, 1, n)] - mu")]),
    "a rank": (GOOD, [terms("y - rank(y, 1) - mu")]),
    "put in a list": (GOOD, [terms("y - sum({y[1], y[2]}) - mu")]),
    "put in a row": (GOOD, [terms("y - sum([y[1], y[2]]) - mu")]),
    "made a matrix": (GOOD, [terms("to_vector(to_matrix(y, 1, n)') - mu")]),
    "laid end to end": (COVARIATES, [(XBETA, "y - mu - to_vector(X)")]),
    "transposed": (COVARIATES, [(XBETA, "y - mu - (X')[1]'")]),
    "an array of whole numbers, summed": (COUNTS, [
        ("to_vector(y) - mu", "to_vector(y) - sum(y) - mu")]),
    "records by records": (LEVELS, [("log(p[y]) - mu", "log(p[y[y]]) - mu")]),
    "effects of others": (GROUPED, [("u[group]", "u[reverse(group)]")]),
    "assigned by records": (GROUPED, [
        (TERMS.replace("y - mu", "y - mu - u[group]"),
         "vector[n] log_lik_i = y;\n  vector[J] w = u;\n  w[group] = y;\n  log_lik_i -= w[group];"),
    ]),
    "the largest in a function": (OWN, [(BODY, "    vector[rows(y)] z = y - max(y) - mu;\n")]),
    "others in a function": (OWN, [(BODY, "    vector[rows(y)] z = reverse(y) - mu;\n")]),
    "the first in a function": (OWN, [(BODY, "    vector[rows(y)] z = y - y[1] * mu;\n")]),
    "others by a loop in a function": (OWN, [
        (BODY, "    vector[rows(y)] z = y;\n    for (i in 2:rows(y)) z[i] = z[i - 1] - mu;\n")]),
    "a sum that a function returns": (OWN, [
        ("  vector apart", "  real all_of(vector y) { return sum(y); }\n  vector apart"),
        (BODY, "    vector[rows(y)] z = y - all_of(y) * mu;\n")]),
    "the largest beforehand": (INDICATED, [(SETS, "large = y / max(y);")]),
    "a sum beforehand": (GOOD, [beforehand("real m = sum(y);"), terms("y - m * mu")]),
    "a matrix beforehand": (COVARIATES, [
        beforehand("matrix[K, K] S = crossprod(X);"), (XBETA, "y - mu - X * S * beta")]),
    "a QR decomposition": (COVARIATES, [
        beforehand("matrix[n, K] Q = qr_thin_Q(X);"), (XBETA, "y - mu - Q * beta")]),
    "the record before": (INDICATED, [(SETS, "for (i in 2:n) large[i] = y[i - 1] > 0.5;")]),
    "the first record's comparison": (INDICATED, [(SETS, "for (i in 1:n) large[i] = y[1] > 0.5;")]),
    "the entry before": (INDICATED, [
        (SETS, "for (i in 1:n) large[i] = i > 1 ? large[i - 1] : y[i];")]),
    "another's entry": (INDICATED, [(SETS, "for (i in 1:n) large[n + 1 - i] = y[i] > 0.5;")]),
    "the first entry": (INDICATED, [(SETS, "for (i in 1:n) large[1] = y[i] > 0.5;")]),
    "entries up to its own": (INDICATED, [
        (SETS, "for (i in 1:n) large[1:i] = rep_vector(y[i] > 0.5, i);")]),
    "how many there are before": (INDICATED, [
        (SETS, "real k = 0;\n  for (i in 1:n) { k += y[i] > 0.5; large[i] = k; }")]),
    "the sum of indicators": (INDICATED, [terms("y - mu"), ("* large", "* sum(large)")]),
    "a loop that adds up": (INDICATED, [(SETS, "large = y;\n  for (i in 2:n) large[1] += y[i];")]),
    "a comparison with the largest": (INDICATED, [
        (SETS, "for (i in 1:n) large[i] = y[i] > max(y);")]),
    "a comparison with a mean": (INDICATED, [
        (SETS, "real m = mean(y);\n  for (i in 1:n) large[i] = y[i] > m;")]),
    "carried from component to component": (COMPONENTS, [
        (STEP, f"{{ {STEP} log_lik_i += sum(y); }}")]),
    "components of records": (COMPONENTS, [(STEP, STEP.replace("shift[g]", "y[g]"))]),
    "reversed from component to component": (COMPONENTS, [
        (STEP, f"{{ {STEP} log_lik_i = reverse(log_lik_i); }}")]),
}  # fmt: skip

# Where a record and parameters meet in an error the density is zero, and the record is seen.
FAILING = (
    "log1m", "log1p", "Phi", "inv_Phi", "tgamma", "trigamma", "acos", "asin", "acosh", "atanh",
    "std_normal_qf",
)  # fmt: skip
ERRORS = {
    **{f"{name} of records": (GOOD, [terms(f"{name}(y * mu)")]) for name in FAILING},
    "log_mix": (GOOD, [added("log_mix([0.5, 0.5]', [y[1] * mu, 0]')")]),
    "lbeta": (GOOD, [terms("lbeta(y, mu)")]),
    "lchoose": (GOOD, [terms("lchoose(y, mu)")]),
    "fma": (GOOD, [terms("fma(y, mu, 1.0)")]),
    "bessel": (GOOD, [terms("bessel_first_kind(1, y * mu)")]),
    "a regularised gamma": (GOOD, [terms("gamma_p(mu, y)")]),
    "log_falling_factorial": (GOOD, [terms("log_falling_factorial(y, mu)")]),
    "Lambert's function": (GOOD, [terms("lambert_w0(y * mu)")]),
    "a difference of distribution functions": (GOOD, [terms("log_inv_logit_diff(mu, y)")]),
    "sorting what is not a number": (GOOD, [terms("sort_asc(log(y - mu))")]),
    "a decomposition": (COVARIATES, [
        more("matrix[K, K] L = cholesky_decompose(crossprod(X) - mu);")]),
    "a decomposition of transformed data": (COVARIATES, [
        beforehand("matrix[K, K] S = crossprod(X);"),
        more("matrix[K, K] L = cholesky_decompose(S - mu);")]),
    "an inverse": (COVARIATES, [added("sum(inverse(crossprod(X) * mu))")]),
    "a solution": (GOOD, [
        functions("  vector f(vector x, vector y) { return x - mean(y); }"),
        beforehand("vector[1] s = solve_newton(f, [0.0]', y);"), terms("y - s[1] * mu")]),
    "a bound": (GOOD, [computed("vector<lower=0>[n] d = y - mu;")]),
    "a bound that is assigned later": (GOOD, [computed("vector<lower=0>[n] d;\n  d = y - mu;")]),
    "a bound above": (COVARIATES, [computed("vector<upper=3>[n] d = X * beta;")]),
    "a bound of a matrix": (COVARIATES, [computed("matrix<upper=3>[n, K] d = X * mu;")]),
    "a multiplier": (GOOD, [computed("vector<multiplier=mu>[n] d = y;")]),
    "a bound by records": (GOOD, [computed("real<lower=max(y)> d = mu;")]),
    "an order": (GOOD, [computed("ordered[n] d = y * mu;")]),
    "an order above zero": (GOOD, [computed("positive_ordered[n] d = y * mu;")]),
    "a simplex": (GOOD, [computed("simplex[n] d = y * mu;")]),
    "a unit vector": (GOOD, [computed("unit_vector[n] d = y * mu;")]),
    "a sum of zero": (GOOD, [computed("sum_to_zero_vector[n] d = y * mu;")]),
    "a covariance matrix": (GOOD, [computed("cov_matrix[n] d;")]),
    "simplices": (GOOD, [data("array[n] vector[2] q;"), computed("array[n] simplex[2] d = q;")]),
    "orders by a choice": (GOOD, [
        data("array[n] vector[2] q;\n  array[n] vector[2] r;"),
        computed("array[n] ordered[2] d = mu > 0 ? q : r;")]),
    "a bound of log_lik": (GOOD, [("vector[emit ?", "vector<upper=-1.4>[emit ?")]),
    "an order of log_lik": (GOOD, [("vector[emit ?", "ordered[emit ?")]),
    "a simplex of log_lik": (GOOD, [("vector[emit ?", "simplex[emit ?")]),
    "a bound in the generated quantities": (GOOD, [generated("vector<lower=0>[n] d = y - mu;")]),
    "a bound in transformed data": (GOOD, [beforehand("vector<upper=3>[n] d = y;")]),
    # Indices.
    "an index without bounds": (GROUPED, [(UPPER, "array[n] int group;")]),
    "an index without an upper bound": (GROUPED, [(UPPER, "array[n] int<lower=1> group;")]),
    "an index without a lower bound": (GROUPED, [(UPPER, "array[n] int<upper=J> group;")]),
    "an index from 0": (GROUPED, [(UPPER, UPPER.replace("lower=1", "lower=0"))]),
    "an index to another bound": (GROUPED, [
        data("int<lower=1> M;"), (UPPER, UPPER.replace("upper=J", "upper=M"))]),
    "an index to one more": (GROUPED, [(UPPER, UPPER.replace("upper=J", "upper=J + 1"))]),
    "an index to a number": (GROUPED, [(UPPER, UPPER.replace("upper=J", "upper=9"))]),
    "an effect of another length": (GROUPED, [("vector[J] u;", "vector[J - 1] u;")]),
    "an index of a slice": (GROUPED, [("u[group]", "u[1:2][group]")]),
    "an index of what is computed": (GROUPED, [("u[group]", "append_row(u, mu)[group]")]),
    "an index of a choice": (GROUPED, [
        computed("vector[1] w = [mu]';"), ("u[group]", "(mu > 0 ? u : w)[group]")]),
    "an index of whole numbers": (GROUPED, [
        ("u[group]", "u[sort_indices_asc(u)][group]")]),
    "an index that is computed": (GROUPED, [
        beforehand("array[n] int next;\n  for (i in 1:n) next[i] = group[i] > 1 ? 9 : 1;"),
        ("u[group]", "u[next]")]),
    "an index that is copied": (GROUPED, [
        beforehand("array[n] int next = group;"), ("u[group]", "u[next]")]),
    "an index by an array": (GROUPED, [("u[group]", "u[{1, 2}][group]")]),
    "an index in a function": (GROUPED, [
        ("u[group]", "of(u, group)"),
        functions("  vector of(vector u, array[] int group) { return u[group]; }")]),
    "an index with a size in a function": (GROUPED, [
        functions("  vector of(vector u, array[] int group, int J) {\n    vector[J] w = u;\n"
                  "    return w[group];\n  }"),
        ("u[group]", "of(u, group, J)")]),
    "rows and columns by records": (LEVELS, [
        data("matrix[C, C] Q;", "int<lower=2> C;"), ("log(p[y])", "diagonal(Q[y, y])")]),
    "columns by records": (LEVELS, [
        data("matrix[2, C] Q;", "int<lower=2> C;"), ("log(p[y])", "Q[:, y][1]'")]),
    "columns by records, after transposing": (LEVELS, [
        data("matrix[C, 2] Q;", "int<lower=2> C;"), ("log(p[y])", "(Q')[:, y][1]'")]),
    "a record's index by place": (GROUPED, [("u[group]", "u[group[1:n]]")]),
    "the group of one": (GROUPED, [("u[group]", "u[group[1]]")]),
    "a slice to a record's group": (GROUPED, [("u[group]", "sum(u[1:group[1]])")]),
    "assigned by records' groups": (GROUPED, [
        more("vector[J] w = u;\n  w[group] = y;\n  target += normal_lpdf(mu | w[1], 1);")]),
    "an array of another length": (GROUPED, [
        computed("array[2] vector[J] w = {u, u};"), ("u[group]", "to_vector(w[group, 1])")]),
    # Densities.
    "a density": (GOOD, [added("rep_vector(normal_lpdf(y | mu, 1), n)")]),
    "a density of one number": (GOOD, [added("normal_lpdf(y | mu, 1)")]),
    "a distribution function": (GOOD, [added("normal_lcdf(y | mu, 1)")]),
    "a mass": (COUNTS, [added("poisson_lpmf(y | mu)")]),
    "a density at records' scales": (COVARIATES, [added("normal_lpdf(0 | 0, 3 - X * beta)")]),
    "a density of one's own": (GOOD, [
        functions("  real near_lpdf(vector y, real mu) { return -sum(square(y - mu)); }"),
        added("near_lpdf(y | mu)")]),
    "a density as a function": (GOOD, [
        functions("  vector near(vector y, real mu) {\n"
                  "    return rep_vector(normal_lpdf(y | mu, 1), rows(y));\n  }"),
        added("near(y, mu)")]),
}  # fmt: skip
