"""Which partitions of a link are stopped by an incident, and when their tasks get them back.

The incident log decides: an open row stops a partition, and closing the row resumes the partition. An operator closes
rows by `twinshore mirror resume`, `StoppedPartitions` after a successful retry. So stops survive restarts.

Rows of refused topics also survive the process. They close once the topic is replicated or no longer exists.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING

from twinshore.config.errors import KafkaError
from twinshore.config.grouping import grouped
from twinshore.config.incident_policy import IncidentEffect, IncidentKind, IncidentOutcome, is_transient
from twinshore.config.model import TopicPartition, is_heartbeats_topic
from twinshore.config.sentences import append_hint
from twinshore.kafka.clock import wall_ms
from twinshore.replication.core.model import Grow, Refuse
from twinshore.replication.task.core.error_actions import AUTHORIZATION_CODES
from twinshore.replication.task.core.messages import PartitionIncident
from twinshore.runtime.logging import LinkLogger
from twinshore.state.core.values import Incident, IncidentRow, PartitionState
from twinshore.state.store import Store

if TYPE_CHECKING:
    from twinshore.replication.coordinator_server import CoordinatorServer
    from twinshore.replication.recorder import ProgressRecorder

log = logging.getLogger(__name__)


def report_link_incident(store: Store, link: str, kind: IncidentKind, sentence: str) -> None:
    """Keeps one open row of this kind for the link, with `sentence`, which is logged; an empty one closes the row."""
    now_ms = wall_ms()
    rows = [row for row in store.incidents.rows(link, open_only=True) if row.incident.kind is kind]
    for row in [row for row in rows if row.incident.sentence != sentence]:
        store.incidents.close(row.id, now_ms=now_ms)
    if sentence and all(row.incident.sentence != sentence for row in rows):
        policy = kind.policy
        store.incidents.add(Incident(link, "", -1, kind, -1, -1, policy, sentence, kind.side), now_ms=now_ms)
        log.log(policy.log_level, f"{link}: {sentence}", extra={"link": link})


def kind_of_error(error: KafkaError, passing: IncidentKind = IncidentKind.REFUSED) -> IncidentKind:
    """The kind of incident to report. `passing`: the kind of an error that a retry may end."""
    if error.code in AUTHORIZATION_CODES:
        return IncidentKind.RIGHTS_LOST
    return passing if error.retriable else IncidentKind.REFUSED


INCIDENT_POLL_INTERVAL_S = 1.0
RETRY_INTERVAL_S = 4.0
STABLE_AFTER_S = 5.0  # a retried partition must be replicated so long before its incident counts as over
TOPIC_GONE_AFTER_S = 2.0  # scans must miss a topic so long before it counts as gone
# A new topic has no leader for a moment: it is scanned again soon, and reported if that lasts.
NEW_TWIN_GRACE_S, EARLY_SCAN_S = 10.0, 0.5


class StopStage(Enum):
    LEAVING = "leaving its task"
    RESTING = "resting"
    RETRYING = "tried again"


@dataclass(slots=True)
class StoppedPartition:
    """A stopped partition. `retries`: retried automatically. `marked`: the store has the state. `until_s`: when the
    next step is due.
    """

    retries: bool
    stage: StopStage
    marked: bool = False
    until_s: float = 0.0
    tried_s: float = 0.0


class StoppedPartitions:
    """Stopped partitions of one link. For the controller's thread only."""

    def __init__(
        self,
        link: str,
        store: Store,
        coordinator: CoordinatorServer,
        recorder: ProgressRecorder,
        *,
        held: Callable[[], frozenset[TopicPartition]] = frozenset,
    ) -> None:
        """`held`: partitions to pause for now, besides the incident log's."""
        self._link, self._store, self._coordinator, self._recorder = link, store, coordinator, recorder
        self._log = LinkLogger(log, link)
        self._rests: dict[TopicPartition, StoppedPartition] = {}
        self._held_now, self._held = held, frozenset[TopicPartition]()
        self._passing: set[TopicPartition] = set()
        self._looked_at_s = 0.0

    def __len__(self) -> int:
        return len(self._rests.keys() | self._held)

    def __contains__(self, partition: TopicPartition) -> bool:
        stopped = self._rests.get(partition)
        return partition in self._held or (stopped is not None and stopped.stage is not StopStage.RETRYING)

    def begin(self) -> None:
        """Reads the incident log at the beginning of an epoch."""
        self._rests.clear()
        self._passing.clear()
        self._recorder.take_recorded(self._link)
        for partition, rows in _open_by_partition(self._store, self._link).items():
            if stopping := _stopping(rows):
                self._rests[partition] = StoppedPartition(are_retried(stopping), StopStage.RESTING)
                incident = stopping[0].incident
                sentence = f"{partition} is stopped: {incident.kind} (incident {stopping[0].id})"
                self._log.log(incident.policy.log_level, sentence, extra=asdict(partition))
            for row in rows:
                if is_transient(row.incident.kind, row.incident.policy):
                    self._passing.add(partition)
                    self._recorder.passes(self._link, partition, row.incident.kind, row.incident.to_offset)

    def turn(self) -> set[str]:
        """Returns topics whose partitions must be assigned again."""
        now_s = time.monotonic()
        for incident in self._recorder.take_recorded(self._link):
            self._hear(incident)
        for partition, stopped in self._rests.items():
            if stopped.stage is StopStage.LEAVING and self._coordinator.withdraw(
                self._link, partition.topic, partition.partition
            ):
                stopped.stage, stopped.until_s = StopStage.RESTING, now_s + RETRY_INTERVAL_S
            if not stopped.marked:
                self._mark(partition, PartitionState.STOPPED)
                stopped.marked = True
        freed = self._hold()
        if not (self._rests or self._passing) or now_s - self._looked_at_s < INCIDENT_POLL_INTERVAL_S:
            return freed
        self._looked_at_s = now_s
        rows = _open_by_partition(self._store, self._link)
        self._pass(rows)
        return freed | self._resumed(rows) | self._retried(rows, now_s)

    def forget(self, topic: str) -> None:
        """Closes rows, as the topic starts again."""
        self._rests = {partition: stopped for partition, stopped in self._rests.items() if partition.topic != topic}
        for partition, rows in _open_by_partition(self._store, self._link).items():
            if partition.topic == topic:
                self._close(rows)

    def _hold(self) -> set[str]:
        before, now = self._held, self._held_now()
        if not (before or now):
            return set()
        # A partition that is still leaving its task could not come back yet.
        leaving = (before | now).intersection(self._coordinator.placed(self._link))
        for partition in leaving:
            self._coordinator.withdraw(self._link, partition.topic, partition.partition)
        self._held = now | leaving
        return {partition.topic for partition in before - self._held}

    def _hear(self, incident: PartitionIncident) -> None:
        partition = TopicPartition(incident.topic, incident.partition)
        if is_transient(incident.kind, incident.policy):
            self._passing.add(partition)
        elif incident.policy is None:
            retries = incident.kind.after is IncidentOutcome.RETRIES
            self._rests[partition] = StoppedPartition(retries, StopStage.LEAVING)

    def _pass(self, rows: dict[TopicPartition, list[IncidentRow]]) -> None:
        for partition in list(self._passing):
            left = self._recorder.passing(self._link, partition)
            if not left:
                self._passing.discard(partition)
            transient = [row for row in rows.get(partition, ()) if is_transient(row.incident.kind, row.incident.policy)]
            over = [row for row in transient if _is_over(row, left)]
            self._close(over)
            for kind in dict.fromkeys(row.incident.kind for row in over if row.incident.kind not in left):
                ids = [row.id for row in over if row.incident.kind is kind]
                also = f" and {len(ids) - 1} more" if ids[1:] else ""
                self._log.info(f"{partition}: over: {kind} (incident {ids[-1]}{also})", extra=asdict(partition))

    def _resumed(self, rows: dict[TopicPartition, list[IncidentRow]]) -> set[str]:
        found = set()
        for partition, stopped in list(self._rests.items()):
            if _stopping(rows.get(partition, [])) or stopped.stage is StopStage.LEAVING:
                continue
            self._over(partition)
            found.add(partition.topic)
            self._log.info(f"{partition} is resumed", extra=asdict(partition))
        return found

    def _retried(self, rows: dict[TopicPartition, list[IncidentRow]], now_s: float) -> set[str]:
        found = set()
        for partition, stopped in list(self._rests.items()):
            if stopped.stage is StopStage.RESTING and stopped.retries and now_s >= stopped.until_s:
                stopped.stage, stopped.tried_s = StopStage.RETRYING, now_s
                found.add(partition.topic)
            elif stopped.stage is StopStage.RETRYING:
                heard_s, reached = self._recorder.heard(self._link, partition)
                stopping = _stopping(rows.get(partition, []))
                past = all(row.incident.to_offset <= reached for row in stopping)
                if heard_s > stopped.tried_s and now_s - stopped.tried_s > STABLE_AFTER_S and past:
                    self._close(stopping)
                    self._over(partition)
                    self._log.info(f"{partition} is replicated again", extra=asdict(partition))
        return found

    def _over(self, partition: TopicPartition) -> None:
        self._mark(partition, PartitionState.FLOWING)
        self._rests.pop(partition, None)

    def _mark(self, partition: TopicPartition, state: PartitionState) -> None:
        self._store.progress.set_state(self._link, partition.topic, partition.partition, state)

    def _close(self, rows: list[IncidentRow]) -> None:
        if rows:
            self._store.incidents.close_all([row.id for row in rows], now_ms=wall_ms())


