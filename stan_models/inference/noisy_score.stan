/**
 * Log density of a noisy sum of clipped scores, up to a constant.
 *
 * Simulated records stand for the distribution of a record: at theta the sum is expected to be
 *   E(theta) = expected + change * (share(theta) - share),
 * where share(theta) are the parts of exp(log_lik - anchor) in their sum, anchor the log density that
 * the records were drawn from, and share those at the point at which the sum is expected to be
 * `expected`. Given theta the noisy sum is normal around E(theta), with the variance of the scores and
 * that of the noise. All of it is told in coordinates in which both variances are diagonal.
 *
 * Where a few simulated records stand for theta alone, E(theta) is theirs and may be anything: what
 * is farther from the point than `far`, by Jeffreys' divergence of the distributions of a record, is
 * left out.
 *
 * Args:
 *   log_lik   M log-likelihoods of simulated records at theta
 *   anchor    M log densities
 *   change    d x M: n times the clipped score of each simulated record
 *   gap       d, the noisy sum less what is expected at a share of 0
 *   variance  d
 *   here      M log-likelihoods at the point
 *   share     M, at the point
 *   far       above 0
 * Returns: a real
 */
real noisy_score_lpdf(vector gap, vector log_lik, vector anchor, matrix change, vector variance,
                      vector here, vector share, real far) {
  vector[rows(log_lik)] there = softmax(log_lik - anchor);
  real beyond = dot_product(share - there, here - log_lik) / far - 1;
  return normal_lpdf(gap | change * there, sqrt(variance)) - 100 * square(fmax(beyond, 0));
}
