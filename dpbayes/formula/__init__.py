"""Formulas: their text, terms, group effects and design matrices."""
