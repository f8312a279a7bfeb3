"""What everything may use."""
