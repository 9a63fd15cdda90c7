"""Who changed what the audit tells of, and which topic or group it was about, as columns."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import VARCHAR
from sqlalchemy.types import TypeEngine

from twinshore.store.migrate import add_column

revision = "0015"
down_revision = "0014"

_audit = sa.table("audit", *(sa.column(name, sa.String()) for name in ("kind", "subject", "outcome", "actor", "topic")))
_kind, _outcome = _audit.c.kind, _audit.c.outcome
# Who moved a group was not written down.
_ACTOR = sa.case(
    (_outcome.like("by %"), sa.func.substr(_outcome, len("by ") + 1)),
    (_outcome.like("agreed by %"), sa.func.substr(_outcome, len("agreed by ") + 1)),
    (_kind == "group", ""),
    else_="the mirror",
)
_TOPIC = sa.case((_kind.in_(("topic", "twin")) & (_audit.c.subject != "all topics"), _audit.c.subject), else_="")


def _name(name: str, length: int) -> sa.Column[str]:
    exact = VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    kind: TypeEngine[str] = sa.String(length).with_variant(exact, "mysql", "mariadb")
    return sa.Column(name, kind, nullable=False, server_default="")


def upgrade() -> None:
    """Three columns more; rows of before get as much as their texts say. Killed half-way, it does so again."""
    for name, length in (("actor", 255), ("topic", 249), ("group_id", 255)):
        add_column("audit", _name(name, length))
    op.execute(_audit.update().where(_audit.c.actor == "").values(actor=_ACTOR, topic=_TOPIC))
