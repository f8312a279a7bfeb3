"""The demonstration on the records that the package contains."""
