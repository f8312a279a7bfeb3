/**
 * Log density of noisy sums of scores by group: normal values plus Laplace noise, up to a constant.
 *
 * The sum of a normal variable with variance v and one with density exp(-|x| / b) / (2 b) has density
 *   exp(v / (2 b^2)) (exp(-r / b) Phi((r - v / b) / s) + exp(r / b) Phi((-r - v / b) / s)) / (2 b),
 * s = sqrt(v), with Phi the normal distribution function.
 *
 * Args:
 *   off       values less what is expected
 *   variance  v of each
 *   scale     b; 0 for values that are normal alone
 * Returns: a real
 */
real noisy_groups_lpdf(vector off, vector variance, real scale) {
  if (scale == 0) return normal_lpdf(off | 0, sqrt(variance));
  vector[rows(off)] part = sqrt(variance) / scale;
  vector[rows(off)] standard = off ./ sqrt(variance);
  return sum(0.5 * square(part)
             + log_sum_exp(log_Phi(standard - part) - off / scale,
                           log_Phi(-standard - part) + off / scale));
}
