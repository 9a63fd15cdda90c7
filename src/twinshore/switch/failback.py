"""The old home of a forced switch is back: which hand does which deed until it is a twin.

`old` is the cluster that returned, `new` the topics' home; `link` led from old to new, `back` carries the topics now.
Where nothing diverged, nothing is deleted. What diverged is saved first; Kafka cannot cut a tail off a log, so such a
topic is deleted, and the mirror fills it again under its own name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from twinshore.fleet import Link
from twinshore.fleet.incidents import POLICY_RESCUE, IncidentKind
from twinshore.fleet.sentences import counted, listed
from twinshore.kafka.cluster import KafkaCluster
from twinshore.links.homes import pair_of
from twinshore.service.clock import wall_ms
from twinshore.store import Asked, AuditRow, Incident, Store, TopicInSwitch
from twinshore.switch.decision import Cannot, Done, Outcome, Wait
from twinshore.switch.deeds import Deed
from twinshore.switch.hands import old_places, rescue
from twinshore.switch.hands.coordinators import loading
from twinshore.switch.hands.returned_logs import agree_to_anew, delete, ends_of, ids_shown, stood
from twinshore.switch.hands.standing import open_transactions, stands
from twinshore.switch.record import Moved, Record, State
from twinshore.switch.rescued import Place
from twinshore.switch.returned import Tail, clamped, from_json, grown, tails, to_json, topics_of, unseen

NAMED_MAX = 5
# A coordinator may forget a place within so long of the new topic's birth, though it was committed for that one.
PLACES_STAND_MS = 3_000


class Words(Protocol):
    """What is said of the topics' homes on the clusters themselves."""

    def claim(self, record: Record) -> str:
        """Why the topics are another switch's; empty once they are this one's."""
        ...

    def tell(self, record: Record) -> str:
        """Says on both clusters what stands; why nothing stands, empty once it does."""
        ...

    def release(self, record: Record) -> None:
        """The topics are in no switch any more."""
        ...


class Rights(Protocol):
    """Who may write on the old home."""

    def guard(self, record: Record) -> Outcome:
        """The link back alone."""
        ...