def _is_over(row: IncidentRow, left: Mapping[IncidentKind, int]) -> bool:
    """Whether the twin is past the row. `left`: kinds that are not over, with their offsets."""
    return row.incident.kind not in left or 0 <= row.incident.to_offset <= left[row.incident.kind]


def read_stopped_partitions(store: Store, link: str) -> dict[TopicPartition, list[IncidentRow]]:
    found = {partition: _stopping(rows) for partition, rows in _open_by_partition(store, link).items()}
    return {partition: rows for partition, rows in found.items() if rows}


def are_retried(rows: list[IncidentRow]) -> bool:
    """Whether the stopped partitions are retried automatically."""
    return all(row.incident.policy.effect is IncidentEffect.RETRIES for row in rows)


def _open_by_partition(store: Store, link: str) -> dict[TopicPartition, list[IncidentRow]]:
    of_one = (row for row in store.incidents.rows(link, open_only=True) if row.incident.partition >= 0)
    return grouped((TopicPartition(row.incident.topic, row.incident.partition), row) for row in of_one)


def _stopping(rows: list[IncidentRow]) -> list[IncidentRow]:
    return [row for row in rows if row.incident.policy.stops]


def partitions_added(step: Grow) -> PartitionIncident:
    kind, twin = IncidentKind.PARTITION_ADDED, step.twin or step.topic
    sentence = f"topic {step.topic} has {step.partitions} partitions on the source now; twin {twin} was given as many"
    return PartitionIncident(step.topic, -1, kind, -1, -1, sentence, kind.policy)


