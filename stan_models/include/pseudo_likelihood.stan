/**
 * The one door through which confidential records enter a target density.
 *
 * Returns  sum_i clip(weights_i * (log_lik_i - anchor_i), clip_lower, clip_upper),
 * the log pseudo-likelihood of Hu, Williams & Savitsky, eq. (2.3) without a
 * clamp, eqs. (3.5)-(3.6) with clip_lower = -epsilon/2, clip_upper = epsilon/2.
 *
 * Args:
 *   log_lik     record log-likelihoods with all normalising constants
 *   weights     record weights in [0, 1]
 *   anchor      subtracted before weighting; zero for none
 *   clip_lower  lower end of the window, or negative_infinity()
 *   clip_upper  upper end of the window, or positive_infinity()
 * Returns: a real. With a finite window every record's term lies inside it
 *   whatever log_lik holds, infinities and NaN included: a record must not be
 *   able to make the density zero at a parameter value. fmax comes first, so
 *   that NaN takes the lower end.
 */
real pseudo_log_lik(vector log_lik, vector weights, vector anchor,
                    real clip_lower, real clip_upper) {
  if (is_inf(clip_lower) && is_inf(clip_upper)) {
    // The floor keeps 0 * -inf at 0: weight 0 removes a record altogether.
    return dot_product(weights, fmax(log_lik - anchor, -1e100));
  }
  return sum(fmin(fmax(weights .* (log_lik - anchor), clip_lower), clip_upper));
}
/**
 * Records per block where reduce_sum_static cuts them up for threads. A
 * constant, so that sums do not depend on how many threads there are.
 */
int records_per_block() {
  return 4000;
}
/**
 * The same of rows that stand for several equal records:
 *   sum_i multiplicity_i * clip(weights_i * (log_lik_i - anchor_i), clip_lower, clip_upper),
 * where multiplicity_i counts the records that row i stands for. A record adds one clamped
 * term, as it does in a row of its own.
 */
real pseudo_log_lik(vector log_lik, vector weights, vector anchor,
                    real clip_lower, real clip_upper, vector multiplicity) {
  if (is_inf(clip_lower) && is_inf(clip_upper)) {
    return dot_product(multiplicity .* weights, fmax(log_lik - anchor, -1e100));
  }
  return dot_product(multiplicity,
                     fmin(fmax(weights .* (log_lik - anchor), clip_lower), clip_upper));
}
