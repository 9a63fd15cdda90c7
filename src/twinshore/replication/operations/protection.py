"""Sets the protection of topics, and shows what acknowledgements of them mean.

Levels stand in `twinshore.protection` on each cluster. A higher level counts once every cluster has it, so it is
refused while one is away. A lower one may be set while a cluster is away: a process that reads only that cluster keeps
the higher.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from twinshore.config.errors import ConfigError, KafkaError, RefusedError
from twinshore.config.model import Link, OffsetMode, Plan, TopicPartition
from twinshore.config.sentences import join_names
from twinshore.config.settings import Settings
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.primitives import to_printable
from twinshore.protection.core.model import AfterFailover, ProtectionLevel, ReachedEpoch, ReadFrom
from twinshore.protection.core.records import GateLog, ProtectionLog, TopicProtection, current_levels, level_line
from twinshore.protection.topic import GatesTopic, ProtectionTopic, read_accounts
from twinshore.replication.links import effective_links
from twinshore.runtime.endpoints import LinkClients
from twinshore.state.core.values import AuditRow
from twinshore.state.store import Store

ASK_TIMEOUT_S: Final = 5.0
NAMED_MAX: Final = 5
# Records of processes that ended stay; they are written each second.
LATELY_MS: Final = 60_000
REPLICAS_MIN: Final = 3
IN_SYNC_MIN: Final = 2
_ORDER: Final = list(ProtectionLevel)


@dataclass(frozen=True, slots=True)
class ProtectionRequest:
    """`topics`: regular expressions for whole names. `even_weak`: also where a twin may lose what it confirmed."""

    topics: tuple[str, ...]
    level: ProtectionLevel
    alone_after_s: float = 5.0
    twin: str = ""
    after_failover: AfterFailover = AfterFailover.ALONE
    loss_at_most_s: float = 0.0
    even_weak: bool = False
    read: ReadFrom = ReadFrom.HOME


def parse_read(text: str) -> ReadFrom:
    try:
        return ReadFrom(text)
    except ValueError:
        raise ConfigError("replication.no-such-read", read=text, known=join_names(list(ReadFrom), NAMED_MAX)) from None


def parse_level(text: str) -> ProtectionLevel:
    try:
        return ProtectionLevel(text)
    except ValueError:
        raise ConfigError(
            "replication.no-such-level", level=text, known=join_names(list(ProtectionLevel), NAMED_MAX)
        ) from None


@dataclass(frozen=True, slots=True)
class ProtectStep:
    """`link`: which replicates the topic; empty if none does."""

    topic: str
    link: str
    before: ProtectionLevel
    protection: TopicProtection

    @property
    def is_higher(self) -> bool:
        """Whether each cluster must have it."""
        return self.protection.reads_both or _ORDER.index(self.protection.level) > _ORDER.index(self.before)

    def sentence(self, *, done: bool) -> str:
        return f"topic {self.topic} {'is' if done else 'would be'} {self.protection.level}, before {self.before}"


@dataclass(slots=True)
class ClusterProtection:
    """What one cluster says; `error` if it does not answer."""

    protection: ProtectionLog = field(default_factory=ProtectionLog)
    gates: GateLog = field(default_factory=GateLog)
    error: str = ""


@dataclass(frozen=True, slots=True)
class PartitionAlone:
    """From offset `since` on, acknowledgements of the partition may be the home's alone; `gate` says so."""

    partition: int
    since: int
    gate: str


@dataclass(frozen=True, slots=True)
class ProtectedTopic:
    """`gates`: processes that hold acknowledgements of the topic, or did. `mixing`: clients that lately wrote to it and
    to other topics on one connection.
    """

    topic: str
    protection: TopicProtection
    gates: int
    alone: tuple[PartitionAlone, ...]
    mixing: tuple[str, ...] = ()

    def sentence(self) -> str:
        if not self.protection.holds:
            bound = f"; writes wait while the twin is over {self.protection.loss_at_most_s:g} s behind"
            return f"{self.topic}: async: acknowledged by the home{bound * self.protection.watches}"
        said = f"{self.topic}: {self.protection.level}, {self.gates} processes"
        if not self.alone:
            read = "; consumers read what both have" * self.protection.reads_both
            return f"{said}: acknowledged by the home and the twin{read}"
        places = [f"partition {one.partition} from offset {one.since}" for one in self.alone]
        read = "; consumers read all that it has there" * self.protection.reads_both
        return f"{said}: acknowledged by the home alone: {join_names(places, NAMED_MAX)}{read}"


