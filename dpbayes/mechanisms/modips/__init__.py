"""Model-based private synthesis (MODIPS, Liu 2016)."""
