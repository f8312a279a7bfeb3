// How a column of a table follows from others, given noisy sums: no record is in sight.
//   y | x ~ categorical(softmax(log_mass + basis (W phi(x))'))       row by row
//   sums  ~ multi_normal(n E[basis(y) psi(x)'], L L')                measured, with noise
//   W     ~ normal(0, sd)
// E is the mean over synthetic rows x. L L' is the covariance of sums over n records, near the mode,
// plus that of the noise (Räisä, Jälkö, Kaski & Honkela, AISTATS 2023). `measured` draws from the
// normal distribution at the mode; this is what it is compared with.
data {
  int<lower=1> N;               // synthetic rows
  int<lower=2> G;               // groups of the column
  int<lower=1> A;               // functions of the group
  int<lower=1> D;               // functions of the columns before, 1 among them
  real<lower=0> n;              // public number of records
  vector[G] log_mass;
  matrix[G, A] basis;
  matrix[N, D] psi;             // as measured
  matrix[N, D] phi;             // as they bear on the column
  vector[A * D] sums;           // of functions of the columns, for one function of the group after another
  cholesky_factor_cov[A * D] L;
  matrix<lower=0>[A, D] sd;
  matrix[A, D] centre;          // where chains are started, and how wide: any values do
  matrix<lower=0>[A, D] spread;
}
transformed data {
  matrix[N, G] base = rep_matrix(log_mass', N);
  matrix[D, N] mean_psi = psi' * (n / N);
}
parameters {
  matrix[A, D] raw;
}
transformed parameters {
  matrix[A, D] W = centre + spread .* raw;
}
model {
  matrix[N, G] p = exp(base + (phi * W') * basis');
  matrix[D, A] expected = mean_psi * ((p ./ rep_matrix(p * rep_vector(1, G), G)) * basis);
  sums ~ multi_normal_cholesky(to_vector(expected), L);
  to_vector(W) ~ normal(0, to_vector(sd));
}
