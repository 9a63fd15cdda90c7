"""Interleavings in which a gate must not confirm, each with the mutant of the gate that would."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from twinshore.kafka.protocol.error_codes import Code
from twinshore.protection.core import gate as shipped
from twinshore.protection.core.loss_bound import LossBoundGate
from twinshore.protection.core.model import (
    AskEpochEnd,
    ClearAlone,
    Confirm,
    GateCommand,
    GateState,
    ProtectionIncidentKind,
    ProtectionLevel,
    ProtectionSettings,
    ReachedEpoch,
    RefuseWrite,
    ReportProtection,
    SideView,
    WaitCause,
    WriteAlone,
)

SOURCE = Path(str(shipped.__file__)).read_text("utf-8")
WRITE = 7


class Stage:
    """A gate of topic `s1` with the twin `t1`, which both stand at offset 5, and everything it has commanded."""

    def __init__(self, module: types.ModuleType = shipped, level: ProtectionLevel = ProtectionLevel.SYNC) -> None:
        self.gate: shipped.PartitionGate = module.PartitionGate(ProtectionSettings(level), 0.0)
        self.done: list[GateCommand] = []
        self.reads(at_s=0.0)
        self.home(at_s=0.1)
        self.twin(at_s=0.1)

    def take(self, commands: Sequence[GateCommand]) -> None:
        self.done += commands

    def home(self, *, at_s: float, id: str = "s1", epoch: int = 0, ends: int = 5, heard_s: float | None = None) -> None:
        self.take(self.gate.on_home(SideView(id, epoch, ends, at_s, at_s + 0.01 if heard_s is None else heard_s)))

    def twin(self, *, at_s: float, id: str = "t1", ends: int = 5, heard_s: float | None = None) -> None:
        self.take(self.gate.on_twin(SideView(id, 0, ends, at_s, at_s + 0.01 if heard_s is None else heard_s)))

    def reads(self, *, at_s: float) -> None:
        """What the mirror says is read."""
        self.take(self.gate.on_reached(ReachedEpoch("s1", "t1", 0), at_s, at_s))

    def writes(self, *, at_s: float = 1.0, last: int = 5, has_producer: bool = True) -> None:
        """The write is sent, and the home has it half a second later."""
        self.gate.sent(WRITE, at_s, 15.0, has_producer=has_producer)
        self.take(self.gate.appended(WRITE, last, at_s + 0.5))

    def reports(self, *, at_s: float = 1.5, last: int = 5) -> None:
        """The home has a write that was sent at an unknown time."""
        self.take(self.gate.reported(WRITE, last, at_s))

    def ticks(self, from_s: float, to_s: float) -> None:
        for turn in range(int((to_s - from_s) * 10)):
            self.take(self.gate.tick(from_s + turn / 10))

    def state(self) -> GateState:
        return self.gate.state

    @property
    def confirmed(self) -> bool:
        return any(isinstance(one, Confirm) for one in self.done)


def other_topic(stage: Stage) -> None:
    """The topic is deleted and made again before the write; the old topic's twin is far longer."""
    stage.writes()
    stage.twin(at_s=1.6, ends=1_000)
    stage.home(at_s=1.7, id="s2", ends=6)


def other_epoch(stage: Stage) -> None:
    """The home elects a leader uncleanly around the write."""
    stage.writes()
    stage.twin(at_s=1.6, ends=9)
    stage.home(at_s=1.7, epoch=1, ends=6)


def other_end(stage: Stage) -> None:
    """The leader that was elected uncleanly says that it has less of the write's epoch."""
    other_epoch(stage)
    stage.take(stage.gate.on_epoch_end(AskEpochEnd("s1", 0, 1), 3, 1.8))
    stage.home(at_s=1.9, epoch=1, ends=6)


def another_topic_s_end(stage: Stage) -> None:
    """The topic is made again, and a leader of the new one answers."""
    other_epoch(stage)
    stage.take(stage.gate.on_epoch_end(AskEpochEnd("s1", 0, 1), 6, 1.8))
    stage.home(at_s=1.9, id="s2", epoch=1, ends=6)


def epoch_not_reached(stage: Stage) -> None:
    """The home was cut uncleanly long before the write; the mirror has not met the new history."""
    stage.home(at_s=0.5, epoch=1, ends=5)
    stage.twin(at_s=0.5, ends=5)
    stage.writes()
    stage.twin(at_s=1.6, ends=9)
    stage.home(at_s=1.7, epoch=1, ends=6)


