// Lognormal regression of a positive outcome, such as a duration.
//   log(y_i) ~ normal(eta_i, sigma)
functions {
#include pseudo_likelihood.stan
#include linear_predictor.stan
#include group_effects.stan
#include log_Phi.stan
#include normal_interval.stan

  // log lognormal(y | eta, sigma), record by record, or where the outcome is only
  // known to be above y, the log probability of that
  vector lognormal_log_lik(vector log_y, vector seen, vector eta, real sigma,
                           int censored) {
    vector[rows(log_y)] z = (log_y - eta) / sigma;
    vector[rows(log_y)] log_lik = -0.5 * square(z) - log(sigma) - log_y
                                  - 0.5 * log(2 * pi());
    if (censored) log_lik = seen .* log_lik + (1 - seen) .* log_Phi(-z);
    return log_lik;
  }
  // what the records first..last add to target
  real lognormal_target(array[] int record, int first, int last, vector log_y,
                        vector seen, matrix X, array[,] int group_index, matrix slope_X,
                        real intercept, vector coefficient, vector group_effect,
                        real sigma, int censored, vector weights, vector anchor,
                        real clip_lower, real clip_upper, vector multiplicity) {
    vector[last - first + 1] eta = linear_predictor(
        first, last, intercept, X, coefficient, group_effect, group_index, slope_X);
    return pseudo_log_lik(lognormal_log_lik(log_y[first:last], seen[first:last], eta,
                                            sigma, censored),
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
  int<lower=0, upper=1> censored;  // public: y may be below 0
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
  real unit = 1;  // of coefficients and intercept
  vector[n] log_y = log(abs(y));
  vector[n] seen = censored ? fmin(fmax(1e300 * y, 0), 1) : ones_vector(n);
  array[n] int record = linspaced_int_array(n, 1, n);
}
parameters {
#include group_parameters.stan
  real<lower=0> sigma;
#include intercept_parameter.stan
}
transformed parameters {
#include group_transformed.stan
}
model {
  intercept ~ normal(prior_intercept[1], prior_intercept[2]);
  coefficient ~ normal(0, prior_coefficient);
  sigma ~ normal(0, prior_sigma);
#include group_priors.stan
  target += reduce_sum_static(lognormal_target, record, records_per_block(), log_y, seen,
                              X, group_index, slope_X, intercept, coefficient,
                              group_effect, sigma, censored, weights, anchor, clip_lower,
                              clip_upper, multiplicity);
}
generated quantities {
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] real y_rep;
  if (emit || emit_y_rep) {
    vector[n] eta = linear_predictor(1, n, intercept, X, coefficient,
                                     group_effect, group_index, slope_X);
    if (emit) log_lik = lognormal_log_lik(log_y, seen, eta, sigma, censored);
    if (emit_y_rep) y_rep = lognormal_rng(eta, sigma);
  }
}
