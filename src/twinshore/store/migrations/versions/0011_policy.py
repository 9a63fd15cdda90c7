"""What was done about an incident is a sentence, and longer than a name: PostgreSQL and MariaDB refused such rows."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.mysql import MEDIUMTEXT

from twinshore.store.migrate import widen

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """The column becomes a text."""
    exact = MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin")
    widen("incidents", "policy", sa.Text().with_variant(exact, "mysql", "mariadb"))
