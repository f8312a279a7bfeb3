"""Pages for people: one for the confidential side, one to publish."""
