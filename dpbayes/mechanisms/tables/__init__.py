"""Mechanisms that draw from tables of counts."""
