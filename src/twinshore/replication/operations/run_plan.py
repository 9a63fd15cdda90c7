"""Plans what running links would do, without a lease or a change; checks before a mirror starts; and looks up offsets
of mapped topics.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from twinshore.config.errors import ConfigError, KafkaError, RefusedError, TwinshoreError
from twinshore.config.frozen import FIRST_CLIENT_ID, PLAN_CLIENT_ID
from twinshore.config.grouping import grouped, in_slices
from twinshore.config.model import Link, OffsetRun, SourceOffset, TargetOffset, TopicPartition, is_heartbeats_topic
from twinshore.config.sentences import count_copies, count_phrase, join_names
from twinshore.config.settings import Settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.fetch import AbortedTransactions, visible_spans
from twinshore.kafka.protocol.record_batch import split_batches
from twinshore.replication.adopt import AdoptionPlanner
from twinshore.replication.core.filters import check_links, is_internal_topic
from twinshore.replication.core.mapping import (
    ASSUMED_BYTES_S,
    Cost,
    LogSample,
    PartitionWork,
    ReplicationRate,
    estimate_cost,
    translate_to_source,
    translate_to_target,
)
from twinshore.replication.core.model import AtHome, CarryTopic, Create, Grow, PlanStep, Refuse, Rest, Settle, Stay
from twinshore.replication.link_claim import LinkClaim
from twinshore.replication.links import effective_links
from twinshore.replication.ownership_sync import TopicHomes
from twinshore.replication.stopped_partitions import are_retried, read_stopped_partitions
from twinshore.replication.sync.core import decisions
from twinshore.replication.sync.core.decisions import Change, Remark
from twinshore.replication.sync.syncer import PreviewLine
from twinshore.replication.sync.syncer import preview_sync as follows
from twinshore.replication.task.lookups import may_write_markers
from twinshore.replication.topic_lineage import TopicLineage
from twinshore.replication.topic_scanner import TopicConflicts, TopicScanner, read_known_twins
from twinshore.runtime.endpoints import LinkClients, SharedConnections, one_shot_connections, verify_cluster_ids
from twinshore.runtime.scheduler import process_scheduler
from twinshore.state.store import Store

SAMPLED_PARTITIONS = 4
SAMPLE_BYTES = 256 << 10
MEASURED_BYTES_S_MIN = 1e6  # A link without backlog does not show its full rate.
TOPICS_PER_SCAN = 100
PREVIEW_PATIENCE_S = 10.0


def estimate_costs(
    link: Link,
    steps: Sequence[PlanStep],
    adopted: dict[TopicPartition, OffsetRun],
    source: KafkaCluster,
    store: Store,
    rate_bytes_s: float = 0.0,
    *,
    closed_units: bool = False,
) -> list[Cost]:
    """Estimates each topic of the steps. `adopted`: where mapped topics would continue, as far as proven.
    `closed_units`: the target takes no markers directly.
    """
    rate = replace(_rate(link, store, rate_bytes_s), closed_units=closed_units)
    begins = {TopicPartition(tp.topic, tp.partition): tp.to_offset for tp in store.progress.positions(link.name)}
    begins |= {partition: int(run.source) for partition, run in adopted.items()}
    carried = [step for step in steps if isinstance(step, CarryTopic | Create)]
    everything = [TopicPartition(step.topic, number) for step in carried for number in range(step.partitions)]
    # A partition without a leader has unknown costs.
    nothing = dict.fromkeys(everything, 0)
    starts = nothing | source.offsets_of_each(everything, OffsetKind.EARLIEST)[0]
    ends = nothing | source.offsets_of_each(everything, OffsetKind.LAST_STABLE)[0]
    found = []
    for step in carried:
        work: list[PartitionWork] = []
        samples: list[LogSample] = []
        places: list[str] = []
        for partition in (TopicPartition(step.topic, number) for number in range(step.partitions)):
            start, begin = starts[partition], begins.get(partition, 0)
            work.append(PartitionWork(max(0, ends[partition] - max(begin, start)), max(0, start - begin)))
            if work[-1].offsets and len(samples) < SAMPLED_PARTITIONS:
                samples.append(_sample(source, partition, max(begin, start)))
            if partition in adopted:
                places.append(f"{partition} continues with {begin}")
        fresh = isinstance(step, Create) and link.queue.fresh and not is_heartbeats_topic(step.topic)
        mode = "mapped" if fresh or (isinstance(step, CarryTopic) and step.mapped) else "exact"
        found.append(estimate_cost(step.topic, mode, work, samples, rate, "; ".join(places)))
    return found


def _rate(link: Link, store: Store, wanted: float) -> ReplicationRate:
    if wanted:
        return ReplicationRate(wanted, measured=False)
    measured = max((status.bytes_per_s for status in store.links.statuses() if status.link == link.name), default=0.0)
    known = measured >= MEASURED_BYTES_S_MIN
    return ReplicationRate(measured if known else ASSUMED_BYTES_S, measured=known)


def _sample(source: KafkaCluster, partition: TopicPartition, offset: int) -> LogSample:
    fetched = source.read_from(partition, offset, bytes_max=SAMPLE_BYTES, committed=True)
    aborted = AbortedTransactions(fetched.aborted)
    at, seen, size = offset, 0, 0
    for view, header in split_batches(fetched.records):
        if header.last_offset < at:
            continue
        seen += sum(end - first for first, end, shown in visible_spans(view, header, at, aborted) if shown)
        size += len(view)
        at = header.last_offset + 1
    return LogSample(at - offset, seen, size)


def preview_link(
    link: Link, settings: Settings, store: Store, shared: SharedConnections, rate_bytes_s: float = 0.0
) -> list[PlanStep | Cost]:
    """Returns every step of the link, with costs; raises when the link must not run at all."""
    with LinkClients(link, settings, patience_s=PREVIEW_PATIENCE_S, shared=shared) as clients:
        source, target = clients.source, clients.target
        verify_cluster_ids(link, store, source, target)
        LinkClaim(link, store, target).refuse_other_store(source.cluster_id())
        surveyor = TopicScanner(link, source, target)
        known = read_known_twins(store, link)
        sides = (store, source, target)
        descents = TopicLineage(lambda: link, *sides, quiet=True)
        homing = TopicHomes(lambda: link, settings.links, *sides, descents, notes=False)
        names = [name for name in homing.admitted(surveyor.names()) if not is_heartbeats_topic(name)]
        planned = [step for some in in_slices(names, TOPICS_PER_SCAN) for step in surveyor.plan(some, known)]
        steps = TopicConflicts(link, store).judged(planned, known)
        staying = descents.staying | homing.homeless | homing.elsewhere
        stay = [Stay(name, why) for name, why in sorted(staying.items()) if not is_heartbeats_topic(name)]
        at_home = [AtHome(name, row.home) for name, row in sorted(homing.at_home.items()) if name in names]
        steps, paused = _without_paused(link, [*at_home, *homing.refused.values(), *steps])
        carried = [step for step in steps if isinstance(step, CarryTopic)]
        rows, unproven = AdoptionPlanner(link, source, target, store).propose(carried)
        failed = {why.topic for why in unproven}
        steps = [*(step for step in steps if step.topic not in failed), *unproven]
        adopted = {TopicPartition(row.topic, row.partition): offset_run for row, offset_run, _ in rows}
        closed_units = not may_write_markers(target)
        steps, rests = _without_resting(link, steps, store)
        costs = estimate_costs(link, steps, adopted, source, store, rate_bytes_s, closed_units=closed_units)
        return [*steps, *rests, *paused, *stay, *costs]


def _without_paused(link: Link, steps: list[PlanStep]) -> tuple[list[PlanStep], list[PlanStep]]:
    """Splits off paused topics, with the reason."""
    held = sorted({step.topic for step in steps if link.control.pauses(step.topic)})
    why = "its link is paused" if link.control.paused else "it is paused"
    stay: list[PlanStep] = [Stay(name, f"topic {name}: {why}, see `twinshore link list`") for name in held]
    return [step for step in steps if step.topic not in held], stay


def _without_resting(link: Link, steps: list[PlanStep], store: Store) -> tuple[list[PlanStep], list[PlanStep]]:
    """Drops topics stopped as a whole; also returns the stopped partitions."""
    counts = {step.topic: step.partitions for step in steps if isinstance(step, CarryTopic)}
    rests: list[PlanStep] = []
    stopped: Counter[str] = Counter()
    for partition, rows in sorted(read_stopped_partitions(store, link.name).items()):
        if partition.topic in counts:
            incident, row_id = rows[0].incident, rows[0].id
            stopped[partition.topic] += partition.partition < counts[partition.topic]
            rest = (row_id, incident.kind, incident.sentence, are_retried(rows))
            rests.append(Rest(partition.topic, partition.partition, *rest))
    whole = {topic for topic, count in counts.items() if stopped[topic] == count}
    return [step for step in steps if not (isinstance(step, CarryTopic) and step.topic in whole)], rests


# Short: the controller asks again, and reports, as soon as it runs.
PATIENCE_S = 4.0


def check_chosen_links(settings: Settings, links: Sequence[Link]) -> None:
    """Raises ConfigError when there is nothing to run, or when links could loop or collide."""
    if not links:
        raise ConfigError("config.no-links")
    # All links of the settings, though only some run here: another process may run the others.
    check_links(settings.links)


def find_refused_links(links: Sequence[Link], settings: Settings, store: Store) -> dict[str, RefusedError]:
    """Returns links whose addresses lead to other clusters than before. Clusters that do not answer within seconds are
    left to the controllers.
    """
    found: dict[str, RefusedError] = {}

    def look(link: Link) -> None:
        with LinkClients(
            link, settings, client_id=FIRST_CLIENT_ID, patience_s=PATIENCE_S, call_s=PATIENCE_S
        ) as clients:
            try:
                verify_cluster_ids(link, store, clients.source, clients.target)
            except RefusedError as error:
                found[link.name] = error
            except TwinshoreError:
                return

    until_s = time.monotonic() + 2 * PATIENCE_S
    tasks = [
        process_scheduler.once(f"address {link.name}", partial(look, link), asks=(link.source, link.target))
        for link in links
    ]
    for task in tasks:
        task.ended(max(0.0, until_s - time.monotonic()))
        task.close(0.0)
    return dict(found)


def prepare_start_message(link: Link, settings: Settings, store: Store) -> Callable[[], str]:
    """Reads the store at once; the returned function asks both clusters and returns the sentence."""
    now = effective_links(settings.links, store)[link.name].link
    rests = len(read_stopped_partitions(store, link.name))
    paused = "; it is paused" if now.control.paused else ""
    resting = f"; open incidents stop {rests} partitions, see `twinshore status`" if rests else ""

    def ask() -> str:
        with LinkClients(now, settings, client_id=FIRST_CLIENT_ID, patience_s=PATIENCE_S, call_s=PATIENCE_S) as clients:
            surveyor = TopicScanner(now, clients.source, clients.target)
            topics = _answer(clients.source, lambda: describe_topic_count(surveyor.names(), _shown(clients.source)))
            there = _answer(clients.target, lambda: f"brokers: {len(clients.target.metadata([]).brokers):,}")
        return f"{now.name}: {topics}; {there}{paused}{resting}"

    return ask


def describe_topic_count(admitted: Iterable[str], shown: Iterable[str]) -> str:
    """Returns how many of the source's topics the link would replicate; if none, why, and what to do. `shown`: all that
    the mirror's user can see.
    """
    there = [name for name in shown if not is_internal_topic(name)]
    count = sum(name in there for name in admitted)
    if count:
        return f"the link's filters admit {count:,} of its {count_phrase(len(there), 'topic')}"
    if there:
        return (
            f"the link's filters admit none of its {count_phrase(len(there), 'topic')}: `twinshore link list` shows the"
            " filters, `twinshore link filter` changes them"
        )
    return (
        "it shows no topic to the mirror's user: a new topic is replicated within seconds; if it has topics,"
        " grant that user the right Describe"
    )


def _shown(source: KafkaCluster) -> list[str]:
    return [name for name, topic in source.metadata(None).topics.items() if not topic.error and not topic.internal]


def _answer(cluster: KafkaCluster, ask: Callable[[], str]) -> str:
    try:
        return f"{cluster.name} answers, {ask()}"
    except KafkaError as error:
        return f"{cluster.name} does not answer yet: {error.message}"


log = logging.getLogger(__name__)

OFFSET_RUNS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class OffsetQuery:
    """An offset of one side; with neither, the last `most` offset runs."""

    topic: str
    partition: int = 0
    source_offset: int | None = None
    target_offset: int | None = None
    most: int = OFFSET_RUNS_SHOWN
    links: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class OffsetLookup:
    """`source` and `target` belong together; None: unknown. `exact`: the record itself; else the next one that both
    sides have. `back`: the target's offset was given.
    """

    link: str
    topic: str
    partition: int
    source: int | None
    target: int | None
    exact: bool
    back: bool

    def as_values(self) -> dict[str, Any]:
        """Returns values for JSON, the queried offset first."""
        place = {"link": self.link, "topic": self.topic, "partition": self.partition}
        ends = {"source": self.source, "target": self.target}
        return {**place, **(dict(reversed(ends.items())) if self.back else ends), "exact": self.exact}

    def sentence(self) -> str:
        note = "" if self.exact else ", the next record that both sides have"
        return f"{self.link}: {self.topic}-{self.partition}: source {self.source} is target {self.target}{note}"


@dataclass(frozen=True, slots=True)
class PartitionOffsetRun:
    """Source and target offsets differ by one number."""

    link: str
    topic: str
    partition: int
    offset_run: OffsetRun

    def as_values(self) -> dict[str, Any]:
        return {"link": self.link, "topic": self.topic, "partition": self.partition, **self.offset_run._asdict()}

    def sentence(self) -> str:
        where, (source, target, length, _) = f"{self.link}: {self.topic}-{self.partition}", self.offset_run
        if not length:
            return f"{where}: nothing yet; continues with {source} of the source behind {target} of the target"
        span = f"source {source} to {source + length - 1} is target {target} to {target + length - 1}"
        return f"{where}: {span} ({target - source:+d})"


def look_up_offsets(query: OffsetQuery, settings: Settings, store: Store) -> list[OffsetLookup | PartitionOffsetRun]:
    """Returns offsets or runs; ConfigError when no link has a mapped twin of the topic."""
    if query.source_offset is not None and query.target_offset is not None:
        raise ConfigError("replication.one-of-two", one="--source-offset", other="--target-offset")
    found: list[OffsetLookup | PartitionOffsetRun] = []
    for link in settings.chosen(query.links):
        if store.offset_runs.of(link.name, query.topic, query.partition, limit=1):
            found += _of_link(query, link.name, store)
    if not found:
        raise ConfigError("replication.no-offset-map", partition=f"{query.topic}-{query.partition}")
    return found


def _of_link(query: OffsetQuery, link: str, store: Store) -> list[OffsetLookup | PartitionOffsetRun]:
    key = (link, query.topic, query.partition)
    if query.source_offset is not None:
        at = query.source_offset
        there = translate_to_target(SourceOffset(at), *store.offset_runs.around(*key, at))
        return [OffsetLookup(*key, at, there.offset if there else None, bool(there and there.exact), back=False)]
    if query.target_offset is not None:
        at = query.target_offset
        there = translate_to_source(TargetOffset(at), *store.offset_runs.around(*key, at, on_target=True))
        return [OffsetLookup(*key, there.offset if there else None, at, bool(there and there.exact), back=True)]
    return [PartitionOffsetRun(*key, one) for one in store.offset_runs.of(*key, limit=query.most)]


# Kinds that may have a line for each topic, rule or user: these are counted. All others are shown one by one.
_COUNTED = {
    decisions.SETTING_KIND: "topic setting",
    decisions.ACL_KIND: "ACL",
    decisions.QUOTA_KIND: "quota",
    decisions.USER_KIND: "SCRAM user",
}
NAMED_MAX = 3


def summarize_plan(link: str, steps: Iterable[PlanStep | Cost], besides: Iterable[Change | Remark]) -> list[str]:
    topics = grouped((step.topic, step) for step in steps)
    return [line for ours in topics.values() for line in _topic(ours)] + _besides(link, list(besides))


def _topic(steps: Sequence[PlanStep | Cost]) -> list[str]:
    """One line, unless the topic is refused for several reasons."""
    refused = [describe_step(step) for step in steps if isinstance(step, Refuse | Stay)]
    if refused:
        return refused
    rests = [step for step in steps if isinstance(step, Rest)]
    makes = [step for step in steps if isinstance(step, Create | CarryTopic)]
    if not makes and rests:
        more = f" (and {count_phrase(len(rests) - 1, 'more partition')})" if len(rests) > 1 else ""
        return [describe_step(rests[0]) + more]
    if not makes:
        return [describe_step(step) for step in steps]
    said = [_shape(step) for step in makes]
    for step in steps:
        match step:
            case Grow(_, partitions):
                said.append(f"its twin grows to {partitions} partitions")
            case Settle(_, settings):
                said.append(f"{count_phrase(len(settings), 'setting')} of its twin to change")
            case AtHome(_, home):
                said.append(f"at home on {home}")
    if rests:
        stopped = [f"{one.topic}-{one.partition} (incident {one.incident}, {one.kind}; {_then(one)})" for one in rests]
        said.append(f"without {join_names(stopped, NAMED_MAX)}")
    costs = [f"; {step.figures}" for step in steps if isinstance(step, Cost)]
    return [", ".join(said) + "".join(costs)]


def describe_step(step: PlanStep | Cost) -> str:
    match step:
        case Create():
            return f"{_shape(step)}, {_pairs(step.settings)}; replicate it"
        case CarryTopic():
            return f"{_shape(step)}{': behind what it holds, at offsets of its own' if step.mapped else ''}"
        case Grow(topic, partitions, _, twin):
            return f"grow twin {twin or topic} to {partitions} partitions"
        case Settle(topic, settings, _, twin):
            return f"change settings of twin {twin or topic}: {_pairs(settings)}"
        case Refuse(_, _, sentence, hint):
            return f"refuse: {sentence} (try: {hint})"
        case Rest(topic, partition, incident, kind, sentence):
            return (
                f"do not replicate {topic}-{partition}: incident {incident} stops it, {kind}: {sentence}; {_then(step)}"
            )
        case AtHome(topic, home):
            return f"home of {topic}: {home}"
        case Stay(_, sentence):
            return f"leave unchanged: {sentence}"
        case Cost():
            return str(step)


def _shape(step: Create | CarryTopic) -> str:
    twin = f"{step.twin} of {step.topic}" if step.twin else step.topic
    partitions = count_phrase(step.partitions, "partition")
    if isinstance(step, Create):
        return f"create twin {twin}: {partitions}, {count_copies(step.replication)}"
    return f"replicate {twin}: {partitions}{', mapped' if step.mapped else ''}"


def _pairs(settings: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings)


def _then(step: Rest) -> str:
    return "it is retried by itself" if step.retries else "then `twinshore mirror resume`"


def _besides(link: str, lines: Sequence[Change | Remark]) -> list[str]:
    """A line each for a whole topic or the link, counts for the rest."""
    each = [str(line) for line in lines if line.kind not in _COUNTED or line.subject == link]
    rest = [line for line in lines if line.kind in _COUNTED and line.subject != link]
    changes = Counter(line.kind for line in rest if isinstance(line, Change))
    remarks = Counter(line.kind for line in rest if isinstance(line, Remark))
    said = [f"{_counts(changes)} to change"] if changes else []
    said += [f"remarks on {_counts(remarks)}"] if remarks else []
    return [*each, f"besides records: {'; '.join(said)} (--details shows each)"] if said else each


def _counts(found: Counter[str]) -> str:
    return ", ".join(count_phrase(found[kind], name) for kind, name in _COUNTED.items() if found[kind])


@dataclass(frozen=True, slots=True)
class RunPlan:
    """By link: steps, `besides`: changes other than records, `away`: why the plan is unknown."""

    steps: tuple[tuple[str, PlanStep | Cost], ...]
    besides: tuple[tuple[str, PreviewLine], ...]
    away: tuple[tuple[str, str], ...]

    def as_values(self) -> list[dict[str, Any]]:
        values: list[dict[str, Any]] = [{"link": name, "step": "unknown", "sentence": why} for name, why in self.away]
        values += [_values(name, step) for name, step in self.steps]
        return values + [{"link": name, "step": _kind(line), **asdict(line)} for name, line in self.besides]

    def sentences(self) -> list[str]:
        """Returns every step and value; unknown plans first."""
        said = [f"{name}: {describe_step(step)}" for name, step in self.steps]
        return [*self._unknown(), *said, *(f"{name}: {line}" for name, line in self.besides), *self._nothing()]

    def lines(self) -> list[str]:
        """Returns a line for each topic; unknown plans first."""
        said: list[str] = []
        for link in dict.fromkeys(name for name, _ in (*self.steps, *self.besides)):
            steps = [step for name, step in self.steps if name == link]
            besides = [line for name, line in self.besides if name == link]
            said += [f"{link}: {line}" for line in summarize_plan(link, steps, besides)]
        return [*self._unknown(), *said, *self._nothing()]

    def _unknown(self) -> list[str]:
        return [f"{name}: the plan is unknown: {why}" for name, why in self.away]

    def _nothing(self) -> list[str]:
        if self.steps or self.away:
            return []
        return [
            "nothing to do: the links' filters admit no topic that their sources show to the mirror's user;"
            " `twinshore link list` shows the filters, and a user sees the topics that it may Describe"
        ]


def plan_run(links: Sequence[str], settings: Settings, store: Store, *, rate_bytes_s: float = 0.0) -> RunPlan:
    """Plans each link; a cluster's failure goes into `away`. `rate_bytes_s`: for durations; 0: as measured. StoreError
    when the store is not writable.
    """
    chosen = settings.chosen(links)
    check_chosen_links(settings, chosen)
    store.leases.check_writable()
    steps: list[tuple[str, PlanStep | Cost]] = []
    besides: list[tuple[str, PreviewLine]] = []
    away: list[tuple[str, str]] = []
    shared = one_shot_connections(PLAN_CLIENT_ID)
    effective = effective_links(settings.links, store)
    for effective_link in [effective[link.name] for link in chosen]:
        link = effective_link.link
        for trouble in effective_link.troubles:
            log.warning(f"{link.name}: {trouble}", extra={"link": link.name})
        try:
            found = list(preview_link(link, settings, store, shared, rate_bytes_s))
            carried = {step.topic for step in found if not isinstance(step, Refuse | AtHome | Stay)}
            lines = list(follows(link, settings, store, shared, carried))
        except KafkaError as error:
            away.append((link.name, str(error)))
            continue
        steps += [(link.name, step) for step in found]
        besides += [(link.name, line) for line in lines]
    return RunPlan(tuple(steps), tuple(besides), tuple(away))


def _values(link: str, step: PlanStep | Cost) -> dict[str, Any]:
    values = asdict(step)
    if "settings" in values:
        values["settings"] = dict(values["settings"])
    return {"link": link, "step": _kind(step), **values}


def _kind(step: PlanStep | Cost | PreviewLine) -> str:
    return type(step).__name__.lower()
