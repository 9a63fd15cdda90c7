"""What a task does next, as transcripts: events in, commands out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from tests.replication.task.parcels import a_batch
from twinshore.config.model import TopicPartition
from twinshore.kafka.protocol.produce import ProducedPartition
from twinshore.kafka.protocol.transactions import LogEnd, MarkedPartition
from twinshore.replication.task.core.batches import OffsetGap, OutgoingBatch
from twinshore.replication.task.core.connections import (
    RESPONSE_SLACK_S,
    CloseConnection,
    DetachBuffers,
    EndOffsetConnectionKey,
    InspectTwins,
    LearnTwinNames,
    LookUpLeaders,
    OpenConnection,
    PollSocket,
    SendFetch,
    SendRequest,
    SourceFetcher,
    TargetProducer,
    TaskCommand,
)
from twinshore.replication.task.core.known_end import UnresolvedRequests
from twinshore.replication.task.core.messages import (
    Assign,
    CoordinatorMessage,
    EpochOffset,
    Finish,
    Handoff,
    LeaseGranted,
    PartitionConfig,
    Release,
    Released,
    StartWriting,
    Stop,
    TaskFinished,
    TaskLimits,
    TaskProgress,
    TaskReady,
    dropped_incident,
)
from twinshore.replication.task.core.partition import PartitionLeaders, PartitionReplicator, Phase
from twinshore.replication.task.core.partitions import TaskPartitions
from twinshore.replication.task.core.task_core import (
    CONGESTED_AFTER_S,
    DIAL_TIMEOUT_S,
    STANDBY_S_MAX,
    TIMER_INTERVAL_S,
    TaskCore,
    WriteLease,
)

NAMED = TopicPartition("orders", 0)
SOURCE, TARGET = (1, 0), 2
OLD_MS, NOW_MS = 1_700_000_000_000, 1_700_000_100_000
LIMITS = TaskLimits()
ORDER = PartitionConfig("orders", 0, "11" * 16, "22" * 16)
OTHER = PartitionConfig("others", 0, "33" * 16, "44" * 16)
IN = ProducedPartition(bytes.fromhex("22" * 16), 0, 0, 0, -1, 0, None, None)  # the first offset


class Stage:
    """A core with one partition. `does` are the kinds of commands since it was last asked."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.task = TaskPartitions(7, 0, 1, state_expiry_ms=86_400_000, limits=LIMITS)
        self.core = TaskCore(self.task, WriteLease(), self.now_s, report_s=0.5)
        self.hears(Assign((ORDER,)))

    @property
    def track(self) -> PartitionReplicator:
        return self.task.replicators[NAMED]

    @property
    def source(self) -> SourceFetcher:
        return self.core.sources[SOURCE]

    @property
    def target(self) -> TargetProducer:
        return self.core.targets[TARGET]

    def hears(self, word: CoordinatorMessage) -> list[TaskCommand]:
        return list(self.core.hear(word, self.now_s))

    def timers(self, after_s: float = TIMER_INTERVAL_S) -> list[TaskCommand]:
        self.now_s += after_s
        return list(self.core.timers(self.now_s))

    def flow(self) -> list[TaskCommand]:
        found = []
        for command in self.core.flow(self.now_s, NOW_MS):
            found.append(command)
            if isinstance(command, SendRequest):
                command.producer.written()
        return found

    def connected(self) -> Stage:
        assert self.timers() == [LookUpLeaders()]
        self.core.routed({NAMED: PartitionLeaders(1, 0, TARGET, target_epoch=0)}, "", "", self.now_s)
        assert kinds(self.timers()) == [OpenConnection, OpenConnection]
        self.core.dialled("source", SOURCE, self.now_s, version=13)
        self.core.dialled("target", TARGET, self.now_s, version=13)
        assert kinds(self.timers()) == [TaskReady]
        return self

    def going(self, grant_s: float = 1e6) -> Stage:
        self.connected()
        handover = Handoff("orders", 0, 0, -1, 0, True, 0, TARGET, 0)
        assert kinds(self.hears(StartWriting((handover,), {NAMED: EpochOffset(-1, 0)}, {}))) == [TaskProgress]
        self.hears(LeaseGranted(self.now_s, grant_s))
        assert self.track.phase is Phase.RUNNING
        self.track.known_end.seen_s = self.now_s
        return self

    def waits(self, *pieces: OutgoingBatch | OffsetGap) -> None:
        for piece in pieces:
            self.track.queue(piece, None)
            self.track.fetched = piece.end
        self.task.wake(self.track)


