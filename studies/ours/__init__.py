"""Studies of this project."""
