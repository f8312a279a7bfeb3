"""Stan programs outside the package that keep the contract, and outcomes for the bundled ones."""

import dpbayes as dpb
from dpbayes.stan.families import FAMILIES
from dpbayes.stan.program import stan_directory

GOOD = """functions {
#include pseudo_likelihood.stan
}
data {
  int<lower=1> n;
  vector[n] y;
  vector<lower=0, upper=1>[n] weights;
  vector[n] anchor;
  real clip_lower;
  real clip_upper;
  int<lower=0, upper=1> emit;
  int<lower=0, upper=1> emit_y_rep;
}
parameters {
  real mu;
}
model {
  mu ~ normal(0, 2);
  // target += normal_lpdf(y | mu, 1);
  vector[n] log_lik_i = -0.5 * square(y - mu) - 0.5 * log(2 * pi());
  target += pseudo_log_lik(log_lik_i, weights, anchor, clip_lower, clip_upper);
}
generated quantities {
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] real y_rep;
  if (emit) {
    log_lik = -0.5 * square(y - mu) - 0.5 * log(2 * pi());
  }
  if (emit_y_rep) {
    y_rep = normal_rng(rep_vector(mu, n), 1);
  }
}
"""

# The same, of which no analysis proves that an error hangs on no record.
UNPROVED = GOOD.replace(
    "  target += ",
    """  for (i in 1:n) {
    if (y[i] > 3) log_lik_i[i] += 0 * normal_lpdf(0 | mu, 1);
  }
  target += """,
)

# The same target, summed over blocks of records.
BLOCKS = GOOD.replace(
    "#include pseudo_likelihood.stan\n",
    """#include pseudo_likelihood.stan
  real block(array[] int record, int first, int last, vector y, real mu,
             vector weights, vector anchor, real clip_lower, real clip_upper) {
    vector[last - first + 1] log_lik_i = -0.5 * square(y[first:last] - mu) - 0.5 * log(2 * pi());
    return pseudo_log_lik(log_lik_i, weights[first:last], anchor[first:last],
                          clip_lower, clip_upper);
  }
""",
).replace(
    """  vector[n] log_lik_i = -0.5 * square(y - mu) - 0.5 * log(2 * pi());
  target += pseudo_log_lik(log_lik_i, weights, anchor, clip_lower, clip_upper);
""",
    """  target += reduce_sum_static(block, linspaced_int_array(n, 1, n), 4000, y, mu, weights,
                              anchor, clip_lower, clip_upper);
""",
)


def stopping(place, statement, text=GOOD):
    """A program with a statement in a block, which comes first there where it can."""
    if place == "transformed data":
        begin = "transformed data {\n"
        if begin not in text:
            text = text.replace("parameters {", f"{begin}}}\nparameters {{", 1)
        return text.replace(begin, f"{begin}{statement}\n", 1)
    before = {"model": "  mu ~ normal(0, 2);", "generated quantities": "  if (emit_y_rep) {\n"}[
        place
    ]
    assert before in text
    if place == "model":
        return text.replace(before, f"{statement}\n{before}")
    return text.replace(before, f"{before}{statement}\n")


def write(tmp_path, text):
    path = tmp_path / "mine.stan"
    path.write_text(text)
    return path


OUTCOME = {
    "normal": "y", "lognormal": "y", "beta": "y", "gamma": "y", "bernoulli": "ill",
    "poisson": "visits", "neg_binomial": "visits", "categorical": "party", "ordinal": "health",
    "student_t": "y", "truncated_normal": "y", "truncated_lognormal": "y", "histogram": "wage",
    "ordinal_probit": "health", "zero_truncated_poisson": "rooms",
    "zero_truncated_neg_binomial": "rooms", "hurdle_poisson": "visits",
    "hurdle_neg_binomial": "visits", "zero_inflated_poisson": "visits",
    "zero_inflated_neg_binomial": "visits", "semicontinuous_lognormal": "wage",
    "semicontinuous_gamma": "wage", "semicontinuous_beta": "wage",
    "semicontinuous_truncated_normal": "wage", "mixture": "y",
    "mixture_lognormal": "y", "weibull": "y", "exponential": "y",
    "survival_weibull": "Surv(y, ill)", "survival_exponential": "Surv(y, ill)",
    "survival_lognormal": "Surv(y, ill)",
}  # fmt: skip


def family_of_ones_own(path, bundled="bernoulli", **settings):
    path.write_text((stan_directory() / f"{bundled}.stan").read_text())
    return dpb.Family(
        "mine", "my own", "binary", "none", FAMILIES["bernoulli"].priors, program=path, **settings
    )


def one_of_each_program():
    """Families that differ in their programs, and one of each rule of two parts."""
    found = {}
    for name, family in FAMILIES.items():
        found.setdefault(family.rule or family.file, name)
    return list(found.values())
