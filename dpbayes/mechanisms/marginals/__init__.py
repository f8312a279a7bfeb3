"""Whole tables: noisy counts, a model of them, and rows."""
