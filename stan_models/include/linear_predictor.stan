/**
 * Linear predictor  eta = intercept + X * coefficients + group effects
 * of the records first..last.
 *
 * Args:
 *   first, last   block of records; 1, n for all
 *   intercept     real
 *   X             n x K design matrix, K >= 0
 *   coefficients  K
 *   group_effect  J group effects, J >= 0
 *   group_index   n x T, the effects of each record; empty when J = 0
 *   slope_X       n x S, what effects of the first S columns are multiplied by; others by 1
 * Returns: a vector, one entry per record of the block
 */
vector linear_predictor(int first, int last, real intercept, matrix X,
                        vector coefficients, vector group_effect,
                        array[,] int group_index, matrix slope_X) {
  vector[last - first + 1] eta = rep_vector(intercept, last - first + 1);
  if (cols(X) > 0) {
    // Blocks are copies; all records need none.
    if (rows(X) == rows(eta)) eta += X * coefficients;
    else eta += X[first:last] * coefficients;
  }
  if (size(group_index) > 0) {
    for (t in 1:size(group_index[1])) {
      vector[rows(eta)] part = group_effect[group_index[first:last, t]];
      if (t > cols(slope_X)) eta += part;
      else eta += slope_X[first:last, t] .* part;
    }
  }
  return eta;
}