def kinds(commands: Iterable[TaskCommand]) -> list[type]:
    return [type(command) for command in commands]


def batch(offset: int) -> OutgoingBatch:
    return a_batch(offset, offset + 1, 8, NOW_MS)


@pytest.mark.parametrize("untouched", [True, False])
def test_the_word_to_go_says_which_new_twins_no_task_was_let_write(*, untouched: bool) -> None:
    """An heir has the order of one from before the first holder was let write it."""
    stage, new = Stage(), replace(ORDER, partition=1, untouched=True)
    stage.hears(Assign((new,)))
    stands = dict.fromkeys((NAMED, new.named), EpochOffset(-1, 0))
    stage.hears(StartWriting((), stands, {}, (), (new.named,) if untouched else ()))
    assert stage.task.replicators[new.named].zombies == (
        UnresolvedRequests.none() if untouched else UnresolvedRequests(epoch=-1)
    )
    assert stage.track.zombies == UnresolvedRequests(epoch=ORDER.receipt_epoch)


def test_what_is_here_goes_before_more_is_asked_for() -> None:
    stage = Stage().going()
    stage.waits(batch(0))
    assert kinds(stage.flow()) == [SendRequest, SendFetch]


def test_without_a_grant_nothing_goes_and_the_task_ends_once_it_had_one() -> None:
    stage = Stage().going(grant_s=1.0)
    stage.waits(batch(0))
    stage.now_s += 1.0
    assert kinds(stage.flow()) == [SendFetch]
    assert kinds(stage.timers()) == []
    assert stage.core.ended == "the write lease ended"


def test_an_heir_that_is_never_told_to_go_ends() -> None:
    stage = Stage().connected()
    ended = [(stage.timers(after_s), stage.core.ended)[1] for after_s in (STANDBY_S_MAX - 1.0, 1.0)]
    assert ended == ["", "was a standby for too long"]


def test_a_task_of_an_empty_task_stands_by_ready_once_it_knows_that_it_is_empty() -> None:
    """Else it is no heir, and its task gets a task more every half a minute."""
    core = TaskCore(
        TaskPartitions(7, 0, 1, state_expiry_ms=86_400_000, limits=LIMITS), WriteLease(), 100.0, report_s=0.5
    )
    assert list(core.timers(100.0)) == [], "what is on the task is still on its way"
    assert list(core.hear(Assign(()), 100.5)) == [LearnTwinNames(())]
    assert list(core.timers(101.0)) == [TaskReady()]
    assert list(core.timers(102.0)) == []
    assert kinds(core.hear(StartWriting((), {}, {}), 102.0)) == [TaskProgress]
    assert list(core.hear(Assign((ORDER,)), 102.0)) == [LearnTwinNames((ORDER,))]
    assert list(core.timers(102.1)) == [LookUpLeaders()]


def test_a_fetch_that_is_late_is_looked_for_once_more_before_its_line_is_given_up() -> None:
    stage = Stage().going()
    assert SendFetch in kinds(stage.flow())
    late_s = LIMITS.fetch_wait_ms_max / 1000 + RESPONSE_SLACK_S
    source = stage.source
    stage.now_s += late_s
    for command in stage.core.timers(stage.now_s + 0.1):
        if isinstance(command, PollSocket):
            source.heard(stage.now_s)
    assert stage.source is source, "a byte of the answer came"
    found = stage.timers(RESPONSE_SLACK_S + 0.1)
    assert PollSocket(source) in found
    assert CloseConnection(source) in found
    assert stage.task.stale_routes


