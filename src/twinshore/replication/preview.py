"""Plans what running a link would do, without a lease or a change; and checks before a mirror starts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from twinshore.config.errors import ConfigError, KafkaError, RefusedError, TwinshoreError
from twinshore.config.frozen import FIRST_CLIENT_ID
from twinshore.config.model import Link, OffsetRun, TopicPartition, is_heartbeats_topic
from twinshore.config.sentences import count_phrase
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
)
from twinshore.replication.core.model import AtHome, CarryTopic, Create, PlanStep, Rest, Stay
from twinshore.replication.link_claim import LinkClaim
from twinshore.replication.links import effective_links
from twinshore.replication.ownership_sync import TopicHomes
from twinshore.replication.stopped_partitions import are_retried, read_stopped_partitions
from twinshore.replication.task.lookups import may_write_markers
from twinshore.replication.topic_lineage import TopicLineage
from twinshore.replication.topic_scanner import TopicConflicts, TopicScanner, read_known_twins
from twinshore.runtime.endpoints import LinkClients, SharedConnections, verify_cluster_ids
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
        chunks = [names[at : at + TOPICS_PER_SCAN] for at in range(0, len(names), TOPICS_PER_SCAN)]
        planned = [step for chunk in chunks for step in surveyor.plan(chunk, known)]
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
