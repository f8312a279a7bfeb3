/**
 * Logarithms of normal probabilities that are finite and exact far out, where Phi is 0
 * or 1 and a difference of two has no digits. Elementwise on vectors.
 */

// log(Phi(middle + half) - Phi(middle - half)), half > 0, from the nearer tail
vector log_Phi_interval(vector middle, vector half) {
  vector[rows(middle)] top = log_Phi(half - abs(middle));
  return top + log1m_exp(log_Phi(-half - abs(middle)) - top);
}
// Its inverse, by Newton's method from the left: log Phi is concave, so no step goes too
// far, and log Phi(x) <= -x^2 / 2 below 0. Stan's own raises errors, which a record whose
// covariates are confidential must not decide.
vector log_Phi_inverse(vector log_p) {
  vector[rows(log_p)] x = -sqrt(-2 * log_p);
  for (k in 1:50) {
    vector[rows(log_p)] found = log_Phi(x);
    x += (log_p - found) .* exp(found + 0.5 * square(x) + 0.5 * log(2 * pi()));
  }
  return x;
}
// Normal between ends, or below the upper one where bounds is 1: by the inverse of the
// distribution function in the tail that is nearer, so that it is exact far out.
array[] real truncated_normal_rng(vector eta, vector sigma, int bounds, vector ends) {
  int n = rows(eta);
  vector[n] top = (ends[2] - eta) ./ sigma;
  vector[n] log_u = log(to_vector(uniform_rng(zeros_vector(n), 1)));
  if (bounds == 1) {
    return to_array_1d(fmin(eta + sigma .* log_Phi_inverse(log_u + log_Phi(top)), ends[2]));
  }
  vector[n] middle = top - 0.5 * (ends[2] - ends[1]) ./ sigma;
  vector[n] half = top - middle;
  vector[n] z = log_Phi_inverse(log_sum_exp(log_Phi(-half - abs(middle)),
                                            log_u + log_Phi_interval(middle, half)));
  // 1 where the ends lie above the mean and the other tail was taken, else -1
  vector[n] sign = fmin(fmax(1e300 * middle, -1), 1);
  return to_array_1d(fmax(fmin(eta - sigma .* sign .* z, ends[2]), ends[1]));
}
