// Poisson regression of a count, log link.
//   y_i ~ poisson(exp(eta_i)), where positive is 1 given that y_i > 0
functions {
#include pseudo_likelihood.stan
#include linear_predictor.stan
#include group_effects.stan
#include beta_divergence.stan

  // log poisson(y | exp(eta)), record by record; of y above 0 alone where positive is 1
  vector poisson_log_lik(vector y, vector lgamma_y1, vector eta, int positive) {
    vector[rows(eta)] log_lik = y .* eta - exp(eta) - lgamma_y1;
    if (positive) log_lik -= log1m_exp(-exp(eta));
    return log_lik;
  }
  // sum over c of p(c)^k, c = positive..largest
  vector poisson_power_sum(int largest, vector eta, int positive, real k) {
    int n = rows(eta);
    vector[n] total = zeros_vector(n);
    for (c in positive:largest) {
      total += exp(k * poisson_log_lik(rep_vector(c, n), rep_vector(lgamma(c + 1), n), eta,
                                       positive));
    }
    return total;
  }
  // Given that it is not 0: the first event of a unit of time, and those after it
  array[] real positive_poisson_rng(vector mean) {
    vector[rows(mean)] u = to_vector(uniform_rng(zeros_vector(rows(mean)), 1));
    vector[rows(mean)] after = mean + log(1 + u .* expm1(-mean));
    return to_array_1d(1 + to_vector(poisson_rng(fmax(after, 0))));
  }
  // what the records first..last add to target
  real poisson_target(array[] int record, int first, int last, vector y,
                      vector lgamma_y1, matrix X, array[,] int group_index,
                      matrix slope_X, real intercept, vector coefficient,
                      vector group_effect, int positive, real divergence, int y_upper,
                      vector weights, vector anchor, real clip_lower, real clip_upper,
                      vector multiplicity) {
    vector[last - first + 1] eta = linear_predictor(
        first, last, intercept, X, coefficient, group_effect, group_index, slope_X);
    vector[rows(eta)] log_lik = poisson_log_lik(y[first:last], lgamma_y1[first:last], eta,
                                                positive);
    if (divergence > 0) {
      log_lik = beta_divergence_score(
          log_lik, poisson_power_sum(y_upper, eta, positive, divergence + 1), divergence);
    }
    return pseudo_log_lik(log_lik, weights[first:last], anchor[first:last],
                          clip_lower, clip_upper, multiplicity[first:last]);
  }
}
data {
  int<lower=1> n;
  array[n] int<lower=0> y;  // confidential
  // public: covariates
  int<lower=0> K;
  matrix[n, K] X;
#include group_data.stan
#include group_coordinates.stan
  int<lower=0, upper=1> positive;  // public: no record has 0
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
  int<lower=0> y_upper;      // public bound, read where divergence > 0
}
transformed data {
  real unit = 1;  // of coefficients and intercept
  vector[n] y_real = to_vector(y);
  vector[n] lgamma_y1 = lgamma(y_real + 1);
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
  target += reduce_sum_static(poisson_target, record, records_per_block(), y_real,
                              lgamma_y1, X, group_index, slope_X, intercept, coefficient,
                              group_effect, positive, divergence, y_upper, weights, anchor,
                              clip_lower, clip_upper, multiplicity);
}
generated quantities {
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] real y_rep;
  if (emit || emit_y_rep) {
    vector[n] eta = linear_predictor(1, n, intercept, X, coefficient,
                                     group_effect, group_index, slope_X);
    if (emit) log_lik = poisson_log_lik(y_real, lgamma_y1, eta, positive);
    if (emit_y_rep) {
      // Stan's generator stops at a mean of 2^30 = exp(20.79)
      vector[n] log_mean = fmin(eta, 20.7);
      if (positive) y_rep = positive_poisson_rng(exp(log_mean));
      else y_rep = poisson_log_rng(log_mean);
    }
  }
}
