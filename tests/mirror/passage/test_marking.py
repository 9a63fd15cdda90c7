"""Marker runs of many partitions as few markers of one request."""

from __future__ import annotations

import random
from collections import Counter

from twinshore.mirror.passage.marking import Run, is_marker_id, layers, marker_id


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
