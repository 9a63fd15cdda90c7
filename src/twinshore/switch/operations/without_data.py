"""A switch without data: writers of topics without a link move at once, and old records stay.

The plan shows which groups have not read everything. Topics are created empty on the new home. Each new log begins at
the offset where the old one ends, so a consumer that has read everything continues at the same offset, and others begin
there. Filler takes the offsets below, and is deleted as soon as it is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Final

from twinshore.config.errors import ConfigError, KafkaError, RefusedError
from twinshore.config.frozen import SWITCH_CLIENT_ID
from twinshore.config.model import TERM_MAX, Link, TopicPartition, TwinNaming
from twinshore.config.schema import did_you_mean
from twinshore.config.sentences import count_phrase, has_or_have, is_or_are, join_names
from twinshore.config.settings import Settings
from twinshore.kafka.clock import steady_s
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import Connection
from twinshore.kafka.consumer_groups import ConsumerGroups
from twinshore.kafka.leader_queries import OffsetKind, produce_batch
from twinshore.kafka.log_reader import LogReader
from twinshore.kafka.metadata import TopicMetadata
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.record_batch import HEADER_BYTES, SEQUENCE_SPAN, split_batches
from twinshore.kafka.protocol.transactions import FILLER_RECORDS_MAX, is_filler, make_filler
from twinshore.replication.core.filters import admits
from twinshore.replication.core.ownership import pair_name
from twinshore.routing.core.home_records import HomeConflict, current_home, homes_place
from twinshore.routing.homes_topic import HomesTopic
from twinshore.state.store import Store
from twinshore.switch import handover
from twinshore.switch.announce import refuse_claimed_topics
from twinshore.switch.core.steps import (
    STEPS,
    StepDone,
    StepFailed,
    StepOutcome,
    StepPending,
    SwitchKind,
    SwitchState,
    TopicMove,
)
from twinshore.switch.drain import describe_topic_changes, read_log_ends
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
from twinshore.switch.step_runner import SwitchSteps

NOT_CUT_OFF = "nothing of it is cut off; see who writes there"
REQUEST_TIMEOUT_S = 10.0
NEAR_OFFSETS_MAX = 5_000  # offsets that are filled within a moment
FILL_S_MAX = 2.0  # per attempt, so that progress is reported
# Nothing expires, and everything may be deleted.
TOPIC_SETTINGS: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


def create_topics(new: KafkaCluster, state: SwitchState) -> StepOutcome:
    """Done once each topic exists, with its id in the switch state."""
    seen = new.metadata(list(state.names()), refresh=True).topics
    topics = {name: topic for name, topic in seen.items() if not topic.error}
    for move in state.topics:
        if move.topic not in topics:
            try:
                new.admin.create_topic(move.topic, partitions=move.partitions, settings=TOPIC_SETTINGS)
            except KafkaError as error:
                if error.code != Code.topic_already_exists:
                    raise
    if lacking := [move.topic for move in state.topics if move.topic not in topics]:
        return StepPending(f"{join_names(lacking)} {is_or_are(lacking)} made on {new.name}")
    found = tuple(replace(move, new_id=move.new_id or topics[move.topic].topic_id.hex()) for move in state.topics)
    if why := describe_topic_changes(new, found, new=True):
        return StepFailed(why)
    fresh = [move.topic for move in state.topics if not move.new_id]
    unled = [f"{move.topic}-{tp.partition}" for move in found for tp in topics[move.topic].partitions if tp.leader < 0]
    if unled:
        return StepPending(f"{join_names(unled)} {has_or_have(unled)} no leader on {new.name} yet")
    logs = [TopicPartition(move.topic, at) for move in found for at in range(move.partitions) if move.topic in fresh]
    starts, ends = new.list_offsets(logs, OffsetKind.EARLIEST), new.list_offsets(logs, OffsetKind.LOG_END)
    if taken := [str(partition) for partition in logs if starts[partition] < ends[partition]]:
        return StepFailed(f"{join_names(taken)} on {new.name} holds records of others: {NOT_CUT_OFF}")
    return StepDone(replace(state, topics=found))


def is_nearly_filled(new: KafkaCluster, ends: Mapping[str, Sequence[int]]) -> bool:
    """Writers continue until they are held, so the log ends still move."""
    wanted = _by_partition(ends)
    stands = new.list_offsets(wanted, OffsetKind.LOG_END)
    return all(end - stands[partition] <= NEAR_OFFSETS_MAX for partition, end in wanted.items())


def fill_logs(filling: LogFiller, state: SwitchState, ends: Mapping[str, Sequence[int]]) -> StepOutcome:
    """Done once each log is empty and ends at the given offset."""
    new, wanted = filling.new, _by_partition(ends)
    ids = {move.topic: bytes.fromhex(move.new_id) for move in state.topics}
    stands = new.list_offsets(wanted, OffsetKind.LOG_END)
    if beyond := [str(partition) for partition, end in wanted.items() if stands[partition] > end]:
        return StepFailed(f"{join_names(beyond)} on {new.name} ends beyond the old home: another client writes there")
    if short := {partition: (stands[partition], end) for partition, end in wanted.items() if stands[partition] < end}:
        filling.take(short, ids)
        left = count_phrase(sum(end - begin for begin, end in short.values()), "offset")
        return StepPending(f"{left} of {join_names(list(map(str, short)))} were missing")
    starts = new.list_offsets(wanted, OffsetKind.EARLIEST)
    below = {partition: end for partition, end in wanted.items() if starts[partition] < end}
    foreign = [str(tp) for tp, end in below.items() if not _is_filler(new, tp, starts[tp], end)]
    if foreign:
        return StepFailed(f"{join_names(foreign)} on {new.name} was written by other clients: {NOT_CUT_OFF}")
    if below:
        new.delete_records(below, ids)
        return StepPending(f"{join_names(list(map(str, below)))} {is_or_are(below)} cut to its end on {new.name}")
    return StepDone(state, f"the logs on {new.name} are empty, and end where those on {state.old} do")


def _by_partition(ends: Mapping[str, Sequence[int]]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, number): end for topic, some in ends.items() for number, end in enumerate(some)}


class LogFiller:
    """Fills offsets of new logs. All attempts share one producer id and one sequence per log, so a late append after a
    lost response is not repeated.
    """

    def __init__(self, new: KafkaCluster) -> None:
        self.new = new
        self._writer: tuple[int, int] | None = None
        self._begins: dict[TopicPartition, int] = {}

    def take(self, spans: Mapping[TopicPartition, tuple[int, int]], ids: Mapping[str, bytes]) -> None:
        self._writer = self._writer or self.new.init_producer_id()
        over_s = steady_s() + FILL_S_MAX
        for partition, (begin, end) in spans.items():
            first = self._begins.setdefault(partition, begin)
            for at in range(begin, end, FILLER_RECORDS_MAX):
                made = make_filler(min(FILLER_RECORDS_MAX, end - at))
                head = made.encode_header(*self._writer, (at - first) % SEQUENCE_SPAN)
                batch = bytes(head[:HEADER_BYTES]) + made.body
                self._append(partition, ids[partition.topic], batch)
                if steady_s() > over_s:
                    return

    def _append(self, partition: TopicPartition, topic_id: bytes, batch: bytes) -> None:
        def ask(connection: Connection, timeout_s: float) -> int:
            timeout_s = max(timeout_s, REQUEST_TIMEOUT_S)
            return produce_batch(connection, self.new.name, partition, topic_id, batch, timeout_s=timeout_s)

        self.new.at(self.new.leader_of(partition), "filler", ask)


def _is_filler(new: KafkaCluster, partition: TopicPartition, begin: int, end: int) -> bool:
    """Whether all that would be cut off is filler."""
    reader = LogReader(new, partition, begin, end, client_id=SWITCH_CLIENT_ID)
    try:
        found = (batch for fetched in reader.fetches() for batch in split_batches(fetched.records))
        return all(is_filler(data, header) for data, header in found)
    finally:
        reader.close()


@dataclass
class SwitchWithoutDataSteps(SwitchSteps):
    """Like `SwitchSteps`, without twins and without a link."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.filler = LogFiller(self.new)

    def do_create_topics(self, state: SwitchState) -> StepOutcome:
        """Creates topics with the settings of a twin, so that filler neither expires nor counts as records."""
        if why := describe_topic_changes(self.old, state.topics, new=False):
            return StepFailed(why)
        if not state.given:
            recorded = handover.record_home_settings(self.old, state)
            return StepPending("the switch records the settings of the topics first", recorded)
        created = create_topics(self.new, state)
        if not isinstance(created, StepDone):
            return created
        if created.state != state:
            return StepPending("the switch records the ids of the topics before it fills anything", created.state)
        ends = read_log_ends(self.old, state.topics).ends
        if is_nearly_filled(self.new, ends):
            return StepDone(state, f"the topics are on {state.new}, and end nearly where the old ones do")
        return replace(fill_logs(self.filler, state, ends), state=state)

    def do_fill_logs(self, state: SwitchState) -> StepOutcome:
        filled = fill_logs(self.filler, state, {move.topic: move.ends for move in state.topics})
        points = tuple(replace(move, points=move.ends) for move in state.topics)
        return replace(filled, state=replace(state, topics=points)) if isinstance(filled, StepDone) else filled

    def do_apply_settings(self, state: SwitchState) -> StepOutcome:
        return handover.apply_topic_settings(self.new, self.link, state)

    def do_block_writes(self, state: SwitchState) -> StepOutcome:
        self.announcer.announce_to_old_home(state)
        self.writers.guard(state)
        return StepDone(state)


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
