/**
 * Logarithm of the normal distribution function, finite and exact far out. Elementwise.
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
