"""What bounds a task at every moment: offsets in order, buffers counted, nothing read ahead without end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tests.simulation.connections import LEFT_LANDS_S, PRODUCE_TIMEOUT_S
from tests.simulation.twin_log import Violation
from twinshore.config.model import TopicPartition
from twinshore.replication.task.core.messages import TaskLimits

if TYPE_CHECKING:
    from tests.simulation.pump_model import PumpModel

LIMITS = TaskLimits(
    partition_bytes_max=400,
    inflight_max=4,
    request_bytes_max=1500,
    merge_below_bytes=150,
    merged_bytes_max=400,
    work_max=20,
    produce_timeout_s=PRODUCE_TIMEOUT_S,
    undelivered_s=LEFT_LANDS_S,
)


def check_bounds(task: PumpModel) -> None:
    """Raises Violation when the task has lost count of something."""
    held: Counter[int] = Counter()
    flying: Counter[TopicPartition] = Counter(
        one.replicator.named  # type: ignore[attr-defined]
        for flow in task.core.targets.values()
        for one in (*flow.due, *(each for flight in flow.in_flight for each in (*flight.sent, *flight.marks)))
    )
    _check_one_owner(task, flying)
    for track in task.task.replicators.values():
        if not track.acked <= track.sent <= track.fetched:
            raise Violation(f"{track.named}: acked {track.acked}, sent {track.sent}, fetched {track.fetched}")
        if track.in_flight != flying[track.named]:
            raise Violation(f"{track.named}: believes {track.in_flight} on their way, there are {flying[track.named]}")
        size = 0
        for batch, hold in track.waiting:
            size += batch.size
            if hold:
                held[id(hold)] += 1
        if size != track.waiting.bytes:
            raise Violation(f"{track.named}: believes {track.waiting.bytes} bytes wait, there are {size}")
        if size > 4 * track.partition_bytes_max:
            raise Violation(f"{track.named}: {size} bytes wait, fetched {track.partition_bytes_max} at a time")
    for flow in task.core.targets.values():
        held.update(id(one.buffer) for one in flow.pinned if one.buffer)
    held.update(id(rest.buffer) for rest in task.task.backlog._rests)
    for source in task.core.sources.values():
        for hold in source.holds:
            if hold.uses != held[id(hold)]:
                raise Violation(f"{task.name}: a buffer counts {hold.uses} uses, there are {held[id(hold)]}")


def _check_one_owner(task: PumpModel, writes: Iterable[TopicPartition]) -> None:
    """Belt 1: of the tasks that carry a partition and hold a grant, one at most writes it."""
    if task.lawless:
        return
    writers = task.clusters.writers
    for named in writes:
        other = writers.get(named, task)
        if other is not task and not other.ended and other.holds() and named in other.task.replicators:
            raise Violation(f"{named}: {task.name} writes while {other.name} may")
        writers[named] = task