def other_twin(stage: Stage) -> None:
    """The mirror begins a new twin; the answer is the old one's."""
    stage.writes()
    stage.twin(at_s=1.6, ends=9)
    stage.take(stage.gate.on_reached(ReachedEpoch("s1", "t2", 0), 1.64, 1.65))
    stage.home(at_s=1.7, ends=6)


def home_before_twin(stage: Stage) -> None:
    """Between the two answers the home is cut and grows again, and the twin copies another record."""
    stage.writes()
    stage.home(at_s=1.6, ends=6, heard_s=1.9)
    stage.twin(at_s=1.65, ends=9, heard_s=1.8)
    stage.home(at_s=1.7, ends=6, heard_s=1.95)


def is_stopped(stage: Stage) -> None:
    """An incident stops the partition: the twin holds foreign records."""
    stage.writes()
    stage.twin(at_s=1.6, ends=9)
    stage.take(stage.gate.on_reached(ReachedEpoch("s1", "t1", 0, is_stopped=True), 1.64, 1.65))
    stage.home(at_s=1.7, ends=6)


def promoted(stage: Stage) -> None:
    """A forced switch has promoted the twin, others write to it, and the gate cannot read what the mirror says."""
    stage.writes()
    stage.twin(at_s=3.5, ends=9)
    stage.home(at_s=3.6, ends=6)


def unwritten(stage: Stage) -> None:
    """The twin is away, and what would say so is away as well."""
    stage.writes()
    stage.ticks(1.5, 12.0)


def run_out(stage: Stage) -> None:
    """The process was suspended while it might acknowledge alone; others have removed its record."""
    stage.writes()
    stage.ticks(1.5, 8.0)
    stage.take(stage.gate.on_alone_written(7.0, 7.1))
    stage.done.clear()
    stage.gate.sent(WRITE + 1, 30.0, 15.0, has_producer=True)
    stage.take(stage.gate.appended(WRITE + 1, 6, 30.1))


def marker_not_there(stage: Stage) -> None:
    """A transaction is committed; the home's answer from before has its end below the marker."""
    stage.gate.sent(WRITE, 1.0, 15.0, has_producer=True)
    stage.gate.committed(WRITE, 1.5)
    stage.home(at_s=1.4, heard_s=1.7)
    stage.twin(at_s=1.8)
    stage.home(at_s=1.9, ends=8)


def marker_lost(stage: Stage) -> None:
    """A transaction is committed, and the home elects a leader uncleanly that has lost its end."""
    stage.gate.sent(WRITE, 1.0, 15.0, has_producer=True)
    stage.gate.committed(WRITE, 1.5)
    stage.home(at_s=1.6, epoch=1, ends=4)
    stage.twin(at_s=1.7)
    stage.home(at_s=1.8, epoch=1, ends=4)
    stage.take(stage.gate.on_epoch_end(AskEpochEnd("s1", 0, 1), 4, 1.8))
    stage.home(at_s=1.9, epoch=1, ends=4)


ALONE = "is_alone = self.state is GateState.ALONE"
MUTANTS: dict[Callable[[Stage], None], tuple[str, str]] = {
    other_topic: ("if home.topic_id != pending.topic_id:", "if False:"),
    other_epoch: ("if home.epoch == pending.epoch:", "if True:"),
    other_end: ("end > pending.last if", "end >= 0 if"),
    another_topic_s_end: ("if home.asked_s >= heard_s else", "if heard_s < math.inf else"),
    epoch_not_reached: ("            and reached.epoch in (pending.epoch, home.epoch)\n", ""),
    other_twin: ("            and pending.twin_id == reached.target_id\n", ""),
    home_before_twin: (
        "home.asked_s >= max(pending.twin_heard_s, pending.answered_s)",
        "home.asked_s >= pending.answered_s",
    ),
    is_stopped: ("reached.target_id\n            and not reached.is_stopped\n", "reached.target_id\n"),
    marker_not_there: ("pending.last < 0 and is_history and view.asked_s >= pending.answered_s", "pending.last < 0"),
    marker_lost: ("pending.last < 0 and is_history and", "pending.last < 0 and"),
    promoted: ("if now_s >= self._reached_until_s:", "if False:"),
    unwritten: ("return [WriteAlone", "return self.on_alone_written(now_s, now_s) + [WriteAlone"),
    run_out: (f"{ALONE} and now_s < self._alone_until_s\n        for", f"{ALONE}\n        for"),
}


