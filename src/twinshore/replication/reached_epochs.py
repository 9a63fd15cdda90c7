"""Tells gates which epoch of the source each protected partition of a link has reached: in `twinshore.protection` on
the target. Progress in the store says it; a line is written when it changes, so seldom but after elections.

Also gives topics without a level that of the settings.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from twinshore.config.errors import KafkaError
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import FIRST_TERM, TopicPartition
from twinshore.config.repeat_filter import RepeatFilter, describe_error
from twinshore.config.sections.protection import SECTION
from twinshore.config.sentences import NAMED_MAX, join_names
from twinshore.kafka.clock import steady_s
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.state_topic import KeyValue
from twinshore.protection.core.account import is_covered
from twinshore.protection.core.gate import REACHED_TTL_S
from twinshore.protection.core.model import ReachedEpoch
from twinshore.protection.core.records import (
    NEWER_NUMBER,
    GateRecord,
    ProtectionLog,
    TopicProtection,
    current_levels,
    gate_line,
    level_line,
    promoted_line,
    reached_line,
)
from twinshore.protection.topic import GatesTopic, ProtectionTopic
from twinshore.replication.core.ownership import pair_name
from twinshore.replication.operations.protection import seed
from twinshore.replication.stopped_partitions import report_link_incident
from twinshore.runtime.endpoints import (
    SHORT_TIMEOUT_CONNECTIONS,
    LinkClients,
    LinkContext,
    LinkService,
    pin_cluster_ids,
)
from twinshore.runtime.logging import LinkLogger
from twinshore.runtime.scheduler import process_scheduler
from twinshore.state.core.values import MirrorRequest, PartitionState, ReplicatedPosition, TwinRow

log = logging.getLogger(__name__)

ROUND_INTERVAL_S: Final = 0.5
IDLE_INTERVAL_S: Final = 5.0
CALL_TIMEOUT_S: Final = 3.0
# A twin that is so many records behind is waited for.
LEVEL_LAG_MAX: Final = 5_000
SEED_INTERVAL_S: Final = 15.0


class ReachedEpochs:
    """One link's lines. Errors are logged once; the next round tries again, and gates confirm nothing until then."""

    def __init__(self, context: LinkContext) -> None:
        self._link, self._store, self._active = context.link, context.store, context.active
        self._settings, self._seeded_s = context.settings, 0.0
        self._clients = LinkClients(
            context.link,
            context.settings,
            patience_s=CALL_TIMEOUT_S,
            call_s=CALL_TIMEOUT_S,
            shared=SHORT_TIMEOUT_CONNECTIONS,
        )
        self._topic = ProtectionTopic(self._clients.target)
        self._source_topic = ProtectionTopic(self._clients.source)
        self._gates = GatesTopic(self._clients.target)
        self._over_s: dict[str, float] = {}  # when topics ceased to be without a twin
        self._ended: dict[tuple[str, str], _UnchangedRecord] = {}
        self._outage, self._refused = (RepeatFilter(LinkLogger(log, context.link.name)) for _ in range(2))
        ends = context.link.source, context.link.target
        self._task = process_scheduler.every(f"reached {context.link.name}", self._turn, asks=ends)

    def close(self) -> None:
        self._task.close()
        self._clients.close()

    def _turn(self) -> float:
        if not self._active():
            return IDLE_INTERVAL_S
        try:
            pinned = pin_cluster_ids(self._link, self._store, self._clients.source, self._clients.target)
            told = pinned and self._tell()
        except Exception as error:  # gates wait
            self._outage.say(f"protected writes are not confirmed: {describe_error(error)}")
            return IDLE_INTERVAL_S
        self._outage.well("protected writes are confirmed again")
        return ROUND_INTERVAL_S if told else IDLE_INTERVAL_S

    def _tell(self) -> bool:
        """Writes what has changed. Returns whether the link has protected topics."""
        known = self._topic.read()
        try:
            home = self._source_topic.read()
        except KafkaError:
            if any(level.watches for level in known.levels.values()):
                raise
            return False  # without a protected topic the source may be away
        levels = current_levels([known, home])
        self._seed(levels)
        every = self._store.twins.active(self._link.name) if levels else ()
        ours = {twin.topic: levels[twin.topic] for twin in every if twin.topic in levels}
        self._copy_levels(ours, self._topic, known)
        self._copy_levels(ours, self._source_topic, home)
        topics = {name for name, level in levels.items() if level.watches}
        if not topics:
            self._report_alone(())
            return False
        twins = [twin for twin in every if twin.topic in topics]
        positions = {(row.topic, row.partition): row for row in self._store.progress.positions(self._link.name)}
        cluster_id = self._clients.source.cluster_id()
        stopping = {
            row.topic
            for row in self._store.topics_in_switch.of_link(self._link.name)
            if row.request is MirrorRequest.STOP_REPLICATION
        }
        homes = self._store.homes.of(pair_name(self._link))
        lines: list[KeyValue] = []
        for twin in self._with_twins(twins, positions, home):
            row, at_home = positions.get((twin.topic, twin.partition)), homes.get(twin.topic)
            is_stopped = twin.topic in stopping or (row is not None and row.state is not PartitionState.FLOWING)
            reached = ReachedEpoch(
                twin.source_topic_id,
                twin.target_topic_id,
                row.source_epoch if row else -1,
                is_stopped,
                max(at_home.term if at_home else 0, FIRST_TERM),
            )
            if known.reached.get((cluster_id, twin.topic, twin.partition)) != reached:
                lines.append(reached_line(cluster_id, twin.topic, twin.partition, reached))
        if lines:
            self._topic.say(lines)
        # What was acknowledged alone before the topic came here is in the switch's account, and here is no twin of it.
        came = {
            name for name, one in homes.items() if one.home == self._link.target and not known.is_without_twin(name)
        }
        self._clear_ended_gates({name: levels[name] for name in topics}, positions, came)
        return True

    def _clear_ended_gates(
        self,
        levels: Mapping[str, TopicProtection],
        positions: Mapping[tuple[str, int], ReplicatedPosition],
        came: Collection[str],
    ) -> None:
        """Removes the records of processes that ended: of those that acknowledged alone once the twin has all of it, or
        if it `came` here, of others once a record that stays says as much.

        A live process changes its record each second. `ttl_ms` after a record's last change its process acknowledges
        alone no more, so all that it did is below the watermark that the source has then.
        """
        found = {key: one for key, one in self._gates.read().gates.items() if key[0] in levels}
        self._report_alone({key[0] for key, one in found.items() if one.alone})
        for key in [key for key, one in self._ended.items() if found.get(key) != one.record]:
            del self._ended[key]
        for key, record in found.items():
            self._ended.setdefault(key, _UnchangedRecord(record, steady_s()))
        for key, one in list(self._ended.items()):
            if steady_s() < one.since_s + one.record.ttl_ms / 1000 + CALL_TIMEOUT_S:
                continue
            if one.record.alone:
                is_over = key[0] in came or self._has_all(key[0], one, positions)
            else:
                others = [record for other, record in found.items() if other[0] == key[0] and other != key]
                is_over = is_covered(one.record, others, levels[key[0]].number)
            if is_over:
                self._gates.say([gate_line(*key, None)])
                del found[key]

    def _has_all(
        self, topic: str, one: _UnchangedRecord, positions: Mapping[tuple[str, int], ReplicatedPosition]
    ) -> bool:
        """Whether the twin has all that was acknowledged alone."""
        partitions = [TopicPartition(topic, number) for number in one.record.alone]
        if not one.ends:
            one.ends = self._clients.source.list_offsets(partitions, OffsetKind.HIGH_WATERMARK)
        rows = [
            (positions.get((partition.topic, partition.partition)), one.ends[partition]) for partition in partitions
        ]
        return all(row is not None and row.to_offset >= end for row, end in rows)

    def _report_alone(self, topics: Collection[str]) -> None:
        sentence = (
            f"{self._link.source} alone acknowledged records of {join_names(sorted(topics), NAMED_MAX)}:"
            " `twinshore protection show` says from which offset on"
        )
        kind = IncidentKind.ACKNOWLEDGED_ALONE
        report_link_incident(self._store, self._link.name, kind, sentence if topics else "")

    def _copy_levels(self, levels: Mapping[str, TopicProtection], topic: ProtectionTopic, log: ProtectionLog) -> None:
        """A cluster that was away when an operator set a level, or was made since, gets it."""
        lines = [
            level_line(name, level)
            for name, level in levels.items()
            if log.levels.get(name) != level and level.number < NEWER_NUMBER
        ]
        if lines:
            topic.make()
            topic.say(lines)

    def _seed(self, levels: Mapping[str, TopicProtection]) -> None:
        """Gives topics without a level that of the settings, once their twins are nearly level."""
        if not self._settings.of(SECTION) or steady_s() < self._seeded_s + SEED_INTERVAL_S:
            return
        self._seeded_s = steady_s()
        positions = {(row.topic, row.partition): row for row in self._store.progress.positions(self._link.name)}
        topics = _nearly_level(self._store.twins.active(self._link.name), positions)
        refused = list(seed(topics - levels.keys(), self._settings, self._store))
        if refused:
            self._refused.say("; ".join(refused))

    def _with_twins(
        self, twins: Sequence[TwinRow], positions: Mapping[tuple[str, int], ReplicatedPosition], home: ProtectionLog
    ) -> list[TwinRow]:
        """Returns the partitions that may be told to gates. `home`: the source's records.

        After a forced switch acknowledgements are the source's alone until a twin is nearly level. That ends first; all
        gates know it `REACHED_TTL_S` later.
        """
        for topic in filter(home.is_without_twin, _nearly_level(twins, positions)):
            over = {key: replace(one, is_over=True) for key, one in home.promoted.items() if key[1] == topic}
            self._source_topic.say([promoted_line(*key, one) for key, one in over.items()])
            self._over_s[topic] = steady_s()
        return [
            twin
            for twin in twins
            if not home.is_without_twin(twin.topic) and steady_s() >= self._over_s.get(twin.topic, 0.0) + REACHED_TTL_S
        ]


def _nearly_level(twins: Sequence[TwinRow], positions: Mapping[tuple[str, int], ReplicatedPosition]) -> set[str]:
    """Returns the topics of which each partition is at most `LEVEL_LAG_MAX` records behind."""
    rows = [(twin.topic, positions.get((twin.topic, twin.partition))) for twin in twins]
    behind = {topic for topic, row in rows if row is None or row.lag_records > LEVEL_LAG_MAX}
    return {topic for topic, _ in rows} - behind


@dataclass(slots=True)
class _UnchangedRecord:
    """A gate's record as it has stood since `since_s`. `ends`: of the source, once its process has surely ended."""

    record: GateRecord
    since_s: float
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)


def start_reached_epochs(context: LinkContext) -> LinkService:
    return ReachedEpochs(context)
