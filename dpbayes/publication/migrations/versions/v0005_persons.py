"""How many records a person has at most."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the number to each entry, whose losses are of one record."""
    op.add_column("entry", sa.Column("records", sa.Integer, nullable=False, server_default="1"))
