"""Perturbed Gibbs samplers: each column drawn given the others, from counts with a prior."""
