"""Synthesis of whole tables from noisy counts and a model of them."""
