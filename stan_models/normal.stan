// Normal regression of a continuous outcome.
//   y_i ~ normal(eta_i, sigma)
functions {
#include pseudo_likelihood.stan
#include linear_predictor.stan
#include group_effects.stan

  // log normal(y | eta, sigma), record by record
  vector normal_log_lik(vector y, vector eta, real sigma) {
    return -0.5 * square((y - eta) / sigma) - log(sigma) - 0.5 * log(2 * pi());
  }
  // what the records first..last add to target
  real normal_target(array[] int record, int first, int last, vector y, matrix X,
                     array[,] int group_index, matrix slope_X, real intercept,
                     vector coefficient, vector group_effect, real sigma, vector weights,
                     vector anchor, real clip_lower, real clip_upper, vector multiplicity) {
    vector[last - first + 1] eta = linear_predictor(
        first, last, intercept, X, coefficient, group_effect, group_index, slope_X);
    return pseudo_log_lik(normal_log_lik(y[first:last], eta, sigma),
                          weights[first:last], anchor[first:last],
                          clip_lower, clip_upper, multiplicity[first:last]);
  }
}
data {
  int<lower=1> n;
  vector[n] y;  // confidential
  int<lower=1> rows;  // public number of rows: n, or what stands for it
  // public: covariates
  int<lower=0> K;
  matrix[n, K] X;
#include group_data.stan
#include group_coordinates.stan
  // public: priors
  vector[2] prior_intercept;        // normal(mean, sd)
  real<lower=0> prior_sigma;        // half-normal(sd)
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
  // Posterior sds of intercept, coefficients and log_sigma shrink with sqrt(n).
  // In units of 1 / sqrt(rows) they stay well above the constant 1e-3 towards which
  // Stan's adaptation shrinks variances; below it the chains mix slowly whenever
  // sigma is small next to the declared bounds.
  real unit = inv_sqrt(rows);
  array[n] int record = linspaced_int_array(n, 1, n);
}
parameters {
#include group_parameters.stan
  real<multiplier=unit> log_sigma;
#include intercept_parameter.stan
}
transformed parameters {
  real<lower=0> sigma = exp(log_sigma);
#include group_transformed.stan
}
model {
  intercept ~ normal(prior_intercept[1], prior_intercept[2]);
  coefficient ~ normal(0, prior_coefficient);
  sigma ~ normal(0, prior_sigma);
  target += log_sigma;  // Jacobian: the prior is on sigma
#include group_priors.stan
  target += reduce_sum_static(normal_target, record, records_per_block(), y, X,
                              group_index, slope_X, intercept, coefficient, group_effect,
                              sigma, weights, anchor, clip_lower, clip_upper, multiplicity);
}
generated quantities {
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] real y_rep;
  if (emit || emit_y_rep) {
    vector[n] eta = linear_predictor(1, n, intercept, X, coefficient,
                                     group_effect, group_index, slope_X);
    if (emit) log_lik = normal_log_lik(y, eta, sigma);
    if (emit_y_rep) y_rep = normal_rng(eta, sigma);
  }
}
