"""Looks at a live cluster, within bounded time. Whatever it may not or cannot see is told, never passed over.

It asks and changes nothing. Groups are looked at twice, some seconds apart, so that it shows whether they move.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace

from twinshore.advisor.advice import Place, places_of, with_before
from twinshore.advisor.seen import Broker, Known, Partition, Seen, Topic, Unseen
from twinshore.advisor.watching import Watching
from twinshore.fleet import Cluster, KafkaError, NamedPartition, TwinshoreError
from twinshore.fleet.sentences import counted
from twinshore.kafka.admin import Setting
from twinshore.kafka.broker_answers import Features, Move, ask_features, ask_moves
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.errors import Code
from twinshore.kafka.metadata import ClusterMetadata, TopicMetadata
from twinshore.kafka.nodes import Pool

# One broker that hangs takes no more of the whole than this.
BROKER_S = 3.0
CALL_S = 5.0
PATIENCE_S = 60.0
TOPIC_KEYS = (
    "cleanup.policy",
    "flush.messages",
    "flush.ms",
    "max.message.bytes",
    "min.insync.replicas",
    "retention.ms",
    "unclean.leader.election.enable",
)
BROKER_KEYS = (
    "authorizer.class.name",
    "auto.create.topics.enable",
    "default.replication.factor",
    "min.insync.replicas",
    "offsets.retention.minutes",
    "offsets.topic.replication.factor",
    "producer.id.expiration.ms",
    "replica.fetch.max.bytes",
    "transaction.max.timeout.ms",
    "transaction.state.log.replication.factor",
    "transactional.id.expiration.ms",
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """`topics`: expressions, none means all. `apart_s`: between both looks at groups. `horizon_ms`: how far ahead
    retention is looked at, `part`: of records that are as old as this part of it. `waited_ms`: how long the next record
    of a group that stands still has waited. `within_s`: how long all questions may take together."""

    topics: tuple[str, ...] = ()
    apart_s: float = 10.0
    horizon_ms: int = 24 * 3_600_000
    part: float = 0.25
    waited_ms: int = 120_000
    within_s: float = PATIENCE_S

    def admits(self, topic: str) -> bool:
        return not self.topics or any(re.fullmatch(one, topic) for one in self.topics)


@dataclass(slots=True)
class Eyes:
    """What could not be seen is gathered here."""

    unseen: list[Unseen] = field(default_factory=list)

    def miss(self, what: str, error: TwinshoreError) -> None:
        self.unseen.append(Unseen(what, error.message, error.hint))

    def missed(self, what: str, refused: Mapping[str, KafkaError]) -> None:
        """Of many that are refused alike: how many, which one for example, and why."""
        if refused:
            name, error = next(iter(refused.items()))
            these = f"{what} {name}" if len(refused) == 1 else f"{what} {name} and {len(refused) - 1} more"
            self.miss(these, error)

    @contextmanager
    def trying(self, what: str) -> Iterator[None]:
        try:
            yield
        except TwinshoreError as error:
            self.miss(what, error)


def look(
    cluster: Cluster,
    wanted: Wanted,
    *,
    clock: Callable[[], int],
    wait: Callable[[float], None],
    before: tuple[Sequence[Place], int] | None = None,
) -> Seen:
    """The cluster as it is now; KafkaError where it does not answer at all. `clock` gives the time in ms, `wait` waits
    between both looks at groups. `before`: places of an earlier look, and when it was; then one look is enough."""
    eyes = Eyes()
    with _opened(cluster, wanted.within_s) as (kafka, each):
        with kafka.errand():
            seen = kafka.metadata(None)
            told = {name: one for name, one in seen.topics.items() if one.internal or wanted.admits(name)}
            topics = _topics(kafka, told, _moves(each, seen, eyes), eyes)
            brokers, features = _brokers(each, seen, eyes)
        watching = Watching(kafka, eyes.missed, eyes.trying)
        by_name = {one.name: one for one in topics}
        with kafka.errand():
            groups = watching.groups(by_name)
        at_ms = clock()
        if before is None and any(place.lag for group in groups for place in group.places):
            before = places_of(groups), at_ms
            wait(wanted.apart_s)
            with kafka.errand():
                groups = watching.groups(by_name)
            at_ms = clock()
        with kafka.errand():
            groups = watching.waiting(watching.without_markers(groups), at_ms, wanted.waited_ms)
            groups = watching.aged(groups, by_name, at_ms, wanted.horizon_ms, wanted.part)
        _may_hide(brokers, eyes)
        found = Seen(
            cluster.name,
            cluster.bootstrap,
            at_ms,
            cluster_id=seen.cluster_id,
            secured=cluster.security.protocol != "PLAINTEXT",
            finalized=features.finalized,
            eligible=features.eligible,
            in_part=bool(wanted.topics),
            brokers=brokers,
            topics=topics,
            groups=groups,
            unseen=tuple(dict.fromkeys(eyes.unseen)),
        )
    return with_before(found, *before) if before is not None else found


def look_at_topic(cluster: Cluster, name: str) -> Seen:
    """One topic alone, and what its cluster elects; no topic where there is none of this name. Groups are not asked
    for."""
    eyes = Eyes()
    with _opened(cluster, PATIENCE_S) as (kafka, each), kafka.errand():
        seen = kafka.metadata([name])
        told = {one: topic for one, topic in seen.topics.items() if topic.error != Code.UNKNOWN_TOPIC_OR_PARTITION}
        topics = _topics(kafka, told, _moves(each, seen, eyes), eyes)
        brokers, features = _brokers(each, seen, eyes)
    return Seen(
        cluster.name,
        cluster.bootstrap,
        0,
        cluster_id=seen.cluster_id,
        finalized=features.finalized,
        eligible=features.eligible,
        in_part=True,
        brokers=brokers,
        topics=topics,
        unseen=tuple(dict.fromkeys(eyes.unseen)),
    )


@contextmanager
def _opened(cluster: Cluster, patience_s: float) -> Iterator[tuple[KafkaCluster, KafkaCluster]]:
    """For what the whole cluster tells, and for what each broker tells by itself."""
    ways = {"client_id": "twinshore-advise", "pool": Pool()}
    with (
        closing(KafkaCluster(cluster, patience_s=patience_s, call_s=CALL_S, **ways)) as kafka,  # type: ignore[arg-type]
        closing(KafkaCluster(cluster, patience_s=BROKER_S, call_s=BROKER_S, **ways)) as each,  # type: ignore[arg-type]
    ):
        yield kafka, each


def _moves(each: KafkaCluster, seen: ClusterMetadata, eyes: Eyes) -> Mapping[NamedPartition, Move]:
    with eyes.trying("which partitions are on the move"):
        return each.at(seen.controller, "which partitions are on the move", ask_moves)
    return {}


def _topics(
    kafka: KafkaCluster, told: Mapping[str, TopicMetadata], moves: Mapping[NamedPartition, Move], eyes: Eyes
) -> tuple[Topic, ...]:
    settings: dict[str, dict[str, Setting]] = {}
    with eyes.trying(f"settings of {counted(len(told), 'topic')}"):
        settings, refused = kafka.admin.readable_settings(sorted(told), TOPIC_KEYS)
        # One that was deleted meanwhile is no topic any more.
        eyes.missed(
            "settings of topic", {n: e for n, e in refused.items() if e.code != Code.UNKNOWN_TOPIC_OR_PARTITION}
        )
    broken = {name: KafkaError(f"{name}: error {one.error}") for name, one in told.items() if _hidden(one)}
    eyes.missed("partitions of topic", broken)
    return tuple(
        Topic(name, _partitions(told[name], moves), _known(settings.get(name)), told[name].internal)
        for name in sorted(told)
        if name not in broken
    )


def _hidden(topic: TopicMetadata) -> bool:
    return bool(topic.error) and not topic.partitions


def _partitions(topic: TopicMetadata, moves: Mapping[NamedPartition, Move]) -> tuple[Partition, ...]:
    return tuple(
        _moving(
            Partition(one.partition, one.leader, one.replicas, one.isr),
            moves.get(NamedPartition(topic.name, one.partition)),
        )
        for one in topic.partitions
    )


def _moving(part: Partition, move: Move | None) -> Partition:
    """With the replicas of before, where it is on the move. Metadata names those that are copied among them."""
    before = tuple(node for node in part.replicas if move is None or node not in move.adding)
    if move is None or not before:
        return part
    return replace(part, replicas=before, adding=move.adding, removing=move.removing)


def _known(settings: Mapping[str, Setting] | None) -> Mapping[str, Known] | None:
    if settings is None:
        return None
    return {name: Known(one.value, one.own) for name, one in settings.items() if one.value is not None}


def _brokers(each: KafkaCluster, seen: ClusterMetadata, eyes: Eyes) -> tuple[tuple[Broker, ...], Features]:
    """Each by itself: only it tells its settings. One that is silent hinders no other. Of features those that are
    finalized: a broker that has just come may not have heard of them."""
    found: list[Broker] = []
    told = Features(0, 0)
    refused: dict[str, KafkaError] = {}
    for node, where in sorted(seen.brokers.items()):
        broker = Broker(node, where.rack or "")
        with eyes.trying(f"the version of broker {node}"):
            features = each.at(node, f"versions of broker {node}", ask_features)
            broker = replace(broker, supports=features.supports)
            told = max(told, features, key=lambda one: (one.finalized, one.eligible))
        try:
            broker = replace(broker, settings=_known(each.admin.broker_settings(node, BROKER_KEYS)))
        except KafkaError as error:
            refused[str(node)] = error
        found.append(broker)
    eyes.missed("settings of broker", refused)
    return tuple(found), told


def _may_hide(brokers: Sequence[Broker], eyes: Eyes) -> None:
    """Kafka leaves out of its lists what a user may not describe, without a word."""
    if any(one.says("authorizer.class.name") for one in brokers):
        why = "the cluster has an authorizer, and Kafka leaves out of its lists what a user may not describe"
        hint = "advise as a user with Describe on all topics, on all groups and on the cluster"
        eyes.unseen.append(Unseen("whether all topics and groups were told", why, hint))
