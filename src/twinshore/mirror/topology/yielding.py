"""A store that was away while topics moved takes up what both clusters say, before its mirror carries anything. The
link tells the target what they do not say of its topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from twinshore.fleet import HOMES_TOPIC, KafkaError, Link, Mode, Naming
from twinshore.fleet.once import Once
from twinshore.homes.home_lines import HomeLine, far_in_words
from twinshore.homes.home_notes import HomeNotes
from twinshore.kafka.cluster import KafkaCluster
from twinshore.links import yielding
from twinshore.links.filters import is_of_no_application
from twinshore.links.homes import pair_of
from twinshore.links.kept_records import spent, to_take_up
from twinshore.links.yielding import There
from twinshore.mirror.incidents import link_row
from twinshore.service.clock import wall_ms
from twinshore.store import AuditRow, Flip, HomeRow, IncidentKind, Store

LOOK_AGAIN_S = 10.0
ID_SHOWN = 8


class Yielding:
    """`link` gives the link as it holds now. `log` hears what is taken up, and once what cannot be read."""

    def __init__(
        self,
        link: Callable[[], Link],
        store: Store,
        source: KafkaCluster,
        target: KafkaCluster,
        log: Callable[[str], None],
    ) -> None:
        self._now, self._store, self._log = link, store, log
        self._source, self._target = source, target
        self._rows: Mapping[str, HomeRow] = {}
        self._notes = [(cluster, HomeNotes(cluster, self._known)) for cluster in (source, target)]
        self._once = {cluster.name: Once(log) for cluster, _ in self._notes}
        self._saying = Once(log)
        self._heard: set[str] = set()
        self._said: set[str] = set()  # topics that were looked at since the last look at the clusters
        self._look_at_s = self._switches_at_s = 0.0
        self._doubts: dict[str, str] = {}

    def look(self) -> dict[str, str]:
        """Takes up what stands there in a higher term; topics that nobody may carry, each with why. KafkaError where a
        cluster has not answered yet: what it says may be what counts."""
        link = self._now()
        if link.naming is not Naming.SAME:
            return {}
        if time.monotonic() < self._look_at_s:
            return self._doubts
        logs = [self._read(cluster, notes) for cluster, notes in self._notes]
        self._said.clear()
        far = any(notes.log.far for _, notes in self._notes)
        rows = self._rows = self._store.homes.of(pair_of(link)) if far or any(logs) else {}
        self._tell_far(link)
        ids = self._source.cluster_id(), self._target.cluster_id()
        found = yielding.behind(link, ids, logs, rows)
        doubts = dict(found.doubts)
        if found.lines:
            made, unclear = yielding.flips(link, ids, found.lines, rows, self._there(link, found.lines))
            doubts |= unclear
            self._take_up(link, made, rows)
        self._doubts, self._look_at_s = doubts, time.monotonic() + LOOK_AGAIN_S
        return doubts

    def say_first_words(self, topics: Iterable[str], is_twin: Callable[[str], bool]) -> None:
        """Tells the target, in one batch, where topics are at home that the link carries, unless the target has heard
        that. What is not written now is tried again behind the next look."""
        link, (source, here), (target, there) = self._now(), *self._notes
        fresh = [one for one in topics if one not in self._said and not is_of_no_application(one)]
        exact = link.naming is Naming.SAME and link.mode is Mode.EXACT and not link.queue.fresh
        if not fresh or not exact or target.name not in self._heard:
            return
        self._said.update(fresh)

        def lacking() -> list[HomeLine]:
            logs = {topic: (here.homes.get(topic), there.homes.get(topic)) for topic in fresh}
            words = (
                yielding.first_word(link, topic, ids, both, is_twin=is_twin(topic), now_ms=now_ms)
                for topic, both in logs.items()
            )
            return [line for line in words if line is not None]

        try:
            ids, now_ms = (source.cluster_id(), target.cluster_id()), wall_ms()
            if lacking():
                here.read()  # the link the other way may have written there since
                there.make()
                there.say(lacking(), now_ms)
                self._saying.well(f"{link.name}: {target.name} hears again where topics are at home")
        except KafkaError as error:
            self._saying.say(
                f"{link.name}: {target.name} does not hear where topics are at home, so a push decides where clients "
                f"write those that no switch has moved: {error.message} (try: {error.hint})"
            )

    def _known(self, topic: str) -> int:
        """The highest term of the topic that the store knows, or one of the clusters says."""
        row = self._rows.get(topic)
        said = [notes.homes[topic].term for _, notes in self._notes if topic in notes.homes]
        return max([row.term if row else 0, *said])

    def _tell_far(self, link: Link) -> None:
        """One row for what strangers wrote. What stands is written again behind it, or compaction would lose it."""
        sentences = []
        for cluster, notes in self._notes:
            notes.log.believe()
            if notes.log.far:
                sentences.append(far_in_words(cluster.name, notes.log.far.values()))
                with suppress(KafkaError):
                    notes.say((), wall_ms())
        link_row.tell(self._store, link.name, IncidentKind.DOUBTFUL_HOME, "; ".join(sentences), self._log)

    def take_up_switches(self) -> None:
        """Those that the target keeps, also while the source is away; now and then."""
        link, now_s = self._now(), time.monotonic()
        if link.naming is not Naming.SAME or now_s < self._switches_at_s:
            return
        cluster, notes = self._notes[1]
        self._switches_at_s = now_s + LOOK_AGAIN_S
        with suppress(KafkaError):
            notes.read()
            _take_up_kept(link.name, cluster.name, notes, self._store, self._log)

    def _read(self, cluster: KafkaCluster, notes: HomeNotes) -> Mapping[str, HomeLine]:
        once, name = self._once[cluster.name], self._now().name
        try:
            found = notes.read()
        except KafkaError as error:
            if error.retriable:
                if cluster.name not in self._heard:
                    raise
                return notes.homes
            once.say(
                f"{name}: {HOMES_TOPIC} on {cluster.name} cannot be read, so switches that were made without this "
                f"store are not seen: {error.message} (try: {error.hint})"
            )
            return {}
        self._heard.add(cluster.name)
        once.well(f"{name}: {HOMES_TOPIC} on {cluster.name} is read again")
        return found

    def _there(self, link: Link, lines: Iterable[str]) -> There:
        topics = sorted(lines)
        topic_ids = {
            (cluster.name, name): topic.topic_id.hex()
            for cluster, _ in self._notes
            for name, topic in cluster.metadata(topics, refresh=True).topics.items()
            if not topic.error
        }
        names = link.name, f"{link.target}->{link.source}"
        rows = [row for name in names for row in self._store.twins.of(name)]
        return There(topic_ids, {(row.link, row.topic): row.created_ms for row in rows})

    def _take_up(self, link: Link, made: Iterable[Flip], rows: Mapping[str, HomeRow]) -> None:
        flips = tuple(made)
        now_ms, pair = wall_ms(), pair_of(link)
        was = {one.topic: rows[one.topic].home if one.topic in rows else "" for one in flips}
        told = [
            AuditRow(now_ms, one.link, "home", one.topic, was[one.topic], one.home, f"by {one.set_by}", topic=one.topic)
            for one in flips
        ]
        for one in self._store.switching.flip(flips, told) if flips else ():
            self._log(
                f"{link.name}: topic {one.topic} of {pair} is at home on {one.home} in term {one.term}, as the "
                "clusters say: the store takes it up"
            )


def _take_up_kept(link: str, cluster: str, notes: HomeNotes, store: Store, log: Callable[[str], None]) -> None:
    """The store takes up switches that were made while it was dead, as the cluster keeps them. What the store knows is
    taken away there, once nobody works on it without the store; where that fails, the next look does it."""
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
