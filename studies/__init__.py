"""Monte Carlo studies, by name."""