class RefusedTopics:
    """Refused topics of one link, for the controller's thread. `doubt` gets topics that seem to be created again:
    `DeletedTopics` knows their twins and the policy, and reports.
    """

    def __init__(
        self, link: str, store: Store, recorder: ProgressRecorder, *, doubt: Callable[[Iterable[str]], object]
    ) -> None:
        self._link, self._store, self._recorder, self._doubt = link, store, recorder, doubt
        self._log = LinkLogger(log, link)
        self._steps: dict[str, Refuse | None] = {}
        self._missed: dict[str, float] = {}
        self._made: dict[str, float] = {}
        self._put_off: set[str] = set()

    def __len__(self) -> int:
        return sum(step is not None for step in self._steps.values())

    def __contains__(self, topic: str) -> bool:
        return self._steps.get(topic) is not None or topic in self._put_off

    def begin(self) -> None:
        """Reads the incident log at the beginning of an epoch; rows may be outdated."""
        self._steps = {row.incident.topic: None for row in self._rows()}
        self._missed.clear()

    def made(self, topics: Iterable[str]) -> None:
        now_s = time.monotonic()
        self._made = {topic: at_s for topic, at_s in self._made.items() if now_s - at_s < NEW_TWIN_GRACE_S}
        self._made |= dict.fromkeys(topics, now_s)

    def pause_s(self, usual_s: float) -> float:
        return min(usual_s, EARLY_SCAN_S) if self._put_off else usual_s

    def add(self, step: Refuse) -> None:
        """Reports a refusal, unless known or if its twin is too new."""
        topic = step.topic
        new = time.monotonic() - self._made.get(topic, -NEW_TWIN_GRACE_S) < NEW_TWIN_GRACE_S
        if step.kind is IncidentKind.TARGET_AWAY and new:
            self._put_off.add(topic)
            return
        if self._steps.get(topic) == step:
            return
        if step.kind is IncidentKind.RECREATED_TOPIC:
            self._doubt([topic])
        else:
            sentence = append_hint(step.sentence, step.hint)
            if not is_heartbeats_topic(topic):  # else no data of the operator is missing on the target
                incident = PartitionIncident(topic, -1, step.kind, -1, -1, sentence, None, step.side)
                self._recorder.stopped(self._link, incident)
            level = step.kind.policy.log_level
            self._log.log(level, f"refused: {step.sentence} (try: {step.hint})", extra={"topic": topic})
        # Only now: if the store failed, the next scan reports it.
        self._steps[topic] = step

    def over(self, topic: str) -> None:
        if topic in self._steps:
            self._recorder.mended(self._link, topic)
            del self._steps[topic]
            self._log.info(f"topic {topic} is no longer refused", extra={"topic": topic})

    def keep(self, there: Iterable[str], undecided: Collection[Refuse] = (), elsewhere: Iterable[str] = ()) -> None:
        """Closes refusals of topics that the link does not replicate. `there`: topics that it does. `undecided`:
        refusals for want of a known home. `elsewhere`: topics at home on the other side.
        """
        self._put_off.clear()
        for topic in elsewhere:
            self.over(topic)
        for step in undecided:
            self.add(step)
        there = {*there, *(step.topic for step in undecided)}
        now_s = time.monotonic()
        self._missed = {topic: self._missed.get(topic, now_s) for topic in self._steps if topic not in there}
        gone = {topic for topic, since_s in self._missed.items() if now_s - since_s >= TOPIC_GONE_AFTER_S}
        if not gone:
            return
        twins = {row.topic for row in self._store.twins.of(self._link)}
        for row in self._rows():
            if row.incident.topic in gone and _ends(row, twins):
                came_to = "the topic is gone from the source, or no longer admitted"
                self._store.incidents.close(row.id, now_ms=wall_ms(), came_to=came_to)
                topic = row.incident.topic
                self._log.info(f"{topic}: {row.incident.kind}: {came_to}", extra={"topic": topic})
        for topic in gone:
            del self._steps[topic]

    def _rows(self) -> list[IncidentRow]:
        rows = self._store.incidents.rows(self._link, open_only=True)
        whole = [row for row in rows if row.incident.topic and row.incident.partition < 0]
        return [row for row in whole if row.incident.policy.effect is not IncidentEffect.NOT_TRUNCATED]


def _ends(row: IncidentRow, twins: Container[str]) -> bool:
    """Whether the row ends with its topic. `DeletedTopics` closes rows about twins."""
    incident = row.incident
    if incident.policy.effect is not IncidentEffect.TOPIC or incident.kind is IncidentKind.RECREATED_TOPIC:
        return False
    return incident.kind is not IncidentKind.RIGHTS_LOST or incident.topic not in twins
