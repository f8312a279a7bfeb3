"""Studies of Hu, Williams & Savitsky."""
