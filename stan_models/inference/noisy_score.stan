/**
 * Log density of a noisy sum of clipped scores, up to a constant.
 *
 * Simulated records stand for the distribution of a record: at theta the sum is expected to be
 *   E(theta) = expected + change * (exp(log_lik - anchor) - ratio),
 * where anchor is the log density that they were drawn from, and ratio the same exponential at the
 * point at which the sum is expected to be `expected`. Given theta the noisy sum is normal around
 * E(theta), with the variance of the scores and that of the noise. All of it is told in
 * coordinates in which both variances are diagonal.
 *
 * Args:
 *   log_lik   M log-likelihoods of simulated records at theta
 *   anchor    M log densities
 *   change    d x M: n / M times the clipped score of each simulated record
 *   gap       d, the noisy sum less what is expected at a ratio of 0
 *   variance  d
 * Returns: a real
 */
real noisy_score_lpdf(vector gap, vector log_lik, vector anchor, matrix change,
                      vector variance) {
  return normal_lpdf(gap | change * exp(fmin(log_lik - anchor, 30)), sqrt(variance));
}
