"""Studies of Bowen & Liu (2020)."""
