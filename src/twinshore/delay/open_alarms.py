"""The alarms that stand, and which of them follow from others."""

from __future__ import annotations

from collections.abc import Sequence

from twinshore.delay.causes import STORE, AlarmKey, AlarmKind, root
from twinshore.fleet import Link
from twinshore.store import AlarmRow, Store

Heads = dict[AlarmRow, AlarmRow]


def standing_of(links: Sequence[Link], store: Store) -> list[AlarmRow]:
    """The open alarms of these links, of their clusters and of the store."""
    clusters = sorted({cluster for one in links for cluster in (one.source, one.target)})
    names = [*(one.name for one in links), *clusters, STORE.link]
    return [row for name in names for row in store.delay.alarms(name, open_only=True)]


def heads_of(standing: Sequence[AlarmRow]) -> Heads:
    """For each alarm the one that it follows from; itself where it follows from none of them."""
    rows = {AlarmKey(row.link, AlarmKind(row.kind), row.topic, row.group): row for row in standing}
    return {row: rows[root(key, rows)] for key, row in rows.items()}
