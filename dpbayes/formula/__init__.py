"""Formulas: their text, terms and design matrices."""
