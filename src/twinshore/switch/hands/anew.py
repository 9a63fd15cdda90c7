"""A topic is made anew under its own name: what it alone holds is saved before it is deleted, and its groups are put
back once it is filled again. Each step may be done twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from twinshore.fleet import RESCUED_TOPIC, ConfigError, KafkaError, Link, WireError
from twinshore.fleet.incidents import POLICY_RESCUE, IncidentKind
from twinshore.fleet.sentences import are, counted, listed
from twinshore.fleet.settings import Settings
from twinshore.groups.place import MARK
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import Connection
from twinshore.kafka.errors import Code
from twinshore.kafka.metadata import NO_TOPIC_ID, ask_metadata
from twinshore.mirror.follow.last_resort import Word
from twinshore.mirror.follow.lifecycle import CONFIRMED
from twinshore.service.clock import wall_ms
from twinshore.store import AuditRow, Incident, Remembered, Store
from twinshore.store.audit import Wanted
from twinshore.switch.decision import Done, Outcome, Wait
from twinshore.switch.deeds import Kind
from twinshore.switch.hands import rescue
from twinshore.switch.hands.debts import SILENT_MS_MAX
from twinshore.switch.hands.mirrors import MirrorSilence
from twinshore.switch.hands.places import (
    SavedPlace,
    follow_home,
    left_on_twins,
    places_from,
    places_in,
    places_json,
    put_back,
)
from twinshore.switch.hands.rescued_topic import RescuedTopic, export
from twinshore.switch.record import Moved, Record
from twinshore.switch.rescued import Copy, Count, Origin
from twinshore.switch.returned import Tail, clamped, from_json, to_json
from twinshore.wire.group_places import Place, Where

NAMED_MAX = 5
# A coordinator may forget a place within so long of the new topic's birth, though it was committed for that one.
PLACES_STAND_MS = 3_000
SAID_AGAIN_MS = 60_000  # long before such a word holds no more
ABSENT = frozenset({Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_ID})

HomeOf = Callable[[Record, Tail], rescue.KnownHome]


def origin_of(record: Record, tail: Tail) -> Origin:
    """The tail as its file names it."""
    old_id = next(one.old_id for one in record.topics if one.topic == tail.topic)
    return Origin(record.id, record.old, record.new, tail.topic, old_id, tail.partition, tail.first, tail.end)


def save(
    record: Record, topics: Collection[str], old: KafkaCluster, new: KafkaCluster, store: Store, home_of: HomeOf
) -> Done:
    """Everything is in the new home's topic of rescued records, and in the ledger, before anything is deleted; and
    where groups stand in `topics`."""
    done, exported, lacks = [], 0, ""
    for tail in from_json(record.tails):
        saved = _saved(record, tail, old, RescuedTopic(new), home_of)
        if saved.saved_as:
            try:
                path = Path(record.folder) / origin_of(record, saved).file_name()
                export(RescuedTopic(new).read(copy_of(saved)), path)
                saved, exported = replace(saved, file=str(path)), exported + 1
            except ConfigError as error:
                lacks = f"; {error.message}: `twinshore switch rescue export` writes them"
        if saved.saved_as or saved.end <= tail.first:
            _account(record, saved, store)
        done.append(saved)
    places = places_in(old, topics)[0] if topics else {}
    record = replace(record, tails=to_json(done), places=places_json(places))
    if not any(one.saved_as for one in done):
        return Done(record, "nothing is to be rescued")
    records = counted(sum(one.records for one in done), "record")
    files = f" and {counted(exported, 'file')} in {record.folder}" if exported else ""
    return Done(record, f"{records} saved to {RESCUED_TOPIC} on {new.name}{files}{lacks}")


def copy_of(tail: Tail) -> Copy:
    return Copy(tail.saved_at, tail.saved_as.encode())


def _saved(record: Record, tail: Tail, old: KafkaCluster, rescued: RescuedTopic, home_of: HomeOf) -> Tail:
    """The tail once it is saved. Of one that is read beside its home only what that lacks is saved, if anything."""
    if tail.end <= tail.first:
        return tail
    origin = origin_of(record, tail)
    found = rescue.records_of(old, origin, home_of(record, tail) if tail.beside else None)
    if tail.beside:
        first = next(found, None)
        if first is None:
            return replace(tail, first=tail.end)
        tail, found = replace(tail, first=first.record.offset), chain((first,), found)
    copy, count = rescued.save(origin_of(record, tail), found)
    saved = replace(tail, records=count.records, committed=count.committed)
    return replace(saved, saved_at=copy.at, saved_as=copy.key.decode())


def unsaved(record: Record, fresh: Iterable[Tail], topic: str, new: KafkaCluster) -> tuple[Tail, ...]:
    """What of the topic is to be saved before it may be deleted: of `fresh` tails what lies behind or before all that
    was saved, and those of which no whole copy is left."""
    known = [one for one in from_json(record.tails) if one.topic == topic]
    upto = {one.where: one.end for one in sorted(known, key=lambda one: one.end)}
    since = {one.where: one.first for one in sorted(known, key=lambda one: -one.first)}
    found = [one for one in known if one.end > one.first and not _is_whole(one, new)]
    for one in fresh:
        if one.where not in upto:
            found.append(one)
            continue
        if one.end > upto[one.where]:
            found.append(replace(one, first=upto[one.where], gone=0))
        if not one.beside and one.first < since[one.where]:
            found.append(replace(one, end=since[one.where]))
    return tuple(found)


def _is_whole(tail: Tail, new: KafkaCluster) -> bool:
    try:
        return bool(tail.saved_as) and RescuedTopic(new).count(copy_of(tail)) == Count(tail.records, tail.committed)
    except WireError:
        return False


def save_more(
    record: Record, more: Sequence[Tail], old: KafkaCluster, new: KafkaCluster, store: Store, home_of: HomeOf
) -> Wait:
    """Saves these tails, beside what was saved. They are looked at once more afterwards."""
    saved = save(replace(record, tails=to_json(more)), (), old, new, store, home_of)
    spans = {(one.where, one.first) for one in more}
    kept = [one for one in from_json(record.tails) if (one.where, one.first) not in spans]
    tails = to_json([*kept, *from_json(saved.record.tails)])
    return Wait(f"{listed([str(one) for one in more], NAMED_MAX)}: {saved.sentence}", replace(record, tails=tails))


def _account(record: Record, tail: Tail, store: Store) -> None:
    """One row in the ledger and one in the audit; saved twice, there is still one."""
    saved = f"saved in {RESCUED_TOPIC} on {record.new}" if tail.saved_as else "nothing is left to be saved"
    sentence = f"{tail} of {record.old} never crossed: {counted(tail.records, 'record')}, {saved}"
    if tail.gone:
        sentence += f"; {counted(tail.gone, 'offset')} before were deleted there before anybody saw them"
    place = (record.back, tail.topic, tail.partition, IncidentKind.TAIL_RESCUED, tail.first, tail.end)
    rows = [row for row in store.ledger.rows(record.back) if row.incident.sentence == sentence]
    if rows:
        return
    now_ms = wall_ms()
    audit = (now_ms, record.back, "rescue", f"{tail.topic}-{tail.partition}", str(tail.first), str(tail.end))
    store.audit.add([AuditRow(*audit, saved, record.by, tail.topic)])
    row = store.ledger.add(Incident(*place, POLICY_RESCUE, sentence, IncidentKind.TAIL_RESCUED.side), now_ms=now_ms)
    store.ledger.close(row.id, now_ms=now_ms)


def made(
    record: Record,
    topics: Iterable[Moved],
    old: KafkaCluster,
    store: Store,
    silence: MirrorSilence,
    not_yet: Callable[[Record, Moved], Wait | None],
) -> Outcome:
    """Done once these topics, which are deleted first, are the mirror's new ones; no sentence where there are none.
    `not_yet` looks at a topic right before it is deleted, and says why it stays for now."""
    waits, names = [], []
    for one in topics:
        names.append(one.topic)
        shown = set(ids_shown(old, one.topic).values())
        rows = [row for row in store.twins.of(record.back) if row.topic == one.topic]
        if {row.target_topic_id for row in rows} == shown and shown not in ({one.old_id}, {""}):
            continue
        waits.append(one.topic)
        if one.old_id in shown and (why := not_yet(record, one)):
            return why
        if not rows or rows[0].target_topic_id == one.old_id:
            _agree(store, record.back, one, record.by, wall_ms())
        if one.old_id in shown:
            _delete(record, one, old, store)
    if waits:
        return silence.waiting(f"the mirror of {record.back} makes {listed(waits, NAMED_MAX)} anew")
    return Done(record, f"{listed(names, NAMED_MAX)} {are(names)} made anew on {record.old}" if names else "")


def ids_shown(cluster: KafkaCluster, topic: str) -> dict[int, str]:
    """The topic's id, in hex, as each broker knows it now; empty where it knows no such topic."""

    def ask(line: Connection, timeout_s: float) -> str:
        seen = ask_metadata(line, [topic], timeout_s=timeout_s).topics.get(topic)
        there = seen is not None and seen.error not in ABSENT and seen.topic_id != NO_TOPIC_ID
        return seen.topic_id.hex() if there and seen is not None else ""

    return {node: cluster.at(node, "topic id", ask) for node in cluster.metadata([], refresh=True).brokers}


