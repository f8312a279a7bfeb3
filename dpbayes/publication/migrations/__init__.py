"""Versions of the ledger's schema, applied in order by Alembic."""
