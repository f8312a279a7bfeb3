"""Stan programs, and the conversion of records into their data."""
