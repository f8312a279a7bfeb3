"""Programs that keep the contract, as a statistician would write them, and proved to keep it.

Terms of records are vectors, computed by functions that work entry by entry. ``LOOPS`` has
programs that compute them record by record: they keep the contract too, and are not proved.
"""

DATA = """  int<lower=1> n;
  int<lower=0> K;
  matrix[n, K] X;
  vector<lower=0, upper=1>[n] weights;
  vector[n] anchor;
  real clip_lower;
  real clip_upper;
  int<lower=0, upper=1> emit;
  int<lower=0, upper=1> emit_y_rep;
"""
INCLUDE = "functions {\n#include pseudo_likelihood.stan\n}\n"
ADD = "target += pseudo_log_lik(ll, weights, anchor, clip_lower, clip_upper);"

STUDENT_T = f"""functions {{
#include pseudo_likelihood.stan
  vector student_log_lik(vector y, real nu, vector mu, real sigma) {{
    vector[rows(y)] z = (y - mu) / sigma;
    return lgamma((nu + 1) / 2) - lgamma(nu / 2) - 0.5 * log(nu * pi()) - log(sigma)
           - (nu + 1) / 2 * log(1 + square(z) / nu);
  }}
}}
data {{
{DATA}  vector[n] y;
}}
parameters {{
  real alpha;
  vector[K] beta;
  real<lower=0> sigma;
  real<lower=1> nu;
}}
model {{
  alpha ~ normal(0, 5);
  beta ~ normal(0, 1);
  sigma ~ exponential(1);
  nu ~ gamma(2, 0.1);
  vector[n] ll = student_log_lik(y, nu, alpha + X * beta, sigma);
  {ADD}
}}
generated quantities {{
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] real y_rep;
  if (emit) {{
    log_lik = student_log_lik(y, nu, alpha + X * beta, sigma);
  }}
  if (emit_y_rep) {{
    y_rep = student_t_rng(nu, alpha + X * beta, sigma);
  }}
}}
"""

MIXTURE = f"""{INCLUDE}data {{
{DATA}  vector[n] y;
  int<lower=1> G;
  vector<lower=0>[G] concentration;
}}
parameters {{
  simplex[G] p;
  ordered[G] mu;
  vector<lower=0>[G] sigma;
}}
transformed parameters {{
  vector[n] ll = rep_vector(negative_infinity(), n);
  {{
    vector[G] constant = log(p) - log(sigma) - 0.5 * log(2 * pi());
    for (g in 1:G) {{
      ll = log_sum_exp(ll, constant[g] - 0.5 * square((y - mu[g]) / sigma[g]));
    }}
  }}
}}
model {{
  target += dirichlet_lpdf(p | concentration);
  mu ~ normal(0, 3);
  sigma ~ lognormal(0, 1);
  {ADD}
}}
generated quantities {{
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] real y_rep;
  if (emit) log_lik = ll;
  if (emit_y_rep) {{
    for (i in 1:n) {{
      int g = categorical_rng(p);
      y_rep[i] = normal_rng(mu[g], sigma[g]);
    }}
  }}
}}
"""

SPLINE = f"""{INCLUDE}data {{
{DATA}  vector[n] y;
  int<lower=1> knots;
  matrix[n, knots] B;
}}
parameters {{
  real a0;
  vector[knots] a_raw;
  real<lower=0> tau;
  real<lower=0> sigma;
}}
transformed parameters {{
  vector[knots] a;
  a[1] = a_raw[1];
  for (k in 2:knots) a[k] = a[k - 1] + a_raw[k] * tau;
}}
model {{
  a0 ~ normal(0, 1);
  a_raw ~ std_normal();
  tau ~ normal(0, 1);
  sigma ~ normal(0, 1);
  vector[n] ll = -0.5 * square((y - a0 - B * a) / sigma) - log(sigma) - 0.5 * log(2 * pi());
  {ADD}
}}
generated quantities {{
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] real y_rep;
  if (emit) {{
    vector[n] mu = a0 + B * a;
    log_lik = -0.5 * square((y - mu) / sigma) - log(sigma) - 0.5 * log(2 * pi());
  }}
  if (emit_y_rep) y_rep = normal_rng(a0 + B * a, sigma);
}}
"""

