"""Mechanisms that draw from posteriors of a Stan program."""