def test_a_target_that_takes_nothing_keeps_no_buffers_and_is_given_up_in_the_end() -> None:
    stage = Stage().going()
    stage.waits(batch(0))
    assert SendRequest in kinds(stage.flow())
    target = stage.target
    found = stage.timers(CONGESTED_AFTER_S + 0.1)
    assert DetachBuffers(target) in found
    stage.waits(batch(1))
    assert kinds(stage.flow()) == [], "for a target that takes nothing no more is fetched"
    assert DetachBuffers(target) not in stage.timers()
    stage.core.answered(target, target.produced([IN], 0, 101.0), 101.0)
    assert stage.track.acked == 1
    assert kinds(stage.flow()) == [SendRequest], "it answers again"
    assert CloseConnection(target) in stage.timers(LIMITS.produce_timeout_s + RESPONSE_SLACK_S + 0.1)
    assert stage.track.phase is Phase.UNVERIFIED
    assert stage.track.in_flight == 0


@pytest.mark.parametrize(("end", "goes"), [(0, True), (1, False)])
def test_markers_go_only_where_the_log_ends_where_they_begin(end: int, *, goes: bool) -> None:
    stage = Stage().going()
    stage.waits(OffsetGap(0, 3))
    (asking,) = [one for one in stage.flow() if isinstance(one, SendRequest)]
    assert asking.flight.asking
    target = stage.target
    stage.core.answered(target, target.end_offsets_received([LogEnd("orders", 0, 0, end)], 0, stage.now_s), stage.now_s)
    sent = [one for one in stage.flow() if isinstance(one, SendRequest)]
    if not goes:
        assert not sent
        assert stage.track.phase is Phase.UNVERIFIED
        return
    (marking,) = sent
    assert marking.flight.marks
    assert not marking.flight.asking
    target.marked([MarkedPartition(7, "orders", 0, 0)])
    assert stage.track.acked == 0, "only where the log ends behind them says that they are in"
    stage.core.answered(target, target.end_offsets_received([LogEnd("orders", 0, 0, 3)], 0, stage.now_s), stage.now_s)
    assert stage.track.acked == 3


def test_markers_whose_second_half_of_an_answer_never_comes_are_looked_for() -> None:
    stage = Stage().going()
    stage.waits(OffsetGap(0, 3))
    stage.flow()
    target = stage.target
    stage.core.answered(target, target.end_offsets_received([LogEnd("orders", 0, 0, 0)], 0, stage.now_s), stage.now_s)
    stage.flow()
    target.marked([MarkedPartition(7, "orders", 0, 0)])
    assert kinds(stage.core.lost(target, stage.now_s)) == [CloseConnection]
    assert stage.track.phase is Phase.UNVERIFIED
    assert (stage.track.acked, stage.track.in_flight) == (0, 0)
    assert kinds(stage.core.lost(target, stage.now_s)) == [], "it is lost once"


def test_a_finished_task_waits_for_what_is_on_its_way_and_says_where_it_stands() -> None:
    stage = Stage().going()
    stage.waits(batch(0), batch(1))
    stage.flow()
    assert stage.hears(Finish()) == []
    target = stage.target
    stage.core.answered(target, target.produced([IN], 0, 101.0), 101.0)
    (done,) = [one for one in stage.timers() if isinstance(one, TaskFinished)]
    assert [one.position for one in done.handoffs] == [1]
    assert stage.core.ended == "finished"


def test_what_was_lost_of_a_partition_is_told_before_it_is_handed_over() -> None:
    """The coordinator writes how far it came at once; the task may die before its next beat."""
    stage = Stage().going()
    stage.timers()
    stage.task.incidents.append(dropped_incident(NAMED, 0, 3, "older than 1 s"))
    stage.hears(Release(NAMED))
    assert kinds(stage.timers()) == [TaskProgress, Released]


