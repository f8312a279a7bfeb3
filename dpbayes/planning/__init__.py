"""Plans of a release before any budget is spent: costs, accuracy, a recommendation."""
