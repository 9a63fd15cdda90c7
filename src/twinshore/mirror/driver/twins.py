"""Makes the target as the plan wants it: twins created, grown, settled; then their partitions may be carried."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Sequence

from twinshore.fleet import KafkaError, Link, NamedPartition
from twinshore.fleet.incidents import IncidentKind, IncidentSide
from twinshore.fleet.sentences import copies, counted
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.errors import Code
from twinshore.links.thinned import thinned
from twinshore.mirror.lane import answers
from twinshore.mirror.lane.history import UNKNOWN, Stand
from twinshore.mirror.lane.orders import TrackOrder
from twinshore.mirror.lane.reach import reach_of
from twinshore.mirror.planned import CarryTopic, Create, Grow, Refuse, Settle, Step
from twinshore.service.clock import wall_ms
from twinshore.store import Store, TwinRow
from twinshore.wire.batch import SEQUENCE_SPAN

APPEAR_S_MAX = 15.0
POLL_S = 0.05


def apply(target: KafkaCluster, steps: Iterable[Step]) -> list[str]:
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
                done.append(f"created twin {topic} with {counted(partitions, 'partition')}, {copies(replication)}")
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


def attempt(
    target: KafkaCluster, step: Step, tell: Callable[[str], None], unmade: Callable[[Create], None]
) -> Refuse | None:
    """Does what the step changes; why its topic must rest where the target will not have it. `unmade` hears of a twin
    that was not made."""
    try:
        for sentence in apply(target, [step]):
            tell(sentence)
    except KafkaError as error:
        if error.retriable and not error.code:
            raise  # it is no broker's answer: the cluster does not hear us at all
        if isinstance(step, Create) and not error.retriable:
            unmade(step)
        return refusal(step, error)
    return None


def refusal(step: Step, error: KafkaError) -> Refuse:
    """Why the topic must rest: the target will not have what the step needs."""
    kind = (
        IncidentKind.RIGHTS_LOST
        if error.code in answers.RIGHTS
        else IncidentKind.TARGET_AWAY
        if error.retriable
        else IncidentKind.REFUSED
    )
    return Refuse(step.topic, kind, error.message, error.hint, IncidentSide.TARGET)


def twin_row(link: str, step: CarryTopic, partition: int, now_ms: int) -> TwinRow:
    """A new twin's row. Its history begins where the source's log does now: sequences follow the offsets there, and
    what is filled below it is not missing."""
    start = step.starts[partition] if step.starts else 0
    ids = (step.source_topic_id, step.target_topic_id)
    return TwinRow(link, step.topic, partition, *ids, start, start % SEQUENCE_SPAN, now_ms)


def orders_for(
    store: Store, link: Link, steps: Sequence[CarryTopic], made: Container[TwinRow]
) -> dict[NamedPartition, TrackOrder]:
    """What a pump must know of each partition of these steps. Twins that are new are remembered from now on; `made`:
    those that this term of the link remembered first."""
    now_ms = wall_ms()
    rows = [twin_row(link.name, step, partition, now_ms) for step in steps for partition in range(step.partitions)]
    if not rows:
        return {}
    told = {
        (at.topic, at.partition): Stand(at.source_epoch, at.to_offset) for at in store.receipts.positions(link.name)
    }
    reached = {place: reach_of(extent) for place, extent in store.extents.reached(link.name).items()}
    called = {step.topic: step.twin for step in steps}
    saved = store.twins.save(rows)
    stands = {}
    for row in saved:
        place = (row.topic, row.partition)
        begin = row.anchor_offset if place in reached else -1 if row.inherited else 0
        stands[place] = told.get(place, Stand(UNKNOWN, begin))
    # Where records landed is told before how far the source was read.
    ends = {
        row: max(stands[place].end, reached[place].source)
        for row in saved
        if (place := (row.topic, row.partition)) in reached
    }
    thinned_to = thinned(store, link, ends)
    found = {}
    for row in saved:
        place = (row.topic, row.partition)
        stand = stands[place]
        found[NamedPartition(*place)] = TrackOrder(
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
    deadline = time.monotonic() + APPEAR_S_MAX
    while True:
        seen = target.metadata([topic], refresh=True).topics.get(topic)
        led = seen and not seen.error and all(partition.leader >= 0 for partition in seen.partitions)
        if seen and led and len(seen.partitions) >= partitions:
            return
        if time.monotonic() > deadline:
            raise KafkaError(f"{target.name}: topic {topic} has no leaders {APPEAR_S_MAX:.0f} s after it was made")
        time.sleep(POLL_S)
