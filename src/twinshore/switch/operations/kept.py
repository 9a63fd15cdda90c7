"""Records of switches that a cluster keeps because the store was dead: written, read, and brought into the store."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from twinshore.fleet import KafkaError, Link, Naming, RefusedError, StoreError, WireError
from twinshore.fleet.sentences import are, listed
from twinshore.fleet.settings import Settings
from twinshore.homes.home_lines import HomeLog
from twinshore.homes.home_notes import HomeNotes
from twinshore.kafka.cluster import KafkaCluster
from twinshore.links.homes import pair_of
from twinshore.links.kept_records import to_take_up
from twinshore.service.clock import wall_ms
from twinshore.store import Store
from twinshore.switch.deeds import DEEDS, Kind
from twinshore.switch.hands import settings_given
from twinshore.switch.hands.claims import claim
from twinshore.switch.record import Record, State
from twinshore.switch.taking_over import Home, at_home, moved_since, without

ASK_S = 3.0
NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class Open:
    """A switch whose record stands on the new home, and what the record is known by."""

    record: Record
    digest: str


class RecordKeeping:
    """Keeps a switch's record on a cluster. `seen`: what the record is known by that stands there, empty for none."""

    def __init__(self, notes: HomeNotes, seen: str) -> None:
        self._notes, self._seen = notes, seen

    def save(self, record: Record) -> None:
        """RefusedError where somebody else goes on with the switch; StoreError where the cluster does not answer, which
        is waited for as for a store."""
        try:
            self._seen = self._notes.save(record.id, values_of(record.as_kept()), self._seen, wall_ms())
        except KafkaError as error:
            if not error.retriable:
                raise
            raise StoreError(f"the record of the switch is not written yet: {error.message}") from error


def values_of(record: Record) -> dict[str, Any]:
    """The record as lines on a cluster hold it."""
    found: dict[str, Any] = json.loads(record.to_json())
    return found


def records_of(log: HomeLog) -> dict[str, Open]:
    """The records of switches that stand on a cluster, as far as they are any."""
    found: dict[str, Open] = {}
    for switch in log.records.switches():
        raw = log.records.record(switch)
        try:
            record = Record.from_json(json.dumps(raw)) if raw else None
        except WireError:
            continue
        if record and record.id == switch and record.kind is Kind.FORCED and record.kept:
            found[switch] = Open(record, log.records.digest(switch))
    return found


def take_up(settings: Settings, store: Store, tell: Callable[[str], None]) -> None:
    """The store knows the switches whose records stand on clusters that topics were switched to."""
    for name in sorted({one.target for one in settings.links if one.naming is Naming.SAME}):
        with closing(KafkaCluster(settings.cluster(name), patience_s=ASK_S, call_s=ASK_S)) as cluster:
            notes = HomeNotes(cluster)
            try:
                notes.read()
            except KafkaError as error:
                tell(f"whether {name} keeps a switch that was made without this store is not known: {error.message}")
                continue
        records = {switch: values_of(one.record) for switch, one in records_of(notes.log).items()}
        known = {row.id: row for row in store.switches.all()} if records else {}
        for row in to_take_up(records, known.values(), wall_ms()):
            store.switches.take_up(row, known.get(row.id))


def brought(record: Record, notes: HomeNotes, store: Store, save: Callable[[Record], None]) -> Record:
    """The record as the cluster has it now, kept by the store from here on: whoever went on with it there is told. What
    was done without the store is done once more with it, but for topics that have moved on since. RefusedError while
    another switch has one of the others."""
    lines = notes.read()
    there = records_of(notes.log).get(record.id)
    if there is not None:
        record = there.record.tell(wall_ms(), "the store keeps the switch again")
        RecordKeeping(notes, there.digest).save(record)
    record = replace(
        settings_given.last_known(store, record), kept="", awaits_store=False, late=record.awaits_store, waits=""
    )
    record = its_own(record, {topic: (line.home, line.term) for topic, line in lines.items()}, store)
    save(record)
    notes.forget(record.id, wall_ms())
    return record


def begun_anew(record: Record) -> Record:
    """What was not decided without the store begins anew with it, where it goes on."""
    if record.committed or record.state is not State.GOING:
        return record
    return replace(record, deed=DEEDS[record.kind][0])


def its_own(record: Record, lines: Mapping[str, Home], store: Store) -> Record:
    """With the topics alone that are still where it put them, which are in no other switch from now on."""
    pair = pair_of(Link(record.old, record.new))
    # The topics are claimed first: none moves between the look and what is done.
    others = claim(store, record)
    record = without(record, moved_since(record, at_home(store.homes.of(pair)), lines), wall_ms())
    held = [] if record.ended else [row for row in others if row.topic in record.names()]
    if record.ended or held:
        store.switching.end(record.id)
    if held:
        raise RefusedError(
            f"{listed([row.topic for row in held], NAMED_MAX)} {are(held)} in switch {held[0].switch_id[:8]} by now",
            hint="`twinshore switch status` shows it; resume this one once that has ended",
        )
    return record
