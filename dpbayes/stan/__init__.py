"""Stan programs and what turns records into their data."""
