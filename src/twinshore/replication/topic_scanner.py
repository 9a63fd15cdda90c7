"""Reads both clusters for the planner, executes plan steps, and settles conflicts over twins.

Two processes of one store may have read different settings, and each believe that a topic is its own. The link whose
row of the twin was first has the topic, whether or not its mirror seems to live.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby

from twinshore.config.errors import KafkaError
from twinshore.config.incident_policy import IncidentKind, IncidentSide
from twinshore.config.model import Link, TopicPartition, is_heartbeats_topic
from twinshore.config.sentences import count_copies, count_phrase
from twinshore.kafka.admin import ConfigEntry
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.record_batch import SEQUENCE_SPAN
from twinshore.replication.core.filters import admits, passes_filters, with_filters
from twinshore.replication.core.model import CarryTopic, Create, Grow, PlanStep, Refuse, Settle
from twinshore.replication.core.planner import KnownTwin, SourceTopic, TargetTopic, plan_topic
from twinshore.replication.operator_control import EFFECTIVE_FILTERS_KIND
from twinshore.replication.stopped_partitions import kind_of_error
from twinshore.replication.task.core.messages import UNKNOWN_EPOCH, EpochOffset, PartitionConfig, position_after
from twinshore.state.core.values import LinkStateRow, TwinRow
from twinshore.state.store import Store

log = logging.getLogger(__name__)


class TopicScanner:
    def __init__(self, link: Link, source: KafkaCluster, target: KafkaCluster) -> None:
        self._link = link
        self._source = source
        self._target = target

    def names(self) -> dict[str, tuple[str, int]]:
        """Returns topic id and partitions of each admitted topic."""
        metadata = self._source.metadata(None, refresh=True)
        return {
            name: (topic.topic_id.hex(), len(topic.partitions))
            for name, topic in sorted(metadata.topics.items())
            if not topic.error and not topic.internal and admits(self._link, name)
        }

    def target_brokers(self) -> int:
        return len(self._target.metadata([], refresh=True).brokers)

    def plan(self, names: Sequence[str], known: Mapping[str, KnownTwin]) -> list[PlanStep]:
        """Returns the steps. A topic that cannot be read now is refused for now, and holds up no other; KafkaError when
        a cluster does not answer at all.
        """
        source, away = self._read(self._source, names, known, IncidentKind.SOURCE_AWAY)
        called = {self._link.twin_of(name): name for name in names}
        twins = {twin: known[name] for twin, name in called.items() if name in known}
        target, mute = self._read(self._target, called, twins, IncidentKind.TARGET_AWAY)
        refused = away | {called[twin]: why for twin, why in mute.items()}
        brokers = self.target_brokers()
        steps: list[PlanStep] = [replace(why, topic=topic) for topic, why in sorted(refused.items())]
        for name, (found, copies) in source.items():
            if name not in refused:
                starts = tuple(start for start, _ in found.spans)
                topic = SourceTopic(name, found.topic_id, copies, starts, found.settings)
                twin, _ = target.get(self._link.twin_of(name), (None, 0))
                steps += plan_topic(self._link, topic, twin, known.get(name), target_brokers=brokers)
        return steps

    def _read(
        self, cluster: KafkaCluster, names: Iterable[str], known: Container[str], kind: IncidentKind
    ) -> tuple[dict[str, tuple[TargetTopic, int]], dict[str, Refuse]]:
        """Returns readable topics with their replication factors, and why others are not readable. Log ends of the
        source are not read. Log start and end of a `known` twin are left to its task, and 0 if unknown: a partition
        without a leader does not hold up that topic.
        """
        topics = {
            name: topic
            for name, topic in cluster.metadata(sorted(names), refresh=True).topics.items()
            if not topic.error
        }
        settings, hidden = cluster.admin.readable_settings(sorted(topics))
        refused = {name: _refused(name, error, kind, f"topic {name}") for name, error in hidden.items()}
        partitions = [TopicPartition(name, tp.partition) for name in settings for tp in topics[name].partitions]
        starts, unled = cluster.offsets_of_each(partitions, OffsetKind.EARLIEST)
        ends, mute = (
            cluster.offsets_of_each(partitions, OffsetKind.LOG_END) if cluster is self._target else (starts, {})
        )
        for partition, error in (unled | mute).items():
            if partition.topic not in known:
                refused.setdefault(partition.topic, _refused(partition.topic, error, kind, str(partition)))
        found = {}
        for name in sorted(settings.keys() - refused.keys()):
            topic = topics[name]
            numbered = [TopicPartition(name, number) for number in range(len(topic.partitions))]
            spans = tuple((starts.get(partition, 0), ends.get(partition, 0)) for partition in numbered)
            copies = max((len(partition.replicas) for partition in topic.partitions), default=1)
            found[name] = TargetTopic(name, topic.topic_id.hex(), spans, _values(settings[name])), copies
        return found, refused


def read_known_twins(store: Store, link: Link) -> dict[str, KnownTwin]:
    mapped = {topic for topic, _ in store.offset_runs.reached(link.name)}
    return {
        row.topic: KnownTwin(row.source_topic_id, row.target_topic_id, row.topic in mapped)
        for row in store.twins.of(link.name)
    }


def _refused(topic: str, error: KafkaError, kind: IncidentKind, place: str) -> Refuse:
    """Refuses the topic until the next survey. A retriable error says only that the cluster, or a leader, did not
    answer.
    """
    sentence = error.message if topic in error.message else f"{place}: {error.message}"
    if error.retriable:
        return Refuse(topic, kind, sentence, error.hint or "it continues by itself once that is over")
    return Refuse(topic, kind_of_error(error), sentence, error.hint, kind.side)


def _values(settings: dict[str, ConfigEntry]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, entry.value) for name, entry in settings.items() if entry.value is not None))


TOPIC_READY_TIMEOUT_S = 15.0
POLL_S = 0.05
# Link state of a link whose claim to a twin has ended: by the twin's topic id, the link that took over.
TAKEN_OVER_KIND = "twin given over"
# Link state of a topic: a fresh queue may have dropped records of its twin that no progress tells of; written before
# the first drop.
LOSSY_KIND = "thinned to"
ALL_OFFSETS = (1 << 63) - 1


def apply_step(target: KafkaCluster, step: Create | Grow | Settle) -> str:
    """Executes the step; returns a sentence. Idempotent."""
    topic = step.twin or step.topic
    match step:
        case Create(_, partitions, replication, settings):
            try:
                target.admin.create_topic(
                    topic, partitions=partitions, replication_factor=replication, settings=dict(settings)
                )
            except KafkaError as error:
                if error.code != Code.topic_already_exists:
                    raise
            _await_topic(target, topic, partitions)
            return f"created twin {topic} with {count_phrase(partitions, 'partition')}, {count_copies(replication)}"
        case Grow(_, partitions, topic_id):
            target.admin.create_partitions(topic, partitions, topic_id=bytes.fromhex(topic_id))
            _await_topic(target, topic, partitions)
            return f"grew twin {topic} to {partitions} partitions"
        case Settle(_, settings, topic_id):
            target.admin.alter_topic_settings(topic, dict(settings), topic_id=bytes.fromhex(topic_id))
            return f"changed settings of twin {topic}: {', '.join(f'{name}={value}' for name, value in settings)}"


def try_step(target: KafkaCluster, link: str, step: PlanStep, unmade: Callable[[Create], None]) -> Refuse | None:
    """Executes the step, and logs it; returns why the topic must rest if the target refuses. `unmade` gets a twin that
    was not created.
    """
    if not isinstance(step, Create | Grow | Settle):
        return None
    try:
        log.info(f"{link}: {apply_step(target, step)}", extra={"link": link, "topic": step.topic})
    except KafkaError as error:
        if error.retriable and not error.code:
            raise  # no broker's response: the cluster is not reachable at all
        if isinstance(step, Create) and not error.retriable:
            unmade(step)
        kind = kind_of_error(error, IncidentKind.TARGET_AWAY)
        return Refuse(step.topic, kind, error.message, error.hint, IncidentSide.TARGET)
    return None


def new_twin_row(link: str, step: CarryTopic, partition: int, now_ms: int) -> TwinRow:
    """Returns a new twin's row. The anchor is the source's log start: sequences follow offsets from there, and filler
    below replaces no missing record.
    """
    start = step.starts[partition] if step.starts else 0
    ids = (step.source_topic_id, step.target_topic_id)
    return TwinRow(link, step.topic, partition, *ids, start, start % SEQUENCE_SPAN, now_ms)


def build_partition_configs(
    store: Store, link: Link, steps: Sequence[CarryTopic], made: Container[TwinRow]
) -> dict[TopicPartition, PartitionConfig]:
    """Saves rows of new twins; returns each partition's config. `made`: rows first saved in this lease epoch."""
    now_ms = wall_ms()
    rows = [new_twin_row(link.name, step, partition, now_ms) for step in steps for partition in range(step.partitions)]
    if not rows:
        return {}
    positions = store.progress.positions(link.name)
    progress = {(tp.topic, tp.partition): EpochOffset(tp.source_epoch, tp.to_offset) for tp in positions}
    reached = {place: position_after(run) for place, run in store.offset_runs.reached(link.name).items()}
    twins = {step.topic: step.twin for step in steps}
    saved = store.twins.save(rows, link.naming)
    stands, ends = {}, {}
    for row in saved:
        place = (row.topic, row.partition)
        begin = row.base_offset if place in reached else -1 if row.inherited_end else 0
        stands[place] = progress.get(place, EpochOffset(UNKNOWN_EPOCH, begin))
        if place in reached:
            # The offset map is written before the progress on the source.
            ends[row] = max(stands[place].end, reached[place].source)
    thinned_to = read_lossy_offsets(store, link, ends)
    found = {}
    for row in saved:
        place = (row.topic, row.partition)
        stand = stands[place]
        found[TopicPartition(*place)] = PartitionConfig(
            *place,
            row.source_topic_id,
            row.target_topic_id,
            stand.end,
            row.base_offset,
            row.base_sequence,
            twin=twins[row.topic],
            reached=reached.get(place),
            receipt_epoch=stand.epoch,
            inherited=row.inherited_end,
            epoch=row.epoch,
            thinned_to=thinned_to.get(place, -1),
            untouched=place not in progress and (row.created_ms == now_ms or row in made),
        )
    return found


