"""Model-based private synthesis (Liu 2016)."""
