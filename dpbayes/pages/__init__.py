"""Report pages: a confidential one for the data holder, and one to publish."""
