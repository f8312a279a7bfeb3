"""Mechanisms that draw synthetic rows from tables of counts."""