def mutated(old: str, new: str) -> types.ModuleType:
    assert SOURCE.count(old) == 1, f"the mutant no longer fits: {old}"
    module = types.ModuleType("mutant")
    sys.modules["mutant"] = module  # a dataclass looks its module up
    exec(compile(SOURCE.replace(old, new), "mutant.py", "exec"), module.__dict__)  # noqa: S102
    return module


@pytest.mark.claim("protection", "mutants", "each mutant of the gate confirms a write that the gate does not")
@pytest.mark.parametrize("happens", MUTANTS, ids=lambda one: one.__name__)
def test_a_write_is_not_confirmed_and_a_mutant_would_confirm_it(happens: Callable[[Stage], None]) -> None:
    stage, wrong = Stage(), Stage(mutated(*MUTANTS[happens]))
    happens(stage)
    happens(wrong)
    assert not stage.confirmed
    assert wrong.confirmed, "the mutant is not caught"


def test_a_write_is_confirmed_once_the_twin_has_it_and_the_home_is_what_it_was() -> None:
    stage = Stage(level=ProtectionLevel.STRICT)
    stage.writes()
    stage.twin(at_s=1.6, ends=5)
    stage.home(at_s=1.7, ends=6)
    assert stage.done == []
    stage.twin(at_s=1.8, ends=6)
    stage.home(at_s=1.805, ends=6)
    assert stage.done == [], "asked before the twin answered"
    stage.home(at_s=1.82, ends=6)
    assert stage.done == [Confirm(WRITE)]
    assert stage.gate.confirmed_end == 6


def test_a_write_is_confirmed_after_an_election_once_the_new_leader_says_that_it_has_it() -> None:
    stage = Stage(level=ProtectionLevel.STRICT)
    other_epoch(stage)
    assert stage.done == []
    stage.take(stage.gate.tick(1.8))
    question = AskEpochEnd("s1", 0, 1)
    assert stage.done == [question]
    stage.take(stage.gate.on_epoch_end(question, 6, 1.9))
    stage.home(at_s=2.0, epoch=1, ends=6)
    assert stage.done == [question, Confirm(WRITE)]


def test_a_write_that_the_new_leader_has_lost_is_refused() -> None:
    stage = Stage(level=ProtectionLevel.STRICT)
    other_end(stage)
    assert stage.done == [RefuseWrite(WRITE, Code.not_leader_or_follower, WaitCause.EPOCH)]


def test_a_write_below_the_twin_s_end_is_reported_unless_a_producer_repeats_it() -> None:
    stage = Stage()
    stage.writes(last=3, has_producer=False)
    assert stage.done == [
        ReportProtection(ProtectionIncidentKind.TOO_EARLY, 3),
        RefuseWrite(WRITE, Code.request_timed_out, WaitCause.IDENTITY),
    ]
    again = Stage()
    again.writes(last=3)
    again.twin(at_s=1.6)
    again.home(at_s=1.7)
    assert again.done == [Confirm(WRITE)]


def test_strict_refuses_before_the_write_once_nothing_is_replicated_and_goes_on_by_itself() -> None:
    stage = Stage(level=ProtectionLevel.STRICT)
    stage.writes()
    stage.ticks(1.5, 18.0)
    assert stage.state() is GateState.STALLED
    assert stage.gate.refusal() is Code.not_enough_replicas
    assert stage.done == [RefuseWrite(WRITE, Code.request_timed_out, WaitCause.REPLICATION)]
    stage.reads(at_s=17.9)
    stage.twin(at_s=18.0, ends=6)
    stage.home(at_s=18.1, ends=6)
    assert (stage.state(), stage.gate.refusal()) == (GateState.PROTECTED, None)


