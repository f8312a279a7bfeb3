/**
 * Linear predictor  eta = intercept + X * coefficients + group_effect[group]
 * of the records first..last.
 *
 * Args:
 *   first, last   block of records; 1, n for all
 *   intercept     real
 *   X             n x K design matrix, K >= 0
 *   coefficients  K
 *   group_effect  J group effects, J >= 0
 *   group         index of each record's group, empty when J = 0
 * Returns: a vector, one entry per record of the block
 */
vector linear_predictor(int first, int last, real intercept, matrix X,
                        vector coefficients, vector group_effect,
                        array[] int group) {
  vector[last - first + 1] eta = rep_vector(intercept, last - first + 1);
  if (cols(X) > 0) {
    // Blocks are copies; all records need none.
    if (rows(X) == rows(eta)) eta += X * coefficients;
    else eta += X[first:last] * coefficients;
  }
  if (size(group) > 0) eta += group_effect[group[first:last]];
  return eta;
}