SLOPES = f"""{INCLUDE}data {{
{DATA}  vector[n] y;
  int<lower=1> J;
  array[n] int<lower=1, upper=J> group;
}}
parameters {{
  vector[K] gamma;
  matrix[K, J] z;
  cholesky_factor_corr[K] L;
  vector<lower=0>[K] tau;
  real<lower=0> sigma;
}}
transformed parameters {{
  matrix[J, K] beta = (rep_matrix(gamma, J) + diag_pre_multiply(tau, L) * z)';
}}
model {{
  gamma ~ normal(0, 2);
  to_vector(z) ~ std_normal();
  L ~ lkj_corr_cholesky(2);
  tau ~ normal(0, 1);
  sigma ~ normal(0, 1);
  vector[n] mu = rows_dot_product(beta[group], X);
  vector[n] ll = -0.5 * square((y - mu) / sigma) - log(sigma) - 0.5 * log(2 * pi());
  {ADD}
}}
generated quantities {{
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] real y_rep;
  if (emit) {{
    vector[n] mu = rows_dot_product(beta[group], X);
    log_lik = -0.5 * square((y - mu) / sigma) - log(sigma) - 0.5 * log(2 * pi());
  }}
  if (emit_y_rep) y_rep = normal_rng(rows_dot_product(beta[group], X), sigma);
}}
"""
SLOPES = SLOPES.replace("int<lower=0> K;", "int<lower=1> K;")  # a slope at least

TRUNCATED = f"""functions {{
#include pseudo_likelihood.stan
  vector normal_below(real end, vector mu, real sigma) {{
    return 0.5 * erfc((mu - end) / (sigma * sqrt(2)));
  }}
}}
data {{
{DATA}  real low;
  real<lower=low> high;
  vector<lower=low, upper=high>[n] y;
}}
parameters {{
  real alpha;
  vector[K] beta;
  real<lower=0> sigma;
}}
transformed parameters {{
  vector[n] ll;
  {{
    vector[n] mu = alpha + X * beta;
    ll = -0.5 * square((y - mu) / sigma) - log(sigma) - 0.5 * log(2 * pi());
    ll -= log(normal_below(high, mu, sigma) - normal_below(low, mu, sigma));
  }}
}}
model {{
  alpha ~ normal(0, 2);
  beta ~ normal(0, 1);
  sigma ~ normal(0, 1);
  {ADD}
}}
generated quantities {{
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] real y_rep;
  if (emit) log_lik = ll;
  if (emit_y_rep) {{
    vector[n] mu = alpha + X * beta;
    for (i in 1:n) {{
      real p_low = normal_cdf(low | mu[i], sigma);
      real p_high = normal_cdf(high | mu[i], sigma);
      y_rep[i] = mu[i] + sigma * inv_Phi(uniform_rng(p_low, p_high));
    }}
  }}
}}
"""

SURVIVAL = f"""{INCLUDE}data {{
{DATA}  real<lower=0> horizon;
  vector<lower=0, upper=horizon>[n] y;  // at the horizon: censored
}}
transformed data {{
  vector[n] event;
  for (i in 1:n) event[i] = y[i] < horizon;
}}
parameters {{
  real alpha;
  vector[K] beta;
  real<lower=0> shape;
}}
model {{
  alpha ~ normal(0, 2);
  beta ~ normal(0, 1);
  shape ~ gamma(2, 1);
  vector[n] log_scale = -(alpha + X * beta) / shape;
  vector[n] z = shape * (log(y) - log_scale);
  vector[n] ll = event .* (log(shape) - log_scale + (shape - 1) * (log(y) - log_scale)) - exp(z);
  {ADD}
}}
generated quantities {{
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] real y_rep;
  vector[n] log_scale = -(alpha + X * beta) / shape;
  if (emit) {{
    vector[n] z = shape * (log(y) - log_scale);
    log_lik = event .* (log(shape) - log_scale + (shape - 1) * (log(y) - log_scale)) - exp(z);
  }}
  if (emit_y_rep) {{
    for (i in 1:n) y_rep[i] = fmin(weibull_rng(shape, exp(log_scale[i])), horizon);
  }}
}}
"""

HETERO = f"""{INCLUDE}data {{
{DATA}  vector[n] y;
  int<lower=0> M;
  matrix[n, M] Z;
}}
parameters {{
  real alpha;
  vector[K] beta;
  real delta;
  vector[M] gamma;
}}
transformed parameters {{
  vector[n] mu = alpha + X * beta;
  vector[n] log_sd = delta + Z * gamma;
}}
model {{
  alpha ~ normal(0, 2);
  target += normal_lpdf(beta | 0, 1);
  delta ~ normal(0, 1);
  target += std_normal_lpdf(gamma);
  vector[n] ll = -0.5 * ((y - mu) ./ exp(log_sd))^2 - log_sd - 0.5 * log(2 * pi());
  {ADD}
}}
generated quantities {{
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] real y_rep;
  if (emit) log_lik = -0.5 * ((y - mu) ./ exp(log_sd))^2 - log_sd - 0.5 * log(2 * pi());
  if (emit_y_rep) y_rep = normal_rng(mu, exp(log_sd));
}}
"""

