"""Marker runs of many partitions as few markers of one request."""

from __future__ import annotations

import random
from collections import Counter

from twinshore.kafka.protocol.error_codes import Code
from twinshore.replication.task.core.batches import OffsetGap
from twinshore.replication.task.core.markers import (
    MarkerOutcome,
    MarkerRun,
    end_offset_queries,
    group_markers,
    is_marker_producer_id,
    marker_producer_id,
)
from twinshore.replication.task.core.messages import PartitionConfig
from twinshore.replication.task.core.partition import PartitionReplicator
from twinshore.replication.task.core.resync import PendingMarkers, split_by_log_end, split_by_phase


def test_every_partition_gets_its_number_in_its_fence() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        runs = [
            MarkerRun(chance.choice("ab") + str(number), number, chance.choice((1, 1, 2, 700)), chance.choice((3, 4)))
            for number in range(chance.randint(1, 12))
        ]
        count: Counter[tuple[str, int, int]] = Counter()
        found = group_markers(runs, 77, 5)
        for marker, times in found:
            assert (marker.producer_id, marker.producer_epoch) == (marker_producer_id(77), 5)
            for topic, partitions in marker.topics:
                for partition in partitions:
                    count[topic, partition, marker.coordinator_epoch] += times
        assert count == {(run.topic, run.partition, run.fence): run.times for run in runs}, f"seed {seed}"
        assert len(found) <= len({(run.fence, run.times) for run in runs})


def test_a_marker_id_is_nobody_elses() -> None:
    assert marker_producer_id(5) != marker_producer_id(6)
    assert 0 < marker_producer_id(0) < 2**63
    assert is_marker_producer_id(marker_producer_id(0))
    assert not is_marker_producer_id(2**40)
    assert marker_producer_id(2**40) > 2**62


def at(partition: int, end: int, epoch: int = 4) -> PendingMarkers:
    track = PartitionReplicator.of(PartitionConfig("orders", partition, "aa", "bb", twin="twin"), (7, 0), 3, 1 << 20)
    track.begin(end, armed_until_ms=0, leader_epoch=0)
    track.led = (1, epoch)
    return PendingMarkers(track, OffsetGap(end, end + 2))


def test_the_question_before_markers_names_the_epoch_in_which_each_end_was_known() -> None:
    assert end_offset_queries(one.run for one in (at(0, 10, 4), at(3, 10, -1))) == [("twin", [(0, 4), (3, -1)])]


def test_only_markers_whose_logs_end_as_they_did_may_go() -> None:
    marks = [at(number, 10) for number in range(6)]
    ends = [
        MarkerOutcome("twin", 0, 0, 10),
        MarkerOutcome("twin", 1, 0, 9),
        MarkerOutcome("twin", 2, 0, 11),
        MarkerOutcome("twin", 3, Code.fenced_leader_epoch, -1),
        MarkerOutcome("other", 4, 0, 10),
        MarkerOutcome("twin", 5, Code.not_leader_or_follower, 10),
    ]
    go, rest = split_by_log_end(marks, ends)
    assert go == marks[:1]
    assert rest == marks[1:]


def test_markers_that_may_go_and_wait_for_room_go_no_more_once_their_twin_is_to_be_looked_at() -> None:
    stays, settles = at(0, 10), at(1, 10)
    settles.replicator.in_flight = 1
    settles.replicator.settle(0.0)
    assert split_by_phase([stays, settles]) == ([stays], [settles])
