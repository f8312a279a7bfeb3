// Lognormal regression of a positive outcome.
//   log(y_i) ~ normal(eta_i, sigma)
functions {
#include pseudo_likelihood.stan
#include linear_predictor.stan
#include group_effects.stan

  // log lognormal(y | eta, sigma), record by record
  vector lognormal_log_lik(vector log_y, vector eta, real sigma) {
    return -0.5 * square((log_y - eta) / sigma) - log(sigma) - log_y
           - 0.5 * log(2 * pi());
  }
  // what the records first..last add to target
  real lognormal_target(array[] int record, int first, int last, vector log_y,
                        matrix X, array[] int group, real intercept,
                        vector coefficient, vector group_effect, real sigma,
                        vector weights, vector anchor, real clip_lower,
                        real clip_upper) {
    vector[last - first + 1] eta = linear_predictor(
        first, last, intercept, X, coefficient, group_effect, group);
    return pseudo_log_lik(lognormal_log_lik(log_y[first:last], eta, sigma),
                          weights[first:last], anchor[first:last],
                          clip_lower, clip_upper);
  }
}
data {
  int<lower=1> n;
  vector<lower=0>[n] y;  // confidential
  // public: covariates and group labels
  int<lower=0> K;
  matrix[n, K] X;
  int<lower=0> J;
  array[J > 0 ? n : 0] int<lower=1, upper=J> group;
  // how the chain walks through their effects: include/group_effects.stan
  matrix[J, K] group_mean;
  vector<lower=0>[J] group_information;
  vector[J] group_estimate;
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
  int<lower=0, upper=1> emit;
  int<lower=0, upper=1> emit_y_rep;
}
transformed data {
  real unit = 1;  // of the intercept
  vector[n] log_y = log(y);
  array[n] int record = linspaced_int_array(n, 1, n);
}
parameters {
  vector[K] coefficient;
  real<lower=0> sigma;
#include group_parameters.stan
}
transformed parameters {
  vector<lower=0>[J > 0] group_sd = group_sd_of(group_sd_raw, prior_group_sd);
  vector[J] group_effect = effects_of(
      group_raw, sum(group_sd), group_information,
      group_estimate - group_mean * coefficient - intercept);
}
model {
  intercept ~ normal(prior_intercept[1], prior_intercept[2]);
  coefficient ~ normal(0, prior_coefficient);
  sigma ~ normal(0, prior_sigma);
  group_sd_raw ~ group_sd(prior_group_sd);
  target += effects_lpdf(group_effect | sum(group_sd), group_information);
  target += reduce_sum_static(lognormal_target, record, records_per_block(), log_y, X,
                              group, intercept, coefficient, group_effect, sigma,
                              weights, anchor, clip_lower, clip_upper);
}
generated quantities {
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] real y_rep;
  if (emit || emit_y_rep) {
    vector[n] eta = linear_predictor(1, n, intercept, X, coefficient,
                                   group_effect, group);
    if (emit) log_lik = lognormal_log_lik(log_y, eta, sigma);
    if (emit_y_rep) y_rep = lognormal_rng(eta, sigma);
  }
}
