// Location-scale regression: normal, Student-t, lognormal, and truncated to the bounds.
//   y_i ~ D(eta_i, sigma_i), or log(y_i);  log sigma_i = log_sigma + Z_i sigma_coefficient
functions {
#include pseudo_likelihood.stan
#include linear_predictor.stan
#include group_effects.stan
#include log_Phi.stan
#include normal_interval.stan

  // log density of y at location eta and scale exp(log_sigma), record by record.
  // nu: degrees of freedom, empty for normal. ends: of y where truncated is 2, the
  // upper one alone where it is 1.
  vector location_scale_log_lik(vector y, vector eta, vector log_sigma, vector nu,
                                int truncated, vector ends) {
    vector[rows(y)] per_sigma = exp(-log_sigma);
    vector[rows(y)] log_lik = -log_sigma;
    if (rows(nu) > 0) {
      log_lik += lgamma(0.5 * (nu[1] + 1)) - lgamma(0.5 * nu[1]) - 0.5 * log(nu[1] * pi())
                 - 0.5 * (nu[1] + 1) * log1p(square((y - eta) .* per_sigma) / nu[1]);
    } else {
      log_lik += -0.5 * square((y - eta) .* per_sigma) - 0.5 * log(2 * pi());
    }
    // Arguments have names: as expressions, stanli loses them in generated quantities.
    if (truncated == 1) {
      vector[rows(y)] upper_end = (ends[2] - eta) .* per_sigma;
      log_lik -= log_Phi(upper_end);
    }
    if (truncated == 2) {
      vector[rows(y)] middle = (0.5 * (ends[1] + ends[2]) - eta) .* per_sigma;
      log_lik -= log_Phi_interval(middle, 0.5 * (ends[2] - ends[1]) * per_sigma);
    }
    return log_lik;
  }
  // log sigma of the records first..last
  vector log_scale(int first, int last, real log_sigma, matrix Z, vector coefficients) {
    vector[last - first + 1] found = rep_vector(log_sigma, last - first + 1);
    if (cols(Z) > 0) found += Z[first:last] * coefficients;
    return found;
  }
  // what the records first..last add to target
  real location_scale_target(array[] int record, int first, int last, vector value,
                             vector log_slope, matrix X, matrix Z, array[,] int group_index,
                             matrix slope_X, real intercept, vector coefficient,
                             vector group_effect, real log_sigma, vector sigma_coefficient,
                             vector nu, int truncated, vector ends, vector weights,
                             vector anchor, real clip_lower, real clip_upper,
                             vector multiplicity) {
    vector[last - first + 1] eta = linear_predictor(
        first, last, intercept, X, coefficient, group_effect, group_index, slope_X);
    return pseudo_log_lik(
        location_scale_log_lik(value[first:last], eta,
                               log_scale(first, last, log_sigma, Z, sigma_coefficient),
                               nu, truncated, ends) - log_slope[first:last],
        weights[first:last], anchor[first:last], clip_lower, clip_upper,
        multiplicity[first:last]);
  }
}
data {
  int<lower=1> n;
  vector[n] y;  // confidential
  int<lower=1> rows;  // public number of rows: n, or what stands for it
  // public: covariates
  int<lower=0> K;
  matrix[n, K] X;
  int<lower=0> M;  // of the scale
  matrix[n, M] Z;
#include group_data.stan
#include group_coordinates.stan
  // public: which of the families it is
  int<lower=0, upper=1> logged;
  int<lower=0, upper=1> student;
  int<lower=0, upper=2> truncated;
  vector[2] ends;  // of y, or of log(y)
  // public: priors
  vector[2] prior_intercept;              // normal(mean, sd)
  real<lower=0> prior_sigma;              // half-normal(sd), at Z = 0
  real<lower=0> prior_sigma_coefficient;  // normal(0, sd)
  vector<lower=0>[2] prior_nu;            // gamma(shape, rate), above 1
  real<lower=0> prior_coefficient;        // normal(0, sd)
  real<lower=0> prior_group_sd;           // half-normal(sd)
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
  real unit = inv_sqrt(rows);  // of intercept, coefficients and log_sigma, as in normal.stan
  vector[n] value = logged ? log(y) : y;
  vector[n] log_slope = logged ? value : zeros_vector(n);
  array[n] int record = linspaced_int_array(n, 1, n);
}
parameters {
#include group_parameters.stan
  real<multiplier=unit> log_sigma;
  vector<multiplier=unit>[M] sigma_coefficient;
  vector<lower=1>[student] nu;
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
  sigma_coefficient ~ normal(0, prior_sigma_coefficient);
  nu ~ gamma(prior_nu[1], prior_nu[2]);
#include group_priors.stan
  target += reduce_sum_static(location_scale_target, record, records_per_block(), value,
                              log_slope, X, Z, group_index, slope_X, intercept, coefficient,
                              group_effect, log_sigma, sigma_coefficient, nu, truncated,
                              ends, weights, anchor, clip_lower, clip_upper, multiplicity);
}
generated quantities {
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] real y_rep;
  if (emit || emit_y_rep) {
    vector[n] eta = linear_predictor(1, n, intercept, X, coefficient,
                                     group_effect, group_index, slope_X);
    vector[n] log_sigma_i = log_scale(1, n, log_sigma, Z, sigma_coefficient);
    if (emit) {
      log_lik = location_scale_log_lik(value, eta, log_sigma_i, nu, truncated, ends)
                - log_slope;
    }
    if (emit_y_rep) {
      if (student) y_rep = student_t_rng(nu[1], eta, exp(log_sigma_i));
      else if (truncated) y_rep = truncated_normal_rng(eta, exp(log_sigma_i), truncated, ends);
      else y_rep = normal_rng(eta, exp(log_sigma_i));
      if (logged) y_rep = exp(y_rep);
    }
  }
}
