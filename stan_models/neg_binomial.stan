// Negative binomial regression of a count, log link.
//   y_i ~ neg_binomial_2(exp(eta_i), phi); variance mu + mu^2 / phi
//   where positive is 1 given that y_i > 0
functions {
#include pseudo_likelihood.stan
#include linear_predictor.stan
#include group_effects.stan
#include beta_divergence.stan

  // log neg_binomial_2(y | exp(eta), phi), record by record; of y above 0 alone where
  // positive is 1
  vector neg_binomial_log_lik(vector y, vector lgamma_y1, vector eta, real phi,
                              int positive) {
    vector[rows(eta)] log_total = log_sum_exp(eta, log(phi));
    vector[rows(eta)] log_lik = lgamma(y + phi) - lgamma(phi) - lgamma_y1
                                + y .* (eta - log_total) + phi * (log(phi) - log_total);
    if (positive) log_lik -= log1m_exp(-phi * log1p_exp(eta - log(phi)));
    return log_lik;
  }
  // sum over c of p(c)^k, c = positive..largest
  vector neg_binomial_power_sum(int largest, vector eta, real phi, int positive, real k) {
    int n = rows(eta);
    vector[n] total = zeros_vector(n);
    for (c in positive:largest) {
      vector[n] log_p = neg_binomial_log_lik(rep_vector(c, n), rep_vector(lgamma(c + 1), n),
                                             eta, phi, positive);
      total += exp(k * log_p);
    }
    return total;
  }
  // A Poisson number of a mean with a gamma distribution. Stan's generator of both stops where that
  // mean is 2^30, which it may be far above exp(log_mean).
  array[] real gamma_poisson_rng(vector log_mean, vector phi) {
    vector[rows(phi)] rate = phi .* exp(-fmax(log_mean, -600));
    return poisson_rng(fmin(fmax(to_vector(gamma_rng(phi, rate)), 1e-300), 1.07e9));
  }
  // Given that it is not 0. A negative binomial is a Poisson number of logarithmic
  // ones: the first comes by Kemp (1981, algorithm LK), the others are again one.
  array[] real positive_neg_binomial_rng(vector log_mean, real phi) {
    int n = rows(log_mean);
    vector[n] zero = zeros_vector(n);
    vector[n] log_fail = -log1p_exp(log_mean - log(phi));  // log(1 - p)
    vector[n] all = -phi * log_fail;
    vector[n] left = all + log(1 + to_vector(uniform_rng(zero, 1)) .* expm1(-all));
    vector[n] log_q = log1m_exp(to_vector(uniform_rng(zero, 1)) .* log_fail);
    vector[n] first = floor(fmin(log(to_vector(uniform_rng(zero, 1))) ./ log_q, 1e9));
    // of size phi * share and the same p
    vector[n] share = fmax(left ./ all, 1e-12);
    return to_array_1d(1 + first + to_vector(gamma_poisson_rng(log_mean + log(share),
                                                               phi * share)));
  }
  // what the records first..last add to target
  real neg_binomial_target(array[] int record, int first, int last, vector y,
                           vector lgamma_y1, matrix X, array[,] int group_index,
                           matrix slope_X, real intercept, vector coefficient,
                           vector group_effect, real phi, int positive, real divergence,
                           int y_upper, vector weights, vector anchor, real clip_lower,
                           real clip_upper, vector multiplicity) {
    vector[last - first + 1] eta = linear_predictor(
        first, last, intercept, X, coefficient, group_effect, group_index, slope_X);
    vector[rows(eta)] log_lik = neg_binomial_log_lik(
        y[first:last], lgamma_y1[first:last], eta, phi, positive);
    if (divergence > 0) {
      log_lik = beta_divergence_score(
          log_lik, neg_binomial_power_sum(y_upper, eta, phi, positive, divergence + 1),
          divergence);
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
  vector<lower=0>[2] prior_phi;     // gamma(shape, rate)
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
  real<lower=0> phi;
#include intercept_parameter.stan
}
transformed parameters {
#include group_transformed.stan
}
model {
  intercept ~ normal(prior_intercept[1], prior_intercept[2]);
  coefficient ~ normal(0, prior_coefficient);
  phi ~ gamma(prior_phi[1], prior_phi[2]);
#include group_priors.stan
  target += reduce_sum_static(neg_binomial_target, record, records_per_block(), y_real,
                              lgamma_y1, X, group_index, slope_X, intercept, coefficient,
                              group_effect, phi, positive, divergence, y_upper, weights,
                              anchor, clip_lower, clip_upper, multiplicity);
}
generated quantities {
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] real y_rep;
  if (emit || emit_y_rep) {
    vector[n] eta = linear_predictor(1, n, intercept, X, coefficient,
                                     group_effect, group_index, slope_X);
    if (emit) log_lik = neg_binomial_log_lik(y_real, lgamma_y1, eta, phi, positive);
    if (emit_y_rep) {
      vector[n] log_mean = fmin(eta, 20.7);
      if (positive) y_rep = positive_neg_binomial_rng(log_mean, phi);
      else y_rep = gamma_poisson_rng(log_mean, rep_vector(phi, n));
    }
  }
}
