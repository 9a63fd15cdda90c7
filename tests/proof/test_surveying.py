"""In which way a topic can be compared, if in any."""

from __future__ import annotations

import random

import pytest

from tests.proof.logs import batched
from tests.proof.small_broker import TOPIC, SmallBroker
from twinshore.fleet import Link
from twinshore.kafka.cluster import KafkaCluster
from twinshore.proof.surveying import Surveyor, way_of
from twinshore.proof.values import Way
from twinshore.wire.records import Record


@pytest.mark.parametrize(
    ("is_mapped", "is_carried", "is_compacted", "way"),
    [
        (False, True, False, Way.EXACT),
        (False, True, True, Way.COMPACTED),
        (True, True, False, Way.EXTENTS),
        (True, True, True, None),
        (False, False, False, Way.CONTENT),
        (False, False, True, None),
    ],
)
def test_cleaned_sides_are_compared_only_where_their_offsets_are_the_same(
    is_mapped: bool, is_carried: bool, is_compacted: bool, way: Way | None
) -> None:
    assert way_of(is_mapped=is_mapped, is_carried=is_carried, is_compacted=is_compacted) is way


@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete"])
def test_a_compacted_topic_that_others_mirror_is_told_as_not_compared(policy: str) -> None:
    log = [Record(n, n, b"k%d" % n, b"v") for n in range(9)]
    east, west = (SmallBroker(name, batched(random.Random(1), log, 9, first=0)) for name in ("east", "west"))
    east.settings["cleanup.policy"] = policy
    with east.serving() as one, west.serving() as other:
        source, target = KafkaCluster(one), KafkaCluster(other)
        try:
            link = Link("east", "west", (TOPIC,))
            found = Surveyor(link, None, source, target).look([TOPIC])
            asked_for = Surveyor(link, None, source, target, Way.CONTENT).look([TOPIC])
        finally:
            source.close()
            target.close()
    assert [side.way for side in asked_for.sides] == [Way.CONTENT]
    if policy == "delete":
        assert ([side.way for side in found.sides], found.lacks) == ([Way.CONTENT], ())
    else:
        assert found.sides == ()
        (lack,) = found.lacks
        assert (lack.topic, lack.partition) == (TOPIC, -1)
        assert lack.sentence.startswith("small is compacted: both sides are cleaned each in its own time")
