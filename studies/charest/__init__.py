"""Studies of Charest (2011)."""
