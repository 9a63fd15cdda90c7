"""Switches that were made while the store was dead: the store takes up what the clusters keep of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from twinshore.fleet import KafkaError
from twinshore.homes.home_notes import HomeNotes
from twinshore.links.kept_records import spent, to_take_up
from twinshore.service.clock import wall_ms
from twinshore.store import AuditRow, Store

ID_SHOWN = 8


def take_up(link: str, cluster: str, notes: HomeNotes, store: Store, log: Callable[[str], None]) -> None:
    """By what was read of the cluster last. What the store knows is taken away there, once nobody works on it without
    the store; where that fails, the next look does it."""
    records = {switch: notes.log.records.record(switch) for switch in notes.log.records.switches()}
    if not records:
        return
    known, now_ms = store.switches.all(), wall_ms()
    stood = {row.id: row for row in known}
    for row in to_take_up(records, known, now_ms):
        before = stood.get(row.id)
        if not store.switches.take_up(row, before):
            continue
        state = before.state if before else ""
        if state != row.state:
            told = (row.id[:ID_SHOWN], state, row.state, f"taken up from {cluster}", row.set_by)
            store.audit.add([AuditRow(now_ms, link, "switch", *told)])
        if before is None:
            log(
                f"{link}: {row.kind} switch {row.id[:ID_SHOWN]} from {row.source} to {row.target} was made without the "
                f"store, as {cluster} says: the store takes it up, and `twinshore switch resume` ends it"
            )
    with suppress(KafkaError):
        for switch in spent(records, store.switches.all()):
            notes.forget(switch, now_ms)
