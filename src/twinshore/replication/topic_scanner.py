"""Both clusters as the planner wants to see them.

Makes the target as the plan wants it: twins created, grown, settled; then their partitions may be carried.

Which topics of the target another link carries now. Two processes of one store may have read settings of two days,
and each believe that a topic is its own: of two links the one whose row of the twin was there first has it, whether or
not its mirror seems to live.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby

from twinshore.config.errors import KafkaError
from twinshore.config.incident_policy import IncidentKind, IncidentSide
from twinshore.config.model import Link, TopicPartition, is_heartbeats_topic
from twinshore.config.sentences import count_copies, count_phrase
from twinshore.kafka.admin import ConfigEntry
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.metadata import TopicMetadata
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.record_batch import SEQUENCE_SPAN
from twinshore.replication.core.filters import admits, passes_filters, with_filters
from twinshore.replication.core.model import CarryTopic, Create, Grow, PlanStep, Refuse, Settle
from twinshore.replication.core.planner import KnownTwin, SourceTopic, TargetTopic, plan_topic
from twinshore.replication.operator_control import EFFECTIVE_FILTERS_KIND
from twinshore.replication.task.core import position
from twinshore.replication.task.core.config import UNKNOWN_EPOCH, EpochOffset, PartitionConfig, position_after
from twinshore.replication.task.core.position import AUTHORIZATION_CODES
from twinshore.state.core.values import LinkStateRow, TwinRow
from twinshore.state.store import Store


@dataclass(frozen=True, slots=True)
class _Seen:
    """A topic of either cluster. `spans`: where each log begins and, on the target, ends; 0 where that is not known."""

    name: str
    topic: TopicMetadata
    spans: tuple[tuple[int, int], ...]
    settings: tuple[tuple[str, str], ...]


class TopicScanner:
    """Asks about what is new; a topic that flows already is asked again only when it changed."""

    def __init__(self, link: Link, source: KafkaCluster, target: KafkaCluster) -> None:
        self._link = link
        self._source = source
        self._target = target

    def names(self) -> dict[str, tuple[str, int]]:
        """Topics of the source that the link admits: topic id and partitions."""
        seen = self._source.metadata(None, refresh=True)
        return {
            name: (topic.topic_id.hex(), len(topic.partitions))
            for name, topic in sorted(seen.topics.items())
            if not topic.error and not topic.internal and admits(self._link, name)
        }

    def target_brokers(self) -> int:
        return len(self._target.metadata([], refresh=True).brokers)

    def plan(self, names: Sequence[str], known: Mapping[str, KnownTwin]) -> list[PlanStep]:
        """The steps for these topics as both clusters are now. One that cannot be looked at now is refused for now, and
        hinders no other; KafkaError where a cluster does not answer at all."""
        source, away = self._seen(self._source, names, known, IncidentKind.SOURCE_AWAY)
        called = {self._link.twin_of(name): name for name in names}
        twins = {twin: known[name] for twin, name in called.items() if name in known}
        target, mute = self._seen(self._target, called, twins, IncidentKind.TARGET_AWAY)
        refused = away | {called[twin]: why for twin, why in mute.items()}
        brokers = self.target_brokers()
        steps: list[PlanStep] = [replace(why, topic=topic) for topic, why in sorted(refused.items())]
        for seen in source.values():
            if seen.name not in refused:
                topic, there = _as_source(seen), target.get(self._link.twin_of(seen.name))
                twin = _as_target(there) if there else None
                steps += plan_topic(self._link, topic, twin, known.get(topic.name), target_brokers=brokers)
        return steps

    def _seen(
        self, cluster: KafkaCluster, names: Iterable[str], known: Container[str], kind: IncidentKind
    ) -> tuple[dict[str, _Seen], dict[str, Refuse]]:
        """Those of these topics that are there, and why others of them cannot be told. Where the logs of a `known` twin
        begin and end is its pump's affair: a partition that has no leader does not hold its topic up."""
        there = {
            name: topic
            for name, topic in cluster.metadata(sorted(names), refresh=True).topics.items()
            if not topic.error
        }
        settings, hidden = cluster.admin.readable_settings(sorted(there))
        refused = {name: _refused(name, error, kind, f"topic {name}") for name, error in hidden.items()}
        parts = [TopicPartition(name, part.partition) for name in settings for part in there[name].partitions]
        starts, unled = cluster.offsets_of_each(parts, OffsetKind.EARLIEST)
        ends, mute = cluster.offsets_of_each(parts, OffsetKind.LOG_END) if cluster is self._target else (starts, {})
        for named, error in (unled | mute).items():
            if named.topic not in known:
                refused.setdefault(named.topic, _refused(named.topic, error, kind, str(named)))
        found = {}
        for name in sorted(settings.keys() - refused.keys()):
            ours = [TopicPartition(name, number) for number in range(len(there[name].partitions))]
            spans = tuple((starts.get(named, 0), ends.get(named, 0)) for named in ours)
            found[name] = _Seen(name, there[name], spans, _values(settings[name]))
        return found, refused


