"""What to expect of a release, before anything is spent: costs, accuracy, a recommendation."""