def _agree(store: Store, back: str, one: Moved, by: str, now_ms: int) -> None:
    """The mirror's leave to make the twin anew once it is gone."""
    word = Word(now_ms, one.new_id).to_json()
    told = AuditRow(now_ms, back, "topic", one.topic, "", "begins again", f"agreed by {by}", by, one.topic)
    known = {row.subject: row for row in store.memories.of(back, CONFIRMED)}.get(one.topic)
    first = known is None or known.value != word
    if known is not None and not first and 0 <= now_ms - known.since_ms < SAID_AGAIN_MS:
        return
    row = Remembered(back, CONFIRMED, one.topic, word, "agreed", now_ms)
    store.memories.remember([row], [told] if first else [])


def _delete(record: Record, one: Moved, old: KafkaCluster, store: Store) -> None:
    """The topic with just this id; done twice, the second time nothing. The audit has it before: whatever becomes of
    the answer, or of this process, what is gone is told."""
    before, after = f"id {one.old_id}", f"deleted on {record.old}, to be filled anew from {record.new}"
    told_before = store.audit.page(Wanted((record.back,), "twin", topic=one.topic))
    if before not in {row.before for row in told_before}:
        told = AuditRow(wall_ms(), record.back, "twin", one.topic, before, after, "asked", record.by, one.topic)
        store.audit.add([told])
    try:
        old.admin.delete_topic(one.topic, topic_id=bytes.fromhex(one.old_id))
    except KafkaError as error:
        if error.code not in ABSENT:
            raise


