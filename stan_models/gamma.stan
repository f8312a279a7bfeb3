// Gamma regression of a positive outcome, log link.
//   y_i ~ gamma(shape, shape / exp(eta_i)), so that E(y_i) = exp(eta_i)
functions {
#include pseudo_likelihood.stan
#include linear_predictor.stan
#include group_effects.stan

  // log gamma(y | shape, shape / exp(eta)), record by record
  vector gamma_log_lik(vector y, vector log_y, vector eta, real shape) {
    return shape * (log(shape) - eta) - lgamma(shape) + (shape - 1) * log_y
           - shape * y .* exp(-eta);
  }
  // what the records first..last add to target
  real gamma_target(array[] int record, int first, int last, vector y, vector log_y,
                    matrix X, array[,] int group_index, matrix slope_X, real intercept,
                    vector coefficient, vector group_effect, real shape,
                    vector weights, vector anchor, real clip_lower,
                    real clip_upper, vector multiplicity) {
    vector[last - first + 1] eta = linear_predictor(
        first, last, intercept, X, coefficient, group_effect, group_index, slope_X);
    return pseudo_log_lik(gamma_log_lik(y[first:last], log_y[first:last], eta, shape),
                          weights[first:last], anchor[first:last],
                          clip_lower, clip_upper, multiplicity[first:last]);
  }
}
data {
  int<lower=1> n;
  vector<lower=0>[n] y;  // confidential
  // public: covariates
  int<lower=0> K;
  matrix[n, K] X;
#include group_data.stan
#include group_coordinates.stan
  // public: priors
  vector[2] prior_intercept;        // normal(mean, sd)
  vector<lower=0>[2] prior_shape;   // gamma(shape, rate)
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
  vector[n] log_y = log(y);
  array[n] int record = linspaced_int_array(n, 1, n);
}
parameters {
#include group_parameters.stan
  real<lower=0> shape;
#include intercept_parameter.stan
}
transformed parameters {
#include group_transformed.stan
}
model {
  intercept ~ normal(prior_intercept[1], prior_intercept[2]);
  coefficient ~ normal(0, prior_coefficient);
  shape ~ gamma(prior_shape[1], prior_shape[2]);
#include group_priors.stan
  target += reduce_sum_static(gamma_target, record, records_per_block(), y, log_y, X,
                              group_index, slope_X, intercept, coefficient, group_effect,
                              shape, weights, anchor, clip_lower, clip_upper, multiplicity);
}
generated quantities {
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] real y_rep;
  if (emit || emit_y_rep) {
    vector[n] eta = linear_predictor(1, n, intercept, X, coefficient,
                                     group_effect, group_index, slope_X);
    if (emit) log_lik = gamma_log_lik(y, log_y, eta, shape);
    if (emit_y_rep) y_rep = gamma_rng(shape, shape * exp(-eta));
  }
}
