// Weibull or exponential regression of a positive outcome, such as a duration.
//   P(y_i > t) = exp(-(t / exp(eta_i))^shape);  exponential: shape = 1
functions {
#include pseudo_likelihood.stan
#include linear_predictor.stan
#include group_effects.stan

  // log weibull(y | shape, exp(eta)), record by record, or where the outcome is only
  // known to be above y, the log probability of that
  vector weibull_log_lik(vector log_y, vector seen, vector eta, vector shape) {
    real k = rows(shape) > 0 ? shape[1] : 1;
    vector[rows(log_y)] z = k * (log_y - eta);
    return seen .* (log(k) + z - log_y) - exp(z);
  }
  // what the records first..last add to target
  real weibull_target(array[] int record, int first, int last, vector log_y, vector seen,
                      matrix X, array[,] int group_index, matrix slope_X, real intercept,
                      vector coefficient, vector group_effect, vector shape,
                      vector weights, vector anchor, real clip_lower,
                      real clip_upper, vector multiplicity) {
    vector[last - first + 1] eta = linear_predictor(
        first, last, intercept, X, coefficient, group_effect, group_index, slope_X);
    return pseudo_log_lik(weibull_log_lik(log_y[first:last], seen[first:last], eta, shape),
                          weights[first:last], anchor[first:last],
                          clip_lower, clip_upper, multiplicity[first:last]);
  }
}
data {
  int<lower=1> n;
  vector[n] y;  // confidential; below 0: the outcome is above -y
  // public: covariates
  int<lower=0> K;
  matrix[n, K] X;
#include group_data.stan
#include group_coordinates.stan
  // public: which of the families it is
  int<lower=0, upper=1> exponential;
  int<lower=0, upper=1> censored;  // y may be below 0
  // public: priors
  vector[2] prior_intercept;        // normal(mean, sd)
  vector<lower=0>[exponential ? 0 : 2] prior_shape;  // gamma(shape, rate)
  real<lower=0> prior_coefficient;  // normal(0, sd)
  real<lower=0> prior_group_sd;     // half-normal(sd)
  // the contract of stan_models/README.md
  vector<lower=0, upper=1>[n] weights;
  vector[n] anchor;
  real clip_lower;
  real clip_upper;
  vector<lower=0>[n] multiplicity;  // equal records that a row stands for
  int<lower=0, upper=1> emit;
  int<lower=0, upper=1> emit_y_rep;
}
transformed data {
  real unit = 1;  // of coefficients and intercept
  vector[n] log_y = log(abs(y));
  vector[n] seen = censored ? fmin(fmax(1e300 * y, 0), 1) : ones_vector(n);
  array[n] int record = linspaced_int_array(n, 1, n);
}
parameters {
#include group_parameters.stan
  vector<lower=0>[1 - exponential] shape;
#include intercept_parameter.stan
}
transformed parameters {
#include group_transformed.stan
}
model {
  intercept ~ normal(prior_intercept[1], prior_intercept[2]);
  coefficient ~ normal(0, prior_coefficient);
  if (!exponential) shape ~ gamma(prior_shape[1], prior_shape[2]);
#include group_priors.stan
  target += reduce_sum_static(weibull_target, record, records_per_block(), log_y, seen, X,
                              group_index, slope_X, intercept, coefficient, group_effect,
                              shape, weights, anchor, clip_lower, clip_upper, multiplicity);
}
generated quantities {
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] real y_rep;
  if (emit || emit_y_rep) {
    vector[n] eta = linear_predictor(1, n, intercept, X, coefficient,
                                     group_effect, group_index, slope_X);
    if (emit) log_lik = weibull_log_lik(log_y, seen, eta, shape);
    if (emit_y_rep) {
      // by the inverse of the distribution function: 1e308 where it is above
      real k = exponential ? 1 : shape[1];
      vector[n] log_e = log(to_vector(exponential_rng(ones_vector(n))));
      y_rep = to_array_1d(exp(fmin(eta + log_e / k, 709)));
    }
  }
}
