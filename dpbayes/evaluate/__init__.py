"""How close, how risky, and whether the claim holds: confidential."""
