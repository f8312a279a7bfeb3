"""What a release is for, in the words of who made it."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add a note to each entry."""
    op.add_column("entry", sa.Column("note", sa.Text, nullable=False, server_default=""))
