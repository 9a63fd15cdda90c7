"""Asks both clusters what carrying the planned topics will take: a few fetches a topic, nothing is changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from twinshore.fleet import Link, NamedPartition, is_heartbeats
from twinshore.fleet.extents import Extent
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.questions import OffsetKind
from twinshore.logs.visible import Aborted, spans
from twinshore.mirror.mapping.cost import BYTES_S_STATED, Cost, Rate, Sample, Stretch, cost_of
from twinshore.mirror.planned import CarryTopic, Create, Step
from twinshore.store import Store
from twinshore.wire.batch import split_batches

SAMPLED_PARTITIONS = 4
SAMPLE_BYTES = 256 << 10
MEASURED_BYTES_S_MIN = 1e6  # A link that only keeps up says nothing of what it could carry.


def forecast(
    link: Link,
    steps: Sequence[Step],
    adopted: dict[NamedPartition, Extent],
    source: KafkaCluster,
    store: Store,
    rate_bytes_s: float = 0.0,
    *,
    closed_units: bool = False,
) -> list[Cost]:
    """An estimate for each topic of the steps. `adopted`: where mapped topics would go on, as far as that is proven.
    `closed_units`: the target takes no markers directly."""
    rate = replace(_rate(link, store, rate_bytes_s), closed_units=closed_units)
    told = {NamedPartition(at.topic, at.partition): at.to_offset for at in store.receipts.positions(link.name)}
    carried = [step for step in steps if isinstance(step, CarryTopic | Create)]
    everything = [NamedPartition(step.topic, number) for step in carried for number in range(step.partitions)]
    # A partition that nobody leads now costs nothing that could be told.
    nothing = dict.fromkeys(everything, 0)
    starts = nothing | source.offsets_of_each(everything, OffsetKind.EARLIEST)[0]
    ends = nothing | source.offsets_of_each(everything, OffsetKind.LAST_STABLE)[0]
    found = []
    for step in carried:
        mapped = isinstance(step, CarryTopic) and step.mapped
        parts = [NamedPartition(step.topic, number) for number in range(step.partitions)]
        begins = {named: adopted[named].source if named in adopted else told.get(named, 0) for named in parts}
        stretches = [
            Stretch(max(0, ends[named] - max(begins[named], starts[named])), max(0, starts[named] - begins[named]))
            for named in parts
        ]
        full = [named for named, stretch in zip(parts, stretches, strict=True) if stretch.offsets]
        samples = [_sample(source, one, max(begins[one], starts[one])) for one in full[:SAMPLED_PARTITIONS]]
        place = "; ".join(f"{named} goes on with {adopted[named].source}" for named in parts if named in adopted)
        mapped = mapped or (isinstance(step, Create) and link.queue.fresh and not is_heartbeats(step.topic))
        mode = "mapped" if mapped else "exact"
        found.append(cost_of(step.topic, mode, stretches, samples, rate, place))
    return found


def _rate(link: Link, store: Store, wanted: float) -> Rate:
    if wanted:
        return Rate(wanted, measured=False)
    measured = max((one.bytes_per_s for one in store.links.statuses() if one.link == link.name), default=0.0)
    known = measured >= MEASURED_BYTES_S_MIN
    return Rate(measured if known else BYTES_S_STATED, measured=known)


def _sample(source: KafkaCluster, named: NamedPartition, offset: int) -> Sample:
    """What one fetch brings."""
    fetched = source.read_from(named, offset, bytes_max=SAMPLE_BYTES, committed=True)
    aborted = Aborted(fetched.aborted)
    at, seen, size = offset, 0, 0
    for view, header in split_batches(fetched.records):
        if header.last_offset < at:
            continue
        seen += sum(end - first for first, end, shown in spans(view, header, at, aborted) if shown)
        size += len(view)
        at = header.last_offset + 1
    return Sample(at - offset, seen, size)
