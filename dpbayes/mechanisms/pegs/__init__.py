"""Perturbed Gibbs samplers: each column is drawn given the others, from smoothed counts."""
