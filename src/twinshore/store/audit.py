"""What was changed besides records, by whom and how it ended, in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, RowMapping, select

from twinshore.store.dialects import storable
from twinshore.store.engine import StorePart, reads
from twinshore.store.tables import ACTOR_LENGTH, GROUP_LENGTH, audit
from twinshore.store.values import AuditRow

AUDIT_KEPT = 10_000  # rows of each link, and as many of what was refused
_REFUSED = "refused: "


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows: of these links, kind, actor, topic and group, where they are named, and older than the one with the
    id `before`."""

    links: tuple[str, ...] = ()
    kind: str = ""
    actor: str = ""
    topic: str = ""
    group: str = ""
    before: int = 0


def refusal(why: object) -> str:
    """The outcome of what was asked for and refused."""
    return f"{_REFUSED}{why}"


def is_refusal(outcome: str) -> bool:
    """Whether it is one that `refusal` gave."""
    return outcome.startswith(_REFUSED)


def add(connection: Connection, rows: Sequence[AuditRow]) -> None:
    """Adds the rows; of each link only the newest are kept. What was refused pushes nothing out that was done."""
    if not rows:
        return
    connection.execute(audit.insert(), [_values(row) for row in rows])
    for link, refused in {(row.link, is_refusal(row.outcome)) for row in rows}:
        told = audit.c.outcome.startswith(_REFUSED)
        ours = (audit.c.link == link, told if refused else ~told)
        oldest = connection.scalar(
            select(audit.c.id).where(*ours).order_by(audit.c.id.desc()).offset(AUDIT_KEPT).limit(1)
        )
        if oldest is not None:
            connection.execute(audit.delete().where(*ours, audit.c.id <= oldest))


def _values(row: AuditRow) -> dict[str, object]:
    values = asdict(row)
    texts = {name: storable(values[name]) for name in ("subject", "before", "after", "outcome", "topic")}
    group, actor = _group(values.pop("group")), storable(row.actor)[:ACTOR_LENGTH]
    del values["id"]
    return {**values, **texts, "group_id": group, "actor": actor}


def _group(name: str) -> str:
    # Of a longer one the beginning: so it is kept, and so it is asked for.
    return storable(name)[:GROUP_LENGTH]


def _row(row: RowMapping) -> AuditRow:
    values = dict(row)
    return AuditRow(group=values.pop("group_id"), **values)


class Audit(StorePart):
    """What was changed; the oldest rows of a link give way to the newest."""

    def add(self, rows: Sequence[AuditRow]) -> None:
        """Keeps what was changed and how it ended; the oldest rows of a link give way to the newest."""
        self._database.write(lambda connection: add(connection, rows))

    def rows(self, *links: str, limit: int = 100) -> tuple[AuditRow, ...]:
        """The newest changes of these links together, or of all where none is named, newest first."""
        return self.page(Wanted(links), limit=limit)

    @reads
    def page(self, connection: Connection, wanted: Wanted, *, limit: int = 100) -> tuple[AuditRow, ...]:
        """The newest of the rows that are wanted; the next page is what is `before` the last row's id."""
        query = select(audit).order_by(audit.c.id.desc()).limit(limit)
        if wanted.links:
            query = query.where(audit.c.link.in_(wanted.links))
        for name in ("kind", "actor", "topic"):
            if getattr(wanted, name):
                query = query.where(audit.c[name] == getattr(wanted, name))
        if wanted.group:
            query = query.where(audit.c.group_id == _group(wanted.group))
        if wanted.before:
            query = query.where(audit.c.id < wanted.before)
        return tuple(_row(row) for row in connection.execute(query).mappings())
