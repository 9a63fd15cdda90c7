"""Reads and writes the lineage of one link's topics in `twinshore.twins`, a compacted topic on each target.

A twin is announced there before creation, and named by topic id afterwards. So every mirror can read what a topic is,
whichever mirror and store made the twin. Topic settings, record headers and names cannot say this. Without rights for
that topic, the link knows only the twins in the store.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence

from twinshore.config.errors import KafkaError
from twinshore.config.frozen import TWINS_TOPIC
from twinshore.config.model import Link
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.state_topic import StateTopic
from twinshore.replication.core.claim_records import TWINS_TOPIC_SETTINGS
from twinshore.replication.core.lineage import (
    NO_LINEAGE,
    Hop,
    Lineage,
    LineageRecords,
    LineageVerdict,
    explain_not_replicated,
    is_confirmed,
    judge_lineage,
)
from twinshore.replication.core.model import CarryTopic, Create
from twinshore.runtime.logging import LinkLogger
from twinshore.state.store import Store

log = logging.getLogger(__name__)

TopicVersions = dict[str, tuple[str, int]]
# So long after a topic was first seen, an honest mirror's records may still arrive.
LINEAGE_GRACE_S = 60.0
DOUBT_RECHECK_S = 60.0


class TopicLineage:
    """`link` returns the current link. `tell` gets the topics with unconfirmed claims whenever these change. `quiet`:
    logs neither topics that are not replicated nor missing rights.
    """

    def __init__(
        self,
        link: Callable[[], Link],
        store: Store,
        source: KafkaCluster,
        target: KafkaCluster,
        *,
        tell: Callable[[Collection[str]], None] = lambda _: None,
        quiet: bool = False,
    ) -> None:
        self._link, self._store = link, store
        self._source, self._target = source, target
        self._log, self._tell_doubts, self._quiet = LinkLogger(log, link().name), tell, quiet
        self._clusters = {"source": source, "target": target}
        self._topics = {side: StateTopic(cluster, TWINS_TOPIC) for side, cluster in self._clusters.items()}
        self._read_to = dict.fromkeys(self._topics, 0)
        self._told = {side: LineageRecords() for side in self._topics}
        self._since_s: dict[tuple[str, str], float] = {}
        self._doubted: dict[str, str] | None = None
        self._doubted_at_s = 0.0
        self._judged: dict[tuple[str, str], str] = {}
        self._judged_by = _filters(link())
        self._descents: dict[str, Lineage] = {}
        self._blind: set[str] = set()
        self.staying: dict[str, str] = {}
        self.unread: dict[str, str] = {}  # topics that a newer version speaks of: whether they are twins is unknown

    def admitted(self, names: TopicVersions, at_home: Collection[str] = ()) -> TopicVersions:
        """Returns topics that the link may replicate. `at_home`: topics written on the source by now, of any origin."""
        for name in at_home:
            self._descents[name] = NO_LINEAGE
            self.staying.pop(name, None)
        if self._judged_by != _filters(self._link()):
            self._judged.clear()
            self._judged_by = _filters(self._link())
        self.unread = {name: why for name, why in self.unread.items() if name in names and name not in at_home}
        judged = {name: seen for name, seen in names.items() if name not in at_home}
        fresh = {name: seen for name, seen in judged.items() if (name, seen[0]) not in self._judged}
        if self._doubted and time.monotonic() - self._doubted_at_s >= DOUBT_RECHECK_S:
            fresh |= {name: judged[name] for name in self._doubted if name in judged}
        if fresh:
            self._judge(fresh)
        return {
            name: seen for name, seen in names.items() if name in at_home or self._judged.get((name, seen[0])) == ""
        }

    def is_twin(self, topic: str) -> bool:
        """Whether the topic is known to come from another cluster."""
        return bool(self._descents.get(topic, NO_LINEAGE).path)

    def announce(self, steps: Iterable[Create]) -> None:
        """Announces twins; call before they are created."""
        self._tell({step.twin or step.topic: self._onward(step.topic, "") for step in steps})

    def declare(self, steps: Iterable[CarryTopic]) -> None:
        """Writes the topic ids of new twins."""
        twins = {step.twin or step.topic: self._onward(step.topic, step.target_topic_id) for step in steps}
        if twins:
            self._read("target")
            told = self._told["target"]
            missing = {name: lineage for name, lineage in twins.items() if told.descents.get(name) != lineage}
            self._tell({name: lineage for name, lineage in missing.items() if name not in told.unread})

    def retract(self, step: Create) -> None:
        """Deletes the announcement of a twin that was not created: it must not claim a later topic of that name."""
        self._append([((step.twin or step.topic).encode(), None)])

    def _onward(self, topic: str, topic_id: str) -> Lineage:
        hop = Hop(self._source.cluster_id(), self._link().source)
        return self._descents.get(topic, NO_LINEAGE).onward(hop, topic_id)

    def _judge(self, fresh: TopicVersions) -> None:
        own = read_own_lineage(self._store, self._source.cluster_id())
        for side in self._topics:
            self._read(side)
        before = self._told_before()
        target_id, now_s = self._target.cluster_id(), time.monotonic()
        doubted = {name: topic_id for name, topic_id in (self._doubted or {}).items() if name not in fresh}
        records, known = self._told["source"], {row.source_topic_id for row in self._store.twins.of(self._link().name)}
        written = records.written()
        for name, (topic_id, _) in fresh.items():
            self.unread.pop(name, None)
            if name in records.unread and topic_id not in own and (name, topic_id) not in before:
                record = f"{TWINS_TOPIC} on {self._link().source} has a record of topic {name} of a newer version"
                self.unread[name] = f"{record} (v {records.unread[name]}): whether it is a twin is unknown here"
                self._stay(name, self.unread[name])
                continue
            claim = records.claim(name, topic_id)
            since_s = self._since_s.setdefault((name, topic_id), now_s)
            belief, descent = judge_lineage(
                claim,
                own=own.get(topic_id),
                before=before.get((name, topic_id)),
                borne_out=is_confirmed(written, claim),
                waited=topic_id in known or now_s - since_s >= LINEAGE_GRACE_S,
            )
            if belief is LineageVerdict.WAITING:
                self._stay(
                    name, f"a record says that {name} on {self._link().source} is a twin: waiting for its mirror's"
                )
                continue
            if belief is LineageVerdict.DOUBTED:
                doubted[name] = topic_id
            self._descents[name] = descent
            reason = self._judged[name, topic_id] = explain_not_replicated(self._link(), name, descent, target_id)
            if reason:
                self._stay(name, reason)
            else:
                self.staying.pop(name, None)
        if doubted != self._doubted:
            self._tell_doubts(doubted)
        self._doubted, self._doubted_at_s = doubted, now_s

    def _stay(self, name: str, reason: str) -> None:
        if self.staying.get(name) != reason:
            self.staying[name] = reason
            if not self._quiet:
                self._log.info(reason, extra={"topic": name})

    def _told_before(self) -> dict[tuple[str, str], Lineage]:
        """What the target was told at each topic's start."""
        found = {}
        lines = self._told["target"]
        for row in self._store.twins.of(self._link().name):
            lineage = lines.claim(self._link().twin_of(row.topic), row.target_topic_id)
            if lineage.topic_id and lineage.path and lineage.path[-1].cluster_id == self._source.cluster_id():
                found[row.topic, row.source_topic_id] = Lineage(row.source_topic_id, lineage.path[:-1])
        return found

    def _read(self, side: str) -> None:
        topic = self._topics[side]
        try:
            if not topic.exists():
                return
            for records, read_to in topic.pages(self._read_to[side]):
                for record in records:
                    self._told[side].take(record.key, record.value)
                self._read_to[side] = read_to
        except KafkaError as error:
            self._missing(error, f"only the store tells which topics of {self._clusters[side].name} are twins")

    def _tell(self, twins: dict[str, Lineage]) -> None:
        if twins:
            self._append([(name.encode(), descent.to_json(self._link().name)) for name, descent in twins.items()])

    def _append(self, lines: Sequence[tuple[bytes, bytes | None]]) -> None:
        topic = self._topics["target"]
        try:
            if not topic.exists():
                topic.make(TWINS_TOPIC_SETTINGS, lasting=True)
            topic.append(lines, wall_ms())
        except KafkaError as error:
            twins = f"its twins on {self._target.name}"
            self._missing(error, f"mirrors with other stores do not see that {twins} are twins")

    def _missing(self, error: KafkaError, what: str) -> None:
        if error.retriable:
            raise error
        if what not in self._blind and not self._quiet:
            self._blind.add(what)
            self._log.warning(f"{what}: {error.message} (try: {error.hint})")


def read_own_lineage(store: Store, here: str) -> dict[str, Lineage]:
    """Returns lineage by topic id of the store's twins on cluster id `here`, also of removed links."""
    origins: dict[tuple[str, str], tuple[Hop, str]] = {}
    for identity in store.links.identities():
        hop = Hop(identity.source_cluster_id, identity.link.partition("->")[0])
        for row in store.twins.of(identity.link):
            origins[identity.target_cluster_id, row.target_topic_id] = (hop, row.source_topic_id)
    return {
        topic_id: Lineage(topic_id, _path(origins, cluster_id, topic_id))
        for cluster_id, topic_id in origins
        if cluster_id == here
    }


def _filters(link: Link) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the verdict on heartbeats depends on, besides lineage."""
    return link.topics, link.exclude


def _path(origins: dict[tuple[str, str], tuple[Hop, str]], cluster_id: str, topic_id: str) -> tuple[Hop, ...]:
    path: list[Hop] = []
    place = (cluster_id, topic_id)
    while place in origins and len(path) <= len(origins):
        hop, topic_id = origins[place]
        path.append(hop)
        place = (hop.cluster_id, topic_id)
    return tuple(reversed(path))
