"""A forced switch while others write to the new home already: it ends, and its points are where the link's end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.switch.test_decision import record
from twinshore.config.model import TopicPartition, fence_epoch
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.record_batch import CONTROL_FLAG, HEADER_BYTES, HEADER_STRUCT, BatchHeader
from twinshore.replication.task.core.markers import marker_producer_id
from twinshore.switch import fencing
from twinshore.switch.core.steps import (
    StepDone,
    StepOutcome,
    StepPending,
    SwitchKind,
    SwitchState,
    SwitchStatus,
    SwitchStep,
    apply_outcome,
)
from twinshore.switch.fencing import FencedProducer, check_twins_settled, write_fence

LINK, OTHER, EPOCH = 5, 777, 1
SHUT = FencedProducer(LINK, {"orders": EPOCH})
CALL_S, LOOK_S = 0.004, 0.05


@dataclass
class West:
    """The new home, one partition in which the link ended at 100. Each question takes some time, while others write."""

    per_s: float = 0.0
    lag: int = 0  # so many offsets of what others wrote are not on all replicas
    until_s: float = 1e9
    now_s: float = 0.0
    log: list[BatchHeader] = field(default_factory=list)
    name: str = "west"

    def __post_init__(self) -> None:
        self.put(100, LINK)
        self._since_s = 0.0

    @property
    def end(self) -> int:
        return self.log[-1].last_offset + 1

    def put(self, count: int, producer_id: int, epoch: int = EPOCH, attributes: int = 0) -> int:
        """Where it lies."""
        base = self.end if self.log else 0
        fields = dict.fromkeys(BatchHeader._fields, 0) | {
            "base_offset": base,
            "length": HEADER_BYTES - 12,
            "magic": 2,
            "last_offset_delta": count - 1,
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "attributes": attributes,
        }
        self.log.append(BatchHeader(**fields))
        return base

    def passes(self, seconds: float) -> None:
        self.now_s += seconds
        while self.per_s and self._since_s + 1 / self.per_s <= min(self.now_s, self.until_s):
            self._since_s += 1 / self.per_s
            self.put(1, OTHER)

    def fences(self) -> list[int]:
        ours = [one for one in self.log if one.attributes & CONTROL_FLAG and one.producer_id == LINK]
        return [one.base_offset for one in ours if one.producer_epoch == fence_epoch(EPOCH)]

    # -- as a cluster is asked

    def metadata(self, names: Iterable[str], **_: bool) -> Any:
        topic = SimpleNamespace(error=0, topic_id=bytes.fromhex("b" * 32), partitions=[0])
        return SimpleNamespace(topics=dict.fromkeys(names, topic))

    def list_offsets(self, parts: Iterable[TopicPartition], kind: OffsetKind) -> dict[TopicPartition, int]:
        self.passes(CALL_S)
        at = {OffsetKind.EARLIEST: 0, OffsetKind.HIGH_WATERMARK: max(100, self.end - self.lag)}.get(kind, self.end)
        return dict.fromkeys(parts, at)

    def describe_producers(self, parts: Iterable[TopicPartition]) -> dict[TopicPartition, list[Any]]:
        known = {one.producer_id: one for one in self.log}
        states = [
            SimpleNamespace(producer_id=one, epoch=last.producer_epoch, coordinator_epoch=0)
            for one, last in known.items()
        ]
        return dict.fromkeys(parts, states)

    def read_tail_batch(self, _: TopicPartition, at: int) -> BatchHeader | None:
        return next((one for one in self.log if one.base_offset <= at <= one.last_offset), None)

    def read_from(self, _: TopicPartition, at: int, *, bytes_max: int, **__: bool) -> Any:
        self.passes(CALL_S)
        upto = self.end - self.lag
        found = [HEADER_STRUCT.pack(*one) for one in self.log if at <= one.last_offset < upto][
            : bytes_max // HEADER_BYTES
        ]
        return SimpleNamespace(records=memoryview(b"".join(found)))

    def leader_of(self, _: TopicPartition) -> int:
        return 0

    def at(self, *_: object) -> dict[TopicPartition, int]:
        self.put(1, LINK, fence_epoch(EPOCH), CONTROL_FLAG)
        return {}


def at(step: SwitchStep, *points: int) -> SwitchState:
    one = replace(record(SwitchKind.FORCED), step=step, step_ms=0)
    return replace(one, topics=(replace(one.topics[0], points=points),))


def play(west: West, one: SwitchState, until: SwitchStep, *, page_bytes: int = 1 << 20) -> tuple[SwitchState, int]:
    """As the runner does, and how many tries it took; whoever is killed at each try leaves the record alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fencing, "FOREIGN_READ_S", 0.0)
        patch.setattr(fencing, "PAGE_BYTES", page_bytes)
        return _play(west, one, until)