@dataclass(frozen=True, slots=True)
class ProtectionOverview:
    topics: tuple[ProtectedTopic, ...]
    away: tuple[tuple[str, str], ...]

    def as_values(self) -> dict[str, Any]:
        return {
            "topics": [asdict(one) for one in self.topics],
            "unreachable": [{"cluster": name, "error": error} for name, error in self.away],
        }


def read_clusters(settings: Settings) -> dict[str, ClusterProtection]:
    found = {}
    for name, cluster in settings.clusters.items():
        kafka = KafkaCluster(cluster, patience_s=ASK_TIMEOUT_S, call_s=ASK_TIMEOUT_S)
        try:
            found[name] = ClusterProtection(ProtectionTopic(kafka).read(), GatesTopic(kafka).read())
        except KafkaError as error:
            found[name] = ClusterProtection(error=str(error))
        finally:
            kafka.close()
    return found


def show(topics: Sequence[str], settings: Settings) -> ProtectionOverview:
    """Returns the topics that have a protection, or those of them that match. ConfigError if no cluster answers."""
    clusters = read_clusters(settings)
    away = tuple((name, one.error) for name, one in clusters.items() if one.error)
    if len(away) == len(clusters):
        raise KafkaError(f"no cluster says which topics are protected: {away[0][1] if away else 'there is none'}")
    shown = []
    for topic, protection in sorted(current_levels(one.protection for one in clusters.values()).items()):
        if topics and not any(re.fullmatch(pattern, topic) for pattern in topics):
            continue
        records = {
            gate: one for side in clusters.values() for (name, gate), one in side.gates.gates.items() if name == topic
        }
        alone = [
            PartitionAlone(number, since, gate)
            for gate, record in records.items()
            for number, since in record.alone.items()
        ]
        mixing = {name for one in records.values() if wall_ms() - one.at_ms < LATELY_MS for name in one.mixing}
        places = tuple(sorted(alone, key=lambda one: one.partition))
        shown.append(ProtectedTopic(topic, protection, len(records), places, tuple(map(to_printable, sorted(mixing)))))
    return ProtectionOverview(tuple(shown), away)


@dataclass(frozen=True, slots=True)
class PartitionExplained:
    """`home_end`, `twin_end`: the high watermarks. `open_since`: where the oldest open transaction begins; -1: none is
    open. `epoch`: the home's leader epoch. `reached`: what the mirror says; None if nothing that counts.
    """

    partition: TopicPartition
    home_end: int
    twin_end: int
    open_since: int
    open_ms: int
    epoch: int
    reached: ReachedEpoch | None

    def reasons(self) -> Iterator[str]:
        """Yields why writes wait."""
        if self.reached is None:
            yield "no mirror says that the twin is a copy"
            return
        if self.reached.is_stopped:
            yield "replication is stopped: `twinshore status` says why"
        if self.reached.epoch != self.epoch:
            yield f"the mirror has reached leader epoch {self.reached.epoch}, and the home is in epoch {self.epoch}"
        if self.open_since >= 0:
            yield (
                f"an open transaction begins at offset {self.open_since}, {self.open_ms / 1000:.0f} s ago:"
                " nothing behind it is replicated"
            )

    def sentence(self) -> str:
        why = "; ".join(self.reasons())
        ends = f"{self.partition}: the home ends at {self.home_end}, the twin at {self.twin_end}"
        return f"{ends}: {why}" if why else ends