class PutBack:
    """Groups stand where they stood, but never in records that are no more; and they follow their home from now on,
    along the link that fills the twins. `now_ms`: by the clock of the record.

    Until a place has stood for a while, a coordinator may forget it with the old topic, and a round of the link that
    found none before may still give the group its home's."""

    def __init__(
        self, old: KafkaCluster, link: Link, settings: Settings, store: Store, now_ms: Callable[[], int]
    ) -> None:
        self._old, self._link, self._settings, self._store, self._now_ms = old, link, settings, store, now_ms
        self._lacked_ms = 0

    def __call__(self, record: Record) -> Outcome:
        wanted = self._wanted(record)
        stands = ""
        if wanted:
            lacking = put_back(self._old, wanted)
            now_ms = self._now_ms()
            if lacking or not self._lacked_ms:
                self._lacked_ms = now_ms
            # A clock that went back counts as one that went on.
            if 0 <= now_ms - self._lacked_ms < PLACES_STAND_MS:
                names = lacking or sorted(wanted)
                return Wait(f"{listed(names, NAMED_MAX)} {are(names)} put back on {record.old}")
            stands = f"{counted(len(wanted), 'group')} stands on {record.old} where it stood"
        followed = follow(record, self._link, self._settings, self._store, self._now_ms())
        return replace(followed, sentence="; ".join(filter(None, (stands, followed.sentence))))

    def _wanted(self, record: Record) -> dict[str, dict[Where, SavedPlace]]:
        starts: dict[Where, int] = {}
        for one in from_json(record.tails):
            starts[one.where] = min(one.first - one.gone, starts.get(one.where, one.first))
        # What groups left here when their topics were moved by force counts as the link's from now on: they follow.
        theirs = left_on_twins(self._link, self._store, record.names())
        found = {}
        for group, places in places_from(record.places).items():
            at = clamped({where: one.offset for where, one in places.items()}, starts)
            found[group] = {
                where: SavedPlace(one, Place(at[where], MARK if where[0] in theirs else one.metadata))
                for where, one in places.items()
            }
        return found


def follow(record: Record, link: Link, settings: Settings, store: Store, now_ms: int) -> Done:
    """What groups left on twins when their topics were moved by force is their own, and would stay as it is: it follows
    its home from now on. Nothing of a mapped twin is deleted: who has not read there what never crossed, still may.
    KafkaError while a cluster does not answer, for some seconds; then the next fail-back tries it again."""
    unread = from_json(record.tails) if record.kind is Kind.MAPPED else ()
    ends = {(one.topic, one.partition): one.end for one in unread if one.first < one.end}
    try:
        return Done(record, follow_home(link, settings, store, record.names(), record.by, ends))
    except KafkaError as error:
        if error.retriable and not record.tried_for(SILENT_MS_MAX, now_ms):
            raise
        why = f"whether groups follow {link.source} again is not known ({error.message})"
        return Done(replace(record, unfollowed=True), f"{why}: see `twinshore groups`, and fail back again")
