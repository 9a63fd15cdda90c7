"""What running a link would do, without doing any of it: no lease is taken, nothing is made or changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from twinshore.fleet import Link, NamedPartition, is_heartbeats
from twinshore.fleet.extents import Extent
from twinshore.fleet.sentences import copies, counted
from twinshore.fleet.settings import Settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.questions import OffsetKind
from twinshore.logs.visible import Aborted, spans
from twinshore.mirror.control.ruling import Ruling
from twinshore.mirror.driver.link_notes import LinkNotes
from twinshore.mirror.driver.survey import Surveyor, known_twins
from twinshore.mirror.driver.twins import Others
from twinshore.mirror.incidents.standing import retries, stopping
from twinshore.mirror.mapping.cost import BYTES_S_STATED, Cost, Rate, Sample, Stretch, cost_of
from twinshore.mirror.mapping.evidence import Positions
from twinshore.mirror.planned import AtHome, CarryTopic, Create, Grow, Refuse, Rest, Settle, Stay, Step
from twinshore.mirror.pump.probing import may_write_markers
from twinshore.mirror.topology.descents import Descents
from twinshore.mirror.topology.homing import Homing
from twinshore.service.connections import Shared
from twinshore.service.ends import Ends
from twinshore.service.identity import recognise
from twinshore.store import Store
from twinshore.wire.batch import split_batches

SAMPLED_PARTITIONS = 4
SAMPLE_BYTES = 256 << 10
MEASURED_BYTES_S_MIN = 1e6  # A link that only keeps up says nothing of what it could carry.
TOPICS_AT_ONCE = 100
PATIENCE_S = 10.0


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


def holding(link: Link, settings: Settings, store: Store, log: Callable[[str], None]) -> Link:
    """The link as it would run now: its settings, and what operators have said since."""
    ruling = Ruling(link, settings.links, store, log, notes=False)
    ruling.changed()
    return ruling.link


def preview(
    link: Link, settings: Settings, store: Store, shared: Shared, rate_bytes_s: float = 0.0
) -> list[Step | Cost]:
    """Every step of the link, topic by topic, and what it will take; raises where the link must not run at all."""
    with Ends(link, settings, patience_s=PATIENCE_S, shared=shared) as ends:
        source, target = ends.source, ends.target
        recognise(link, store, source, target)
        LinkNotes(link, store, target).refuse_another(source.cluster_id())
        surveyor = Surveyor(link, source, target)
        known = known_twins(store, link)
        ends_of = (store, source, target)
        descents = Descents(lambda: link, *ends_of, log=lambda _: None)
        homing = Homing(lambda: link, settings.links, *ends_of, descents, log=lambda _: None, notes=False)
        names = [name for name in homing.admitted(surveyor.names()) if not is_heartbeats(name)]
        chunks = [names[at : at + TOPICS_AT_ONCE] for at in range(0, len(names), TOPICS_AT_ONCE)]
        steps = Others(link, store).judged([step for chunk in chunks for step in surveyor.plan(chunk, known)], known)
        staying = descents.staying | homing.homeless | homing.elsewhere
        stay = [Stay(name, why) for name, why in sorted(staying.items()) if not is_heartbeats(name)]
        at_home = [AtHome(name, row.home) for name, row in sorted(homing.at_home.items()) if name in names]
        steps = [*at_home, *homing.refused.values(), *steps]
        steps, paused = _without_paused(link, steps)
        rows, unproven = Positions(link, source, target, store).propose(
            [step for step in steps if isinstance(step, CarryTopic) and step.mapped]
        )
        failed = {why.topic for why in unproven}
        steps = [*(step for step in steps if step.topic not in failed), *unproven]
        adopted = {NamedPartition(row.topic, row.partition): extent for row, extent, _ in rows}
        closed_units = not may_write_markers(target)
        steps, rests = _without_resting(link, steps, store)
        costs = forecast(link, steps, adopted, source, store, rate_bytes_s, closed_units=closed_units)
        return [*steps, *rests, *paused, *stay, *costs]


def _without_paused(link: Link, steps: list[Step]) -> tuple[list[Step], list[Step]]:
    """The steps of topics that flow, and why the others do not."""
    held = sorted({step.topic for step in steps if link.control.pauses(step.topic)})
    why = "its link is paused" if link.control.paused else "it is paused"
    stay: list[Step] = [Stay(name, f"topic {name}: {why}, see `twinshore link list`") for name in held]
    return [step for step in steps if step.topic not in held], stay


def _without_resting(link: Link, steps: list[Step], store: Store) -> tuple[list[Step], list[Step]]:
    """The steps as far as no open incident keeps partitions from being carried, and which these are."""
    known = {step.topic for step in steps if isinstance(step, CarryTopic)}
    stopped = {named: rows for named, rows in stopping(store, link.name).items() if named.topic in known}
    rests: list[Step] = []
    for named, rows in sorted(stopped.items()):
        one = rows[0].incident
        rests.append(Rest(named.topic, named.partition, rows[0].id, one.kind, one.sentence, retries(rows)))
    whole = {topic for topic in known if all(NamedPartition(topic, n) in stopped for n in _numbers(steps, topic))}
    return [step for step in steps if not (isinstance(step, CarryTopic) and step.topic in whole)], rests


def _numbers(steps: list[Step], topic: str) -> range:
    return range(max(step.partitions for step in steps if isinstance(step, CarryTopic) and step.topic == topic))


def in_words(step: Step | Cost) -> str:
    """The step as an operator reads it."""
    match step:
        case Create(topic, partitions, replication, settings, twin):
            shape = f"{counted(partitions, 'partition')}, {copies(replication)}"
            return f"create twin {called(topic, twin)}: {shape}, {_pairs(settings)}; carry it"
        case Grow(topic, partitions, _, twin):
            return f"grow twin {twin or topic} to {partitions} partitions"
        case Settle(topic, settings, _, twin):
            return f"settle twin {twin or topic}: {_pairs(settings)}"
        case CarryTopic(topic, partitions, _, _, twin):
            how = ", mapped: behind what it holds, at offsets of its own" if step.mapped else ""
            return f"carry {called(topic, twin)}: {partitions} partitions{how}"
        case Refuse(_, _, sentence, hint):
            return f"refuse: {sentence} (try: {hint})"
        case Rest(topic, partition, incident, kind, sentence):
            then = "it is tried again by itself" if step.retries else "then `twinshore mirror resume`"
            return f"do not carry {topic}-{partition}: incident {incident} stops it, {kind}: {sentence}; {then}"
        case AtHome(topic, home):
            return f"home of {topic}: {home}"
        case Stay(_, sentence):
            return f"leave: {sentence}"
        case Cost():
            return str(step)


def called(topic: str, twin: str) -> str:
    """The twin, and whose it is where that is another name."""
    return f"{twin} of {topic}" if twin else topic


def _pairs(settings: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings)
