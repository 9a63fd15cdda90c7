"""A topic is made anew under its own name: what it alone holds is saved before it is deleted, and its groups are put
back once it is filled again. Each step may be done twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path

from twinshore.fleet import KafkaError, Link
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
from twinshore.switch.hands import old_places, rescue
from twinshore.switch.hands.debts import SILENT_MS_MAX
from twinshore.switch.hands.mirrors import MirrorSilence
from twinshore.switch.hands.places import follow_home, left_on_twins
from twinshore.switch.record import Moved, Record
from twinshore.switch.rescued import Origin
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


def save(record: Record, topics: Collection[str], old: KafkaCluster, store: Store, home_of: HomeOf) -> Outcome:
    """Everything is on the disk, and in the ledger, before anything is deleted; and where groups stand in `topics`."""
    done, folder = [], Path(record.folder)
    for tail in from_json(record.tails):
        if tail.end <= tail.first:
            _account(record, tail, store)
            done.append(tail)
            continue
        path, count = rescue.save(old, origin_of(record, tail), folder, home_of(record, tail) if tail.beside else None)
        if tail.beside and not count.records:
            path.unlink()
            done.append(replace(tail, first=tail.end))
            continue
        first = next(rescue.read_saved(path)).record.offset if tail.beside else tail.first
        saved = replace(tail, first=first, records=count.records, committed=count.committed, file=str(path))
        _account(record, saved, store)
        done.append(saved)
    places = old_places.places_in(old, topics)[0] if topics else {}
    record = replace(record, tails=to_json(done), places=old_places.to_json(places))
    records, files = sum(one.records for one in done), sum(1 for one in done if one.file)
    if not files:
        return Done(record, "nothing is to be rescued")
    return Done(record, f"{counted(records, 'record')} saved to {counted(files, 'file')} in {folder}")


def _account(record: Record, tail: Tail, store: Store) -> None:
    """One row in the ledger and one in the audit; saved twice, there is still one."""
    saved = f"saved in {tail.file}" if tail.file else "nothing is left to be saved"
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


def made(record: Record, topics: Iterable[Moved], old: KafkaCluster, store: Store, silence: MirrorSilence) -> Outcome:
    """Done once these topics, which are deleted first, are the mirror's new ones; no sentence where there are none."""
    done = {one.topic: is_made(record, one, old, store) for one in topics}
    if waits := [topic for topic in done if not done[topic]]:
        return silence.waiting(f"the mirror of {record.back} makes {listed(waits, NAMED_MAX)} anew")
    return Done(record, f"{listed(list(done), NAMED_MAX)} {are(done)} made anew on {record.old}" if done else "")


def is_made(record: Record, one: Moved, old: KafkaCluster, store: Store) -> bool:
    """Whether every broker shows the topic that the mirror made; deletes the old one, where it is still there."""
    shown = set(ids_shown(old, one.topic).values())
    rows = [row for row in store.twins.of(record.back) if row.topic == one.topic]
    if {row.target_topic_id for row in rows} == shown and shown not in ({one.old_id}, {""}):
        return True
    if not rows or rows[0].target_topic_id == one.old_id:
        _agree(store, record.back, one, record.by, wall_ms())
    if one.old_id in shown:
        _delete(record, one, old, store)
    return False


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
            lacking = old_places.put_back(self._old, wanted)
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

    def _wanted(self, record: Record) -> dict[str, dict[Where, old_places.Wanted]]:
        starts = {(one.topic, one.partition): one.first - one.gone for one in from_json(record.tails)}
        # What groups left here when their topics were moved by force counts as the link's from now on: they follow.
        theirs = left_on_twins(self._link, self._store, record.names())
        found = {}
        for group, places in old_places.from_json(record.places).items():
            at = clamped({where: one.offset for where, one in places.items()}, starts)
            found[group] = {
                where: old_places.Wanted(one, Place(at[where], MARK if where[0] in theirs else one.metadata))
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