class Failback:
    """Whatever fails in a deed is raised, and may pass."""

    def __init__(
        self, link: Link, back: Link, store: Store, old: KafkaCluster, new: KafkaCluster, words: Words, rights: Rights
    ) -> None:
        self._link, self._back, self._store = link, back, store
        self._old, self._new, self._words, self._rights = old, new, words, rights
        self._doing: Mapping[Deed, Callable[[Record], Outcome]] = {
            Deed.CLAIM: self._claim,
            Deed.TELL: self._tell,
            Deed.GUARD: self._rights.guard,
            Deed.LOOK: self._look,
            Deed.RESCUE: self._rescue,
            Deed.COMMIT: self._commit,
            Deed.REBUILD: self._rebuild,
            Deed.REFILL: self._refill,
            Deed.PUT_BACK: self._put_back,
            Deed.RELEASE: self._release,
        }

    def once(self, record: Record) -> Outcome:
        """The deed that is due, as far as it goes now. To turn back is to let the topics go."""
        if record.state is State.TURNING_BACK:
            return self._release(record)
        return self._doing[record.deed](record)

    # -- before the point of no return

    def _claim(self, record: Record) -> Outcome:
        pair = pair_of(self._link)
        homes = self._store.homes.of(pair)
        for one in record.topics:
            home = homes.get(one.topic)
            if home is None or home.home != record.new or home.term != one.term:
                where = f"at home on {home.home} in term {home.term}" if home else "at home nowhere"
                return Cannot(f"topic {one.topic} is {where} by now")
        rows = [
            TopicInSwitch(pair, topic, record.id, record.back, Asked.ANNOUNCED, wall_ms()) for topic in record.names()
        ]
        others = [row for row in self._store.switching.begin(rows) if row.switch_id != record.id]
        if others:
            topics = listed([row.topic for row in others], NAMED_MAX)
            return Cannot(f"topic {topics} is in another switch already ({others[0].switch_id[:8]})")
        why = self._words.claim(record)
        return Cannot(why) if why else Done(record)

    def _tell(self, record: Record) -> Outcome:
        why = self._words.tell(record)
        return Cannot(why) if why else Done(record)

    def _look(self, record: Record) -> Outcome:
        """Done once the site ends nothing more by itself, the link back has looked at every partition, and two looks
        saw the same."""
        if waits := loading(self._old):
            return Wait(waits)
        if due := open_transactions(self._old, record.names()):
            return Wait(f"{self._old.name} still ends transactions on {listed(list(due), NAMED_MAX)}")
        if waits := stands(self._old, record.topics).unsettled:
            return Wait(waits)
        seen = stood(self._old, self._store, record.back, record.topics)
        if unknown := [f"{one.topic}-{one.partition}" for one in seen if unseen(one)]:
            return Wait(f"the mirror of {record.back} has not looked at {listed(unknown, NAMED_MAX)} yet")
        found = to_json(tails(seen))
        looked = replace(record, tails=found)
        if found != record.tails:
            return Wait("what never crossed was looked at once only", looked)
        parted = topics_of(tails(seen))
        _, live = old_places.places_in(self._old, parted) if parted else ({}, ())
        if live:
            return Wait(_reads(live, record), looked)
        return Done(looked, _found_in_words(tails(seen), record))

    def _rescue(self, record: Record) -> Outcome:
        """Everything is on the disk, and in the ledger, before anything is deleted."""
        done, folder = [], Path(record.folder)
        for tail in from_json(record.tails):
            path, count = rescue.save(self._old, place_of(record, tail), folder)
            saved = replace(tail, records=count.records, committed=count.committed, file=str(path))
            self._account(record, saved)
            done.append(saved)
        places = old_places.places_in(self._old, topics_of(done))[0] if done else {}
        record = replace(record, tails=to_json(done), places=old_places.to_json(places))
        if not done:
            return Done(record, "nothing is to be rescued")
        records = sum(one.records for one in done)
        return Done(record, f"{counted(records, 'record')} saved to {counted(len(done), 'file')} in {folder}")

    def _account(self, record: Record, tail: Tail) -> None:
        """One row in the ledger and one in the audit; saved twice, there is still one."""
        sentence = f"{tail} of {record.old} never crossed: {counted(tail.records, 'record')}, saved in {tail.file}"
        place = (record.back, tail.topic, tail.partition, IncidentKind.TAIL_RESCUED, tail.first, tail.end)
        rows = [row for row in self._store.ledger.rows(record.back) if row.incident.sentence == sentence]
        if rows:
            return
        now_ms = wall_ms()
        audit = (now_ms, record.back, "rescue", f"{tail.topic}-{tail.partition}", str(tail.first), str(tail.end))
        self._store.audit.add([AuditRow(*audit, f"saved in {tail.file}", record.by, tail.topic)])
        row = self._store.ledger.add(
            Incident(*place, POLICY_RESCUE, sentence, IncidentKind.TAIL_RESCUED.side), now_ms=now_ms
        )
        self._store.ledger.close(row.id, now_ms=now_ms)

    def _commit(self, record: Record) -> Outcome:
        """What is deleted next is what was saved, and nobody reads it."""
        found = from_json(record.tails)
        parts = [(one.topic, one.partition) for one in found]
        if more := grown(found, ends_of(self._old, parts)):
            return Cannot(f"somebody writes on {record.old}: {listed([str(one) for one in more], NAMED_MAX)}")
        if found and (live := old_places.places_in(self._old, topics_of(found))[1]):
            return Cannot(_reads(live, record))
        return Done(record, "from here on the fail-back goes on")

    # -- behind it

    def _rebuild(self, record: Record) -> Outcome:
        waits = [one.topic for one in self._parted(record) if not self._is_anew(record, one)]
        if waits:
            return Wait(f"the mirror of {record.back} makes {listed(waits, NAMED_MAX)} anew")
        names = topics_of(from_json(record.tails))
        return Done(record, f"{listed(names, NAMED_MAX)} is made anew on {record.old}" if names else "")

    def _is_anew(self, record: Record, one: Moved) -> bool:
        """Whether every broker shows the topic that the mirror made; deletes the old one, where it is still there."""
        shown = set(ids_shown(self._old, one.topic).values())
        rows = [row for row in self._store.twins.of(record.back) if row.topic == one.topic]
        if {row.target_topic_id for row in rows} == shown and shown not in ({one.old_id}, {""}):
            return True
        if not rows or rows[0].target_topic_id == one.old_id:
            agree_to_anew(self._store, record.back, one, record.by, wall_ms())
        if one.old_id in shown:
            delete(self._old, one)
        return False

    def _refill(self, record: Record) -> Outcome:
        points = {(one.topic, number): at for one in self._parted(record) for number, at in enumerate(one.points)}
        ends = ends_of(self._old, points)
        lacking = [f"{topic}-{number}" for (topic, number), point in points.items() if ends[topic, number] < point]
        if lacking:
            return Wait(f"{listed(lacking, NAMED_MAX)} is filled again")
        return Done(record, f"filled again up to where it was at home on {record.old}" if points else "")

    def _put_back(self, record: Record) -> Outcome:
        saved = old_places.from_json(record.places)
        starts = {(one.topic, one.partition): one.first for one in from_json(record.tails)}
        wanted = {group: clamped(places, starts) for group, places in saved.items()}
        if not wanted:
            return Done(record)
        lacking = old_places.put_back(self._old, wanted)
        if lacking or 0 <= wall_ms() - record.deed_ms < PLACES_STAND_MS:
            return Wait(f"{listed(lacking or sorted(wanted), NAMED_MAX)} is put back on {record.old}")
        return Done(record, f"{counted(len(wanted), 'group')} stands on {record.old} where it stood")

    def _release(self, record: Record) -> Outcome:
        self._words.release(record)
        self._store.switching.end(record.id)
        return Done(record)

    def _parted(self, record: Record) -> list[Moved]:
        names = topics_of(from_json(record.tails))
        return [one for one in record.topics if one.topic in names]


def place_of(record: Record, tail: Tail) -> Place:
    """The tail as its file names it."""
    old_id = next(one.old_id for one in record.topics if one.topic == tail.topic)
    return Place(record.id, record.old, record.new, tail.topic, old_id, tail.partition, tail.first, tail.end)


def _reads(live: tuple[str, ...], record: Record) -> str:
    groups = listed(live, NAMED_MAX)
    return f"group {groups} has members on {record.old}: stop its consumers, or point them to {record.new}"


def _found_in_words(found: tuple[Tail, ...], record: Record) -> str:
    if not found:
        return f"nothing diverged: {record.old} holds nothing that {record.new} lacks"
    return f"{listed([str(one) for one in found], NAMED_MAX)} of {record.old} never crossed"
