"""What a row of the ledger does, and on which side it happened: both stood in its sentences alone."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import VARCHAR
from sqlalchemy.types import TypeEngine

from twinshore.store.migrate import add_column

revision = "0012"
down_revision = "0011"

_incidents = sa.table(
    "incidents", *(sa.column(name, sa.String()) for name in ("kind", "policy", "sentence", "effect", "side"))
)
_policy, _kind, _sentence = _incidents.c.policy, _incidents.c.kind, _incidents.c.sentence

# As every version before wrote them.
_STOPS = (
    "stop the partition, go on with its neighbours",
    "rest the partition, try again every few seconds, go on with its neighbours",
)
_TRIED_AGAIN = ("oversize batch", "rights lost")
_PASS = ("retention gap", "lost by target", "source away", "target away")
_OF_TWINS = (
    *(_policy == text for text in ("keep the twin", "archive the twin")),
    *(_policy.like(f"{text} %") for text in ("delete the twin after", "begin again after", "try again every")),
)
_EFFECT = sa.case(
    (_policy.in_(_STOPS) & _kind.in_(_TRIED_AGAIN), "retries"),
    (_policy.in_(_STOPS), "stops"),
    (_policy == "stop the topic", "topic"),
    (_policy == "carry it all the same, try to cut its twin every 30 s", "uncut"),
    (_policy == "carry it all the same, leave what never_delete keeps", "filler"),
    (_kind.in_(_PASS), "passes"),
    (sa.or_(*_OF_TWINS), "twin"),
    else_="tells",
)

_ON_SOURCE = (
    *("retention gap", "truncation", "deleted topic", "partition added", "source away", "corrupt batch", "old format"),
    *("too large unpacked", "hanging transaction", "doubtful note"),
)
_ON_TARGET = (
    *("deletion held", "foreign write", "oversize batch", "partition removed", "target away", "lost by target"),
    *("position disagreement", "disk near full", "deletions owed", "lost beginning"),
)
_ON_BOTH = ("content differs", "group refused")
_AWAY = "the {} turns the mirror away%"
# Of a right that is lost, of what is refused and of a topic that was made again only the sentence tells.
_SIDE = sa.case(
    (_kind.in_(_ON_SOURCE), "source"),
    (_kind.in_(_ON_TARGET), "target"),
    (_kind.in_(_ON_BOTH), "both"),
    (_sentence.like(f"{_AWAY.format('source')}; and {_AWAY.format('target')}"), "both"),
    (_sentence.like("the source %"), "source"),
    (_sentence.like("the target %"), "target"),
    (_sentence.like("the twin refuses %"), "target"),
    (_sentence.like("the log of twin %"), "target"),
    (_sentence.like("%of twin % hold records without a value%"), "target"),
    (
        (_kind == "recreated topic") & sa.or_(_sentence.like("the twin %"), _sentence.like("the mapped twin %")),
        "target",
    ),
    (_kind == "recreated topic", "source"),
    else_="none",
)


def _name(name: str) -> sa.Column[str]:
    exact = VARCHAR(32, charset="utf8mb4", collation="utf8mb4_bin")
    kind: TypeEngine[str] = sa.String(32).with_variant(exact, "mysql", "mariadb")
    return sa.Column(name, kind, nullable=False, server_default="")


def upgrade() -> None:
    """Two columns more; the rows that are there get what their words meant. Killed half-way, it does so again."""
    add_column("incidents", _name("effect"))
    add_column("incidents", _name("side"))
    op.execute(_incidents.update().where(_incidents.c.effect == "").values(effect=_EFFECT, side=_SIDE))
