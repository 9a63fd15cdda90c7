"""The old home of a forced switch is back: which hand does which deed until it is a twin.

`old` is the cluster that returned, `new` the topics' home; `link` led from old to new, `back` carries the topics now.
Where nothing diverged, nothing is deleted. What diverged is saved first; Kafka cannot cut a tail off a log, so such a
topic is deleted, and the mirror fills it again under its own name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from twinshore.fleet import Link
from twinshore.fleet.sentences import listed
from twinshore.fleet.settings import Settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.links.homes import pair_of
from twinshore.store import Store
from twinshore.switch.decision import Cannot, Done, Outcome, Wait
from twinshore.switch.deeds import Deed, Kind
from twinshore.switch.hands import anew, rescue
from twinshore.switch.hands.behind_tails import go_on, unfit
from twinshore.switch.hands.by_deed import ByDeed
from twinshore.switch.hands.claims import busy, claim, give_back, let_go
from twinshore.switch.hands.log_ends import changed, log_ends, open_transactions
from twinshore.switch.hands.mirrors import MirrorSilence, MirrorWatch
from twinshore.switch.hands.places import places_in
from twinshore.switch.hands.returned_logs import ends_of, loading, stood
from twinshore.switch.hands.words import ClusterWords
from twinshore.switch.hands.writers import Writers
from twinshore.switch.record import Moved, Record
from twinshore.switch.returned import (
    Tail,
    differ,
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

NAMED_MAX = 5


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
            Deed.FOLLOW: lambda record: anew.follow(record, back, settings, store, now_ms()),
            Deed.PUT_BACK: anew.PutBack(old, back, settings, store, now_ms),
            Deed.RELEASE: self._release,
        }
        self._undoing = {
            Deed.CLAIM: self._release,
        }

    # -- before the point of no return

    def _claim(self, record: Record) -> Outcome:
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

    def _tell(self, record: Record) -> Outcome:
        why = self._words.tell(record)
        return Cannot(why) if why else Done(record)

    def _look(self, record: Record) -> Outcome:
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

    def _rescue(self, record: Record) -> Outcome:
        """Everything is saved on the new home, and in the ledger, before anything is deleted."""
        return anew.save(record, topics_of(from_json(record.tails)), self._old, self._new, self._store, self._home_of)

    def _home_of(self, record: Record, tail: Tail) -> rescue.KnownHome:
        return rescue.known_home(record.back, tail, self._new, self._store, 0)

    def _commit(self, record: Record) -> Outcome:
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

    def _go_on(self, record: Record) -> Outcome:
        names = go_on(record, self._old, self._store)
        return Done(record, f"{listed(list(names), NAMED_MAX)} continues on {record.old}, mapped" if names else "")

    def _rebuild(self, record: Record) -> Outcome:
        return anew.made(record, self._parted(record), self._old, self._store, self._silence, self._not_yet)

    def _not_yet(self, record: Record, one: Moved) -> Wait | None:
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
        more = anew.unsaved(record, tails(seen), one.topic, self._new)
        return anew.save_more(record, more, self._old, self._new, self._store, self._home_of) if more else None

    def _refill(self, record: Record) -> Outcome:
        anew_ones = self._parted(record)
        parts = [(one.topic, number) for one in anew_ones for number in range(one.partitions)]
        if waits := unfilled(anew_ones, ends_of(self._old, parts)):
            return self._silence.waiting(waits)
        return Done(record, f"filled again up to where it was at home on {record.old}" if parts else "")

    def _release(self, record: Record) -> Outcome:
        return give_back(self._store, record, (self._new, self._old), self._now_ms())

    def _parted(self, record: Record) -> list[Moved]:
        names = topics_of(from_json(record.tails))
        return [one for one in record.topics if one.topic in names]


def _reads(live: tuple[str, ...], record: Record) -> str:
    groups = listed(live, NAMED_MAX)
    return (
        f"group {groups} has members on {record.old}: stop its consumers, or point them to {record.new}; members of "
        "before its brokers went are forgotten by themselves"
    )


def _found_in_words(found: tuple[Tail, ...], record: Record) -> str:
    if not found:
        return f"nothing diverged: {record.old} holds nothing that {record.new} lacks"
    said = []
    if told := [str(one) for one in found if not one.beside]:
        said.append(f"{listed(told, NAMED_MAX)} of {record.old} never crossed{gone_in_words(found)}")
    if others := [f"{one.topic}-{one.partition}" for one in found if one.beside]:
        where = f"where {listed(others, NAMED_MAX)} of {record.old} parts from {record.new} is not known"
        said.append(f"{where}: all that {record.new} lacks is saved")
    return "; ".join(said)
