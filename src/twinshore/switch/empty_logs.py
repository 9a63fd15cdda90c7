"""A switch without data: topics are created empty on the new home, and their writers continue there.

No link replicates these topics. Each new log begins at the offset where the old one ends, so a consumer that has read
everything continues at the same offset. Filler takes the offsets below, and is deleted as soon as it is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from twinshore.config.errors import KafkaError
from twinshore.config.frozen import SWITCH_CLIENT_ID
from twinshore.config.model import TopicPartition
from twinshore.config.sentences import count_phrase, has_or_have, is_or_are, join_names
from twinshore.kafka.clock import steady_s, wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import Connection
from twinshore.kafka.leader_queries import OffsetKind, produce_batch
from twinshore.kafka.log_reader import LogReader
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.record_batch import HEADER_BYTES, SEQUENCE_SPAN, split_batches
from twinshore.kafka.protocol.transactions import FILLER_RECORDS_MAX, is_filler, make_filler
from twinshore.replication.core.ownership import pair_name
from twinshore.state.core.values import AuditRow, HomeChange
from twinshore.switch import handover
from twinshore.switch.core.steps import StepDone, StepFailed, StepOutcome, StepPending, SwitchState, SwitchStep
from twinshore.switch.drain import describe_topic_changes, read_log_ends
from twinshore.switch.step_runner import NAMED_MAX, SwitchSteps, home_change_of

LOGS_NAMED_MAX = 5
NOT_CUT_OFF = "nothing of it is cut off; see who writes there"
REQUEST_TIMEOUT_S = 10.0
NEAR_OFFSETS_MAX = 5_000  # offsets that are filled within a moment
FILL_S_MAX = 2.0  # per attempt, so that progress is reported
# Nothing expires, and everything may be deleted.
TOPIC_SETTINGS: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


def describe_old_home_changes(old: KafkaCluster, state: SwitchState) -> str:
    return describe_topic_changes(old, state.topics, new=False)


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
        return StepPending(f"{join_names(lacking, LOGS_NAMED_MAX)} {is_or_are(lacking)} made on {new.name}")
    found = tuple(replace(move, new_id=move.new_id or topics[move.topic].topic_id.hex()) for move in state.topics)
    if why := describe_topic_changes(new, found, new=True):
        return StepFailed(why)
    fresh = [move.topic for move in state.topics if not move.new_id]
    unled = [f"{move.topic}-{tp.partition}" for move in found for tp in topics[move.topic].partitions if tp.leader < 0]
    if unled:
        return StepPending(f"{join_names(unled, LOGS_NAMED_MAX)} {has_or_have(unled)} no leader on {new.name} yet")
    logs = [TopicPartition(move.topic, at) for move in found for at in range(move.partitions) if move.topic in fresh]
    starts, ends = new.list_offsets(logs, OffsetKind.EARLIEST), new.list_offsets(logs, OffsetKind.LOG_END)
    if taken := [str(partition) for partition in logs if starts[partition] < ends[partition]]:
        return StepFailed(f"{join_names(taken, LOGS_NAMED_MAX)} on {new.name} holds records of others: {NOT_CUT_OFF}")
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
        return StepFailed(
            f"{join_names(beyond, LOGS_NAMED_MAX)} on {new.name} ends beyond the old home: somebody writes there"
        )
    lacking = {partition: end for partition, end in wanted.items() if stands[partition] < end}
    if lacking:
        filling.take({partition: (stands[partition], end) for partition, end in lacking.items()}, ids)
        left = sum(end - stands[partition] for partition, end in lacking.items())
        return StepPending(
            f"{count_phrase(left, 'offset')} of {join_names([str(tp) for tp in lacking], LOGS_NAMED_MAX)} were to "
            "be taken"
        )
    starts = new.list_offsets(wanted, OffsetKind.EARLIEST)
    below = {partition: end for partition, end in wanted.items() if starts[partition] < end}
    if strange := [
        str(partition) for partition, end in below.items() if not _is_ours(new, partition, starts[partition], end)
    ]:
        return StepFailed(
            f"{join_names(strange, LOGS_NAMED_MAX)} on {new.name} was written by others meanwhile: {NOT_CUT_OFF}"
        )
    if below:
        new.delete_records(below, ids)
        return StepPending(
            f"{join_names([str(tp) for tp in below], LOGS_NAMED_MAX)} {is_or_are(below)} cut to its end on {new.name}"
        )
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
            for at, count in _pieces(begin, end):
                made = make_filler(count)
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


def _pieces(begin: int, end: int) -> Iterator[tuple[int, int]]:
    for at in range(begin, end, FILLER_RECORDS_MAX):
        yield at, min(FILLER_RECORDS_MAX, end - at)


def _is_ours(new: KafkaCluster, partition: TopicPartition, begin: int, end: int) -> bool:
    """Whether all that would be cut off is filler."""
    reader = LogReader(new, partition, begin, end, client_id=SWITCH_CLIENT_ID)
    try:
        found = (batch for fetched in reader.fetches() for batch in split_batches(fetched.records))
        return all(is_filler(data, header) for data, header in found)
    finally:
        reader.close()


class SwitchWithoutDataSteps(SwitchSteps):
    """Like `SwitchSteps`, without twins and without a link."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._filling = LogFiller(self._new)
        self._doing = {
            **self._doing,
            SwitchStep.CREATE_TOPICS: self._make,
            SwitchStep.FILL_LOGS: self._fill,
            SwitchStep.APPLY_SETTINGS: lambda state: handover.apply_topic_settings(self._new, self._link, state),
            SwitchStep.PROMOTE: self._flip_bare,
            SwitchStep.BLOCK_WRITES: self._guard,
        }

    def _make(self, state: SwitchState) -> StepOutcome:
        """Creates topics with the settings of a twin, so that filler neither expires nor counts as records."""
        if why := describe_old_home_changes(self._old, state):
            return StepFailed(why)
        if not state.given:
            return StepPending(
                "the settings of the topics are written down first", handover.record_home_settings(self._old, state)
            )
        made = create_topics(self._new, state)
        if not isinstance(made, StepDone):
            return made
        if made.state != state:
            return StepPending("the ids of the topics are written down before anything is filled in", made.state)
        ends = read_log_ends(self._old, state.topics).ends
        if is_nearly_filled(self._new, ends):
            return StepDone(made.state, f"the topics are there on {state.new}, and nearly end where the old ones do")
        filled = fill_logs(self._filling, made.state, ends)
        return replace(filled, state=made.state)

    def _fill(self, state: SwitchState) -> StepOutcome:
        filled = fill_logs(self._filling, state, {move.topic: move.ends for move in state.topics})
        if not isinstance(filled, StepDone):
            return filled
        points = tuple(replace(move, points=move.ends) for move in state.topics)
        return StepDone(replace(state, topics=points), filled.sentence)

    def _flip_bare(self, state: SwitchState) -> StepOutcome:
        now_ms, pair = wall_ms(), pair_name(self._link)
        flips = tuple(home_change_of(state, move, pair, now_ms) for move in state.topics)
        switch_state = self._announcer.flip(state, flips)
        rows = [_told(state, change, self._link.name) for change in flips]
        done = {change.topic for change in self._store.topics_in_switch.change_homes(flips, rows)}
        if lacking := [move.topic for move in state.topics if move.topic not in done]:
            return StepPending(f"the store has another home of {join_names(lacking, NAMED_MAX)}", switch_state)
        names = state.names()
        return StepDone(
            switch_state,
            f"{join_names(names, NAMED_MAX)} {is_or_are(names)} at home on {state.new}; writers go on there",
        )

    def _guard(self, state: SwitchState) -> StepOutcome:
        self._announcer.announce_to_old_home(state)
        return self._writers.guard(state)


def _told(state: SwitchState, change: HomeChange, way: str) -> AuditRow:
    words = f"by {state.by}, without its data"
    return AuditRow(change.since_ms, way, "home", change.topic, state.old, state.new, words, state.by, change.topic)
