// Cell probabilities from synthetic counts; the confidential counts are summed out.
//   p ~ dirichlet(prior)
//   x ~ multinomial(n, p)                                   confidential, unknown
//   p_syn[m] ~ dirichlet(noise + weight * x), m = 1..M      drawn by the synthesizer
//   synthetic[m] ~ multinomial(., p_syn[m])                 released
// Charest, Journal of Privacy and Confidentiality 2 (2010), section 4, has two cells and weight 1
// and samples x by Metropolis steps. p_syn is integrated out in closed form, and the sum over x is
// exact, so p is all that is left to sample. To change the prior, copy this file.
data {
  int<lower=2> K;              // cells
  int<lower=1> M;              // synthetic data sets
  int<lower=1> n;              // number of possible x
  matrix<lower=0>[n, K] x;     // every x that is possible, one per row
  vector[n] log_prior_x;       // log prior of the row's total, 0 if the total is known
  matrix<lower=0>[M, K] synthetic;
  vector<lower=0>[K] noise;    // the synthesizer's prior, alpha
  real<lower=0> weight;        // of each confidential record, 1 without tempering
  vector<lower=0>[K] prior;
}
transformed data {
  vector[n] log_weight = log_prior_x + lgamma(x * rep_vector(1, K) + 1);
  vector[n] total = sum(noise) + weight * (x * rep_vector(1, K));
  for (k in 1:K) log_weight -= lgamma(col(x, k) + 1);
  for (m in 1:M) {
    log_weight += lgamma(total) - lgamma(total + sum(synthetic[m]));
    for (k in 1:K) {
      vector[n] cell = noise[k] + weight * col(x, k);
      log_weight += lgamma(cell + synthetic[m, k]) - lgamma(cell);
    }
  }
}
parameters {
  simplex[K] p;
}
model {
  p ~ dirichlet(prior);
  target += log_sum_exp(x * log(p) + log_weight);
}
