"""A twin that is spoilt is filled anew under its own name: which hand does which deed.

`old` is the cluster of the twin, `new` its topics' home, and `link`, which the record calls `back`, carries them. The
mirror lets the topics go before the twins are looked at, and makes them anew once they are deleted. Nothing is done at
the home. The twins' cluster itself knows whose they are meanwhile: whoever switches without the store must not move a
topic to a part of it. The record's `points` are how far the home went when it was decided.

Twins that go on behind what never crossed, as mapped twins: nothing of them is deleted, and nothing copied again.

Up to where both homes part each record lies at its own offset, which is the first extent. The next record goes behind
the tail. What is written to the store is one transaction; done twice, the second time nothing.

The old home of a forced switch is back: which hand does which deed until it is a twin.

`old` is the cluster that returned, `new` the topics' home; `link` led from old to new, `back` carries the topics now.
Where nothing diverged, nothing is deleted. What diverged is saved first; Kafka cannot cut a tail off a log, so such a
topic is deleted, and the mirror fills it again under its own name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator
from dataclasses import replace

from twinshore.config.errors import KafkaError
from twinshore.config.model import Extent, Link, NamedPartition, SourceOffset, TargetOffset
from twinshore.config.sentences import counted, listed
from twinshore.config.settings import Settings
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.record_batch import next_sequence
from twinshore.kafka.questions import OffsetKind
from twinshore.replication.core.ownership import pair_of
from twinshore.routing.topic import HomeNotes
from twinshore.state.core.values import TwinRow
from twinshore.state.store import Store
from twinshore.switch import rescue
from twinshore.switch.announce import ClusterWords, busy, carry_again, claim, claimed_on, give_back, let_go
from twinshore.switch.core.steps import Cannot, Deed, Done, Kind, Moved, Outcome, SwitchState, Wait
from twinshore.switch.core.unreplicated import (
    PARTED,
    Tail,
    differ,
    doubtful,
    from_json,
    gone_in_words,
    kept_back,
    other_spans,
    tails,
    to_json,
    topics_of,
    unfilled,
    unseen,
)
from twinshore.switch.drain import MirrorSilence, MirrorWatch, changed, log_ends, open_transactions
from twinshore.switch.handover import places_in
from twinshore.switch.rescue import ends_of, loading, ours_upto, producers, stood
from twinshore.switch.runner import ByDeed
from twinshore.switch.write_access import Writers

NAMED_MAX = 5


class Rebuild(ByDeed):
    """Whatever fails in a deed is raised, and may pass. `now_ms` is the clock by which the record says since when a
    deed is tried."""

    def __init__(
        self,
        link: Link,
        settings: Settings,
        store: Store,
        old: KafkaCluster,
        new: KafkaCluster,
        now_ms: Callable[[], int],
    ) -> None:
        self._link, self._store, self._old, self._new, self._now_ms = link, store, old, new, now_ms
        self._mirror = MirrorWatch(store, link.name, settings.mirror.lease_s)
        self._silence = MirrorSilence(store, link.name, settings.mirror.lease_s)
        self._doing = {
            Deed.CLAIM: self._claim,
            Deed.LET_GO: self._let_go,
            Deed.LOOK: self._look,
            Deed.RESCUE: lambda record: rescue.save(record, record.names(), old, new, store, self._home_of),
            Deed.COMMIT: self._commit,
            Deed.REBUILD: self._rebuild,
            Deed.REFILL: self._refill,
            Deed.PUT_BACK: rescue.PutBack(old, link, settings, store, now_ms),
            Deed.RELEASE: self._release,
        }
        self._undoing = {
            Deed.CLAIM: self._release,
        }

    # -- before the point of no return

    def _claim(self, record: SwitchState) -> Outcome:
        if why := busy(claim(self._store, record)):
            return Cannot(why)
        why = claimed_on(self._old, HomeNotes(self._old), record)
        why = why or self._elsewhere(record)  # asked only now: until it was ours, a switch may have moved it
        return Cannot(why) if why else Done(record)

    def _let_go(self, record: SwitchState) -> Outcome:
        if waits := self._mirror.why_not():
            return waits
        return let_go(self._store, record)

    def _look(self, record: SwitchState) -> Outcome:
        """Done once two looks saw the same, and nothing is open."""
        if why := self._changed(record):
            return Cannot(why)
        now = log_ends(self._old, record.topics)
        if now.unsettled and not record.anyway:
            return Wait(now.unsettled)
        found = to_json(doubtful(stood(self._old, self._new, self._store, record.back, record.topics, every=True)))
        topics = tuple(replace(one, ends=now.ends[one.topic]) for one in record.topics)
        looked = replace(record, tails=found, topics=topics)
        if looked != record:
            return Wait(f"the twins on {record.old} are looked at a second time", looked)
        live = self._readers(record)
        return Wait(live, looked) if live else Done(looked)

    def _home_of(self, record: SwitchState, tail: Tail) -> rescue.KnownHome:
        return rescue.known_home(record.back, tail, self._new, self._store, tail.first)

    def _commit(self, record: SwitchState) -> Outcome:
        """What is deleted next is what was looked at, and nobody reads it."""
        ends = log_ends(self._old, record.topics).ends
        if grown := [one.topic for one in record.topics if one.ends != ends[one.topic]]:
            return Cannot(f"somebody writes to {listed(grown, NAMED_MAX)} on {record.old}")
        if why := self._elsewhere(record) or self._changed(record) or self._readers(record):
            return Cannot(why)
        parts = {(one.topic, number) for one in record.topics for number in range(one.partitions)}
        upto = self._new.list_offsets([NamedPartition(*where) for where in sorted(parts)], OffsetKind.LAST_STABLE)
        topics = tuple(
            replace(one, points=tuple(upto[NamedPartition(one.topic, number)] for number in range(one.partitions)))
            for one in record.topics
        )
        return Done(replace(record, topics=topics), "from here on the rebuild goes on")

    # -- past it

    def _rebuild(self, record: SwitchState) -> Outcome:
        outcome = rescue.made(record, record.topics, self._old, self._store, self._silence, self._not_yet)
        if all(one.old_id not in rescue.ids_shown(self._old, one.topic).values() for one in record.topics):
            carry_again(self._store, record)  # only now may the mirror write again
        return outcome

    def _not_yet(self, record: SwitchState, one: Moved) -> Wait | None:
        """Long may have passed since `commit`, and another host may go on: asked right before the twin is deleted."""
        if why := changed(self._old, [one], new=False):
            return Wait(f"{why}; save what was not saved, and delete it by hand: this goes on then")
        if why := self._readers(replace(record, topics=(one,))):
            return Wait(why)
        fresh = doubtful(stood(self._old, self._new, self._store, record.back, [one], every=True))
        more = rescue.unsaved(record, fresh, one.topic, self._new)
        return rescue.save_more(record, more, self._old, self._new, self._store, self._home_of) if more else None

    def _refill(self, record: SwitchState) -> Outcome:
        parts = [(one.topic, number) for one in record.topics for number in range(one.partitions)]
        if waits := unfilled(record.topics, ends_of(self._old, parts)):
            return self._silence.waiting(waits)
        offsets = counted(sum(point for one in record.topics for point in one.points), "offset")
        return Done(record, f"filled again from {record.new}, {offsets} and what came since")

    def _release(self, record: SwitchState) -> Outcome:
        return give_back(self._store, record, (self._old,), self._now_ms())

    # -- what may have changed

    def _elsewhere(self, record: SwitchState) -> str:
        """Which topic is not at home where it was planned; empty where all are."""
        homes = self._store.homes.of(pair_of(self._link))
        for one in record.topics:
            home = homes.get(one.topic)
            if home is not None and (home.home != record.new or (one.term and home.term != one.term)):
                return f"topic {one.topic} is at home on {home.home} in term {home.term} by now"
        return ""

    def _changed(self, record: SwitchState) -> str:
        return changed(self._old, record.topics, new=False) or changed(self._new, record.topics, new=True)

    def _readers(self, record: SwitchState) -> str:
        """Whose consumers would read what is deleted."""
        live = () if record.anyway else places_in(self._old, record.names())[1]
        if not live:
            return ""
        groups = listed(live, NAMED_MAX)
        return f"group {groups} has members on {record.old}: stop its consumers, or say --anyway"


def unfit(record: SwitchState, old: KafkaCluster, store: Store) -> str:
    """Why the twins cannot go on so; empty where they can."""
    for tail in from_json(record.tails):
        if tail.beside:
            where = f"where {tail.topic}-{tail.partition} of {record.old} parts from {record.new}"
            return f"{where} is not known, and it may be below the switch: leave --mapped out"
    identity = store.links.identity(record.back)
    if identity is None:
        return f"nobody knows as whom {record.back} writes"
    rows = _rows(record, store)
    seen = old.describe_producers([NamedPartition(row.topic, row.partition) for row in rows]) if rows else {}
    for row in rows:
        for one in seen[NamedPartition(row.topic, row.partition)]:
            if one.producer_id == identity.producer_id and one.epoch < identity.producer_epoch + row.epoch:
                return (
                    f"{record.back} wrote {row.topic} before the switch, and would number it twice: leave --mapped out"
                )
    return ""


def go_on(record: SwitchState, old: KafkaCluster, store: Store) -> tuple[str, ...]:
    """The topics whose twins are mapped from now on."""
    topics = topics_of(from_json(record.tails))
    store.extents.go_on_behind(list(_extents(record, old, store)))
    for row in store.ledger.rows(record.back, open_only=True):
        if row.incident.topic in topics and row.incident.kind in PARTED:
            store.ledger.close(row.id, now_ms=wall_ms(), came_to="the twin goes on behind it, mapped")
    return topics


def _extents(record: SwitchState, old: KafkaCluster, store: Store) -> Iterator[tuple[TwinRow, tuple[Extent, ...]]]:
    identity = store.links.identity(record.back)
    rows = _rows(record, store)
    if identity is None or not rows:
        return
    parts = [NamedPartition(row.topic, row.partition) for row in rows]
    starts, ends = (old.list_offsets(parts, kind) for kind in (OffsetKind.EARLIEST, OffsetKind.LOG_END))
    seen = old.describe_producers(parts)
    firsts = {NamedPartition(one.topic, one.partition): one.first - one.gone for one in from_json(record.tails)}
    carried = {NamedPartition(at.topic, at.partition): at.to_offset for at in store.receipts.positions(record.back)}
    points = {NamedPartition(one.topic, number): at for one in record.topics for number, at in enumerate(one.points)}
    ours = producers(store, record.back)
    for row, named in zip(rows, parts, strict=True):
        if named in firsts:
            parts_at = firsts[named]
        else:
            begin = max(points[named], carried.get(named, -1), starts[named])
            parts_at = _own_upto(old, named, min(begin, ends[named]), ends[named], ours)
        written = [one for one in seen[named] if one.producer_id == identity.producer_id]
        sequence = next_sequence(written[0].last_sequence, 1) if written else 0
        known = Extent(SourceOffset(starts[named]), TargetOffset(starts[named]), max(0, parts_at - starts[named]), 0)
        behind = Extent(SourceOffset(parts_at), TargetOffset(ends[named]), 0, sequence)
        yield row, (known, behind) if known.length else (behind,)


def _own_upto(old: KafkaCluster, named: NamedPartition, begin: int, end: int, ours: Container[int]) -> int:
    """How far a partition that had not parted holds what its home has: whoever wrote there since, the next record goes
    behind that."""
    at, stray = begin, False
    while at < end and not stray:
        upto, stray = ours_upto(old, named, at, end, ours)
        if upto == at and not stray:
            raise KafkaError(f"{old.name}: {named} cannot be read from offset {at} on", retriable=True)
        at = upto
    return at


def _rows(record: SwitchState, store: Store) -> list[TwinRow]:
    """All partitions of the topics that diverged: a twin is mapped as a whole."""
    topics: Collection[str] = topics_of(from_json(record.tails))
    return [row for row in store.twins.of(record.back) if row.topic in topics]


class Failback(ByDeed):
    """Whatever fails in a deed is raised, and may pass. `now_ms` is the clock by which the record says since when a
    deed is tried."""

    def __init__(
        self,
        link: Link,
        back: Link,
        settings: Settings,
        store: Store,
        old: KafkaCluster,
        new: KafkaCluster,
        words: ClusterWords,
        writers: Writers,
        now_ms: Callable[[], int],
    ) -> None:
        self._link, self._store, self._now_ms = link, store, now_ms
        self._old, self._new, self._words = old, new, words
        mirror = (store, back.name, settings.mirror.lease_s)
        # A rescue may take long: right before anything is deleted the mirror is seen at work once more.
        self._first, self._at_last, self._silence = MirrorWatch(*mirror), MirrorWatch(*mirror), MirrorSilence(*mirror)
        self._doing = {
            Deed.CLAIM: self._claim,
            Deed.TELL: self._tell,
            Deed.GUARD: writers.guard,
            Deed.LOOK: self._look,
            Deed.RESCUE: self._rescue,
            Deed.COMMIT: self._commit,
            Deed.REBUILD: self._rebuild,
            Deed.REFILL: self._refill,
            Deed.LET_GO: lambda record: let_go(store, record),
            Deed.GO_ON: self._go_on,
            Deed.FOLLOW: lambda record: rescue.follow(record, back, settings, store, now_ms()),
            Deed.PUT_BACK: rescue.PutBack(old, back, settings, store, now_ms),
            Deed.RELEASE: self._release,
        }
        self._undoing = {
            Deed.CLAIM: self._release,
        }

    # -- before the point of no return

    def _claim(self, record: SwitchState) -> Outcome:
        if why := busy(claim(self._store, record)):
            return Cannot(why)
        if why := self._words.claim(record):
            return Cannot(why)
        # Asked only now: until it was ours, another switch may have moved it.
        homes = self._store.homes.of(pair_of(self._link))
        for one in record.topics:
            home = homes.get(one.topic)
            if home is None or home.home != record.new or home.term != one.term:
                where = f"at home on {home.home} in term {home.term}" if home else "at home nowhere"
                return Cannot(f"topic {one.topic} is {where} by now")
        return Done(record)

    def _tell(self, record: SwitchState) -> Outcome:
        why = self._words.tell(record)
        return Cannot(why) if why else Done(record)

    def _look(self, record: SwitchState) -> Outcome:
        """Done once the site ends nothing more by itself, the link back has looked at every partition, and two looks
        saw the same."""
        if waits := loading(self._old):
            return Wait(waits)
        if why := changed(self._old, record.topics, new=False):
            return Cannot(why)
        if due := open_transactions(self._old, record.names()):
            return Wait(f"{self._old.name} still ends transactions on {listed(list(due), NAMED_MAX)}")
        if waits := log_ends(self._old, record.topics).unsettled:
            return Wait(waits)
        seen = stood(self._old, self._new, self._store, record.back, record.topics)
        unknown = [f"{one.topic}-{one.partition}" for one in seen if unseen(one)]
        if (unknown or tails(seen)) and (no_sign := self._first.why_not()):
            return no_sign
        if unknown:
            return Wait(f"the mirror of {record.back} has not looked at {listed(unknown, NAMED_MAX)} yet")
        found = to_json(tails(seen))
        if others := kept_back(seen, topics_of(tails(seen))):
            return Cannot(differ(others, record.old, record.new))
        looked = replace(record, tails=found)
        if found != record.tails:
            return Wait("what never crossed is looked at a second time", looked)
        parted = topics_of(tails(seen))
        deletes = parted and record.kind is not Kind.MAPPED
        _, live = places_in(self._old, parted) if deletes else ({}, ())
        if live:
            return Wait(_reads(live, record), looked)
        return Done(looked, _found_in_words(tails(seen), record))

    def _rescue(self, record: SwitchState) -> Outcome:
        """Everything is saved on the new home, and in the ledger, before anything is deleted."""
        return rescue.save(record, topics_of(from_json(record.tails)), self._old, self._new, self._store, self._home_of)

    def _home_of(self, record: SwitchState, tail: Tail) -> rescue.KnownHome:
        return rescue.known_home(record.back, tail, self._new, self._store, 0)

    def _commit(self, record: SwitchState) -> Outcome:
        """What is deleted next is what was saved, and nobody reads it."""
        if why := changed(self._old, record.topics, new=False):
            return Cannot(why)
        found = from_json(record.tails)
        seen = stood(self._old, self._new, self._store, record.back, record.topics)
        if unknown := [f"{one.topic}-{one.partition}" for one in seen if unseen(one)]:
            return Wait(f"the mirror of {record.back} has not looked at {listed(unknown, NAMED_MAX)} yet")
        if more := other_spans(found, tails(seen)):
            return Cannot(f"somebody writes on {record.old}: {listed([str(one) for one in more], NAMED_MAX)}")
        if others := kept_back(seen, topics_of(found)):
            return Cannot(differ(others, record.old, record.new))
        if record.kind is Kind.MAPPED:
            why = unfit(record, self._old, self._store)
            return Cannot(why) if why else Done(record, "from here on the fail-back goes on")
        if found and (no_sign := self._at_last.why_not()):
            return no_sign
        if found and (live := places_in(self._old, topics_of(found))[1]):
            return Cannot(_reads(live, record))
        return Done(record, "from here on the fail-back goes on")

    # -- past it

    def _go_on(self, record: SwitchState) -> Outcome:
        names = go_on(record, self._old, self._store)
        return Done(record, f"{listed(list(names), NAMED_MAX)} continues on {record.old}, mapped" if names else "")

    def _rebuild(self, record: SwitchState) -> Outcome:
        return rescue.made(record, self._parted(record), self._old, self._store, self._silence, self._not_yet)

    def _not_yet(self, record: SwitchState, one: Moved) -> Wait | None:
        """Long may have passed since `commit`, and another host may go on: asked right before the topic is deleted."""
        if why := changed(self._old, [one], new=False):
            return Wait(f"{why}; save what was not saved, and delete it by hand: this goes on then")
        if live := places_in(self._old, [one.topic])[1]:
            return Wait(_reads(live, record))
        seen = stood(self._old, self._new, self._store, record.back, [one])
        if unknown := [f"{at.topic}-{at.partition}" for at in seen if unseen(at)]:
            return Wait(f"the mirror of {record.back} has not looked at {listed(unknown, NAMED_MAX)} yet")
        if others := kept_back(seen, [one.topic]):
            return Wait(differ(others, record.old, record.new))
        more = rescue.unsaved(record, tails(seen), one.topic, self._new)
        return rescue.save_more(record, more, self._old, self._new, self._store, self._home_of) if more else None

    def _refill(self, record: SwitchState) -> Outcome:
        anew_ones = self._parted(record)
        parts = [(one.topic, number) for one in anew_ones for number in range(one.partitions)]
        if waits := unfilled(anew_ones, ends_of(self._old, parts)):
            return self._silence.waiting(waits)
        return Done(record, f"filled again up to where it was at home on {record.old}" if parts else "")

    def _release(self, record: SwitchState) -> Outcome:
        return give_back(self._store, record, (self._new, self._old), self._now_ms())

    def _parted(self, record: SwitchState) -> list[Moved]:
        names = topics_of(from_json(record.tails))
        return [one for one in record.topics if one.topic in names]


def _reads(live: tuple[str, ...], record: SwitchState) -> str:
    groups = listed(live, NAMED_MAX)
    return (
        f"group {groups} has members on {record.old}: stop its consumers, or point them to {record.new}; members of "
        "before its brokers went are forgotten by themselves"
    )


def _found_in_words(found: tuple[Tail, ...], record: SwitchState) -> str:
    if not found:
        return f"nothing diverged: {record.old} holds nothing that {record.new} lacks"
    said = []
    if told := [str(one) for one in found if not one.beside]:
        said.append(f"{listed(told, NAMED_MAX)} of {record.old} never crossed{gone_in_words(found)}")
    if others := [f"{one.topic}-{one.partition}" for one in found if one.beside]:
        where = f"where {listed(others, NAMED_MAX)} of {record.old} parts from {record.new} is not known"
        said.append(f"{where}: all that {record.new} lacks is saved")
    return "; ".join(said)
