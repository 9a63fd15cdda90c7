"""Plans a switch without data: writers of topics without a link move at once, and old records stay.

The plan shows which groups have not read everything. Consumers on the new home begin at the end offset of the old log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

from twinshore.config.errors import ConfigError, KafkaError, RefusedError
from twinshore.config.model import TERM_MAX, Link, TopicPartition, TwinNaming
from twinshore.config.schema import did_you_mean
from twinshore.config.sentences import count_phrase, join_names
from twinshore.config.settings import Settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.consumer_groups import ConsumerGroups
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.metadata import TopicMetadata
from twinshore.replication.core.filters import admits
from twinshore.replication.core.ownership import pair_name
from twinshore.routing.core.home_records import HomeConflict, current_home, homes_place
from twinshore.routing.homes_topic import HomesTopic
from twinshore.state.store import Store
from twinshore.switch.announce import refuse_claimed_topics
from twinshore.switch.core.steps import STEPS, SwitchKind, TopicMove
from twinshore.switch.operations.plan import (
    TOPIC_NAME_PATTERN,
    SwitchPlan,
    SwitchPlanRequest,
    current_links,
    describe_unheld_writers,
    find_obstacle,
    links_leading_to,
    new_switch_state,
    open_cluster,
)

GROUPS_MAX = 20


@dataclass(frozen=True, slots=True)
class OldHomeOffsets:
    begins: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]

    @property
    def offsets(self) -> int:
        return sum(self.ends.values()) - sum(self.begins.values())


def plan(request: SwitchPlanRequest, settings: Settings, store: Store, *, by: str = "") -> SwitchPlan:
    """Raises ConfigError if no topic matches; obstacles are `refused`, in one sentence."""
    settings.cluster(request.to)
    names = [one.replace("\\", "") for one in request.topics if TOPIC_NAME_PATTERN.fullmatch(one)]
    alone = request.kind is SwitchKind.PLANNED and not (request.group or request.wave or request.of or request.producer)
    if not names or len(names) < len(request.topics) or not alone:
        raise ConfigError("switch.whole-names-only")
    links = current_links(settings, store)
    with ExitStack() as stack:
        old = stack.enter_context(open_cluster(_home(request, names, settings, links), settings))
        new = stack.enter_context(open_cluster(request.to, settings))
        link = Link(old.name, new.name)
        if carried := _carried(link, names, links):
            return SwitchPlan(refusal=carried)
        topics, refused = _moved(names, link, old, new, store)
        refused = refused or refuse_claimed_topics(store, pair_name(link), names) or find_obstacle(old, new, ())
        held = _held(old, names)
        refused = refused or _own(new, held)
        shown = tuple(_shown(names, old, new.name, held))
        if refused:
            return SwitchPlan(shown=shown, refusal=refused)
        unheld = describe_unheld_writers(old, names)
    state = new_switch_state(SwitchKind.DATALESS, link, topics, by)
    state = replace(state, link="", back="", hold_s_max=request.hold_s)
    return SwitchPlan(STEPS[SwitchKind.DATALESS], shown, unheld, state=state)


def _home(request: SwitchPlanRequest, names: Sequence[str], settings: Settings, links: Sequence[Link]) -> str:
    """Returns the one other cluster that has these topics; with `links`, only their sources count."""
    others = [name for name in settings.clusters if name != request.to]
    if request.links:
        others = sorted({link.source for link in links_leading_to(request.to, request.links, links)})
    known: set[str] = set()
    found: list[str] = []
    for name in others:
        with open_cluster(name, settings) as cluster:
            topics = _there(cluster, None)
        known |= topics.keys()
        found += [name] if set(names) <= topics.keys() else []
    if not found:
        topic = next((name for name in names if name not in known), names[0])
        near = did_you_mean(topic, sorted(known))
        raise ConfigError("switch.no-such-topic", clusters=join_names(others), topic=topic, near=near)
    if len(found) > 1:
        clusters = join_names(found)
        raise ConfigError("switch.topics-on-several-clusters", clusters=clusters, topics=join_names(names))
    return found[0]


def _there(cluster: KafkaCluster, names: Sequence[str] | None) -> dict[str, TopicMetadata]:
    topics = cluster.metadata(names, refresh=True).topics
    return {name: topic for name, topic in topics.items() if not topic.error and not topic.internal}


def _carried(link: Link, names: Sequence[str], links: Sequence[Link]) -> RefusedError | None:
    """A reverse link would delete the old records, since a twin begins where its source does."""
    for other in links:
        topics = join_names([name for name in names if admits(other, name)])
        between = {other.source, other.target} == {link.source, link.target}
        if other.naming is TwinNaming.SAME and between and topics:
            return RefusedError("switch.data-is-replicated", link=other.name, topics=topics, source=link.source)
    return None


def _moved(
    names: Sequence[str], link: Link, old: KafkaCluster, new: KafkaCluster, store: Store
) -> tuple[tuple[TopicMove, ...], RefusedError | None]:
    ours, theirs = _there(old, names), _there(new, names)
    rows = store.homes.of(pair_name(link))
    lines = [HomesTopic(cluster).read() for cluster in (old, new)]
    found: list[TopicMove] = []
    for name in names:
        said = current_home([some.get(name) for some in lines])
        row = rows.get(name)
        if isinstance(said, HomeConflict):
            return (), RefusedError("switch.homes-conflict", topic=name)
        if said is not None and said.newer:
            return (), RefusedError("routing.newer-home", topic=name, version=said.newer, place=homes_place())
        if (said is not None and said.cluster_id != old.cluster_id()) or (row is not None and row.home != old.name):
            return (), RefusedError("switch.not-at-home", topics=name, cluster=old.name)
        term = max(said.term if said is not None else 0, row.term if row is not None else 0)
        if term >= TERM_MAX:
            return (), RefusedError("switch.home-moved-too-often", topics=name, count=TERM_MAX)
        count, there = len(ours[name].partitions), theirs.get(name)
        if there is not None and len(there.partitions) != count:
            return (), RefusedError(
                "switch.partition-counts-differ",
                topic=name,
                partitions=len(there.partitions),
                cluster=new.name,
                source_partitions=count,
                source=old.name,
            )
        old_id, new_id = ours[name].topic_id.hex(), there.topic_id.hex() if there is not None else ""
        found.append(TopicMove(topic=name, old_id=old_id, new_id=new_id, term=term, partitions=count))
    return tuple(found), None


def _held(cluster: KafkaCluster, names: Sequence[str]) -> OldHomeOffsets:
    topics = _there(cluster, names).items()
    partitions = [TopicPartition(name, partition.partition) for name, topic in topics for partition in topic.partitions]
    kinds = (OffsetKind.EARLIEST, OffsetKind.LOG_END)
    return OldHomeOffsets(*(cluster.list_offsets(partitions, kind) for kind in kinds))


def _own(new: KafkaCluster, old: OldHomeOffsets) -> RefusedError | None:
    """A log with records, or past the end of the old one, cannot begin there."""
    there = _held(new, sorted({tp.topic for tp in old.ends}))
    holds = {tp.topic for tp, end in there.ends.items() if end > there.begins[tp] or end > old.ends.get(tp, 0)}
    if not holds:
        return None
    return RefusedError("switch.target-not-empty", cluster=new.name, topics=join_names(sorted(holds)))


def _shown(names: Sequence[str], old: KafkaCluster, to: str, held: OldHomeOffsets) -> Iterator[str]:
    moved, offsets = count_phrase(len(names), "topic"), count_phrase(held.offsets, "offset")
    moves = f"{moved} would be at home on {to}, and no more on {old.name}: {join_names(names)}"
    yield f"{moves}, without the {offsets} that {old.name} holds"
    yield (
        "a group that has read all continues at the same offset; another one starts where its auto.offset.reset says, "
        f"and finds what stays on {old.name} alone"
    )
    try:
        unread = _unread(old, held)
    except KafkaError as error:
        yield f"which groups have not read all is not known: {error.message}"
        return
    for group, count in sorted(unread.items(), key=lambda one: (-one[1], one[0]))[:GROUPS_MAX]:
        yield f"stays unread: {count_phrase(count, 'offset')} by group {group}"
    if len(unread) > GROUPS_MAX:
        yield f"and by {count_phrase(len(unread) - GROUPS_MAX, 'group')} more"


def _unread(old: KafkaCluster, held: OldHomeOffsets) -> dict[str, int]:
    """Returns the number of unread offsets of each group with offsets in the topics."""
    with closing(ConsumerGroups(old)) as groups:
        _, found, away = groups.all_places()
    for error in away:
        raise error
    unread = {
        name: sum(
            max(0, held.ends[tp] - max(place.offset, held.begins[tp]))
            for where, place in group.places.items()
            if (tp := TopicPartition(*where)) in held.ends
        )
        for name, group in found.items()
    }
    return {name: count for name, count in unread.items() if count}