def _play(west: West, one: SwitchState, until: SwitchStep) -> tuple[SwitchState, int]:
    some: Any = west
    for tries in range(2_000):
        if one.step is until or one.state is not SwitchStatus.RUNNING:
            return one, tries
        outcome: StepOutcome = StepDone(one)
        if one.step is SwitchStep.CATCH_UP:
            outcome = check_twins_settled(some, one, SHUT)
        if one.step is SwitchStep.FENCE:
            outcome = write_fence(some, one, SHUT)
        one = SwitchState.from_json(apply_outcome(one, outcome, int(west.now_s * 1000)).to_json())
        west.passes(LOOK_S)
    raise AssertionError(f"no end of {one.step}: {one.waits}")


@pytest.mark.parametrize("lag", [0, 3])
@pytest.mark.parametrize("page_bytes", [HEADER_BYTES * 40, 1 << 20])
def test_whoever_writes_all_the_while_keeps_no_forced_switch_from_ending(page_bytes: int, lag: int) -> None:
    """Somebody has repointed a name to west before the command has ended."""
    west = West(per_s=200.0, lag=lag)
    ended, tries = play(west, at(SwitchStep.CATCH_UP), SwitchStep.APPLY_SETTINGS, page_bytes=page_bytes)
    assert (ended.step, ended.why, ended.foreign_writes) == (SwitchStep.APPLY_SETTINGS, "", ())
    assert tries < 30
    assert west.now_s < 5
    (point,), (fence,) = ended.topics[0].points, west.fences()
    assert 100 <= point <= 101, "what others wrote behind is the new home's own"
    assert {one.producer_id for one in west.log if point <= one.base_offset < fence} == {OTHER}
    assert west.end > fence + 1, "they write on"


def test_whoever_begins_behind_the_decision_leaves_the_point_where_it_is() -> None:
    west = West(per_s=200.0)
    west.passes(1.0)
    ended, tries = play(west, at(SwitchStep.FENCE, 100), SwitchStep.APPLY_SETTINGS)
    assert (ended.topics[0].points, tries, len(west.fences())) == ((100,), 2, 1)


@pytest.mark.parametrize("step", [SwitchStep.CATCH_UP, SwitchStep.FENCE])
@pytest.mark.parametrize("who", [LINK, marker_producer_id(LINK)])
def test_what_the_link_sent_at_last_lies_below_the_point_among_others(step: SwitchStep, who: int) -> None:
    west = West()
    west.put(7, OTHER)
    last = west.put(3, who)
    west.put(9, OTHER)
    ended, _ = play(west, at(step, 100), SwitchStep.APPLY_SETTINGS)
    assert ended.topics[0].points == (last + 3,) == (110,)
    assert west.fences() == [119]


def test_a_late_request_between_a_look_and_the_fence_is_below_the_point_as_well() -> None:
    """The fence was written a moment after the log was read, and its process was killed before it could say so."""
    west: Any = West()
    west.put(7, OTHER)
    one = at(SwitchStep.FENCE, 100)
    waits = write_fence(west, one, SHUT)
    assert isinstance(waits, StepPending)
    west.log.pop()
    late = west.put(3, LINK)
    west.put(1, LINK, fence_epoch(EPOCH), CONTROL_FLAG)
    assert waits.state is not None
    for again in (one, waits.state):
        done = write_fence(west, again, SHUT)
        assert isinstance(done, StepDone)
        assert (done.state.topics[0].points, west.fences()) == ((late + 3,), [late + 3])


def test_a_fence_that_stands_already_lies_behind_the_point_and_stays_the_only_one() -> None:
    """Another forced switch was killed once it had put it up, and nobody knows of it any more."""
    west = West()
    west.put(1, LINK, fence_epoch(EPOCH), CONTROL_FLAG)
    ended, _ = play(west, at(SwitchStep.CATCH_UP), SwitchStep.APPLY_SETTINGS)
    assert (ended.topics[0].points, west.fences()) == ((100,), [100])
    west.put(50, OTHER)
    ended, _ = play(west, at(SwitchStep.CATCH_UP, 100), SwitchStep.APPLY_SETTINGS)
    assert (ended.topics[0].points, west.fences()) == ((100,), [100])


def test_twins_that_grow_or_shrink_of_themselves_are_waited_for() -> None:
    west: Any = West()
    first = check_twins_settled(west, at(SwitchStep.CATCH_UP), SHUT)
    assert isinstance(first, StepPending)
    assert first.state is not None
    west.put(5, LINK)
    grown = check_twins_settled(west, first.state, SHUT)
    assert isinstance(grown, StepPending)
    assert grown.state is not None
    assert grown.state.topics[0].points == (105,)
    assert isinstance(check_twins_settled(west, grown.state, SHUT), StepDone)
    west.log.pop()
    shrunk = check_twins_settled(west, grown.state, SHUT)
    assert isinstance(shrunk, StepPending)
    assert shrunk.state is not None
    assert shrunk.state.topics[0].points == (100,)
    west.put(5, LINK)
    west.lag = 2
    assert isinstance(check_twins_settled(west, at(SwitchStep.CATCH_UP, 105), SHUT), StepPending), (
        "what the link wrote may be lost still"
    )
