"""A table for the guards of twins, which stood among what links remember."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import MEDIUMTEXT, VARCHAR

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """One table more, with what was kept elsewhere."""
    name = sa.String(64).with_variant(VARCHAR(64, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")
    text = sa.Text().with_variant(MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")
    op.create_table(
        "guards",
        sa.Column("cluster", name, nullable=False),
        sa.Column("guard", text, nullable=False),
        sa.Column("changed_ms", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("cluster", name="pk_guards"),
        if_not_exists=True,
    )
    op.execute(
        "INSERT INTO guards (cluster, guard, changed_ms) SELECT link, value, since_ms FROM followed"
        " WHERE kind = 'guard' AND link NOT IN (SELECT cluster FROM guards)"
    )
    op.execute("DELETE FROM followed WHERE kind = 'guard'")