def _await_topic(target: KafkaCluster, topic: str, partitions: int) -> None:
    """Waits for the topic: brokers learn of a new one at different times."""
    deadline = time.monotonic() + TOPIC_READY_TIMEOUT_S
    while True:
        metadata = target.metadata([topic], refresh=True).topics.get(topic)
        known = metadata.partitions if metadata and not metadata.error else ()
        if len(known) >= partitions and all(partition.leader >= 0 for partition in known):
            return
        if time.monotonic() > deadline:
            late = f"{TOPIC_READY_TIMEOUT_S:.0f} s after it was made"
            raise KafkaError(f"{target.name}: topic {topic} has no leaders {late}")
        time.sleep(POLL_S)


class TopicConflicts:
    """Keeps one link off twins of other links. A claim to a twin ends with the rows, or when another link takes over
    after the first link's mirror has acknowledged filters without the topic.
    """

    def __init__(self, link: Link, store: Store) -> None:
        self._link, self._store = link, store
        # Topics that may have rows that were never judged: the store failed in between.
        self._unjudged: set[str] = set()
        self.made: set[TwinRow] = set()  # in this epoch

    def anew(self) -> None:
        """Forgets `made`: a lease epoch begins, and another mirror may have run the link."""
        self.made.clear()

    def judged(self, steps: Sequence[PlanStep], known: Container[str]) -> list[PlanStep]:
        """Replaces steps of other links' topics by refusals."""
        new = self._new([step for step in steps if isinstance(step, CarryTopic)], known, self._given_over())
        taken, _ = self._claims(new)
        twins = {step.topic: step.twin or step.topic for step in new}
        refused = [self._refusal(twins[topic], topic, row) for topic, row in sorted(taken.items())]
        return [*(step for step in steps if step.topic not in taken), *refused]

    def without_foreign_twins(self, steps: Sequence[CarryTopic], known: Container[str]) -> list[CarryTopic]:
        """Returns steps whose twins no other link has. The end of another link's claim is recorded before any row of
        ours: if that link wants the twin back at the same time, one of the two sees the other.
        """
        new = self._new(steps, known, self._given_over())
        taken, ended = self._claims(new)
        lost, mine, now_ms = set(taken), self._link.name, wall_ms()
        theirs = {link: self._store.link_states.of(link, TAKEN_OVER_KIND) for link in {row.link for row in ended}}
        said = {(row.link, row.subject) for rows in theirs.values() for row in rows}
        had = {row.target_topic_id for row in taken.values()}
        over = [
            LinkStateRow(row.link, TAKEN_OVER_KIND, row.target_topic_id, mine, TAKEN_OVER_KIND, now_ms)
            for row in ended
            if (row.link, row.target_topic_id) not in said and row.target_topic_id not in had
        ]
        if over:
            self._store.link_states.remember(over)
            lost |= self._claims(new)[0].keys()
            ids = {step.target_topic_id for step in new if step.topic in lost}
            self._store.link_states.forget([row for row in over if row.subject in ids])
        return [step for step in steps if step.topic not in lost]

    def kept(self, steps: Sequence[CarryTopic], known: Container[str]) -> list[CarryTopic]:
        """Returns steps whose twins are this link's. `known`: topics with an earlier twin of this link. New rows are
        saved first: of two links that do so at once, at least the later sees the other's row, gives way, and tries
        again with the next survey.
        """
        given = self._given_over()
        new = self._new(steps, known, given)
        if not new:
            return list(steps)
        self._unjudged |= {step.topic for step in new}
        ours, now_ms, mine = self.without_foreign_twins(new, known), wall_ms(), self._link.name
        rows = [new_twin_row(mine, step, part, now_ms) for step in ours for part in range(step.partitions)]
        self.made |= {row for row in self._store.twins.save(rows, self._link.naming) if row.created_ms == now_ms}
        ours = self.without_foreign_twins(ours, known)
        self._store.link_states.forget([given[step.target_topic_id] for step in ours if step.target_topic_id in given])
        lost = {step.topic for step in new} - {step.topic for step in ours}
        for topic in lost:
            if topic not in known:
                self._store.forget_topic(mine, topic)
        self._unjudged -= {step.topic for step in new if step in ours or step.topic not in known}
        return [step for step in steps if step.topic not in lost]

    def _new(self, steps: Iterable[CarryTopic], known: Container[str], given: Container[str]) -> list[CarryTopic]:
        """Returns steps without those of earlier twins, unless the link lost these."""
        return [
            step
            for step in steps
            if step.topic not in known or step.topic in self._unjudged or step.target_topic_id in given
        ]

    def _claims(self, steps: Iterable[CarryTopic]) -> tuple[dict[str, TwinRow], list[TwinRow]]:
        """Returns topics whose twins belong to another link, with its row; and rows of ended claims."""
        ours = {step.target_topic_id: step.topic for step in steps if not is_heartbeats_topic(step.topic)}
        rows = [row for row in self._store.twins.of_target_topics(ours) if row.link != self._link.name]
        held = {name: self._in_force(name) for name in {row.link for row in rows}}
        taken, ended = dict[str, TwinRow](), list[TwinRow]()
        for row in rows:
            filters = held[row.link]
            if filters is None or passes_filters(filters, row.topic):
                taken[ours[row.target_topic_id]] = row
            else:
                ended.append(row)
        return taken, ended

    def _refusal(self, twin: str, topic: str, row: TwinRow) -> Refuse:
        sentence = f"topic {twin} on {self._link.target} is the twin of link {row.link}, which had it first"
        forget = f"`twinshore mirror forget {row.topic} --link {row.link.replace('->', '..', 1)}`"
        hint = (
            "give both links filters that have no topic in common, and start both mirrors with the same settings; "
            f"if {row.link} has no mirror any more, {forget} frees it"
        )
        return Refuse(topic, IncidentKind.FOREIGN_WRITE, sentence, hint)

    def _given_over(self) -> dict[str, LinkStateRow]:
        """This link's twins that another took over, by topic id."""
        return {row.subject: row for row in self._store.link_states.of(self._link.name, TAKEN_OVER_KIND)}

    def _in_force(self, other: str) -> Link | None:
        """The other link's acknowledged filters, if any."""
        for row in self._store.link_states.of(other, EFFECTIVE_FILTERS_KIND):
            with suppress(ValueError, TypeError):
                source, _, target = other.partition("->")
                return with_filters(Link(source, target), row.value)
        return None


