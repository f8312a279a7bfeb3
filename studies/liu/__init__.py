"""Studies of Liu (2016)."""
