"""Which links a monitor watches, as a column: its name said it, or its sentence where the name had no room."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import MEDIUMTEXT

from twinshore.store.migrate import add_column

revision = "0023"
down_revision = "0022"

_MONITOR_OF, _NAME_MAX = "monitor of ", 250  # as those versions named monitors
_watches = sa.table("delay_watches", *(sa.column(name, sa.String()) for name in ("name", "kind", "sentence", "links")))


def _links_of(name: str, sentence: str) -> list[str]:
    if not name.startswith(_MONITOR_OF):
        return []
    if len(name) < _NAME_MAX:
        return name.removeprefix(_MONITOR_OF).split(", ")
    said = sentence.removeprefix("watches ").partition("; ")[0]
    return [one.split(" ")[0] for one in said.split(", ")]


def upgrade() -> None:
    """One column more; entries of monitors that were killed, or run on meanwhile, get what they said."""
    text = sa.Text().with_variant(MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")
    add_column("delay_watches", sa.Column("links", text, nullable=True))
    context, c = op.get_context(), _watches.c
    if context.as_sql or context.connection is None:
        return
    rows = sa.select(c.name, c.sentence).where(c.kind == "links", c.links.is_(None))
    for name, sentence in context.connection.execute(rows).all():
        links = json.dumps(_links_of(name, sentence))
        context.connection.execute(_watches.update().where(c.name == name).values(links=links))
