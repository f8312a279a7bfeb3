"""Households with their members from noisy tables."""
