"""One link's view of topic homes, and the requests of switches.

A switch is another process: it stores requests, and waits until no task writes these topics any more. The link leaves
the topics alone until the switch ends; then their homes decide.

A store that was away while topics moved takes over the clusters' home records before anything is replicated. The link
publishes first homes that the target lacks.

Two links of a pair may see different things, as records are written in between. Each adds a row; the store keeps the
first, and both read that. A new twin's row is saved before the home is read again under a lock; a change of the home
looks for twins after that lock. So either the twin or the change gives way.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from twinshore.config.errors import KafkaError
from twinshore.config.frozen import HOMES_TOPIC
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import Link, OffsetMode, TopicPartition, TwinNaming
from twinshore.config.repeat_filter import RepeatFilter
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.error_codes import Code
from twinshore.replication import stopped_partitions
from twinshore.replication.core import ownership
from twinshore.replication.core.filters import is_internal_topic
from twinshore.replication.core.link_config import effective_link
from twinshore.replication.core.model import CarryTopic, Refuse
from twinshore.replication.core.ownership import (
    FirstHome,
    HomeContext,
    HomeEvidence,
    find_new_switches,
    find_obsolete_records,
    pair_name,
)
from twinshore.replication.stopped_partitions import StoppedPartitions
from twinshore.replication.topic_lineage import TopicLineage, TopicVersions
from twinshore.routing.core.home_records import HomeRecord, describe_implausible, newer_hint
from twinshore.routing.homes_topic import HomesTopic
from twinshore.runtime.logging import LinkLogger
from twinshore.state.core.values import AuditRow, HomeChange, HomeRow, MirrorRequest
from twinshore.state.store import Store

if TYPE_CHECKING:
    from twinshore.replication.coordinator_server import CoordinatorServer
    from twinshore.replication.recorder import ProgressRecorder

log = logging.getLogger(__name__)

T = TypeVar("T")


class SwitchRequests:
    """`leaving`: topics that a switch asked for, until its end, each with a sentence."""

    def __init__(
        self, link: Callable[[], Link], store: Store, coordinator: CoordinatorServer, recorder: ProgressRecorder
    ) -> None:
        self._now, self._store, self._coordinator, self._recorder = link, store, coordinator, recorder
        self._log = LinkLogger(log, link().name)
        self._version = -1
        self._unconfirmed: set[str] = set()
        self._withdrawn: set[str] = set()
        self.leaving: dict[str, str] = {}

    def anew(self) -> None:
        """Reads all again: another process may have run the link."""
        self._version, self.leaving = -1, {}
        self._unconfirmed.clear()

    def changed(self) -> bool:
        """Whether requests, or homes of the pair, have changed since the last call."""
        link = self._now()
        if link.naming is not TwinNaming.SAME:
            return False
        version = self._store.topics_in_switch.version_lately(pair_name(link))
        if version == self._version:
            return False
        requests = self._store.topics_in_switch.of_link(link.name)
        rows = [row for row in requests if row.request is MirrorRequest.STOP_REPLICATION]
        self.leaving = {row.topic: f"topic {row.topic} stops for a switch" for row in rows}
        self._unconfirmed = {row.topic for row in rows if not row.stopped_ms}
        first, self._version = self._version < 0, version
        return not first

    def let_go(self, *, active: bool) -> None:
        """Confirms topics that no task writes any more, if this process holds the link (`active`). All progress is
        written first: none comes after.
        """
        if not self._unconfirmed or not active:
            return
        name = self._now().name
        gone = {topic for topic in sorted(self._unconfirmed) if self._coordinator.withdraw(name, topic)}
        if not gone or not self._coordinator.closed_tasks_settled(name) or not self._recorder.written():
            return
        self._store.topics_in_switch.record_stopped(name, gone, wall_ms())
        self._unconfirmed -= gone
        self._withdrawn |= gone
        for topic in sorted(gone):
            self._log.info(f"no task writes topic {topic} any more: a switch moves it", extra={"topic": topic})

    def leaves(self, topic: str) -> bool:
        return topic in self.leaving

    def staying(self, names: Mapping[str, T]) -> dict[str, T]:
        return {name: seen for name, seen in names.items() if name not in self.leaving}

    def forget(self, elsewhere: Container[str], standing: StoppedPartitions) -> None:
        """Drops figures of topics whose home is elsewhere by now."""
        moved = {topic for topic in self._withdrawn if topic in elsewhere}
        self._withdrawn -= moved
        for topic in moved:
            self._recorder.forget(self._now().name, topic)
            standing.forget(topic)


POLL_INTERVAL_S = 10.0
ID_CHARS_SHOWN = 8


class HomeRecordSync:
    """`link` returns the current link. Logs what is taken over, and what cannot be read."""

    def __init__(self, link: Callable[[], Link], store: Store, source: KafkaCluster, target: KafkaCluster) -> None:
        self._now, self._store, self._log = link, store, LinkLogger(log, link().name)
        self._source, self._target = source, target
        self._rows: Mapping[str, HomeRow] = {}
        self._topics = [(cluster, HomesTopic(cluster, self._known)) for cluster in (source, target)]
        self._read_errors = {cluster.name: RepeatFilter(self._log) for cluster, _ in self._topics}
        self._write_errors = RepeatFilter(self._log)
        self._answered: set[str] = set()
        self._published: set[str] = set()  # topics handled since the last read of the clusters
        self._look_at_s = self._switches_at_s = 0.0
        self._doubts: dict[str, str] = {}
        self.unread: frozenset[str] = frozenset()  # of these doubts: the home is named by a newer version

    def look(self) -> dict[str, str]:
        """Takes over home records of a higher term. Returns topics that no link may replicate, with reasons. KafkaError
        when a cluster has never answered: its records may decide.
        """
        link = self._now()
        if link.naming is not TwinNaming.SAME:
            return {}
        if time.monotonic() < self._look_at_s:
            return self._doubts
        logs = [self._read(cluster, homes_topic) for cluster, homes_topic in self._topics]
        self._published.clear()
        far = any(homes_topic.log.far for _, homes_topic in self._topics)
        rows = self._rows = self._store.homes.of(pair_name(link)) if far or any(logs) else {}
        self._report_implausible(link)
        ids = self._source.cluster_id(), self._target.cluster_id()
        found = ownership.compare_home_records(link, ids, logs, rows)
        doubts, self.unread = dict(found.doubts), found.unread
        if found.records:
            context = self._context(link, found.records)
            changes, unclear = ownership.derive_home_changes(link, ids, found.records, rows, context)
            doubts |= unclear
            self._adopt(link, changes, rows)
        self._doubts, self._look_at_s = doubts, time.monotonic() + POLL_INTERVAL_S
        return doubts

    def publish_first_homes(self, topics: Iterable[str], is_twin: Callable[[str], bool]) -> None:
        """Writes homes of replicated topics to the target in one batch, unless known there. The next `look` allows a
        retry.
        """
        link, (source, here), (target, there) = self._now(), *self._topics
        fresh = [topic for topic in topics if topic not in self._published and not is_internal_topic(topic)]
        exact = link.naming is TwinNaming.SAME and link.mode is OffsetMode.EXACT and not link.queue.fresh
        if not fresh or not exact or target.name not in self._answered:
            return
        self._published.update(fresh)

        def missing() -> list[HomeRecord]:
            found = []
            for topic in fresh:
                both = here.homes.get(topic), there.homes.get(topic)
                record = ownership.first_home_record(link, topic, ids, both, is_twin=is_twin(topic), now_ms=now_ms)
                found += [record] if record is not None else []
            return found

        try:
            ids, now_ms = (source.cluster_id(), target.cluster_id()), wall_ms()
            if missing():
                here.read()  # the reverse link may have written there since
                there.make()
                there.say(missing(), now_ms)
                self._write_errors.well(f"homes of topics are written to {target.name} again")
        except KafkaError as error:
            self._write_errors.say(
                f"homes of topics cannot be written to {target.name}, so a push decides where clients write those that"
                f" no switch has moved: {error.message} (try: {error.hint})"
            )

    def _known(self, topic: str) -> int:
        """Returns the topic's highest known term."""
        row = self._rows.get(topic)
        terms = [homes_topic.homes[topic].term for _, homes_topic in self._topics if topic in homes_topic.homes]
        return max([row.term if row else 0, *terms])

    def _report_implausible(self, link: Link) -> None:
        """Opens one incident for implausible records, and writes valid ones again, so that compaction keeps them."""
        sentences = []
        for cluster, homes_topic in self._topics:
            homes_topic.log.accept_plausible()
            if homes_topic.log.far:
                sentences.append(describe_implausible(cluster.name, homes_topic.log.far.values()))
                with suppress(KafkaError):
                    homes_topic.say((), wall_ms())
        stopped_partitions.report_link_incident(
            self._store, link.name, IncidentKind.DOUBTFUL_HOME, "; ".join(sentences)
        )

    def take_up_switches(self) -> None:
        """Takes over switches recorded on the target, even while the source is away."""
        link, now_s = self._now(), time.monotonic()
        if link.naming is not TwinNaming.SAME or now_s < self._switches_at_s:
            return
        cluster, homes_topic = self._topics[1]
        self._switches_at_s = now_s + POLL_INTERVAL_S
        with suppress(KafkaError):
            homes_topic.read()
            _adopt_switches(link.name, cluster.name, homes_topic, self._store)

    def _read(self, cluster: KafkaCluster, homes_topic: HomesTopic) -> Mapping[str, HomeRecord]:
        repeat_filter = self._read_errors[cluster.name]
        try:
            found = homes_topic.read()
        except KafkaError as error:
            if error.retriable:
                if cluster.name not in self._answered:
                    raise
                return homes_topic.homes
            repeat_filter.say(
                f"{HOMES_TOPIC} on {cluster.name} cannot be read, so switches that were made without this "
                f"store are not seen: {error.message} (try: {error.hint})"
            )
            return {}
        self._answered.add(cluster.name)
        repeat_filter.well(f"{HOMES_TOPIC} on {cluster.name} is read again")
        return found

    def _context(self, link: Link, topics: Iterable[str]) -> HomeContext:
        names = sorted(topics)
        topic_ids = {
            (cluster.name, name): topic.topic_id.hex()
            for cluster, _ in self._topics
            for name, topic in cluster.metadata(names, refresh=True).topics.items()
            if not topic.error
        }
        links = link.name, f"{link.target}->{link.source}"
        rows = [row for name in links for row in self._store.twins.of(name)]
        return HomeContext(topic_ids, {(row.link, row.topic): row.created_ms for row in rows})

    def _adopt(self, link: Link, found: Iterable[HomeChange], rows: Mapping[str, HomeRow]) -> None:
        changes, told, now_ms = tuple(found), [], wall_ms()
        for change in changes:
            topic, before = change.topic, rows.get(change.topic)
            values = (topic, before.home if before else "", change.home, f"by {change.set_by}")
            told.append(AuditRow(now_ms, change.link, "home", *values, topic=topic))
        for change in self._store.topics_in_switch.change_homes(changes, told) if changes else ():
            home = f"is at home on {change.home} in term {change.term}, as the clusters say"
            sentence = f"topic {change.topic} of {pair_name(link)} {home}: the store adopts this"
            self._log.info(sentence, extra={"topic": change.topic})