def read_known_twins(store: Store, link: Link) -> dict[str, KnownTwin]:
    """What the store remembers of each topic's twin."""
    mapped = {topic for topic, _ in store.extents.reached(link.name)}
    return {
        row.topic: KnownTwin(row.source_topic_id, row.target_topic_id, row.topic in mapped)
        for row in store.twins.of(link.name)
    }


def _as_source(seen: _Seen) -> SourceTopic:
    copies = max((len(partition.replicas) for partition in seen.topic.partitions), default=1)
    starts = tuple(start for start, _ in seen.spans)
    return SourceTopic(seen.name, seen.topic.topic_id.hex(), copies, starts, seen.settings)


def _as_target(seen: _Seen) -> TargetTopic:
    return TargetTopic(seen.name, seen.topic.topic_id.hex(), seen.spans, seen.settings)


def _refused(topic: str, error: KafkaError, kind: IncidentKind, place: str) -> Refuse:
    """For as long as it cannot be told: the next survey asks again. A leader that cannot be dialled says nothing of
    what it was to be asked for."""
    sentence = error.message if topic in error.message else f"{place}: {error.message}"
    if error.retriable:
        return Refuse(topic, kind, sentence, error.hint or "it goes on by itself once that is over")
    return Refuse(
        topic,
        IncidentKind.RIGHTS_LOST if error.code in AUTHORIZATION_CODES else IncidentKind.REFUSED,
        sentence,
        error.hint,
        kind.side,
    )


def _values(settings: dict[str, ConfigEntry]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, setting.value) for name, setting in settings.items() if setting.value is not None))


TOPIC_READY_TIMEOUT_S = 15.0
POLL_S = 0.05
# As `Remembered` of a link whose claim to a twin has ended: by the twin's topic id, the link that took it over.
TAKEN_OVER_KIND = "twin given over"
# As `Remembered` of a topic of whose twin a fresh queue may have dropped records that no receipt tells of: noted before
# the first is dropped.
LOSSY_KIND = "thinned to"
ALL_OFFSETS = (1 << 63) - 1


def apply_steps(target: KafkaCluster, steps: Iterable[PlanStep]) -> list[str]:
    """Does what changes the target; returns a sentence for each change. Doing it twice does no harm."""
    done = []
    for step in steps:
        match step:
            case Create(_, partitions, replication, settings):
                topic = step.twin or step.topic
                try:
                    target.admin.create_topic(
                        topic, partitions=partitions, replication_factor=replication, settings=dict(settings)
                    )
                except KafkaError as error:
                    if error.code != Code.TOPIC_ALREADY_EXISTS:
                        raise
                _appear(target, topic, partitions)
                done.append(
                    f"created twin {topic} with {count_phrase(partitions, 'partition')}, {count_copies(replication)}"
                )
            case Grow(_, partitions, topic_id):
                topic = step.twin or step.topic
                target.admin.create_partitions(topic, partitions, topic_id=bytes.fromhex(topic_id))
                _appear(target, topic, partitions)
                done.append(f"grew twin {topic} to {partitions} partitions")
            case Settle(_, settings, topic_id):
                topic = step.twin or step.topic
                target.admin.alter_topic_settings(topic, dict(settings), topic_id=bytes.fromhex(topic_id))
                done.append(f"settled twin {topic}: {', '.join(f'{name}={value}' for name, value in settings)}")
            case _:
                pass
    return done


