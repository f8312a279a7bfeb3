// The censored beta model as it is usually written first: a loop over the records, and log_lik and
// y_rep emitted with every draw. Only benchmarks/ uses it, as the thing to be faster than.
data {
  int<lower=1> n;
  vector<lower=0, upper=1>[n] y;
  real<lower=0> epsilon;
}
parameters {
  real<lower=0, upper=1> phi;
  real<lower=0.1> lambda;
}
model {
  lambda ~ pareto(0.1, 1.5);
  for (i in 1:n) {
    real log_lik_i = beta_lpdf(y[i] | phi * lambda, (1 - phi) * lambda);
    target += fmin(fmax(log_lik_i, -epsilon / 2), epsilon / 2);
  }
}
generated quantities {
  vector[n] log_lik;
  vector[n] y_rep;
  for (i in 1:n) {
    log_lik[i] = beta_lpdf(y[i] | phi * lambda, (1 - phi) * lambda);
    y_rep[i] = beta_rng(phi * lambda, (1 - phi) * lambda);
  }
}
