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


def describe_old_home_changes(old: KafkaCluster, record: SwitchState) -> str:
    return describe_topic_changes(old, record.topics, new=False)


def create_topics(new: KafkaCluster, record: SwitchState) -> StepOutcome:
    """Done once each topic exists, with its id in the switch state."""
    seen = new.metadata(list(record.names()), refresh=True).topics
    there = {name: one for name, one in seen.items() if not one.error}
    for one in record.topics:
        if one.topic not in there:
            try:
                new.admin.create_topic(one.topic, partitions=one.partitions, settings=TOPIC_SETTINGS)
            except KafkaError as error:
                if error.code != Code.TOPIC_ALREADY_EXISTS:
                    raise
    if lacking := [one.topic for one in record.topics if one.topic not in there]:
        return StepPending(f"{join_names(lacking, LOGS_NAMED_MAX)} {is_or_are(lacking)} made on {new.name}")
    found = tuple(replace(one, new_id=one.new_id or there[one.topic].topic_id.hex()) for one in record.topics)
    if why := describe_topic_changes(new, found, new=True):
        return StepFailed(why)
    fresh = [one.topic for one in record.topics if not one.new_id]
    unled = [
        f"{one.topic}-{part.partition}" for one in found for part in there[one.topic].partitions if part.leader < 0
    ]
    if unled:
        return StepPending(f"{join_names(unled, LOGS_NAMED_MAX)} {has_or_have(unled)} no leader on {new.name} yet")
    logs = [TopicPartition(one.topic, at) for one in found for at in range(one.partitions) if one.topic in fresh]
    starts, ends = new.list_offsets(logs, OffsetKind.EARLIEST), new.list_offsets(logs, OffsetKind.LOG_END)
    if taken := [str(named) for named in logs if starts[named] < ends[named]]:
        return StepFailed(f"{join_names(taken, LOGS_NAMED_MAX)} on {new.name} holds records of others: {NOT_CUT_OFF}")
    return StepDone(replace(record, topics=found))


def is_nearly_filled(new: KafkaCluster, ends: Mapping[str, Sequence[int]]) -> bool:
    """Writers continue until they are held, so the log ends still move."""
    wanted = _by_partition(ends)
    stands = new.list_offsets(wanted, OffsetKind.LOG_END)
    return all(end - stands[named] <= NEAR_OFFSETS_MAX for named, end in wanted.items())


def fill_logs(filling: LogFiller, record: SwitchState, ends: Mapping[str, Sequence[int]]) -> StepOutcome:
    """Done once each log is empty and ends at the given offset."""
    new, wanted = filling.new, _by_partition(ends)
    ids = {one.topic: bytes.fromhex(one.new_id) for one in record.topics}
    stands = new.list_offsets(wanted, OffsetKind.LOG_END)
    if beyond := [str(named) for named, end in wanted.items() if stands[named] > end]:
        return StepFailed(
            f"{join_names(beyond, LOGS_NAMED_MAX)} on {new.name} ends beyond the old home: somebody writes there"
        )
    lacking = {named: end for named, end in wanted.items() if stands[named] < end}
    if lacking:
        filling.take({named: (stands[named], end) for named, end in lacking.items()}, ids)
        left = sum(end - stands[named] for named, end in lacking.items())
        return StepPending(
            f"{count_phrase(left, 'offset')} of {join_names([str(one) for one in lacking], LOGS_NAMED_MAX)} were to "
            "be taken"
        )
    starts = new.list_offsets(wanted, OffsetKind.EARLIEST)
    below = {named: end for named, end in wanted.items() if starts[named] < end}
    if strange := [str(named) for named, end in below.items() if not _is_ours(new, named, starts[named], end)]:
        return StepFailed(
            f"{join_names(strange, LOGS_NAMED_MAX)} on {new.name} was written by others meanwhile: {NOT_CUT_OFF}"
        )
    if below:
        new.delete_records(below, ids)
        return StepPending(
            f"{join_names([str(one) for one in below], LOGS_NAMED_MAX)} {is_or_are(below)} cut to its end on {new.name}"
        )
    return StepDone(record, f"the logs on {new.name} are empty, and end where those on {record.old} do")


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
        for named, (begin, end) in spans.items():
            first = self._begins.setdefault(named, begin)
            for at, count in _pieces(begin, end):
                made = make_filler(count)
                head = made.encode_header(*self._writer, (at - first) % SEQUENCE_SPAN)
                batch = bytes(head[:HEADER_BYTES]) + made.body
                self._append(named, ids[named.topic], batch)
                if steady_s() > over_s:
                    return

    def _append(self, named: TopicPartition, topic_id: bytes, batch: bytes) -> None:
        def ask(connection: Connection, timeout_s: float) -> int:
            timeout_s = max(timeout_s, REQUEST_TIMEOUT_S)
            return produce_batch(connection, self.new.name, named, topic_id, batch, timeout_s=timeout_s)

        self.new.at(self.new.leader_of(named), "filler", ask)


