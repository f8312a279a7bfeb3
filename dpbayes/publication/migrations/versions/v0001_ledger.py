"""Data sets with their budgets, fingerprints of their records, and what was spent."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "dataset",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(200), nullable=False, unique=True),
        sa.Column("adjacency", sa.String(20), nullable=False),
        sa.Column("epsilon", sa.Double, nullable=False),
        sa.Column("delta", sa.Double, nullable=False),
        sa.Column("salt", sa.String(64), nullable=False),
        sa.Column("created", sa.String(40), nullable=False),
        sa.CheckConstraint("epsilon > 0 AND delta >= 0 AND delta < 1"),
        sa.CheckConstraint("adjacency IN ('add-remove', 'substitution')"),
    )
    op.create_table(
        "fingerprint",
        sa.Column("dataset_id", sa.Integer, sa.ForeignKey("dataset.id"), primary_key=True),
        sa.Column("value", sa.String(64), primary_key=True),
        sa.Column("created", sa.String(40), nullable=False),
    )
    op.create_table(
        "entry",
        # SQLite gives the number of a deleted row again unless it counts itself.
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(32), nullable=False, unique=True),
        sa.Column("dataset_id", sa.Integer, sa.ForeignKey("dataset.id"), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("mechanism", sa.String(100), nullable=False),
        sa.Column("datasets", sa.Integer, nullable=False),
        *(
            sa.Column(name, sa.Double, nullable=False)
            for name in ("once_epsilon", "once_rho", "each_epsilon", "each_rho")
        ),
        sa.Column("created", sa.String(40), nullable=False),
        sa.Column("changed", sa.String(40), nullable=False),
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("host", sa.String(200), nullable=False),
        sa.Column("process", sa.Integer, nullable=False),
        sa.Column("directory", sa.Text, nullable=False),
        sa.CheckConstraint("state IN ('reserved', 'writing', 'released', 'void', 'lost')"),
        sa.CheckConstraint(
            "datasets >= 1 AND once_epsilon >= 0 AND once_rho >= 0 "
            "AND each_epsilon >= 0 AND each_rho >= 0"
        ),
        sqlite_autoincrement=True,
    )
