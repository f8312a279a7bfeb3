"""Sketches of records, to find those that data sets share; entries of choices and audits."""

import datetime
import secrets

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

OVERLAP = 0.5  # of the smaller data set; ``Ledger.create`` may set another share


def upgrade() -> None:
    """Create the tables, with a key of this ledger's own; entries so far are releases."""
    ledger = op.create_table(
        "ledger",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("salt", sa.String(64), nullable=False),
        sa.Column("overlap", sa.Double, nullable=False),
        sa.Column("created", sa.String(40), nullable=False),
        sa.CheckConstraint("id = 1"),
        sa.CheckConstraint("overlap > 0 AND overlap <= 1"),
    )
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    row = {"id": 1, "salt": secrets.token_hex(32), "overlap": OVERLAP, "created": now}
    op.bulk_insert(ledger, [row])
    op.create_table(
        "sketch",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("dataset_id", sa.Integer, sa.ForeignKey("dataset.id"), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("hashes", sa.LargeBinary, nullable=False),
        sa.Column("created", sa.String(40), nullable=False),
    )
    op.add_column(
        "entry", sa.Column("kind", sa.String(20), nullable=False, server_default="release")
    )