def try_step(
    target: KafkaCluster, step: PlanStep, tell: Callable[[str], None], unmade: Callable[[Create], None]
) -> Refuse | None:
    """Does what the step changes; why its topic must rest where the target will not have it. `unmade` hears of a twin
    that was not made."""
    try:
        for sentence in apply_steps(target, [step]):
            tell(sentence)
    except KafkaError as error:
        if error.retriable and not error.code:
            raise  # it is no broker's answer: the cluster does not hear us at all
        if isinstance(step, Create) and not error.retriable:
            unmade(step)
        return refuse_step(step, error)
    return None


def refuse_step(step: PlanStep, error: KafkaError) -> Refuse:
    """Why the topic must rest: the target will not have what the step needs."""
    kind = (
        IncidentKind.RIGHTS_LOST
        if error.code in position.AUTHORIZATION_CODES
        else IncidentKind.TARGET_AWAY
        if error.retriable
        else IncidentKind.REFUSED
    )
    return Refuse(step.topic, kind, error.message, error.hint, IncidentSide.TARGET)


def new_twin_row(link: str, step: CarryTopic, partition: int, now_ms: int) -> TwinRow:
    """A new twin's row. Its history begins where the source's log does now: sequences follow the offsets there, and
    what is filled below it is not missing."""
    start = step.starts[partition] if step.starts else 0
    ids = (step.source_topic_id, step.target_topic_id)
    return TwinRow(link, step.topic, partition, *ids, start, start % SEQUENCE_SPAN, now_ms)


def build_partition_configs(
    store: Store, link: Link, steps: Sequence[CarryTopic], made: Container[TwinRow]
) -> dict[TopicPartition, PartitionConfig]:
    """What a pump must know of each partition of these steps. Twins that are new are remembered from now on; `made`:
    those that this term of the link remembered first."""
    now_ms = wall_ms()
    rows = [new_twin_row(link.name, step, partition, now_ms) for step in steps for partition in range(step.partitions)]
    if not rows:
        return {}
    told = {
        (at.topic, at.partition): EpochOffset(at.source_epoch, at.to_offset)
        for at in store.receipts.positions(link.name)
    }
    reached = {place: position_after(extent) for place, extent in store.extents.reached(link.name).items()}
    called = {step.topic: step.twin for step in steps}
    saved = store.twins.save(rows, link.naming)
    stands = {}
    for row in saved:
        place = (row.topic, row.partition)
        begin = row.anchor_offset if place in reached else -1 if row.inherited else 0
        stands[place] = told.get(place, EpochOffset(UNKNOWN_EPOCH, begin))
    # Where records landed is told before how far the source was read.
    ends = {
        row: max(stands[place].end, reached[place].source)
        for row in saved
        if (place := (row.topic, row.partition)) in reached
    }
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
            row.anchor_offset,
            row.anchor_sequence,
            twin=called[row.topic],
            reached=reached.get(place),
            receipt_epoch=stand.epoch,
            inherited=row.inherited,
            epoch=row.epoch,
            thinned_to=thinned_to.get(place, -1),
            untouched=place not in told and (row.created_ms == now_ms or row in made),
        )
    return found


