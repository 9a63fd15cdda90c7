"""Up to where a gate says that both sides have a partition's records."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.protection.test_gate import Stage
from twinshore.protection.core.model import ProtectionLevel, ReachedEpoch, ReadEnd, ReadFrom
from twinshore.protection.core.records import GateLog, GateRecord, ProtectionLog, TopicProtection, gate_line, level_line
from twinshore.routing.core.home_records import line_value


def says(stage: Stage, *, at_s: float, target: str = "t1", epoch: int = 0, is_stopped: bool = False) -> None:
    stage.take(stage.gate.on_reached(ReachedEpoch("s1", target, epoch, is_stopped), at_s, at_s))


def grows(stage: Stage) -> None:
    stage.twin(at_s=1.0, ends=9)


def promoted(stage: Stage) -> None:
    """What the mirror said is void, or was read too long ago; others write to the twin."""
    stage.twin(at_s=3.5, ends=9)


def voided(stage: Stage) -> None:
    stage.take(stage.gate.on_reached(None, 1.0, 1.0))
    stage.twin(at_s=1.1, ends=9)


def stopped(stage: Stage) -> None:
    says(stage, at_s=1.0, is_stopped=True)
    stage.twin(at_s=1.1, ends=9)


def elected(stage: Stage) -> None:
    """Records of the new epoch are not on both yet, those of the old one are."""
    stage.home(at_s=1.0, epoch=1, ends=9)
    stage.twin(at_s=1.1, ends=9)


def reached(stage: Stage) -> None:
    elected(stage)
    says(stage, at_s=1.2, epoch=1)


def other_home(stage: Stage) -> None:
    stage.home(at_s=1.0, id="s2", ends=2)


def other_twin(stage: Stage) -> None:
    stage.twin(at_s=1.0, id="t2", ends=2)


def silent(stage: Stage) -> None:
    """What both have stays on both while nothing is heard."""
    stage.ticks(0.2, 60.0)


@pytest.mark.parametrize(
    ("happens", "end"),
    [
        (grows, ReadEnd(9, 0)),
        (promoted, ReadEnd(5, 0)),
        (voided, ReadEnd(5, 0)),
        (stopped, ReadEnd(5, 0)),
        (elected, ReadEnd(9, 0)),
        (reached, ReadEnd(9, 1)),
        (other_home, ReadEnd()),
        (other_twin, ReadEnd()),
        (silent, ReadEnd(5, 0)),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_what_both_have_is_what_the_twin_had_while_the_mirror_s_word_held(
    happens: Callable[[Stage], None], end: ReadEnd
) -> None:
    stage = Stage(level=ProtectionLevel.STRICT)
    assert stage.gate.read_end == ReadEnd(5, 0)
    happens(stage)
    assert stage.gate.read_end == end


def test_a_level_without_the_field_reads_at_home_and_unknown_fields_are_ignored() -> None:
    log, key = ProtectionLog(), level_line("orders", TopicProtection(ProtectionLevel.SYNC, 1))[0]
    log.take(key, line_value({"level": "sync", "number": 1}))
    assert (log.levels["orders"].read, log.levels["orders"].reads_both) == (ReadFrom.HOME, False)
    log.take(key, line_value({"level": "sync", "number": 2, "read": "both", "later": 1}))
    assert (log.levels["orders"].number, log.levels["orders"].reads_both) == (2, True)
    log.take(key, line_value({"level": "sync", "number": 3, "read": "elsewhere"}))
    assert log.levels["orders"].number == 2, "of a foreign form"
    assert not TopicProtection(ProtectionLevel.ASYNC, 1, read=ReadFrom.BOTH).reads_both


def test_a_gate_names_clients_that_mix_and_a_record_without_names_has_none() -> None:
    log, key = GateLog(), gate_line("orders", "gate", None)[0]
    log.take(key, line_value({"level": 1, "confirmed": {"0": 5}, "alone": {"2": 5}}))
    assert log.gates == {("orders", "gate"): GateRecord(1, {0: 5}, {2: 5})}
    assert log.alone() == {("orders", 2)}
    log.take(*gate_line("orders", "gate", GateRecord(1, {0: 5}, mixing=("app",))))
    assert log.gates["orders", "gate"].mixing == ("app",)
