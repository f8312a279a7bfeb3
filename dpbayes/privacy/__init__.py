"""The privacy claim, apart from the code that earns it."""