def read_lossy_offsets(store: Store, link: Link, ends: Mapping[TwinRow, int]) -> dict[tuple[str, int], int]:
    """Returns, by partition, up to which offset a fresh queue may have dropped records unreported. `ends`: the progress
    of these mapped twins. Progress past where the queue became `keep` again lacks nothing.
    """
    known = {row.subject: row.value for row in store.link_states.of(link.name, LOSSY_KIND)}
    found: dict[tuple[str, int], int] = {}
    told: list[LinkStateRow] = []
    for topic, some in groupby(sorted(ends, key=lambda row: (row.topic, row.partition)), lambda row: row.topic):
        rows = list(some)
        fresh = json.dumps([rows[0].target_topic_id, {}])
        before = known.get(topic, "")
        if is_heartbeats_topic(topic) or not (
            link.queue.fresh or json.loads(before or "[0]")[0] == rows[0].target_topic_id
        ):
            continue
        now = before
        if link.queue.fresh:
            now = fresh
        elif before == fresh:
            now = json.dumps([rows[0].target_topic_id, {row.partition: ends[row] for row in rows}])
        if now != before:
            told.append(LinkStateRow(link.name, LOSSY_KIND, topic, now, "", wall_ms()))
        kept_from = json.loads(now)[1]
        for row in rows:
            found[topic, row.partition] = ALL_OFFSETS if link.queue.fresh else kept_from.get(str(row.partition), -1)
    if told:
        store.link_states.remember(told)
    return found
