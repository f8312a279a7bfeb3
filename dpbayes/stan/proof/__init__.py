"""Proof that a user's Stan program keeps the contract of stan_models/README.md."""
