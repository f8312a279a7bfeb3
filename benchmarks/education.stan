// Years of education: a share for every number of years, tilted by covariates.
//   P(y_i = c) = softmax_c(level_c + (X_i * slope) * c / most),  c = 0..most
functions {
#include pseudo_likelihood.stan

  vector years_log_lik(matrix is_level, vector part, row_vector parts, matrix X, vector slope,
                       vector level) {
    matrix[rows(slope), cols(parts)] tilt = slope * parts;
    return is_level * level + (X * slope) .* part - log(exp(X * tilt) * exp(level));
  }
}
data {
  int<lower=1> n;
  int<lower=1> most;
  array[n] int<lower=0, upper=most> y;  // confidential
  int<lower=0> K;
  matrix[n, K] X;
  vector<lower=0, upper=1>[n] weights;
  vector[n] anchor;
  real clip_lower;
  real clip_upper;
  int<lower=0, upper=1> emit;
  int<lower=0, upper=1> emit_y_rep;
}
transformed data {
  row_vector[most + 1] parts = linspaced_row_vector(most + 1, 0, 1);
  vector[n] part = to_vector(y) / most;
  matrix[n, most + 1] is_level;
  for (c in 0:most) {
    vector[n] here;
    for (i in 1:n) here[i] = y[i] == c;
    is_level[, c + 1] = here;
  }
}
parameters {
  vector[most + 1] level;
  vector[K] slope;
}
model {
  level ~ normal(0, 2);
  slope ~ normal(0, 5);
  target += pseudo_log_lik(years_log_lik(is_level, part, parts, X, slope, level), weights, anchor,
                           clip_lower, clip_upper);
}
generated quantities {
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] int y_rep;
  if (emit) log_lik = years_log_lik(is_level, part, parts, X, slope, level);
  if (emit_y_rep) {
    vector[n] tilt = X * slope;
    for (i in 1:n) y_rep[i] = categorical_logit_rng(level + tilt[i] * parts') - 1;
  }
}
