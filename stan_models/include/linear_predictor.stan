/**
 * Linear predictor  eta = intercept + X * coefficients + group_effect[group].
 *
 * Args:
 *   n             number of records
 *   intercept     real
 *   X             n x K design matrix, K >= 0
 *   coefficients  K
 *   group_effect  J group effects, J >= 0
 *   group         index of each record's group, empty when J = 0
 * Returns: vector[n]
 */
vector linear_predictor(int n, real intercept, matrix X, vector coefficients,
                        vector group_effect, array[] int group) {
  vector[n] eta = rep_vector(intercept, n);
  if (cols(X) > 0) eta += X * coefficients;
  if (size(group) > 0) eta += group_effect[group];
  return eta;
}
