"""Losses by the adjacency of the account, where they were by add/remove."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Store for substitution accounts what was computed by group privacy whenever it was read."""
    op.execute(
        "UPDATE entry SET once_epsilon = 2 * once_epsilon, each_epsilon = 2 * each_epsilon, "
        "once_rho = 4 * once_rho, each_rho = 4 * each_rho WHERE dataset_id IN "
        "(SELECT id FROM dataset WHERE adjacency = 'substitution')"
    )
