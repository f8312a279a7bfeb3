// Logistic regression of a binary outcome.
//   y_i ~ bernoulli(inv_logit(eta_i))
functions {
#include pseudo_likelihood.stan
#include beta_divergence.stan
#include linear_predictor.stan
#include group_effects.stan

  // log bernoulli_logit(y | eta), record by record; sign is +1 for y = 1, else -1
  vector bernoulli_log_lik(vector sign, vector eta) {
    return log_inv_logit(sign .* eta);
  }
  // p^k + (1 - p)^k
  vector bernoulli_power_sum(vector eta, real k) {
    return exp(k * log_inv_logit(eta)) + exp(k * log_inv_logit(-eta));
  }
  // what the records first..last add to target
  real bernoulli_target(array[] int record, int first, int last, vector sign,
                        matrix X, array[,] int group_index, matrix slope_X, real intercept,
                        vector coefficient, vector group_effect, real divergence,
                        vector weights, vector anchor, real clip_lower,
                        real clip_upper, vector multiplicity) {
    vector[last - first + 1] eta = linear_predictor(
        first, last, intercept, X, coefficient, group_effect, group_index, slope_X);
    vector[rows(eta)] log_lik = bernoulli_log_lik(sign[first:last], eta);
    if (divergence > 0) {
      log_lik = beta_divergence_score(
          log_lik, bernoulli_power_sum(eta, divergence + 1), divergence);
    }
    return pseudo_log_lik(log_lik, weights[first:last], anchor[first:last],
                          clip_lower, clip_upper, multiplicity[first:last]);
  }
}
data {
  int<lower=1> n;
  array[n] int<lower=0, upper=1> y;  // confidential
  // public: covariates
  int<lower=0> K;
  matrix[n, K] X;
#include group_data.stan
#include group_coordinates.stan
  // public: priors
  vector[2] prior_intercept;        // normal(mean, sd)
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
  real<lower=0> divergence;  // beta - 1 of the beta-divergence; 0 for log-likelihood
}
transformed data {
  real unit = 1;  // of coefficients and intercept
  vector[n] sign = 2 * to_vector(y) - 1;
  array[n] int record = linspaced_int_array(n, 1, n);
}
parameters {
#include group_parameters.stan
#include intercept_parameter.stan
}
transformed parameters {
#include group_transformed.stan
}
model {
  intercept ~ normal(prior_intercept[1], prior_intercept[2]);
  coefficient ~ normal(0, prior_coefficient);
#include group_priors.stan
  target += reduce_sum_static(bernoulli_target, record, records_per_block(), sign, X,
                              group_index, slope_X, intercept, coefficient, group_effect,
                              divergence, weights, anchor, clip_lower, clip_upper,
                              multiplicity);
}
generated quantities {
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] int y_rep;
  if (emit || emit_y_rep) {
    vector[n] eta = linear_predictor(1, n, intercept, X, coefficient,
                                     group_effect, group_index, slope_X);
    if (emit) log_lik = bernoulli_log_lik(sign, eta);
    if (emit_y_rep) y_rep = bernoulli_logit_rng(eta);
  }
}
