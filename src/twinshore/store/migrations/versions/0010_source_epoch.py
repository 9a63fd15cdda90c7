"""In which leader epoch of the source the last record of what is receipted was written; -1 where that is not known."""

from __future__ import annotations

import sqlalchemy as sa

from twinshore.store.migrate import add_column

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """One column more."""
    add_column("positions", sa.Column("source_epoch", sa.Integer(), nullable=False, server_default="-1"))