NESTED = f"""{INCLUDE}data {{
{DATA}  vector[n] y;
  int<lower=1> J;
  int<lower=1> R;
  array[n] int<lower=1, upper=J> group;
  array[J] int<lower=1, upper=R> region_of;
}}
parameters {{
  real alpha;
  vector[J] school;
  vector[R] region;
  vector<lower=0>[2] tau;
  real<lower=0> sigma;
}}
model {{
  alpha ~ normal(0, 2);
  school ~ std_normal();
  region ~ std_normal();
  tau ~ normal(0, 1);
  sigma ~ normal(0, 1);
  vector[n] mu = alpha + tau[1] * school[group] + tau[2] * region[region_of[group]];
  vector[n] ll = -0.5 * square((y - mu) / sigma) - log(sigma) - 0.5 * log(2 * pi());
  {ADD}
}}
generated quantities {{
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] real y_rep;
  if (emit || emit_y_rep) {{
    vector[n] mu = alpha + tau[1] * school[group] + tau[2] * region[region_of[group]];
    if (emit) log_lik = -0.5 * square((y - mu) / sigma) - log(sigma) - 0.5 * log(2 * pi());
    if (emit_y_rep) y_rep = normal_rng(mu, sigma);
  }}
}}
"""

GROUPS = """  int<lower=1> J;
  array[n] int<lower=1, upper=J> group;
"""


def regression(
    y, parameters, priors, terms, replicate, *, functions="", before="", data="", steps="",
    levels="", coefficients="vector[K] beta;", eta="alpha + X * beta", whole=True,
):  # fmt: skip
    """A program with a linear predictor eta: the same steps and terms for target and log_lik.

    Args:
        terms: expression for the log-likelihoods of the records.
        replicate: expression for y_rep[i].
        before: transformed data.
        steps: statements before the terms.
        levels: transformed parameters that records index.
        whole: replicates are whole numbers.
    """
    return f"""functions {{
#include pseudo_likelihood.stan
{functions}}}
data {{
{DATA}{data}  {y}
}}
transformed data {{
  {before}
}}
parameters {{
  real alpha;
  {coefficients}
  {parameters}
}}
transformed parameters {{
  vector[n] eta = {eta};
  {levels}
}}
model {{
  alpha ~ normal(0, 2);
  beta ~ normal(0, 1);
  {priors}
  {steps}
  vector[n] ll = {terms};
  {ADD}
}}
generated quantities {{
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] {"int" if whole else "real"} y_rep;
  if (emit) {{
    {steps}
    log_lik = {terms};
  }}
  if (emit_y_rep) {{
    for (i in 1:n) y_rep[i] = {replicate};
  }}
}}
"""


NUMBERS, COUNTS = "vector[n] y;", "array[n] int<lower=0> y;"
COUNTED = "vector[n] counted = to_vector(y);"
ZERO = f"{COUNTED}\n  vector[n] zero;\n  for (i in 1:n) zero[i] = y[i] == 0;"
# Cutpoints of a level's upper and lower end, for all levels.
ENDS = """vector[C] upper_cut = append_row(cut, positive_infinity());
  vector[C] lower_cut = append_row(negative_infinity(), cut);"""