def _adopt_switches(link: str, cluster: str, homes_topic: HomesTopic, store: Store) -> None:
    """Takes over switches made while the store was unavailable. Deletes the cluster's copies that the store knows, once
    no process works on them without the store; a failure is retried at the next call.
    """
    records = {switch: homes_topic.log.records.record(switch) for switch in homes_topic.log.records.switches()}
    if not records:
        return
    known, now_ms = store.switches.all(), wall_ms()
    stood = {row.id: row for row in known}
    for row in find_new_switches(records, known, now_ms):
        before = stood.get(row.id)
        if not store.switches.take_up(row, before):
            continue
        state = before.state if before else ""
        if state != row.state:
            told = (row.id[:ID_CHARS_SHOWN], state, row.state, f"taken up from {cluster}", row.set_by)
            store.audit.add([AuditRow(now_ms, link, "switch", *told)])
        if before is None:
            switch = f"{row.kind} switch {row.id[:ID_CHARS_SHOWN]} from {row.source} to {row.target}"
            adopted = f"as {cluster} says: the store adopts it, and `twinshore switch resume` ends it"
            log.warning(f"{link}: {switch} was made without the store, {adopted}", extra={"link": link})
    with suppress(KafkaError):
        for switch in find_obsolete_records(records, store.switches.all()):
            homes_topic.forget(switch, now_ms)


