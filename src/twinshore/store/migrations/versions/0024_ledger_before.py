"""Which rows of the ledger a twin's life begins behind: clocks of two hosts said it, and one of them may be ahead."""

from __future__ import annotations

import sqlalchemy as sa

from twinshore.store.migrate import add_column

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    """One column more; of twins that stand already it is not known."""
    add_column("twins", sa.Column("ledger_before", sa.BigInteger(), nullable=False, server_default="-1"))
