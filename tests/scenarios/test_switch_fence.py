"""The hand that puts up the marker fence, on a real broker: each partition gets one, whatever happens meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.scenarios.switch_stage import staged
from tests.switch.test_decision import record
from twinshore.kafka.errors import Code
from twinshore.lab import KAFKA_NEWEST
from twinshore.lab.stages.raw_writer import RawWriter, end_of
from twinshore.switch.decision import Done, Outcome, Wait
from twinshore.switch.deeds import Deed, Kind
from twinshore.switch.hands.fence import Shut, is_fence, put_up
from twinshore.switch.record import Moved, Record


def _of(names: dict[str, int]) -> Record:
    topics = tuple(Moved(name, "a" * 32, "b" * 32, 1, 1, (point,)) for name, point in sorted(names.items()))
    return replace(record(Kind.FORCED), deed=Deed.FENCE, topics=topics)


def _points(outcome: Outcome) -> dict[str, int]:
    assert outcome.record is not None
    return {one.topic: one.points[0] for one in outcome.record.topics}


@pytest.mark.long
def test_a_fence_that_stands_keeps_its_point_when_another_twin_grows_at_last() -> None:
    """A process was killed when one partition had its fence; what the old link sent last came to the other one then."""
    with staged(KAFKA_NEWEST) as stage:
        for name in ("bills", "orders"):
            stage.lab.create_topic(name, copies=1)
        bills, orders = RawWriter(stage.kafka, "bills"), RawWriter(stage.kafka, "orders")
        orders.producer_id, orders.epoch = bills.producer_id, bills.epoch
        shut = Shut(bills.producer_id, {"bills": bills.epoch, "orders": bills.epoch})
        assert bills.write(3, 0).error == orders.write(3, 0).error == 0

        assert isinstance(put_up(stage.kafka, _of({"bills": 3}), shut), Wait), "it is looked at once more"
        assert isinstance(put_up(stage.kafka, _of({"bills": 3}), shut), Done)
        assert orders.write(2, 3).error == 0, "still on its way"

        grown = put_up(stage.kafka, _of({"bills": 3, "orders": 3}), shut)
        assert isinstance(grown, Wait)
        assert _points(grown) == {"bills": 3, "orders": 5}
        assert grown.record is not None
        assert isinstance(put_up(stage.kafka, grown.record, shut), Wait)
        assert isinstance(put_up(stage.kafka, grown.record, shut), Done)
        assert (end_of(bills), end_of(orders)) == (4, 6), "one marker each"
        assert all(is_fence(stage.kafka, one.named, at, shut) for one, at in ((bills, 3), (orders, 5)))
        assert bills.write(1, 3).error == orders.write(1, 5).error == Code.INVALID_PRODUCER_EPOCH
