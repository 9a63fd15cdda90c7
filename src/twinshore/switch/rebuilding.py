"""A twin that is spoilt is filled anew under its own name: which hand does which deed.

`old` is the cluster of the twin, `new` its topics' home, and `link`, which the record calls `back`, carries them. The
mirror lets the topics go before the twins are looked at, and makes them anew once they are deleted. Nothing is done at
the home. The twins' cluster itself knows whose they are meanwhile: whoever switches without the store must not move a
topic to a part of it. The record's `points` are how far the home went when it was decided.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from twinshore.fleet import Link, NamedPartition
from twinshore.fleet.sentences import counted, listed
from twinshore.fleet.settings import Settings
from twinshore.homes.home_notes import HomeNotes
from twinshore.kafka.cluster import KafkaCluster, OffsetKind
from twinshore.links.homes import pair_of
from twinshore.store import Store
from twinshore.switch.decision import Cannot, Done, Outcome, Wait
from twinshore.switch.deeds import Deed
from twinshore.switch.hands import anew, rescue
from twinshore.switch.hands.by_deed import ByDeed
from twinshore.switch.hands.claims import busy, carry_again, claim, give_back, let_go
from twinshore.switch.hands.log_ends import changed, log_ends
from twinshore.switch.hands.mirrors import MirrorSilence, MirrorWatch
from twinshore.switch.hands.places import places_in
from twinshore.switch.hands.returned_logs import ends_of, stood
from twinshore.switch.hands.words import claimed_on
from twinshore.switch.record import Moved, Record
from twinshore.switch.returned import Tail, doubtful, to_json, unfilled

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
            Deed.RESCUE: lambda record: anew.save(record, record.names(), old, new, store, self._home_of),
            Deed.COMMIT: self._commit,
            Deed.REBUILD: self._rebuild,
            Deed.REFILL: self._refill,
            Deed.PUT_BACK: anew.PutBack(old, link, settings, store, now_ms),
            Deed.RELEASE: self._release,
        }
        self._undoing = {
            Deed.CLAIM: self._release,
        }

    # -- before the point of no return

    def _claim(self, record: Record) -> Outcome:
        if why := busy(claim(self._store, record)):
            return Cannot(why)
        why = claimed_on(self._old, HomeNotes(self._old), record)
        why = why or self._elsewhere(record)  # asked only now: until it was ours, a switch may have moved it
        return Cannot(why) if why else Done(record)

    def _let_go(self, record: Record) -> Outcome:
        if waits := self._mirror.why_not():
            return waits
        return let_go(self._store, record)

    def _look(self, record: Record) -> Outcome:
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

    def _home_of(self, record: Record, tail: Tail) -> rescue.KnownHome:
        return rescue.known_home(record.back, tail, self._new, self._store, tail.first)

    def _commit(self, record: Record) -> Outcome:
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

    def _rebuild(self, record: Record) -> Outcome:
        outcome = anew.made(record, record.topics, self._old, self._store, self._silence, self._not_yet)
        if all(one.old_id not in anew.ids_shown(self._old, one.topic).values() for one in record.topics):
            carry_again(self._store, record)  # only now may the mirror write again
        return outcome

    def _not_yet(self, record: Record, one: Moved) -> Wait | None:
        """Long may have passed since `commit`, and another host may go on: asked right before the twin is deleted."""
        if why := changed(self._old, [one], new=False):
            return Wait(f"{why}; save what was not saved, and delete it by hand: this goes on then")
        if why := self._readers(replace(record, topics=(one,))):
            return Wait(why)
        fresh = doubtful(stood(self._old, self._new, self._store, record.back, [one], every=True))
        more = anew.unsaved(record, fresh, one.topic, self._new)
        return anew.save_more(record, more, self._old, self._new, self._store, self._home_of) if more else None

    def _refill(self, record: Record) -> Outcome:
        parts = [(one.topic, number) for one in record.topics for number in range(one.partitions)]
        if waits := unfilled(record.topics, ends_of(self._old, parts)):
            return self._silence.waiting(waits)
        offsets = counted(sum(point for one in record.topics for point in one.points), "offset")
        return Done(record, f"filled again from {record.new}, {offsets} and what came since")

    def _release(self, record: Record) -> Outcome:
        return give_back(self._store, record, (self._old,), self._now_ms())

    # -- what may have changed

    def _elsewhere(self, record: Record) -> str:
        """Which topic is not at home where it was planned; empty where all are."""
        homes = self._store.homes.of(pair_of(self._link))
        for one in record.topics:
            home = homes.get(one.topic)
            if home is not None and (home.home != record.new or (one.term and home.term != one.term)):
                return f"topic {one.topic} is at home on {home.home} in term {home.term} by now"
        return ""

    def _changed(self, record: Record) -> str:
        return changed(self._old, record.topics, new=False) or changed(self._new, record.topics, new=True)

    def _readers(self, record: Record) -> str:
        """Whose consumers would read what is deleted."""
        live = () if record.anyway else places_in(self._old, record.names())[1]
        if not live:
            return ""
        groups = listed(live, NAMED_MAX)
        return f"group {groups} has members on {record.old}: stop its consumers, or say --anyway"
