"""The hand that puts up the marker fence, on a real broker: each partition gets one, whatever happens meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testkit.errors import mentions
from testkit.raw_writer import RawWriter
from tests.scenarios.raw_writers_log import end_of
from tests.scenarios.switch_stage import staged
from tests.switch.test_decision import record
from twinshore.kafka.protocol.error_codes import Code
from twinshore.lab.jars import KAFKA_NEWEST
from twinshore.switch import fencing
from twinshore.switch.core.steps import (
    StepDone,
    StepOutcome,
    StepPending,
    SwitchKind,
    SwitchState,
    SwitchStep,
    TopicMove,
)
from twinshore.switch.fencing import FencedProducer, is_fence, write_fence


def _of(names: dict[str, int]) -> SwitchState:
    topics = tuple(
        TopicMove(topic=name, old_id="a" * 32, new_id="b" * 32, term=1, partitions=1, points=(point,))
        for name, point in sorted(names.items())
    )
    return replace(record(SwitchKind.FORCED), step=SwitchStep.FENCE, topics=topics)


def _points(outcome: StepOutcome) -> dict[str, int]:
    assert outcome.state is not None
    return {one.topic: one.points[0] for one in outcome.state.topics}


@pytest.mark.long
def test_a_fence_that_stands_keeps_its_point_when_another_twin_grows_at_last() -> None:
    """A process was killed when one partition had its fence; what the old link sent last came to the other one then."""
    with staged(KAFKA_NEWEST) as stage:
        for name in ("bills", "orders"):
            stage.lab.create_topic(name, copies=1)
        bills, orders = RawWriter(stage.kafka, "bills"), RawWriter(stage.kafka, "orders")
        orders.producer_id, orders.epoch = bills.producer_id, bills.epoch
        shut = FencedProducer(bills.producer_id, {"bills": bills.epoch, "orders": bills.epoch})
        assert bills.write(3, 0).error == orders.write(3, 0).error == 0

        assert isinstance(write_fence(stage.kafka, _of({"bills": 3}), shut), StepPending), "it is looked at once more"
        assert isinstance(write_fence(stage.kafka, _of({"bills": 3}), shut), StepDone)
        assert orders.write(2, 3).error == 0, "still on its way"

        grown = write_fence(stage.kafka, _of({"bills": 3, "orders": 3}), shut)
        assert isinstance(grown, StepPending)
        assert _points(grown) == {"bills": 3, "orders": 5}
        assert grown.state is not None
        assert isinstance(write_fence(stage.kafka, grown.state, shut), StepDone), "its fence went up at once"
        assert (end_of(bills), end_of(orders)) == (4, 6), "one marker each"
        assert all(is_fence(stage.kafka, one.partition, at, shut) for one, at in ((bills, 3), (orders, 5)))
        assert bills.write(1, 3).error == orders.write(1, 5).error == Code.invalid_producer_epoch


@pytest.mark.long
def test_what_others_wrote_is_read_in_as_many_tries_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try has time for one page of each partition, and others go on writing."""
    with staged(KAFKA_NEWEST) as stage:
        for name in ("bills", "orders"):
            stage.lab.create_topic(name, copies=1)
        bills, orders = RawWriter(stage.kafka, "bills"), RawWriter(stage.kafka, "orders")
        strays = [RawWriter(stage.kafka, "bills"), RawWriter(stage.kafka, "orders")]
        shut = FencedProducer(bills.producer_id, {"bills": bills.epoch, "orders": bills.epoch})
        orders.producer_id, orders.epoch = bills.producer_id, bills.epoch
        assert bills.write(3, 0).error == orders.write(3, 0).error == 0
        assert all(stray.write(1, number).error == 0 for stray in strays for number in range(8))
        going = replace(_of({"bills": 3, "orders": 3}), kind=SwitchKind.PLANNED)
        waits, sequence = [], 8
        monkeypatch.setattr(fencing, "FOREIGN_READ_S", 0.0)
        monkeypatch.setattr(fencing, "PAGE_BYTES", 1)
        while isinstance(outcome := write_fence(stage.kafka, going, shut), StepPending):
            assert outcome.state is not None
            going = SwitchState.from_json(outcome.state.to_json())
            waits.append(outcome.sentence)
            assert all(stray.write(1, sequence).error == 0 for stray in strays)
            sequence += 1
        assert isinstance(outcome, StepDone)
        assert [mentions(one, "bills-0, orders-0") for one in waits[:8]] == [True] * 7 + [False]
        assert outcome.state == replace(going, foreign_writes=())
        assert bills.write(1, 3).error == orders.write(1, 3).error == Code.invalid_producer_epoch
        markers = [
            [at for at in range(3, end_of(one)) if is_fence(stage.kafka, one.partition, at, shut)]
            for one in (bills, orders)
        ]
        assert [len(one) for one in markers] == [1, 1]


@pytest.mark.long
@pytest.mark.parametrize("kind", [SwitchKind.PLANNED, SwitchKind.FORCED])
def test_whoever_writes_to_the_new_home_too_early_keeps_nobody_waiting(kind: SwitchKind) -> None:
    """The switch is past its point of no return: its fence goes behind his records, and the point stays."""
    with staged(KAFKA_NEWEST) as stage:
        stage.lab.create_topic("bills", copies=1)
        link, stray = RawWriter(stage.kafka, "bills"), RawWriter(stage.kafka, "bills")
        shut = FencedProducer(link.producer_id, {"bills": link.epoch})
        assert link.write(3, 0).error == stray.write(2, 0).error == 0
        going = replace(_of({"bills": 3}), kind=kind)
        assert isinstance(write_fence(stage.kafka, going, shut), StepPending)
        done = write_fence(stage.kafka, going, shut)
        assert isinstance(done, StepDone)
        assert _points(done) == {"bills": 3}
        assert (end_of(link), is_fence(stage.kafka, link.partition, 5, shut)) == (6, True)
        assert link.write(1, 3).error == Code.invalid_producer_epoch
        assert stray.write(1, 2).error == 0
        assert isinstance(write_fence(stage.kafka, going, shut), StepDone), "done twice as done once"
        assert end_of(link) == 7

        late = replace(going, kind=SwitchKind.PLANNED, topics=_of({"bills": 1}).topics)
        other = FencedProducer(link.producer_id, {"bills": link.epoch + 5})
        assert isinstance(write_fence(stage.kafka, late, other), StepPending), "what the link wrote is not passed over"
        assert end_of(link) == 7
