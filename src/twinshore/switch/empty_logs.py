"""A switch without data: topics are created empty on the new home, and their writers continue there.

No link replicates these topics. Each new log begins at the offset where the old one ends, so a consumer that has read
everything continues at the same offset. Filler takes the offsets below, and is deleted as soon as it is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from twinshore.config.errors import KafkaError
from twinshore.config.frozen import SWITCH_CLIENT_ID
from twinshore.config.model import TopicPartition
from twinshore.config.sentences import count_phrase, has_or_have, is_or_are, join_names
from twinshore.kafka.clock import steady_s
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import Connection
from twinshore.kafka.leader_queries import OffsetKind, produce_batch
from twinshore.kafka.log_reader import LogReader
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.record_batch import HEADER_BYTES, SEQUENCE_SPAN, split_batches
from twinshore.kafka.protocol.transactions import FILLER_RECORDS_MAX, is_filler, make_filler
from twinshore.switch import handover
from twinshore.switch.core.steps import StepDone, StepFailed, StepOutcome, StepPending, SwitchState
from twinshore.switch.drain import describe_topic_changes, read_log_ends
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
                if error.code != Code.TOPIC_ALREADY_EXISTS:
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