def test_all_words_that_have_come_count_before_the_grant_is_looked_at() -> None:
    """As where the process stood still, and its driver answered in time."""
    stage = Stage().going(grant_s=1.0)
    asked_s = stage.now_s
    stage.now_s += 1.5
    for word in (Assign((OTHER,)), LeaseGranted(asked_s, 1.2), LeaseGranted(asked_s, 2.0), LeaseGranted(asked_s, 1.0)):
        stage.hears(word)
    stage.timers(0.0)
    assert stage.core.ended == ""
    stage.timers(0.5)
    assert stage.core.ended == "the write lease ended"


def test_the_word_to_go_ends_what_was_granted_before() -> None:
    stage = Stage().connected()
    stage.hears(LeaseGranted(stage.now_s, 1e6))
    (beat,) = stage.hears(StartWriting((), {NAMED: EpochOffset(-1, 0)}, {}))
    assert isinstance(beat, TaskProgress)
    assert beat.asked_s == stage.now_s
    assert not stage.core.lease.holds(stage.now_s), "it answers no question"


def test_a_task_that_is_told_to_stop_wants_nothing_more() -> None:
    stage = Stage().going()
    stage.waits(batch(0))
    assert stage.hears(Stop()) == []
    assert stage.core.ended == "told to stop"
    assert stage.timers(60.0) == []


def test_a_connection_that_nobody_lacks_any_more_is_not_taken() -> None:
    stage = Stage().going()
    assert stage.core.dialled("target", EndOffsetConnectionKey(TARGET), stage.now_s, version=13) is None
    stage.target.needs_asker = True
    assert OpenConnection("target", TARGET, EndOffsetConnectionKey(TARGET)) in stage.timers(1.0)
    asker = stage.core.dialled("target", EndOffsetConnectionKey(TARGET), stage.now_s, version=13)
    assert stage.target.producer is asker
    assert asker is not None
    assert kinds(stage.core.lost(asker, stage.now_s)) == [CloseConnection]
    assert stage.target.producer is None
    assert stage.track.phase is Phase.RUNNING


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_dial_that_took_long_is_begun_again_and_of_two_connections_the_first_stays(side: str) -> None:
    """Else nobody would watch what is on its way on the first."""
    stage, key = Stage(), SOURCE if side == "source" else TARGET
    dial = OpenConnection(side, 1 if side == "source" else TARGET, key)
    stage.timers()
    stage.core.routed({NAMED: PartitionLeaders(1, 0, TARGET)}, "", "", stage.now_s)
    assert dial in stage.timers()
    assert dial not in stage.timers(DIAL_TIMEOUT_S - 1)
    assert dial in stage.timers(1.1)
    first = stage.core.dialled(side, key, stage.now_s, version=13)
    assert first is not None
    assert stage.core.dialled(side, key, stage.now_s, version=13) is None, "the hands let go of the second"
    assert first in (*stage.core.sources.values(), *stage.core.targets.values())
    stage.core.failed(side, key, "no answer", stage.now_s)
    assert not stage.task.silence.told(stage.task.replicators.values(), stage.task.scheduler, stage.now_s + 60, set())
    assert dial not in stage.timers(), "it is there"


def test_a_connection_that_expires_takes_no_more_and_is_dialled_again() -> None:
    stage = Stage().connected()
    list(stage.core.lost(stage.target, stage.now_s))
    assert OpenConnection("target", TARGET, TARGET) in stage.timers()
    stage.core.dialled("target", TARGET, stage.now_s, version=13, expires_s=stage.now_s + 5.0)
    stage.hears(StartWriting((), {NAMED: EpochOffset(-1, 0)}, {}))
    stage.hears(LeaseGranted(stage.now_s, 1e6))
    assert InspectTwins([NAMED]) in stage.timers()
    target = stage.target
    assert target.free(stage.now_s)
    found = stage.timers(5.1)
    assert not target.free(stage.now_s)
    assert CloseConnection(target) in found
    assert OpenConnection("target", TARGET, TARGET) in stage.timers()
