"""Strict synthesis from a noisy sum of clipped scores."""