def test_sync_goes_alone_once_that_is_written_and_comes_back_when_the_twin_has_it_all() -> None:
    stage = Stage()
    stage.writes()
    stage.ticks(1.5, 7.0)
    assert stage.done == [WriteAlone(5, WaitCause.REPLICATION)]
    stage.take(stage.gate.on_alone_written(6.6, 6.7))
    assert stage.done[1:] == [Confirm(WRITE, is_alone=True)]
    assert stage.state() is GateState.ALONE
    stage.reads(at_s=6.9)
    stage.twin(at_s=7.0, ends=6)
    stage.home(at_s=7.1, ends=6)
    assert stage.state() is GateState.CATCHING_UP
    stage.twin(at_s=7.2, ends=6)
    assert stage.done[2:] == [ClearAlone()]
    assert stage.state() is GateState.PROTECTED


def test_a_permission_that_came_too_late_is_removed() -> None:
    stage = Stage()
    stage.writes()
    stage.ticks(1.5, 7.0)
    assert stage.done == [WriteAlone(5, WaitCause.REPLICATION)]
    stage.gate.on_alone_failed(6.7)
    stage.reads(at_s=6.9)
    stage.twin(at_s=7.0, ends=6)
    stage.home(at_s=7.1, ends=6)
    assert stage.done[1:] == [Confirm(WRITE), ClearAlone()]
    assert stage.state() is GateState.PROTECTED
    assert stage.gate.on_alone_written(6.8, 7.2) == [ClearAlone()]


def test_a_late_answer_is_no_fall_of_the_watermark_and_a_fall_is_reported() -> None:
    stage = Stage()
    stage.twin(at_s=1.0, ends=9, heard_s=1.1)
    stage.twin(at_s=0.9, ends=7, heard_s=1.2)
    assert stage.done == []
    stage.twin(at_s=1.3, ends=7)
    assert stage.done == [ReportProtection(ProtectionIncidentKind.WATERMARK_FELL, 7)]


def test_nothing_is_sent_before_the_home_has_answered_once() -> None:
    gate = shipped.PartitionGate(ProtectionSettings(ProtectionLevel.SYNC), 0.0)
    assert gate.refusal() is Code.not_enough_replicas
    gate.on_home(SideView("s1", 0, 5, 0.1, 0.2))
    assert gate.refusal() is None


def test_a_cleared_permission_is_none_though_its_time_has_not_run_out() -> None:
    stage = Stage()
    stage.writes()
    stage.ticks(1.5, 7.0)
    stage.take(stage.gate.on_alone_written(6.6, 6.7))
    stage.reads(at_s=6.9)
    stage.twin(at_s=7.0, ends=6)
    stage.home(at_s=7.1, ends=6)
    stage.twin(at_s=7.2, ends=6)
    assert stage.done[-1] == ClearAlone()
    stage.done.clear()
    stage.gate.sent(WRITE + 1, 7.3, 15.0, has_producer=True)
    stage.take(stage.gate.appended(WRITE + 1, 6, 7.4))
    stage.ticks(7.5, 12.0)
    assert stage.state() is GateState.STALLED
    assert not stage.confirmed


def test_a_transaction_is_confirmed_once_the_twin_has_what_the_home_had_after_its_end() -> None:
    stage = Stage()
    marker_not_there(stage)
    stage.twin(at_s=2.0, ends=7)
    stage.home(at_s=2.1, ends=9)
    assert not stage.confirmed
    stage.twin(at_s=2.2, ends=8)
    stage.home(at_s=2.3, ends=9)
    assert stage.done == [Confirm(WRITE)]


def test_after_a_forced_switch_a_gate_stands_alone_as_long_as_that_is_written() -> None:
    gate = shipped.PartitionGate(ProtectionSettings(ProtectionLevel.STRICT), 0.0)
    gate.on_home(SideView("s1", 0, 5, 0.1, 0.2))
    gate.stand_alone(3.0, 0.3)
    gate.sent(WRITE, 0.4, 15.0, has_producer=True)
    assert gate.appended(WRITE, 5, 0.5) == [Confirm(WRITE, is_alone=True)]
    gate.sent(WRITE + 1, 3.1, 15.0, has_producer=True)
    assert gate.appended(WRITE + 1, 6, 3.2) == []
    gate.tick(3.3)
    assert gate.refusal() is Code.not_enough_replicas


def test_under_load_the_twin_is_level_with_what_the_home_had_a_moment_ago() -> None:
    stage = Stage(level=ProtectionLevel.STRICT)
    stage.writes()
    stage.ticks(1.5, 18.0)
    assert stage.state() is GateState.STALLED
    stage.reads(at_s=17.9)
    for turn in range(4):
        stage.home(at_s=18.0 + turn / 10, ends=100 + 10 * turn)
        stage.twin(at_s=18.01 + turn / 10, ends=95 + 10 * turn)
    assert stage.state() is GateState.PROTECTED


