"""Helpers without dependencies on the rest of the package, which all other modules may use."""
