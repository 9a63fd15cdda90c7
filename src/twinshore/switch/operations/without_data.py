"""Plans a switch without data: writers of topics without a link move at once, and old records stay.

The plan shows which groups have not read everything. Consumers on the new home begin at the end offset of the old log.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

from twinshore.config.errors import ConfigError, KafkaError, RefusedError
from twinshore.config.frozen import SWITCH_CLIENT_ID
from twinshore.config.model import TERM_MAX, Link, TopicPartition, TwinNaming
from twinshore.config.schema import did_you_mean
from twinshore.config.sentences import count_phrase, join_names
from twinshore.config.settings import Settings
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.consumer_groups import ConsumerGroups
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.metadata import TopicMetadata
from twinshore.replication.core.filters import admits
from twinshore.replication.core.ownership import pair_name
from twinshore.replication.links import effective_links
from twinshore.routing.core.home_records import HomeConflict, current_home, homes_place
from twinshore.routing.homes_topic import HomesTopic
from twinshore.state.store import Store
from twinshore.switch.announce import refuse_claimed_topics
from twinshore.switch.core.steps import STEPS, SwitchKind, SwitchState, TopicMove
from twinshore.switch.operations.plan import (
    TOPIC_NAME_PATTERN,
    SwitchPlan,
    SwitchPlanRequest,
    SwitchPlanStep,
    describe_unheld_writers,
    find_obstacle,
    links_leading_to,
)

NAMED_MAX = 5
GROUPS_MAX = 20
REQUEST_TIMEOUT_S = 5.0


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
    links = [effective.link for effective in effective_links(settings.links, store).values()]
    with ExitStack() as stack:
        old = stack.enter_context(closing(_home(request, names, settings, links)))
        new = stack.enter_context(closing(_opened(request.to, settings)))
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
        open_to = describe_unheld_writers(old, names)
    state = SwitchState(
        id=secrets.token_hex(16),
        kind=SwitchKind.DATALESS,
        old=old.name,
        new=new.name,
        link="",
        back="",
        topics=topics,
        by=by,
        begun_ms=wall_ms(),
        hold_s_max=request.hold_s,
        step=STEPS[SwitchKind.DATALESS][0],
    )
    steps = tuple(SwitchPlanStep(step) for step in STEPS[SwitchKind.DATALESS])
    return SwitchPlan(steps, shown, open_to, state=state)


def _opened(name: str, settings: Settings) -> KafkaCluster:
    return KafkaCluster(
        settings.cluster(name), client_id=SWITCH_CLIENT_ID, patience_s=REQUEST_TIMEOUT_S, call_s=REQUEST_TIMEOUT_S
    )


def _home(request: SwitchPlanRequest, names: Sequence[str], settings: Settings, links: Sequence[Link]) -> KafkaCluster:
    """Returns the one other cluster that has these topics; with `links`, only their sources count."""
    others = [name for name in settings.clusters if name != request.to]
    if request.links:
        others = sorted({link.source for link in links_leading_to(request, links)})
    known: set[str] = set()
    found: list[str] = []
    for name in others:
        with closing(_opened(name, settings)) as cluster:
            topics = _there(cluster, None)
        known |= topics.keys()
        found += [name] if set(names) <= topics.keys() else []
    if not found:
        missing = next((one for one in names if one not in known), names[0])
        raise ConfigError(
            "switch.no-such-topic",
            clusters=join_names(others, NAMED_MAX),
            topic=missing,
            near=did_you_mean(missing, sorted(known)),
        )
    if len(found) > 1:
        raise ConfigError(
            "switch.topics-on-several-clusters",
            clusters=join_names(found, NAMED_MAX),
            topics=join_names(list(names), NAMED_MAX),
        )
    return _opened(found[0], settings)


def _there(cluster: KafkaCluster, names: Sequence[str] | None) -> dict[str, TopicMetadata]:
    topics = cluster.metadata(names, refresh=True).topics
    return {name: topic for name, topic in topics.items() if not topic.error and not topic.internal}


def _carried(link: Link, names: Sequence[str], links: Sequence[Link]) -> RefusedError | None:
    """A reverse link would delete the old records, since a twin begins where its source does."""
    for one in links:
        theirs = [name for name in names if admits(one, name)]
        if one.naming is TwinNaming.SAME and {one.source, one.target} == {link.source, link.target} and theirs:
            return RefusedError(
                "switch.data-is-replicated",
                link=one.name,
                topics=join_names(theirs, NAMED_MAX),
                source=link.source,
            )
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
        new_id = there.topic_id.hex() if there is not None else ""
        found.append(
            TopicMove(topic=name, old_id=ours[name].topic_id.hex(), new_id=new_id, term=term, partitions=count)
        )
    return tuple(found), None


def _held(cluster: KafkaCluster, names: Sequence[str]) -> OldHomeOffsets:
    topics = _there(cluster, names)
    partitions = [
        TopicPartition(name, partition.partition) for name, topic in topics.items() for partition in topic.partitions
    ]
    return OldHomeOffsets(
        *(cluster.list_offsets(partitions, kind) for kind in (OffsetKind.EARLIEST, OffsetKind.LOG_END))
    )


def _own(new: KafkaCluster, old: OldHomeOffsets) -> RefusedError | None:
    """A log with records, or past the end of the old one, cannot begin there."""
    there = _held(new, sorted({tp.topic for tp in old.ends}))
    holds = sorted(
        {
            partition.topic
            for partition, end in there.ends.items()
            if end > there.begins[partition] or end > old.ends.get(partition, 0)
        }
    )
    if not holds:
        return None
    return RefusedError("switch.target-not-empty", cluster=new.name, topics=join_names(holds, NAMED_MAX))


def _shown(names: Sequence[str], old: KafkaCluster, to: str, held: OldHomeOffsets) -> Iterator[str]:
    yield (
        f"{count_phrase(len(names), 'topic')} would be at home on {to}, and no more on {old.name}: "
        f"{join_names(list(names), NAMED_MAX)}, without the {count_phrase(held.offsets, 'offset')} that {old.name} "
        "holds"
    )
    yield (
        f"whoever has read all reads on at the same offset; whoever has not goes where its auto.offset.reset says, and "
        f"finds what stays on {old.name} alone"
    )
    try:
        unread = _unread(old, held)
    except KafkaError as error:
        yield f"who has not read all is not known: {error.message}"
        return
    for group, count in sorted(unread.items(), key=lambda one: (-one[1], one[0]))[:GROUPS_MAX]:
        yield f"stays unread: {count_phrase(count, 'offset')} by group {group}"
    if len(unread) > GROUPS_MAX:
        yield f"and by {count_phrase(len(unread) - GROUPS_MAX, 'group')} more"


def _unread(old: KafkaCluster, held: OldHomeOffsets) -> dict[str, int]:
    """Returns the number of unread offsets of each group with offsets in the topics."""
    unread: dict[str, int] = {}
    with closing(ConsumerGroups(old)) as groups:
        listing = groups.listed()
        known = {one.group: one for one in listing.groups.values() if one.reads_by_offsets}
        wanted: dict[int, dict[str, None]] = {}
        for one in known.values():
            wanted.setdefault(one.coordinator, {})[one.group] = None
        found, away = groups.places(wanted, {})
    for error in (*listing.away.values(), *away.values()):
        raise error
    for name, places in found.items():
        ours = {TopicPartition(*where): place.offset for where, place in places.places.items()}
        left = [
            held.ends[partition] - max(ours[partition], held.begins[partition])
            for partition in ours.keys() & held.ends.keys()
            if held.ends[partition] > ours[partition]
        ]
        if sum(left):
            unread[name] = sum(left)
    return unread
