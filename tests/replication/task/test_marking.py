"""Marker runs of many partitions as few markers of one request."""

from __future__ import annotations

import random
from collections import Counter

from twinshore.kafka.protocol.errors import Code
from twinshore.replication.task.core.batches import Blank
from twinshore.replication.task.core.config import TrackOrder
from twinshore.replication.task.core.partition import Track
from twinshore.replication.task.core.position import Marked, Run, asked, is_marker_id, layers, marker_id
from twinshore.replication.task.core.resync import Marks, running, standing


def test_every_partition_gets_its_number_in_its_fence() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        runs = [
            Run(chance.choice("ab") + str(number), number, chance.choice((1, 1, 2, 700)), chance.choice((3, 4)))
            for number in range(chance.randint(1, 12))
        ]
        count: Counter[tuple[str, int, int]] = Counter()
        found = layers(runs, 77, 5)
        for marker, times in found:
            assert (marker.producer_id, marker.producer_epoch) == (marker_id(77), 5)
            for topic, partitions in marker.topics:
                for partition in partitions:
                    count[topic, partition, marker.coordinator_epoch] += times
        assert count == {(run.topic, run.partition, run.fence): run.times for run in runs}, f"seed {seed}"
        assert len(found) <= len({(run.fence, run.times) for run in runs})


def test_a_marker_id_is_nobody_elses() -> None:
    assert marker_id(5) != marker_id(6)
    assert 0 < marker_id(0) < 2**63
    assert is_marker_id(marker_id(0))
    assert not is_marker_id(2**40)
    assert marker_id(2**40) > 2**62


def at(partition: int, end: int, epoch: int = 4) -> Marks:
    track = Track.of(TrackOrder("orders", partition, "aa", "bb", twin="twin"), (7, 0), 3, 1 << 20)
    track.begin(end, armed_until_ms=0, leader_epoch=0)
    track.led = (1, epoch)
    return Marks(track, Blank(end, end + 2))


def test_the_question_before_markers_names_the_epoch_in_which_each_end_was_known() -> None:
    assert asked(one.run for one in (at(0, 10, 4), at(3, 10, -1))) == [("twin", [(0, 4), (3, -1)])]


def test_only_markers_whose_logs_end_as_they_did_may_go() -> None:
    marks = [at(number, 10) for number in range(6)]
    ends = [
        Marked("twin", 0, 0, 10),
        Marked("twin", 1, 0, 9),
        Marked("twin", 2, 0, 11),
        Marked("twin", 3, Code.FENCED_LEADER_EPOCH, -1),
        Marked("other", 4, 0, 10),
        Marked("twin", 5, Code.NOT_LEADER_OR_FOLLOWER, 10),
    ]
    go, rest = standing(marks, ends)
    assert go == marks[:1]
    assert rest == marks[1:]


def test_markers_that_may_go_and_wait_for_room_go_no_more_once_their_twin_is_to_be_looked_at() -> None:
    stays, settles = at(0, 10), at(1, 10)
    settles.track.in_flight = 1
    settles.track.settle(0.0)
    assert running([stays, settles]) == ([stays], [settles])
