// Multinomial logistic regression of a categorical outcome with C levels.
//   P(y_i = c) = softmax(eta_i)_c,  eta_i1 = 0 (the first level is the reference)
functions {
#include pseudo_likelihood.stan
#include beta_divergence.stan
#include linear_predictor.stan
#include group_effects.stan

  // log categorical_logit(y | eta), record by record. Columns of eta and of the
  // 0/1 matrix `is_level` are the levels 2..C.
  vector categorical_log_lik(matrix is_level, matrix eta) {
    int n = rows(eta);
    vector[n] own = rep_vector(0, n);
    vector[n] log_total = rep_vector(0, n);
    for (c in 1:cols(eta)) {
      own += is_level[, c] .* eta[, c];
      log_total = log_sum_exp(log_total, eta[, c]);
    }
    return own - log_total;
  }
  // sum over the levels of their probabilities to the power k
  vector categorical_power_sum(matrix eta, real k) {
    vector[rows(eta)] log_total = rep_vector(0, rows(eta));
    for (c in 1:cols(eta)) log_total = log_sum_exp(log_total, eta[, c]);
    vector[rows(eta)] total = exp(-k * log_total);
    for (c in 1:cols(eta)) total += exp(k * (eta[, c] - log_total));
    return total;
  }
  // linear predictors of the levels 2..C, records first..last
  matrix categorical_predictor(int first, int last, vector intercept, matrix X,
                               matrix coefficient, matrix group_effect,
                               array[,] int group_index, matrix slope_X) {
    matrix[last - first + 1, rows(intercept)] eta;
    for (c in 1:rows(intercept)) {
      eta[, c] = linear_predictor(first, last, intercept[c], X, coefficient[, c],
                                  group_effect[, c], group_index, slope_X);
    }
    return eta;
  }
  // what they add to target
  real categorical_target(array[] int record, int first, int last,
                          matrix is_level, matrix X, array[,] int group_index,
                          matrix slope_X, vector intercept, matrix coefficient,
                          matrix group_effect, real divergence, vector weights,
                          vector anchor, real clip_lower, real clip_upper,
                          vector multiplicity) {
    matrix[last - first + 1, rows(intercept)] eta = categorical_predictor(
        first, last, intercept, X, coefficient, group_effect, group_index, slope_X);
    vector[rows(eta)] log_lik = categorical_log_lik(is_level[first:last], eta);
    if (divergence > 0) {
      log_lik = beta_divergence_score(
          log_lik, categorical_power_sum(eta, divergence + 1), divergence);
    }
    return pseudo_log_lik(log_lik, weights[first:last], anchor[first:last],
                          clip_lower, clip_upper, multiplicity[first:last]);
  }
  // the functions of group_effects.stan, level by level
  matrix effects_by_level(int upto, matrix raw, matrix sd_raw, real scale,
                          matrix partial, matrix information, matrix estimate,
                          vector intercept, vector free, matrix apart, vector overlap,
                          array[] int overlap_effect, array[] int overlap_row,
                          array[,] int column) {
    matrix[rows(raw), rows(intercept)] found;
    for (c in 1:rows(intercept)) {
      found[, c] = effects_of(upto, raw[, c], group_sd_of(sd_raw[, c], scale),
                              partial[, c], information[, c], estimate[, c],
                              intercept[c], free, apart, overlap, overlap_effect,
                              overlap_row, column);
    }
    return found;
  }
  // slope_offset, level by level
  matrix slope_offsets(matrix slope_part, matrix effect) {
    matrix[rows(slope_part), cols(effect)] offset_of;
    for (c in 1:cols(effect)) offset_of[, c] = slope_offset(slope_part, effect[, c]);
    return offset_of;
  }
  vector intercept_offsets(matrix raw, matrix sd_raw, real scale, matrix partial,
                           matrix information, matrix estimate, vector prior,
                           vector free, matrix apart, vector overlap,
                           array[] int overlap_effect, array[] int overlap_row,
                           int slopes, array[,] int column) {
    vector[cols(sd_raw)] found = rep_vector(0, cols(sd_raw));
    if (rows(sd_raw) > 0) {
      for (c in 1:cols(sd_raw)) {
        found[c] = intercept_offset(raw[, c], group_sd_of(sd_raw[, c], scale),
                                    partial[, c], information[, c], estimate[, c],
                                    prior, free, apart, overlap, overlap_effect,
                                    overlap_row, slopes, column);
      }
    }
    return found;
  }
  vector intercept_multipliers(matrix sd_raw, real scale, matrix partial,
                               matrix information, vector prior, int slopes,
                               array[,] int column) {
    vector[cols(sd_raw)] found = rep_vector(1, cols(sd_raw));
    if (rows(sd_raw) > 0) {
      for (c in 1:cols(sd_raw)) {
        found[c] = intercept_multiplier(group_sd_of(sd_raw[, c], scale), partial[, c],
                                        information[, c], prior, 1, slopes, column);
      }
    }
    return found;
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
  // by the records, for the chain alone
  matrix<lower=0>[J, C - 1] group_information;
  matrix[J, C - 1] group_estimate;
  matrix[K, Q] slope_part;
  // public: priors
  vector[2] prior_intercept;        // normal(mean, sd), each level but the first
  real<lower=0> prior_coefficient;  // normal(0, sd)
  real<lower=0> prior_group_sd;     // half-normal(sd), each level but the first
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
  matrix[n, C - 1] is_level = rep_matrix(0, n, C - 1);
  for (i in 1:n) {
    if (y[i] > 1) is_level[i, y[i] - 1] = 1;
  }
  array[n] int record = linspaced_int_array(n, 1, n);
}
parameters {
  matrix[T, C - 1] group_sd_raw;
  matrix[P, C - 1] group_partial;
  matrix[J, C - 1] group_raw;
  matrix<offset=slope_offsets(
             slope_part,
             effects_by_level(S, group_raw, group_sd_raw, prior_group_sd, group_partial,
                              group_information, group_estimate, rep_vector(0, C - 1),
                              group_free, group_apart, overlap, overlap_effect,
                              overlap_row, group_column))>[K, C - 1] coefficient;
  vector<offset=intercept_offsets(group_raw, group_sd_raw, prior_group_sd,
                                  group_partial, group_information,
                                  group_estimate - group_mean * coefficient,
                                  prior_intercept, group_free, group_apart, overlap,
                                  overlap_effect, overlap_row, S, group_column),
         multiplier=intercept_multipliers(group_sd_raw, prior_group_sd,
                                          group_partial, group_information,
                                          prior_intercept, S,
                                          group_column)>[C - 1] intercept;
}
transformed parameters {
  matrix<lower=0>[T, C - 1] group_sd;
  matrix[P, C - 1] group_correlation;
  matrix[J, C - 1] group_effect = effects_by_level(
      T, group_raw, group_sd_raw, prior_group_sd, group_partial, group_information,
      group_estimate - group_mean * coefficient, (T > S) * intercept, group_free,
      group_apart, overlap, overlap_effect, overlap_row, group_column);
  for (c in 1:(C - 1)) {
    group_sd[, c] = group_sd_of(group_sd_raw[, c], prior_group_sd);
    group_correlation[, c] = tanh(group_partial[, c]);
  }
}
model {
  intercept ~ normal(prior_intercept[1], prior_intercept[2]);
  to_vector(coefficient) ~ normal(0, prior_coefficient);
  for (c in 1:(C - 1)) {
    group_sd_raw[, c] ~ group_sd(prior_group_sd);
    target += partial_lpdf(group_partial[, c] | partial_shape);
    target += effects_lpdf(group_effect[, c] | group_sd[, c], group_partial[, c],
                           group_information[, c], group_free, group_apart,
                           group_column);
  }
  target += reduce_sum_static(categorical_target, record, records_per_block(), is_level,
                              X, group_index, slope_X, intercept, coefficient, group_effect,
                              divergence, weights, anchor, clip_lower, clip_upper,
                              multiplicity);
}
generated quantities {
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] int y_rep;
  if (emit || emit_y_rep) {
    matrix[n, C - 1] eta = categorical_predictor(
        1, n, intercept, X, coefficient, group_effect, group_index, slope_X);
    if (emit) log_lik = categorical_log_lik(is_level, eta);
    if (emit_y_rep) {
      for (i in 1:n) {
        y_rep[i] = categorical_logit_rng(append_row(0, eta[i]'));
      }
    }
  }
}