LEVELS = {"data": "  int<lower=3> C;\n", "levels": ENDS}
LEVEL_OF = """  int level_of(real z, vector cut) {
    int k = 1;
    for (c in 1:rows(cut)) k += z > cut[c];
    return k;
  }
"""
POSITIVE = """  int positive_rng(real rate) {
    int count = 0;
    for (k in 1:100) {
      if (count == 0) count = poisson_rng(fmin(rate, 1e6));
    }
    return max(count, 1);
  }
"""
NORMAL = """  vector normal_terms(vector y, vector mu, real sigma) {
    return -0.5 * square((y - mu) / sigma) - log(sigma) - 0.5 * log(2 * pi());
  }
"""
REGRESSIONS = {
    "Student-t with groups": regression(
        NUMBERS, "vector[J] z; real<lower=0> tau; real<lower=0> sigma; real<lower=2> nu;",
        "z ~ std_normal(); tau ~ normal(0, 1); sigma ~ exponential(1); nu ~ gamma(2, 0.1);",
        "lgamma((nu + 1) / 2) - lgamma(nu / 2) - 0.5 * log(nu * pi()) - log(sigma)"
        " - (nu + 1) / 2 * log(1 + square((y - eta) / sigma) / nu)",
        "student_t_rng(nu, eta[i], sigma)", data=GROUPS,
        eta="alpha + X * beta + tau * z[group]", whole=False),
    "zero-inflated Poisson": regression(
        COUNTS, "real<lower=0, upper=1> theta;", "theta ~ beta(1, 1);",
        "log_sum_exp(log(theta) + log(zero),"
        " log(1 - theta) + counted .* eta - exp(eta) - lgamma(counted + 1))",
        "bernoulli_rng(theta) ? 0 : poisson_log_rng(fmin(eta[i], 20))", before=ZERO),
    "hurdle Poisson": regression(
        COUNTS, "real<lower=0, upper=1> theta;", "",
        "zero * log(theta) + (1 - zero) .* positive",
        "bernoulli_rng(theta) ? 0 : positive_rng(exp(eta[i]))", before=ZERO, functions=POSITIVE,
        steps="vector[n] positive = log(1 - theta) + counted .* eta - exp(eta)"
              " - lgamma(counted + 1);\n  positive -= log1m_exp(-exp(eta));"),
    "two normals": regression(
        NUMBERS, "real<lower=0, upper=1> p; ordered[2] shift; vector<lower=0>[2] sigma;",
        "p ~ beta(2, 2); shift ~ normal(0, 2); sigma ~ normal(0, 1);",
        "log_sum_exp(log(p) + normal_terms(y, eta + shift[1], sigma[1]),"
        " log(1 - p) + normal_terms(y, eta + shift[2], sigma[2]))",
        "bernoulli_rng(p) ? normal_rng(eta[i] + shift[1], sigma[1])"
        " : normal_rng(eta[i] + shift[2], sigma[2])", functions=NORMAL, whole=False),
    "lognormal with slopes": regression(
        "vector<lower=0>[n] y;", "matrix[J, K] z; vector<lower=0>[K] tau; real<lower=0> sigma;",
        "to_vector(z) ~ std_normal(); tau ~ normal(0, 1); sigma ~ normal(0, 1);",
        "normal_terms(log(y), mu, sigma) - log(y)", "lognormal_rng(eta[i], sigma)",
        functions=NORMAL, data=GROUPS, whole=False,
        steps="vector[n] mu = eta + (X .* z[group]) * tau;"),
    "exponential survival": regression(
        "vector<lower=0, upper=horizon>[n] y;", "", "", "-event .* eta - y .* exp(-eta)",
        "fmin(exponential_rng(exp(-eta[i])), horizon)", data="  real<lower=0> horizon;\n",
        before="array[n] int observed;\n  for (i in 1:n) observed[i] = y[i] < horizon ? 1 : 0;\n"
               "  vector[n] event = to_vector(observed);", whole=False),
    "ordinal probit": regression(
        "array[n] int<lower=1, upper=C> y;", "ordered[C - 1] cut;", "cut ~ normal(0, 3);",
        "log(0.5) + log(erfc((eta - upper_cut[y]) / sqrt(2)) - erfc((eta - lower_cut[y]) /"
        " sqrt(2)))", "level_of(normal_rng(eta[i], 1), cut)", functions=LEVEL_OF, **LEVELS),
    "ordinal logit": regression(
        "array[n] int<lower=1, upper=C> y;", "ordered[C - 1] cut;", "cut ~ normal(0, 3);",
        "log_diff_exp(log_inv_logit(upper_cut[y] - eta), log_inv_logit(lower_cut[y] - eta))",
        "level_of(logistic_rng(eta[i], 1), cut)", functions=LEVEL_OF, **LEVELS),
    "negative binomial": regression(
        COUNTS, "real<lower=0> phi;", "phi ~ gamma(2, 0.1);",
        "lgamma(counted + phi) - lgamma(phi) - lgamma(counted + 1) + counted .* eta"
        " + phi * log(phi) - (counted + phi) .* log_sum_exp(eta, log(phi))",
        "neg_binomial_2_log_rng(eta[i], phi)", before=COUNTED),
    "beta regression": regression(
        "vector<lower=0, upper=1>[n] y;", "real<lower=0> kappa;", "kappa ~ gamma(2, 0.1);",
        "lgamma(kappa) - lgamma(a) - lgamma(b) + (a - 1) .* log(y) + (b - 1) .* log(1 - y)",
        "beta_rng(inv_logit(eta[i]) * kappa, inv_logit(-eta[i]) * kappa)", whole=False,
        steps="vector[n] a = kappa * inv_logit(eta);\n  vector[n] b = kappa * inv_logit(-eta);"),
    "logistic": regression(
        "array[n] int<lower=0, upper=1> y;", "", "", "log_inv_logit(sign .* eta)",
        "bernoulli_logit_rng(eta[i])", before="vector[n] sign = 2 * to_vector(y) - 1;"),
    "multinomial logit": regression(
        "array[n] int<lower=1, upper=3> y;", "", "to_vector(B) ~ normal(0, 1);",
        "rows_dot_product(X, B[y]) - total", "categorical_logit_rng(to_vector(X[i] * B'))",
        coefficients="matrix[3, K] B; vector[3] beta;", eta="alpha + beta[y]",
        steps="vector[n] total = rep_vector(negative_infinity(), n);\n"
              "  for (c in 1:3) total = log_sum_exp(total, X * B[c]');"),
}  # fmt: skip

