"""Park & Ghosh 2014: perturbed Gibbs samplers."""
