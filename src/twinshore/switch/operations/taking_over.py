"""Switches of dead processes that stand on the topics of a forced one: found, and ended in its favour."""

from __future__ import annotations

from collections.abc import Collection

from twinshore.fleet import Link, RefusedError
from twinshore.kafka.cluster import KafkaCluster
from twinshore.links.homes import pair_of
from twinshore.service.clock import wall_ms
from twinshore.store import Store
from twinshore.switch.alone import alone
from twinshore.switch.debts import Debt, has_flipped, rights_of
from twinshore.switch.deeds import MAKES_TWINS, MOVES_HOMES
from twinshore.switch.hands.debts import pay, remember
from twinshore.switch.record import Record, readable
from twinshore.switch.taking_over import (
    at_home,
    flipped_to,
    freed,
    halves,
    moved_since,
    taken_over,
    why_not,
)


def standing_on(link: Link, topics: Collection[str], store: Store, *, answers: bool = True) -> tuple[Record, ...]:
    """The switches that have topics of these, or are about to; RefusedError where one may not be taken over. `answers`:
    whether the link's source does."""
    ids = {row.switch_id for row in store.switching.of(pair_of(link)) if row.topic in topics}
    found, homes = [], at_home(store.homes.of(pair_of(link)))
    for row in store.switches.all():
        if row.id not in ids and row.ended_ms is not None:
            continue
        record = readable(row.record)
        if record is None:
            if row.id in ids:
                raise RefusedError(
                    f"switch {row.id[:8]} has topics of these, and this version cannot read its record",
                    hint="end it with the version that began it",
                )
            continue
        ours = set(record.names()) & set(topics)
        if record.awaits_store and ours <= set(moved_since(record, homes)):
            continue  # it has nothing to give to these any more
        begun = record.kind in MAKES_TWINS | MOVES_HOMES and record.carrier == link.name
        # One that was killed as it let go of its topics has claims on the clusters, and none in the store.
        begun |= flipped_to(record, link.source, link.target)
        if row.id not in ids and not (begun and set(record.names()) & set(topics)):
            continue
        if why := why_not(record, link.source, link.target, answers=answers):
            raise RefusedError(f"switch {record.id[:8]} has topics of these, and {why}")
        found.append(record)
    return tuple(found)


def filled_anew(link: Link, store: Store) -> tuple[Record, ...]:
    """The fail-backs and rebuilds that have deleted twins on the link's target, and have not filled them again."""
    found = [readable(row.record) for row in store.switches.all(open_only=True)]
    return tuple(one for one in found if one and (one.new, one.old) == (link.source, link.target) and halves(one))


def take_over(record: Record, topics: Collection[str], new: KafkaCluster, store: Store, by: str) -> None:
    """Ends it: nobody goes on with it any more, and its topics are free; or takes these topics out of it, where it goes
    on with others. Done twice as done once. RefusedError where its process is alive, or somebody has gone on with it
    meanwhile."""
    with alone(f"switch {record.id}", store, by) as lease:
        row, held = store.switches.of(record.id), lease.row()
        now = Record.from_json(row.record) if row else record
        if now.told != record.told or held is None:
            raise RefusedError(
                f"switch {record.id[:8]} has gone on meanwhile", hint="look at it with `twinshore switch status`"
            )
        names = freed(now, topics)
        if not now.ended:
            remember(store, now, names)
        # What it denied on its old home was to end with it, and writers go there now.
        rights = now.rights if now.old == new.name else ""
        flipped = has_flipped(now)
        debt = Debt(now.id, new.name, tuple(names), rights_of(rights, names) if flipped else rights)
        if flipped:
            pay(new, debt, by)  # before its record speaks of these topics no more: whoever is killed here pays again
        if not now.ended and not store.switches.save(taken_over(now, topics, by, wall_ms()).row(wall_ms()), held):
            raise RefusedError(f"somebody else goes on with switch {record.id[:8]}")
        if not flipped:
            pay(new, debt, by)
        store.switching.end(now.id, names)