class TopicHomes:
    """`link` returns the current link. `admitted` sets `elsewhere`: topics with another home; `homeless`: those
    without; `refused`: those that an operator must decide, and of these `doubted`: clusters contradict the store. Each
    has a sentence. `notes`: whether to write obvious homes, to take over the clusters', and to log.
    """

    def __init__(
        self,
        link: Callable[[], Link],
        links: Sequence[Link],
        store: Store,
        source: KafkaCluster,
        target: KafkaCluster,
        descents: TopicLineage,
        *,
        notes: bool = True,
    ) -> None:
        self._now, self._links, self._store = link, links, store
        self._source, self._target, self._descents = source, target, descents
        self._log, self._notes = LinkLogger(log, link().name), notes
        self._pair = ownership.pair_name(link())
        self.records = HomeRecordSync(link, store, source, target)
        self._version, self._rows = -1, dict[str, HomeRow]()
        self._said: dict[str, str] = {}
        self.elsewhere: dict[str, str] = {}
        self.homeless: dict[str, str] = {}
        self.doubted: dict[str, str] = {}
        self.refused: dict[str, Refuse] = {}

    @property
    def at_home(self) -> dict[str, HomeRow]:
        """Topics whose home is the link's source."""
        return {topic: row for topic, row in self._rows.items() if row.home == self._now().source}

    def admitted(self, names: TopicVersions) -> TopicVersions:
        """Returns the source's topics that the link may replicate."""
        link = self._now()
        if link.naming is not TwinNaming.SAME:
            found = self._descents.admitted(names)
            self.refused = self._unread_twins()
            return found
        doubts = self.records.look() if self._notes else {}
        self._read()
        found = self._descents.admitted(names, ownership.topics_moved_here(link, self._rows))
        self.homeless, self.doubted = {}, {name: why for name, why in doubts.items() if name in names}
        self.refused = self._unread_twins()
        for name, why in self.doubted.items():
            undecided = Refuse(name, IncidentKind.HOME_UNDECIDED, why, ownership.home_hint(name, link))
            self.refused[name] = _unread(name, why) if name in self.records.unread else undecided
        found = {name: seen for name, seen in found.items() if name not in self.doubted}
        self._decide(link, self._undecided(link, found))
        away = {name: row for name, row in ownership.homes_elsewhere(link, self._rows).items() if name in names}
        self._refuse_recreated(link, {name: row for name, row in away.items() if name in found})
        self.elsewhere = {
            name: ownership.explain_homed_elsewhere(name, row, link)
            for name, row in away.items()
            if name not in self.refused
        }
        self._tell()
        left = self.elsewhere.keys() | self.homeless.keys() | self.refused.keys()
        return {name: seen for name, seen in found.items() if name not in left}

    def _unread_twins(self) -> dict[str, Refuse]:
        return {name: _unread(name, why) for name, why in self._descents.unread.items()}

    def kept(self, steps: Sequence[CarryTopic], known: Container[str]) -> list[CarryTopic]:
        """Returns the steps whose topics' home is still the source. Call after saving the twins' rows: a change of a
        home looks for twins afterwards, so one sees the other. `known`: topics with an earlier twin.
        """
        link = self._now()
        if link.naming is not TwinNaming.SAME or not steps:
            return list(steps)
        gone = ownership.homes_elsewhere(link, self._store.homes.now(self._pair, {step.topic for step in steps}))
        for topic in gone:
            elsewhere = ownership.explain_homed_elsewhere(topic, gone[topic], link)
            self._log.info(f"{elsewhere} now", extra={"topic": topic})
            if topic not in known:
                self._store.forget_topic(link.name, topic)
        return [step for step in steps if step.topic not in gone]

    def _read(self) -> None:
        version = self._store.homes.version(self._pair)
        if version != self._version:
            self._rows, self._version = self._store.homes.of(self._pair), version

    def _undecided(self, link: Link, names: Iterable[str]) -> list[str]:
        """Returns topics without a home that the reverse link admits too."""
        back = ownership.find_reverse_link(link, self._links)
        if back is None:
            return []
        both = (back, effective_link(back, self._store.controls.of(back.name)).link)
        return [name for name in names if name not in self._rows and ownership.is_shared_topic(name, *both)]

    def _decide(self, link: Link, names: Collection[str]) -> None:
        if not names:
            return
        ours, theirs = (
            {row.topic for row in self._store.twins.active(name)}
            for name in (link.name, f"{link.target}->{link.source}")
        )
        open_yet = [name for name in names if name not in ours and name not in theirs]
        source, target = (find_written_topics(cluster, open_yet) for cluster in (self._source, self._target))
        found = {}
        for name in names:
            evidence = HomeEvidence(source.get(name), target.get(name), name in ours, name in theirs)
            found[name] = ownership.decide_first_home(link, evidence)
        self._settle(link, {name: first for name, first in found.items() if first.home})
        for name, first in found.items():
            sentence = ownership.explain_no_home(link, name, first)
            if first.contested:
                kind = IncidentKind.HOME_UNDECIDED
                self.refused[name] = Refuse(name, kind, sentence, ownership.home_hint(name, link))
            elif not first.home:
                self.homeless[name] = sentence

    def _refuse_recreated(self, link: Link, away: Mapping[str, HomeRow]) -> None:
        """Refuses recreated topics. `away`: topics whose home is the target, and that are no twins here."""
        source, target = (find_written_topics(cluster, list(away)) for cluster in (self._source, self._target))
        for name, row in away.items():
            if ownership.is_recreated_away(HomeEvidence(source[name], target[name])):
                sentence, hint = ownership.explain_recreated_away(name, row, link), ownership.home_hint(name, link)
                self.refused[name] = Refuse(name, IncidentKind.HOME_UNDECIDED, sentence, hint)

    def _settle(self, link: Link, settled: dict[str, FirstHome]) -> None:
        now_ms, by = wall_ms(), f"link {link.name}"
        rows = [HomeRow(self._pair, name, first.home, 1, now_ms, by) for name, first in settled.items()]
        stands = self._store.homes.settle(rows) if self._notes and rows else {row.topic: row for row in rows}
        self._rows |= stands
        for name, row in stands.items() if self._notes else ():
            why = settled[name].why.value if row.home == settled[name].home else f"{row.set_by} was first to say so"
            self._log.info(f"topic {name} is at home on {row.home}: {why}", extra={"topic": name})

    def _tell(self) -> None:
        said = self.elsewhere | self.homeless
        for name, sentence in said.items() if self._notes else ():
            if self._said.get(name) != sentence:
                self._log.info(sentence, extra={"topic": name})
        self._said = said


def _unread(topic: str, why: str) -> Refuse:
    return Refuse(topic, IncidentKind.NEWER_LINE, why, newer_hint())


def find_written_topics(cluster: KafkaCluster, topics: Sequence[str]) -> dict[str, bool | None]:
    """Whether a record was ever written to each topic, even if deleted since; None: unknown now. A missing topic has
    none.
    """
    if not topics:
        return {}
    metadata = cluster.metadata(sorted(topics), refresh=True).topics
    known = {name: topic for name, topic in metadata.items() if not topic.error}
    partitions = {
        name: [TopicPartition(name, tp.partition) for tp in topic.partitions] for name, topic in known.items()
    }
    ends, _ = cluster.offsets_of_each([*chain.from_iterable(partitions.values())], OffsetKind.LOG_END)
    found: dict[str, bool | None] = {}
    for name in topics:
        if name in known:
            found_ends = [ends.get(partition) for partition in partitions[name]]
            found[name] = True if any(found_ends) else None if None in found_ends or not found_ends else False
        else:
            absent = name in metadata and metadata[name].error == Code.unknown_topic_or_partition
            found[name] = False if absent else None
    return found
