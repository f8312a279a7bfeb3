// Beta regression of an outcome in (0, 1), logit link.
//   y_i ~ beta(mu_i * lambda, (1 - mu_i) * lambda),  mu_i = inv_logit(eta_i)
// With K = J = 0 and the default priors this is the synthesizer of Hu, Williams
// & Savitsky, section 4: a logistic(0, 1) intercept makes mu uniform on (0, 1),
// and lambda ~ Pareto(0.1, 1.5).
functions {
#include pseudo_likelihood.stan
#include linear_predictor.stan
#include group_effects.stan

  // log beta(y | mu * lambda, (1 - mu) * lambda), record by record. The first
  // signature shares one mean among all records: 4 lgamma calls, not 2 n.
  vector beta_log_lik(vector log_y, vector log1m_y, real mu, real lambda) {
    real a = mu * lambda;
    real b = lambda - a;
    return lgamma(lambda) - lgamma(a) - lgamma(b) + (a - 1) * log_y
           + (b - 1) * log1m_y;
  }
  vector beta_log_lik(vector log_y, vector log1m_y, vector mu, real lambda) {
    vector[rows(mu)] a = mu * lambda;
    vector[rows(mu)] b = lambda - a;
    return lgamma(lambda) - lgamma(a) - lgamma(b) + (a - 1) .* log_y
           + (b - 1) .* log1m_y;
  }
  // the same of the records first..last
  vector beta_regression_log_lik(int first, int last, vector log_y, vector log1m_y,
                                 matrix X, array[,] int group_index, matrix slope_X,
                                 real intercept, vector coefficient,
                                 vector group_effect, real lambda) {
    if (cols(X) == 0 && rows(group_effect) == 0) {
      return beta_log_lik(log_y[first:last], log1m_y[first:last],
                          inv_logit(intercept), lambda);
    }
    vector[last - first + 1] eta = linear_predictor(
        first, last, intercept, X, coefficient, group_effect, group_index, slope_X);
    return beta_log_lik(log_y[first:last], log1m_y[first:last], inv_logit(eta),
                        lambda);
  }
  // what they add to target
  real beta_target(array[] int record, int first, int last, vector log_y,
                   vector log1m_y, matrix X, array[,] int group_index,
                   matrix slope_X, real intercept, vector coefficient,
                   vector group_effect, real lambda, vector weights, vector anchor, real clip_lower,
                   real clip_upper, vector multiplicity) {
    return pseudo_log_lik(
        beta_regression_log_lik(first, last, log_y, log1m_y, X, group_index, slope_X,
                                intercept, coefficient, group_effect, lambda),
        weights[first:last], anchor[first:last], clip_lower, clip_upper,
        multiplicity[first:last]);
  }
}
data {
  int<lower=1> n;
  vector<lower=0, upper=1>[n] y;  // confidential
  // public: covariates
  int<lower=0> K;
  matrix[n, K] X;
#include group_data.stan
#include group_coordinates.stan
  // public: priors
  vector[2] prior_intercept;        // logistic(location, scale)
  vector<lower=0>[2] prior_lambda;  // Pareto(minimum, shape)
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
  vector[n] log_y = log(y);
  vector[n] log1m_y = log1m(y);
  array[n] int record = linspaced_int_array(n, 1, n);
}
parameters {
#include group_parameters.stan
  real<lower=prior_lambda[1]> lambda;
#include intercept_parameter.stan
}
transformed parameters {
#include group_transformed.stan
}
model {
  intercept ~ logistic(prior_intercept[1], prior_intercept[2]);
  coefficient ~ normal(0, prior_coefficient);
  lambda ~ pareto(prior_lambda[1], prior_lambda[2]);
#include group_priors.stan
  target += reduce_sum_static(beta_target, record, records_per_block(), log_y, log1m_y,
                              X, group_index, slope_X, intercept, coefficient, group_effect,
                              lambda, weights, anchor, clip_lower, clip_upper,
                              multiplicity);
}
generated quantities {
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] real y_rep;
  if (emit) {
    log_lik = beta_regression_log_lik(1, n, log_y, log1m_y, X, group_index, slope_X,
                                      intercept, coefficient, group_effect, lambda);
  }
  if (emit_y_rep) {
    vector[n] eta = linear_predictor(1, n, intercept, X, coefficient,
                                     group_effect, group_index, slope_X);
    y_rep = beta_rng(inv_logit(eta) * lambda, inv_logit(-eta) * lambda);
  }
}
