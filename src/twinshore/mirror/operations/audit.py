"""What links changed on their targets besides records."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from twinshore.fleet.settings import Settings
from twinshore.store import AuditRow, Store
from twinshore.store.audit import Wanted


@dataclass(frozen=True, slots=True)
class Changes:
    """Of these links together, or of all links of the settings; by one actor, of one kind, about one topic or group,
    where one is named; only those older than the row with the id `before`."""

    links: Sequence[str] = ()
    kind: str = ""
    actor: str = ""
    topic: str = ""
    group: str = ""
    before: int = 0


def changes(asked: Changes, settings: Settings, store: Store, *, last: int) -> tuple[AuditRow, ...]:
    """The newest, newest first; the page that follows is what is `before` the id of the last."""
    links = tuple(one.name for one in settings.chosen(asked.links))
    wanted = Wanted(links, asked.kind, asked.actor, asked.topic, asked.group, asked.before)
    return store.audit.page(wanted, limit=last)


def in_words(row: AuditRow) -> str:
    """One change, for people."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.at_ms / 1000))
    change = f"{row.before or '-'} -> {row.after or '-'}"
    return f"{when} {row.link}: {row.kind} {row.subject}: {change} ({row.outcome})"
