"""A pump's slow errands as `replication/task/lookups.py` runs them: who leads, where twins end, cutting.

Each takes its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from tests.simulation.clusters import Clusters, Pair
from twinshore.config.model import TopicPartition
from twinshore.replication.task.core.markers import marker_producer_id
from twinshore.replication.task.core.messages import UNKNOWN_EPOCH, EpochEnd, EpochOffset, compare_histories
from twinshore.replication.task.core.partition import PartitionLeaders
from twinshore.replication.task.core.position import TargetState, differ_at

ERRAND_S = 0.002
READINGS = ("start", "high", "end", "producers", "again", "source_start", "source_end", "tail", "source_batch")


class Hearer(Protocol):
    """The task, as an errand that comes back finds it."""

    def hear(self, act: Callable[[], None]) -> None: ...

    def routes(self, routes: dict[TopicPartition, PartitionLeaders], *, failed: bool) -> None: ...

    def looked(self, named: TopicPartition, seen: TargetState | None) -> None: ...


class Errands:
    def __init__(self, clusters: Clusters, producer_id: int, hearer: Hearer) -> None:
        self.clusters, self.schedule = clusters, clusters.schedule
        self._producer_id, self._hearer = producer_id, hearer

    def ask_routes(self, wanted: dict[TopicPartition, tuple[bytes, bytes]]) -> None:
        schedule, hearer = self.schedule, self._hearer

        def answer() -> None:
            if schedule.odds(self.clusters.errand_fails):
                hearer.hear(lambda: hearer.routes({}, failed=True))
                return
            found = {named: self.clusters.route(named, ids) for named, ids in wanted.items()}
            schedule.after(schedule.lag(ERRAND_S), lambda: hearer.hear(lambda: hearer.routes(found, failed=False)))

        schedule.after(schedule.lag(ERRAND_S), answer)

    def cut(self, named: TopicPartition, at: int) -> None:
        """test_fillers_take_offsets_and_are_cut_off"""

        def act() -> None:
            pair = self.clusters.pairs[named]
            if self.clusters.leads("target", pair) and at <= pair.twin.high:
                pair.twin.cut(at)

        self.schedule.after(self.schedule.lag(ERRAND_S), act)

    def look(self, named: TopicPartition, stand: EpochOffset) -> None:
        schedule, hearer = self.schedule, self._hearer
        reads = self._readings(self.clusters.pairs[named], stand)

        def go_on() -> None:
            for seen in reads:
                if seen is not None:
                    hearer.hear(lambda got=seen: hearer.looked(named, got[0]))  # type: ignore[misc]
                    return
                if schedule.odds(0.3):
                    schedule.after(schedule.lag(ERRAND_S), go_on)
                    return

        schedule.after(schedule.lag(ERRAND_S), go_on)

    def _readings(self, pair: Pair, stand: EpochOffset) -> Iterator[tuple[TargetState | None] | None]:
        """One reading after another, in `scout`'s order, each as the leader of that moment gives it."""
        clusters, twin, source = self.clusters, pair.twin, pair.source
        read: list[int] = []
        for what in READINGS:
            side = "source" if what.startswith("source") else "target"
            log = pair.source if side == "source" else pair.twin
            # test_a_new_leader_shows_no_end_before_its_followers_confirm
            hidden = what == "high" and log.high < log.epoch_start
            if hidden or not clusters.leads(side, pair) or self.schedule.odds(clusters.errand_fails / 5):
                yield (None,)
                return
            if what == "producers":
                producer = twin.remembered(self._producer_id)
                fence, memory_epoch = (
                    twin.fence(marker_producer_id(self._producer_id)),
                    twin.remembered_epoch(self._producer_id),
                )
            elif what == "tail":
                still = read[1] == read[2] == read[3]
                tail = twin.tail(read[2] - 1) if still and read[2] > read[0] else None
                if tail is None and still and read[2] > read[0]:
                    yield (None,)
                    return
            elif what == "source_batch":
                theirs = source.batch(read[2] - 1) if tail else None
            else:
                values = {"start": twin.start, "high": twin.high, "end": twin.end, "again": twin.end}
                read.append(values.get(what, source.start if what == "source_start" else source.end))
            yield None
        start, high, _, end, source_start, source_end = read
        differs: bool | None = False
        if tail and source_start < end <= source_end:
            differs = differ_at(theirs, twin.batch(end - 1), end - 1) if end <= source.high else None
        here = EpochOffset(theirs[1].leader_epoch if theirs else UNKNOWN_EPOCH, end)
        # test_a_fetch_names_where_the_histories_part
        said = {epoch: EpochEnd(*source.end_of_epoch(epoch)) for epoch in (stand.epoch, here.epoch) if epoch >= 0}
        epoch, parted = compare_histories(stand, here, said)
        told = (producer, source_start, source_end, fence, differs)
        yield (
            TargetState(
                start,
                high,
                end,
                tail,
                *told,
                source_epoch=epoch,
                parted=parted,
                wrote_epoch=here.epoch,
                producer_epoch=memory_epoch,
            ),
        )
