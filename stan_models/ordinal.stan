// Cumulative regression of an ordinal outcome with C levels, or of the cell of a
// histogram that a number falls into, by logit or probit.
//   P(y_i <= c) = inv_logit(cutpoint_c - eta_i) or Phi(cutpoint_c - eta_i),  no intercept
functions {
#include pseudo_likelihood.stan
#include beta_divergence.stan
#include linear_predictor.stan
#include group_effects.stan
#include log_Phi.stan
#include normal_interval.stan

  // log ordered_logistic(y | eta, cutpoint), record by record, from
  //   inv_logit(u) - inv_logit(l) = inv_logit(u) (1 - inv_logit(l)) (1 - exp(l - u)),
  // u and l the cutpoints above and below y, less eta. Row i of the 0/1 matrices
  // `above`, `below` picks them; has_above, has_below, has_both are 0 where the
  // end level has none and the factor is 1.
  vector ordinal_log_lik(matrix above, matrix below, vector has_above,
                         vector has_below, vector has_both, vector eta,
                         vector cutpoint) {
    vector[rows(eta)] top = above * cutpoint;
    vector[rows(eta)] bottom = below * cutpoint;
    // 1 stands in for the gap where there is none
    vector[rows(eta)] gap = has_both .* (top - bottom) + (1 - has_both);
    return has_above .* log_inv_logit(top - eta)
           + has_below .* log_inv_logit(eta - bottom)
           + has_both .* log1m_exp(-gap);
  }
  // the same of ordered_probit
  vector ordinal_probit_log_lik(matrix above, matrix below, vector has_above,
                                vector has_below, vector has_both, vector eta,
                                vector cutpoint) {
    vector[rows(eta)] top = above * cutpoint - eta;
    vector[rows(eta)] bottom = below * cutpoint - eta;
    // 1 stands in for the gap where there is none
    vector[rows(eta)] half = 0.5 * (has_both .* (top - bottom) + (1 - has_both));
    return (has_above - has_both) .* log_Phi(top) + (has_below - has_both) .* log_Phi(-bottom)
           + has_both .* log_Phi_interval(0.5 * (top + bottom), half);
  }
  vector ordinal_link_log_lik(matrix above, matrix below, vector has_above,
                              vector has_below, vector has_both, vector eta,
                              vector cutpoint, int probit) {
    if (probit) {
      return ordinal_probit_log_lik(above, below, has_above, has_below, has_both, eta,
                                    cutpoint);
    }
    return ordinal_log_lik(above, below, has_above, has_below, has_both, eta, cutpoint);
  }
  // Dirichlet prior of the shares of the levels at eta = 0, up to a constant, seen
  // from the cutpoints of a cumulative logit and what is between them, which rounding
  // leaves nothing of where cutpoints are large
  real shares_lpdf(vector cutpoint, vector concentration, vector gap) {
    int C = rows(concentration);
    vector[C - 1] below = log_inv_logit(cutpoint);
    vector[C - 1] above = log_inv_logit(-cutpoint);
    real lp = sum(below + above) + (concentration[1] - 1) * below[1]
              + (concentration[C] - 1) * above[C - 1];
    if (C > 2) {
      lp += dot_product(concentration[2:(C - 1)] - 1,
                        below[2:(C - 1)] + above[1:(C - 2)]
                        + log1m_exp(-fmax(gap, 1e-300)));
    }
    return lp;
  }
  // sum over the levels of their probabilities to the power k
  vector ordinal_power_sum(vector eta, vector cutpoint, int probit, real k) {
    vector[rows(eta)] total = rep_vector(0, rows(eta));
    vector[rows(eta)] below = rep_vector(0, rows(eta));
    for (c in 1:rows(cutpoint)) {
      vector[rows(eta)] upto = inv_logit(cutpoint[c] - eta);
      if (probit) upto = 0.5 * erfc(inv_sqrt(2) * (eta - cutpoint[c]));
      total += (upto - below) .^ k;
      below = upto;
    }
    return total + (1 - below) .^ k;
  }
  // what the records first..last add to target
  real ordinal_target(array[] int record, int first, int last, matrix above,
                      matrix below, vector has_above, vector has_below,
                      vector has_both, matrix X, array[,] int group_index,
                      matrix slope_X, vector cutpoint, vector coefficient,
                      vector group_effect, int probit, real divergence, vector weights,
                      vector anchor, real clip_lower, real clip_upper,
                      vector multiplicity) {
    vector[last - first + 1] eta = linear_predictor(
        first, last, 0, X, coefficient, group_effect, group_index, slope_X);
    vector[rows(eta)] log_lik = ordinal_link_log_lik(
        above[first:last], below[first:last], has_above[first:last],
        has_below[first:last], has_both[first:last], eta, cutpoint, probit);
    if (divergence > 0) {
      log_lik = beta_divergence_score(
          log_lik, ordinal_power_sum(eta, cutpoint, probit, divergence + 1), divergence);
    }
    return pseudo_log_lik(log_lik, weights[first:last], anchor[first:last],
                          clip_lower, clip_upper, multiplicity[first:last]);
  }
}
data {
  int<lower=1> n;
  int<lower=2> C;
  array[n] int<lower=1, upper=C> y;  // confidential
  // public: covariates
  int<lower=0> K;
  matrix[n, K] X;
#include group_data.stan
#include group_coordinates.stan
  vector[C - 2] gap_share;
  // public: which of the families it is
  int<lower=0, upper=1> probit;
  int<lower=0, upper=1> binned;  // cells of a histogram
  int<lower=1, upper=C - 1> base;  // the cutpoint from which the others are told by gaps
  // public: priors
  vector[2] prior_cutpoint;         // normal(mean, sd), under the order
  vector<lower=0>[binned ? C : 0] prior_shares;  // or Dirichlet, of shares at eta = 0
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
  real unit = 1;  // of coefficients and cutpoints
  // Cutpoints have the intercept's place, with the other sign.
  vector[2] prior_location = [-prior_cutpoint[1], prior_cutpoint[2]]';
  matrix[n, C - 1] above = rep_matrix(0, n, C - 1);
  matrix[n, C - 1] below = rep_matrix(0, n, C - 1);
  vector[n] has_above = rep_vector(0, n);
  vector[n] has_below = rep_vector(0, n);
  for (i in 1:n) {
    if (y[i] < C) {
      above[i, y[i]] = 1;
      has_above[i] = 1;
    }
    if (y[i] > 1) {
      below[i, y[i] - 1] = 1;
      has_below[i] = 1;
    }
  }
  vector[n] has_both = has_above .* has_below;
  array[n] int record = linspaced_int_array(n, 1, n);
}
parameters {
  vector<lower=0>[C - 2] gap;
#include group_parameters.stan
  real<offset=-intercept_offset(group_raw, group_sd_of(group_sd_raw, prior_group_sd),
                                group_partial, group_information,
                                group_estimate - group_mean * coefficient, prior_location,
                                group_free, group_apart, overlap, overlap_effect,
                                overlap_row, S, group_column)
              - dot_product(gap_share, gap),
       multiplier=intercept_multiplier(group_sd_of(group_sd_raw, prior_group_sd),
                                       group_partial, group_information, prior_location,
                                       unit, S, group_column)> first_cutpoint;
}
transformed parameters {
  vector[C - 1] cutpoint = append_row(0, cumulative_sum(gap));
  vector<lower=0>[T] group_sd = group_sd_of(group_sd_raw, prior_group_sd);
  vector[P] group_correlation = tanh(group_partial);
  vector[J] group_effect = effects_of(
      T, group_raw, group_sd, group_partial, group_information,
      group_estimate - group_mean * coefficient,
      (T > S) * -(first_cutpoint + dot_product(gap_share, gap)), group_free, group_apart,
      overlap, overlap_effect, overlap_row, group_column);
  cutpoint += first_cutpoint - cutpoint[base];
}
model {
  if (binned) target += shares_lpdf(cutpoint | prior_shares, gap);
  else cutpoint ~ normal(prior_cutpoint[1], prior_cutpoint[2]);
  coefficient ~ normal(0, prior_coefficient);
#include group_priors.stan
  target += reduce_sum_static(ordinal_target, record, records_per_block(), above, below,
                              has_above, has_below, has_both, X, group_index, slope_X,
                              cutpoint, coefficient, group_effect, probit, divergence,
                              weights, anchor, clip_lower, clip_upper, multiplicity);
}
generated quantities {
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] real y_rep;  // of a histogram with the place inside the cell
  if (emit || emit_y_rep) {
    vector[n] eta = linear_predictor(1, n, 0, X, coefficient, group_effect,
                                     group_index, slope_X);
    if (emit) {
      log_lik = ordinal_link_log_lik(above, below, has_above, has_below, has_both,
                                     eta, cutpoint, probit);
    }
    if (emit_y_rep) {
      // ordered_logistic_rng by its latent variable, which every engine has
      vector[n] latent;
      vector[n] level = ones_vector(n);
      if (probit) latent = to_vector(normal_rng(eta, 1));
      else latent = to_vector(logistic_rng(eta, 1));
      // 1 where the latent variable is above: loops over records are slow
      for (c in 1:(C - 1)) level += fmin(fmax(1e300 * (latent - cutpoint[c]), 0), 1);
      if (binned) level += to_vector(uniform_rng(rep_vector(-0.5, n), 0.5));
      y_rep = to_array_1d(level);
    }
  }
}
