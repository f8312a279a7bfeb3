// Regression with errors of a mixture of C normal distributions, of y or of log(y).
//   y_i ~ sum_c share_c normal(eta_i + shift_c, sigma_c),  shift_1 < ... < shift_C,
//   sum_c share_c shift_c = 0, so that eta_i is the mean
functions {
#include pseudo_likelihood.stan
#include linear_predictor.stan
#include group_effects.stan

  // components from the mean, by the gaps between them
  vector shifts(vector share, vector gap) {
    vector[rows(share)] location = append_row(0, cumulative_sum(gap));
    return location - dot_product(share, location);
  }
  // log density of the mixture, record by record
  vector mixture_log_lik(vector value, vector eta, vector share, vector shift,
                         vector sigma) {
    vector[rows(value)] apart = value - eta;
    vector[rows(value)] log_lik = log(share[1] / sigma[1])
                                  - 0.5 * square((apart - shift[1]) / sigma[1]);
    for (c in 2:rows(share)) {
      log_lik = log_sum_exp(log_lik, log(share[c] / sigma[c])
                                     - 0.5 * square((apart - shift[c]) / sigma[c]));
    }
    return log_lik - 0.5 * log(2 * pi());
  }
  // what the records first..last add to target
  real mixture_target(array[] int record, int first, int last, vector value,
                      vector log_slope, matrix X, array[,] int group_index,
                      matrix slope_X, real intercept, vector coefficient,
                      vector group_effect, vector share, vector shift, vector sigma,
                      vector weights, vector anchor, real clip_lower,
                      real clip_upper, vector multiplicity) {
    vector[last - first + 1] eta = linear_predictor(
        first, last, intercept, X, coefficient, group_effect, group_index, slope_X);
    return pseudo_log_lik(mixture_log_lik(value[first:last], eta, share, shift, sigma)
                          - log_slope[first:last],
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
  // public: which of the families it is
  int<lower=2> components;
  int<lower=0, upper=1> logged;
  // public: priors
  vector[2] prior_intercept;             // normal(mean, sd)
  real<lower=0> prior_sigma;             // half-normal(sd), of each component
  real<lower=0> prior_least_sigma;       // their lower bound: without one, equal values
                                         // of a few records have unbounded density
  real<lower=0> prior_gap;               // half-normal(sd)
  real<lower=0> prior_share;             // Dirichlet, each
  real<lower=0> prior_coefficient;       // normal(0, sd)
  real<lower=0> prior_group_sd;          // half-normal(sd)
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
  real unit = inv_sqrt(rows);  // of intercept and coefficients, as in normal.stan
  vector[n] value = logged ? log(y) : y;
  vector[n] log_slope = logged ? value : zeros_vector(n);
  array[n] int record = linspaced_int_array(n, 1, n);
}
parameters {
  simplex[components] share;
  vector<lower=0>[components - 1] gap;
  vector<lower=prior_least_sigma>[components] sigma;
#include group_parameters.stan
#include intercept_parameter.stan
}
transformed parameters {
  vector[components] shift = shifts(share, gap);
#include group_transformed.stan
}
model {
  intercept ~ normal(prior_intercept[1], prior_intercept[2]);
  coefficient ~ normal(0, prior_coefficient);
  share ~ dirichlet(rep_vector(prior_share, components));
  gap ~ normal(0, prior_gap);
  sigma ~ normal(0, prior_sigma);
#include group_priors.stan
  target += reduce_sum_static(mixture_target, record, records_per_block(), value,
                              log_slope, X, group_index, slope_X, intercept, coefficient,
                              group_effect, share, shift, sigma, weights, anchor,
                              clip_lower, clip_upper, multiplicity);
}
generated quantities {
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] real y_rep;
  if (emit || emit_y_rep) {
    vector[n] eta = linear_predictor(1, n, intercept, X, coefficient,
                                     group_effect, group_index, slope_X);
    if (emit) log_lik = mixture_log_lik(value, eta, share, shift, sigma) - log_slope;
    if (emit_y_rep) {
      vector[n] u = to_vector(uniform_rng(zeros_vector(n), 1));
      vector[n] location = eta + shift[1];
      vector[n] scale = rep_vector(sigma[1], n);
      real below = 0;
      // 1 where the record is of a later component: loops over records are slow
      for (c in 2:components) {
        below += share[c - 1];
        vector[n] later = fmin(fmax(1e300 * (u - below), 0), 1);
        location += (shift[c] - shift[c - 1]) * later;
        scale += (sigma[c] - sigma[c - 1]) * later;
      }
      y_rep = normal_rng(location, scale);
      if (logged) y_rep = exp(y_rep);
    }
  }
}