def _appear(target: KafkaCluster, topic: str, partitions: int) -> None:
    """A topic that was just made is not known everywhere at once."""
    deadline = time.monotonic() + TOPIC_READY_TIMEOUT_S
    while True:
        seen = target.metadata([topic], refresh=True).topics.get(topic)
        led = seen and not seen.error and all(partition.leader >= 0 for partition in seen.partitions)
        if seen and led and len(seen.partitions) >= partitions:
            return
        if time.monotonic() > deadline:
            raise KafkaError(
                f"{target.name}: topic {topic} has no leaders {TOPIC_READY_TIMEOUT_S:.0f} s after it was made"
            )
        time.sleep(POLL_S)


class TopicConflicts:
    """One link's eye on all other links of its store. A link's claim to a twin ends with its rows, or when another
    takes it over after its own mirror has acknowledged filters that do not admit the topic."""

    def __init__(self, link: Link, store: Store) -> None:
        self._link, self._store = link, store
        # Topics of which rows may stand that were never judged: the store failed in between.
        self._unjudged: set[str] = set()
        self.made: set[TwinRow] = set()  # in this term

    def anew(self) -> None:
        """A term of the link begins: another mirror may have had what was made before."""
        self.made.clear()

    def judged(self, steps: Sequence[PlanStep], known: Container[str]) -> list[PlanStep]:
        """The steps, without those for topics that another link has: why each of these must not be touched."""
        new = self._new([step for step in steps if isinstance(step, CarryTopic)], known, self._given_over())
        taken, _ = self._claims(new)
        called = {step.topic: step.twin or step.topic for step in new}
        refused = [
            Refuse(topic, IncidentKind.FOREIGN_WRITE, *self._why(called[topic], row))
            for topic, row in sorted(taken.items())
        ]
        return [*(step for step in steps if step.topic not in taken), *refused]

    def without_foreign_twins(self, steps: Sequence[CarryTopic], known: Container[str]) -> list[CarryTopic]:
        """The steps whose twins no other link has. That a claim has ended is remembered before any row of ours is
        written: whoever had it may want it back at this very moment, and sees what is remembered, or is seen here."""
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
        """The steps whose twins are this link's. `known`: topics that had a twin of the link's before this look. New
        ones are remembered first: of two links that do so at once, each sees the other's row, or the later one does;
        whoever sees one lets go, and tries again with the next survey."""
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
        """Those that are to be judged: what the link carried before is not judged anew, unless it gave it over."""
        return [
            step
            for step in steps
            if step.topic not in known or step.topic in self._unjudged or step.target_topic_id in given
        ]

    def _claims(self, steps: Iterable[CarryTopic]) -> tuple[dict[str, TwinRow], list[TwinRow]]:
        """Topics of these whose twins are another link's, with its row; and rows of other links whose claims ended."""
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

    def _why(self, twin: str, row: TwinRow) -> tuple[str, str]:
        """What an operator reads, and how to go on."""
        arrow = row.link.replace("->", "..", 1)
        return (
            f"topic {twin} on {self._link.target} is the twin of link {row.link}, which had it first",
            "give both links filters that have no topic in common, and start both mirrors with the same settings; "
            f"where {row.link} has no mirror any more, `twinshore mirror forget {row.topic} --link {arrow}` frees it",
        )

    def _given_over(self) -> dict[str, LinkStateRow]:
        """Twins that this link had and another link took over, by topic id."""
        return {row.subject: row for row in self._store.link_states.of(self._link.name, TAKEN_OVER_KIND)}

    def _in_force(self, other: str) -> Link | None:
        """The other link's filters as its own process has them; None where it has not said."""
        for row in self._store.link_states.of(other, EFFECTIVE_FILTERS_KIND):
            with suppress(ValueError, TypeError):
                source, _, target = other.partition("->")
                return with_filters(Link(source, target), row.value)
        return None


def read_lossy_offsets(store: Store, link: Link, ends: Mapping[TwinRow, int]) -> dict[tuple[str, int], int]:
    """By partition, up to which receipt records may be missing behind it. `ends`: where the receipts of these mapped
    twins end now. Behind a later receipt than where its queue became `keep` again, a twin has all."""
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
