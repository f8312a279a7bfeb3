/**
 * Logarithms of normal probabilities that are finite and exact far out, where Phi is 0
 * or 1 and a difference of two has no digits. Elementwise on vectors.
 */

// log Phi(x); below -10 by the asymptotic series (Abramowitz & Stegun 1964, 26.2.12)
vector log_Phi(vector x) {
  vector[rows(x)] near = fmax(x, -10);
  vector[rows(x)] far = fmin(x, -10);
  vector[rows(x)] u = inv_square(far);
  vector[rows(x)] series = 1 - u .* (1 - 3 * u .* (1 - 5 * u .* (1 - 7 * u .* (1
      - 9 * u .* (1 - 11 * u .* (1 - 13 * u .* (1 - 15 * u)))))));
  // less what the series is at -10: log Phi(-10) stands in its place
  return log(0.5 * erfc(-inv_sqrt(2) * near)) - 0.5 * (square(far) - 100) - log(-far / 10)
         + log(series) - log(0.9902859647463526);
}
// log(Phi(middle + half) - Phi(middle - half)), half > 0, from the nearer tail
vector log_Phi_interval(vector middle, vector half) {
  vector[rows(middle)] top = log_Phi(half - abs(middle));
  return top + log1m_exp(log_Phi(-half - abs(middle)) - top);
}
// Normal between ends, or below the upper one where bounds is 1: by the inverse of the
// distribution function in the tail that is nearer, so that it is exact far out.
array[] real truncated_normal_rng(vector eta, vector sigma, int bounds, vector ends) {
  int n = rows(eta);
  vector[n] top = (ends[2] - eta) ./ sigma;
  vector[n] bottom = (ends[1] - eta) ./ sigma;
  array[n] real found;
  for (i in 1:n) {
    real log_u = log(uniform_rng(0, 1));
    real z;
    if (bounds == 1) {
      z = std_normal_log_qf(log_u + log_Phi([top[i]]')[1]);
    } else {
      real middle = 0.5 * (top[i] + bottom[i]);
      real half = 0.5 * (top[i] - bottom[i]);
      real from = log_Phi([-half - abs(middle)]')[1];
      real width = log_Phi_interval([middle]', [half]')[1];
      z = std_normal_log_qf(log_sum_exp(from, log_u + width)) * (middle > 0 ? -1 : 1);
    }
    found[i] = fmin(eta[i] + sigma[i] * z, ends[2]);
    if (bounds == 2) found[i] = fmax(found[i], ends[1]);
  }
  return found;
}
