"""Many rows of what a fresh queue dropped as one: its ranges, and how many incidents it stands for."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.mysql import MEDIUMTEXT

from twinshore.store.migrate import add_column, create_index

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    """Two columns more, and an index by which the rows of one partition are found among many."""
    text = sa.Text().with_variant(MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")
    add_column("incidents", sa.Column("parts", text, nullable=True))
    add_column("incidents", sa.Column("stands_for", sa.Integer(), nullable=False, server_default="1"))
    create_index("ix_incidents_place", "incidents", "link", "topic", "partition", "kind")