@dataclass(frozen=True, slots=True)
class TopicExplained:
    link: str
    topic: ProtectedTopic
    partitions: tuple[PartitionExplained, ...]
    loss: str

    def lines(self) -> Iterator[str]:
        yield self.topic.sentence()
        yield from (f"  {one.sentence()}" for one in self.partitions)
        if self.topic.mixing:
            names = join_names(list(self.topic.mixing), NAMED_MAX)
            yield f"  writes of these clients to other topics wait as well, on one connection: {names}"
        yield f"  a forced switch now: {self.loss}"

    def as_values(self) -> dict[str, Any]:
        partitions = [{**asdict(one), "reasons": list(one.reasons())} for one in self.partitions]
        return {"link": self.link, "topic": asdict(self.topic), "partitions": partitions, "loss": self.loss}


def explain(topic: str, settings: Settings, store: Store) -> TopicExplained:
    """Says why writes to the topic wait, and what a forced switch would lose. ConfigError without a protected twin."""
    shown = show([re.escape(topic)], settings).topics
    links = [one.link for one in effective_links(settings.links, store).values()]
    found = [link for link in links if any(row.topic == topic for row in store.twins.active(link.name))]
    if not shown or not shown[0].protection.holds:
        raise ConfigError("replication.not-protected", topic=topic)
    found = [link for link in found if shown[0].protection.twin in ("", link.target)]
    if not found:
        raise RefusedError("replication.protection-no-twin", topic=topic)
    link = found[0]
    with LinkClients(link, settings, patience_s=ASK_TIMEOUT_S, call_s=ASK_TIMEOUT_S) as clients:
        partitions = tuple(_explained(topic, clients.source, clients.target))
        (account,) = read_accounts(clients.target, [topic])
    return TopicExplained(link.name, shown[0], partitions, account.sentence(link.source, link.target))


def _explained(topic: str, home: KafkaCluster, twin: KafkaCluster) -> Iterator[PartitionExplained]:
    known, log = home.metadata([topic], refresh=True).topics[topic].partitions, ProtectionTopic(twin).read()
    every = [TopicPartition(topic, one.partition) for one in known]
    epochs = {TopicPartition(topic, one.partition): one.leader_epoch for one in known}
    ends, twin_ends = (cluster.list_offsets(every, OffsetKind.HIGH_WATERMARK) for cluster in (home, twin))
    producers = home.describe_producers(every)
    for partition in every:
        in_transaction = [one for one in producers[partition] if one.current_txn_start >= 0]
        oldest = min(in_transaction, key=lambda one: one.current_txn_start, default=None)
        yield PartitionExplained(
            partition,
            ends[partition],
            twin_ends[partition],
            oldest.current_txn_start if oldest else -1,
            wall_ms() - oldest.last_timestamp if oldest else 0,
            epochs[partition],
            log.reached_of(home.cluster_id(), topic, partition.partition),
        )


def plan(request: ProtectionRequest, settings: Settings, store: Store) -> Plan[ProtectStep]:
    """Plans the request. RefusedError where a topic has no twin that counts, or a cluster must not be away."""
    if request.read is ReadFrom.BOTH and request.level is ProtectionLevel.ASYNC:
        raise ConfigError("replication.protection-reads")
    links = {one.link.name: one.link for one in effective_links(settings.links, store).values()}
    twins: dict[str, list[Link]] = {}
    for link in links.values():
        for topic in {row.topic for row in store.twins.active(link.name)}:
            twins.setdefault(topic, []).append(link)
    clusters = read_clusters(settings)
    levels = current_levels(one.protection for one in clusters.values())
    steps, remarks = [], []
    for topic in _matched(request.topics, {*twins, *levels}):
        before = levels[topic].level if topic in levels else ProtectionLevel.ASYNC
        number = levels[topic].number + 1 if topic in levels else 1
        made = TopicProtection(
            request.level,
            number,
            alone_after_s=request.alone_after_s,
            twin=request.twin,
            after_failover=request.after_failover,
            loss_at_most_s=request.loss_at_most_s,
            read=request.read,
        )
        found = [link for link in twins.get(topic, ()) if request.twin in ("", link.target)]
        if made.watches:
            remarks += _check_twin(topic, found, request, settings)
        steps.append(ProtectStep(topic, found[0].name if found else "", before, made))
    away = [name for name, one in clusters.items() if one.error]
    if away and any(step.is_higher for step in steps):
        raise RefusedError("replication.protection-away", clusters=join_names(away, NAMED_MAX), level=request.level)
    remarks += [f"{name} is away, and is not told: {clusters[name].error}" for name in away]
    return Plan(tuple(steps), remarks=tuple(remarks))


