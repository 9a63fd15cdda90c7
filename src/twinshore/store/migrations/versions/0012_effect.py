"""What a row of the ledger does, and on which side it happened: both stood in its sentences alone."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import VARCHAR
from sqlalchemy.types import TypeEngine

from twinshore.store.migrate import add_column
from twinshore.store.old_words import effect_by_words, side_by_words

revision = "0012"
down_revision = "0011"

_incidents = sa.table(
    "incidents", *(sa.column(name, sa.String()) for name in ("kind", "policy", "sentence", "effect", "side"))
)
_EFFECT = effect_by_words(_incidents.c.kind, _incidents.c.policy)
_SIDE = side_by_words(_incidents.c.kind, _incidents.c.sentence)


def _name(name: str) -> sa.Column[str]:
    exact = VARCHAR(32, charset="utf8mb4", collation="utf8mb4_bin")
    kind: TypeEngine[str] = sa.String(32).with_variant(exact, "mysql", "mariadb")
    return sa.Column(name, kind, nullable=False, server_default="")


def upgrade() -> None:
    """Two columns more; the rows that are there get what their words meant. Killed half-way, it does so again."""
    add_column("incidents", _name("effect"))
    add_column("incidents", _name("side"))
    op.execute(_incidents.update().where(_incidents.c.effect == "").values(effect=_EFFECT, side=_SIDE))
