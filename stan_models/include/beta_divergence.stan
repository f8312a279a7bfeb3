/**
 * Score that takes the place of a log-likelihood under the beta-divergence
 * (Basu et al. 1998; Jewson, Ghalebikesabi & Holmes, NeurIPS 2023), for a
 * probability mass function p over finitely many levels, or a count up to a
 * public bound:
 *   (p_i^b - 1) / b - (sum_c p_ic^(b + 1) - 1) / (b + 1),  b = beta - 1.
 * Constants are such that b -> 0 gives log p_i. It lies in [-1/b, 1/(b + 1)].
 *
 * Args:
 *   log_lik    log p_i of each record's own level
 *   power_sum  sum over the levels of p_ic^(b + 1), record by record
 *   b          beta - 1, above 0
 * Returns: a vector, one score per record.
 */
vector beta_divergence_score(vector log_lik, vector power_sum, real b) {
  return expm1(b * log_lik) / b - (power_sum - 1) / (b + 1);
}
