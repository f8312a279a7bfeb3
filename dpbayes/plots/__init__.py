"""Figures of the confidential side."""
