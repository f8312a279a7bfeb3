"""Run by Alembic: applies the versions on the connection that ``ledger.py`` opened."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