def test_a_bound_refuses_writes_while_the_twin_lacks_older_records_and_never_for_what_it_has() -> None:
    gate = LossBoundGate(10.0, 0.0)
    assert gate.refusal() is Code.not_enough_replicas, "how far the twin is behind is not known yet"
    gate.on_reached(ReachedEpoch("s1", "t1", 0), 0.0, 0.0)
    for turn in range(100):
        gate.on_home(SideView("s1", 0, turn, turn / 2, turn / 2 + 0.01))
        gate.on_twin(SideView("t1", 0, max(0, turn - 4), turn / 2 + 0.02, turn / 2 + 0.03))
        assert gate.refusal() is None, "two seconds behind"
    gate.tick(57.0)
    assert gate.refusal() is None
    gate.tick(58.1)
    assert gate.refusal() is Code.not_enough_replicas
    gate.on_twin(SideView("t2", 0, 500, 58.2, 58.3))
    assert gate.refusal() is Code.not_enough_replicas, "another topic's end"
    gate.on_twin(SideView("t1", 0, 99, 58.4, 58.5))
    assert gate.refusal() is None


@pytest.mark.parametrize("last", [5, -1], ids=["offset told", "not told"])
def test_a_reported_write_belongs_to_the_home_s_next_answer(last: int) -> None:
    stage = Stage()
    stage.reports(last=last)
    stage.twin(at_s=1.6, ends=6)
    assert stage.gate.awaits_home()
    stage.home(at_s=1.4, ends=6)
    assert not stage.done, "that was asked before the report"
    stage.home(at_s=1.65, ends=6)
    stage.twin(at_s=1.7, ends=6)
    stage.home(at_s=1.75, ends=6)
    assert stage.done == [Confirm(WRITE)]


@pytest.mark.parametrize(("id", "ends"), [("s2", 9), ("s1", 5)], ids=["made again", "shorter"])
def test_a_reported_write_is_refused_if_the_home_s_next_answer_cannot_have_it(id: str, ends: int) -> None:
    stage = Stage()
    stage.reports()
    stage.twin(at_s=1.6, ends=9)
    stage.home(at_s=1.65, id=id, epoch=1, ends=ends)
    assert stage.done[0] == RefuseWrite(WRITE, Code.not_leader_or_follower, WaitCause.EPOCH)
    assert not stage.confirmed


def test_a_reported_write_that_came_after_an_election_is_confirmed_and_is_held_without_end() -> None:
    stage = Stage(level=ProtectionLevel.STRICT)
    stage.home(at_s=1.0, epoch=0, ends=5)
    stage.reports()
    stage.home(at_s=1.6, epoch=1, ends=6)
    stage.ticks(2, 60)
    assert set(stage.done) == {AskEpochEnd("s1", 0, 1)}
    stage.take(stage.gate.on_reached(ReachedEpoch("s1", "t1", 1), 60, 60))
    stage.twin(at_s=60.1, ends=6)
    stage.home(at_s=60.2, epoch=1, ends=6)
    assert stage.done[-1] == Confirm(WRITE)


@pytest.mark.parametrize(("end", "state"), [(5, GateState.PROTECTED), (4, GateState.STALLED), (-1, GateState.STALLED)])
def test_writes_go_on_after_an_election_since_which_the_home_has_no_record(end: int, state: GateState) -> None:
    """The twin was away during the election. While the gate refuses writes the mirror cannot reach the new epoch."""
    stage = Stage(level=ProtectionLevel.STRICT)
    stage.ticks(1, 10)
    assert stage.state() is GateState.STALLED
    stage.home(at_s=10.0, epoch=1)
    stage.twin(at_s=10.0)
    stage.reads(at_s=10.0)
    stage.ticks(10.1, 10.35)
    assert stage.state() is GateState.STALLED
    assert stage.done[-1] == AskEpochEnd("s1", 0, 1)
    stage.take(stage.gate.on_epoch_end(AskEpochEnd("s1", 0, 1), end, 10.3))
    assert stage.state() is GateState.STALLED, "the home may have elected another leader before it answered"
    stage.home(at_s=10.4, epoch=1)
    assert stage.state() is state