def _pieces(begin: int, end: int) -> Iterator[tuple[int, int]]:
    for at in range(begin, end, FILLER_RECORDS_MAX):
        yield at, min(FILLER_RECORDS_MAX, end - at)


def _is_ours(new: KafkaCluster, named: TopicPartition, begin: int, end: int) -> bool:
    """Whether all that would be cut off is filler."""
    reader = LogReader(new, named, begin, end, client_id=SWITCH_CLIENT_ID)
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
            SwitchStep.APPLY_SETTINGS: lambda record: handover.apply_topic_settings(self._new, self._link, record),
            SwitchStep.PROMOTE: self._flip_bare,
            SwitchStep.BLOCK_WRITES: self._guard,
        }

    def _make(self, record: SwitchState) -> StepOutcome:
        """Creates topics with the settings of a twin, so that filler neither expires nor counts as records."""
        if why := describe_old_home_changes(self._old, record):
            return StepFailed(why)
        if not record.given:
            return StepPending(
                "the settings of the topics are written down first", handover.record_home_settings(self._old, record)
            )
        made = create_topics(self._new, record)
        if not isinstance(made, StepDone):
            return made
        if made.record != record:
            return StepPending("the ids of the topics are written down before anything is filled in", made.record)
        ends = read_log_ends(self._old, record.topics).ends
        if is_nearly_filled(self._new, ends):
            return StepDone(made.record, f"the topics are there on {record.new}, and nearly end where the old ones do")
        filled = fill_logs(self._filling, made.record, ends)
        return replace(filled, record=made.record)

    def _fill(self, record: SwitchState) -> StepOutcome:
        filled = fill_logs(self._filling, record, {one.topic: one.ends for one in record.topics})
        if not isinstance(filled, StepDone):
            return filled
        points = tuple(replace(one, points=one.ends) for one in record.topics)
        return StepDone(replace(record, topics=points), filled.sentence)

    def _flip_bare(self, record: SwitchState) -> StepOutcome:
        now_ms, pair = wall_ms(), pair_name(self._link)
        flips = tuple(home_change_of(record, one, pair, now_ms) for one in record.topics)
        said = self._words.flip(record, flips)
        told = [_told(record, one, self._link.name) for one in flips]
        done = {one.topic for one in self._store.topics_in_switch.change_homes(flips, told)}
        if lacking := [one.topic for one in record.topics if one.topic not in done]:
            return StepPending(f"the store has another home of {join_names(lacking, NAMED_MAX)}", said)
        names = record.names()
        return StepDone(
            said, f"{join_names(names, NAMED_MAX)} {is_or_are(names)} at home on {record.new}; writers go on there"
        )

    def _guard(self, record: SwitchState) -> StepOutcome:
        self._words.announce_to_old_home(record)
        return self._writers.guard(record)


def _told(record: SwitchState, one: HomeChange, way: str) -> AuditRow:
    words = f"by {record.by}, without its data"
    return AuditRow(one.since_ms, way, "home", one.topic, record.old, record.new, words, record.by, one.topic)