HONEST = {
    "Student-t": STUDENT_T,
    "mixture of normals": MIXTURE,
    "spline": SPLINE,
    "random slopes": SLOPES,
    "truncated": TRUNCATED,
    "censored survival": SURVIVAL,
    "heteroscedastic": HETERO,
    "nested groups": NESTED,
    **REGRESSIONS,
}

HURDLE_LOOP = f"""functions {{
#include pseudo_likelihood.stan
  real hurdle_lpmf(int y, real theta, real lambda) {{
    if (y == 0) return log(theta);
    return log1m(theta) + poisson_lpmf(y | lambda) - log1m_exp(-lambda);
  }}
}}
data {{
{DATA}  array[n] int<lower=0> y;
}}
parameters {{
  real<lower=0, upper=1> theta;
  real alpha;
  vector[K] beta;
}}
transformed parameters {{
  vector<lower=0>[n] lambda = exp(alpha + X * beta);
}}
model {{
  vector[n] ll;
  alpha ~ normal(0, 2);
  beta ~ std_normal();
  for (i in 1:n) ll[i] = hurdle_lpmf(y[i] | theta, lambda[i]);
  {ADD}
}}
generated quantities {{
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] int y_rep;
  if (emit) {{
    for (i in 1:n) log_lik[i] = hurdle_lpmf(y[i] | theta, lambda[i]);
  }}
  if (emit_y_rep) {{
    for (i in 1:n) {{
      y_rep[i] = 0;
      if (!bernoulli_rng(theta)) {{
        int tries = 0;
        while (y_rep[i] == 0 && tries < 100) {{
          y_rep[i] = poisson_rng(fmin(lambda[i], 1e6));
          tries += 1;
        }}
      }}
    }}
  }}
}}
"""

MIXTURE_LOOP = f"""{INCLUDE}data {{
{DATA}  vector[n] y;
  int<lower=1> G;
  vector<lower=0>[G] concentration;
}}
parameters {{
  simplex[G] p;
  ordered[G] mu;
  vector<lower=0>[G] sigma;
}}
transformed parameters {{
  vector[n] ll;
  {{
    vector[G] log_p = log(p);
    for (i in 1:n) {{
      vector[G] lps = log_p;
      for (g in 1:G) lps[g] += normal_lpdf(y[i] | mu[g], sigma[g]);
      ll[i] = log_sum_exp(lps);
    }}
  }}
}}
model {{
  target += dirichlet_lpdf(p | concentration);
  mu ~ normal(0, 3);
  sigma ~ lognormal(0, 1);
  {ADD}
}}
generated quantities {{
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] real y_rep;
  if (emit) log_lik = ll;
  if (emit_y_rep) {{
    for (i in 1:n) {{
      int g = categorical_rng(p);
      y_rep[i] = normal_rng(mu[g], sigma[g]);
    }}
  }}
}}
"""

LOGISTIC_LOOP = HONEST["logistic"].replace(
    "vector[n] ll = log_inv_logit(sign .* eta);",
    "vector[n] ll;\n  for (i in 1:n) ll[i] = bernoulli_logit_lpmf(y[i] | eta[i]);",
)

# Kept, but not proved: who uses them gives their word (allow_unproved).
LOOPS = {
    "hurdle by record": HURDLE_LOOP,
    "mixture by record": MIXTURE_LOOP,
    "logistic by record": LOGISTIC_LOOP,
}