def _matched(patterns: Sequence[str], known: Iterable[str]) -> list[str]:
    found: set[str] = set()
    for pattern in patterns:
        ours = {topic for topic in known if topic == pattern or re.fullmatch(pattern, topic)}
        if not ours:
            raise ConfigError("replication.protection-no-topic", topic=pattern)
        found |= ours
    return sorted(found)


def _check_twin(topic: str, links: Sequence[Link], request: ProtectionRequest, settings: Settings) -> list[str]:
    """Returns remarks. RefusedError where no twin, or not one alone, can confirm writes."""
    if not links:
        raise RefusedError("replication.protection-no-twin", topic=topic)
    if len(links) > 1:
        targets = join_names(sorted(link.target for link in links), NAMED_MAX)
        raise RefusedError("replication.protection-several-twins", topic=topic, clusters=targets)
    (link,) = links
    if link.twin_of(topic) != topic or link.mode is not OffsetMode.EXACT or link.queue.fresh:
        raise RefusedError("replication.protection-not-exact", topic=topic, link=link.name)
    weak = _weakness(topic, link.target, settings)
    if not weak:
        return []
    if request.level is ProtectionLevel.STRICT and not request.even_weak:
        raise RefusedError("replication.protection-weak", topic=topic, cluster=link.target, why=weak)
    return [f"topic {topic} on {link.target} may lose what it confirmed: {weak}"]


def _weakness(topic: str, cluster: str, settings: Settings) -> str:
    """Returns why the loss of one broker may lose records there; empty if it may not."""
    kafka = KafkaCluster(settings.cluster(cluster), patience_s=ASK_TIMEOUT_S, call_s=ASK_TIMEOUT_S)
    try:
        partitions = kafka.metadata([topic], refresh=True).topics[topic].partitions
        found = kafka.admin.topic_settings([topic]).get(topic, {})
    finally:
        kafka.close()
    replicas = min(len(one.replicas) for one in partitions)
    in_sync = found["min.insync.replicas"].value if "min.insync.replicas" in found else None
    unclean = found["unclean.leader.election.enable"].value if "unclean.leader.election.enable" in found else None
    reasons = [
        f"it has {replicas} replicas, {REPLICAS_MIN} are needed" if replicas < REPLICAS_MIN else "",
        f"min.insync.replicas is {in_sync}, {IN_SYNC_MIN} is needed" if int(in_sync or 1) < IN_SYNC_MIN else "",
        "unclean.leader.election.enable is true" if unclean == "true" else "",
    ]
    return "; ".join(filter(None, reasons))


def act(plan: Plan[ProtectStep], settings: Settings, store: Store, *, by: str) -> Iterator[ProtectStep]:
    """Executes the steps: each cluster is told, and the change goes into the audit. RefusedError if a cluster that must
    have a higher level did not take it: run the command again.
    """
    with ExitStack() as closing:
        topics = {}
        for name, cluster in settings.clusters.items():
            kafka = KafkaCluster(cluster, patience_s=ASK_TIMEOUT_S, call_s=ASK_TIMEOUT_S)
            closing.callback(kafka.close)
            topics[name] = ProtectionTopic(kafka), GatesTopic(kafka)
        for step in plan.steps:
            line = level_line(step.topic, step.protection)
            failed = {}
            for name, (protection, gates) in topics.items():
                try:
                    protection.make()
                    gates.make()
                    protection.say([line])
                except KafkaError as error:
                    failed[name] = str(error)
            outcome = f"by {by}" if not failed else f"by {by}; not taken by {join_names(list(failed), NAMED_MAX)}"
            change = "protection", step.topic, str(step.before), str(step.protection.level)
            store.audit.add([AuditRow(wall_ms(), step.link, *change, outcome, by, step.topic)])
            if failed and (step.is_higher or len(failed) == len(topics)):
                clusters = join_names([f"{name}: {why}" for name, why in failed.items()], NAMED_MAX)
                raise RefusedError("replication.protection-away", clusters=clusters, level=step.protection.level)
            yield step
