"""Records of `twinshore.gates` that other versions wrote."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from twinshore.protection.core.account import is_covered
from twinshore.protection.core.model import GateState, ProtectionLevel, WaitCause
from twinshore.protection.core.records import (
    GateLog,
    GateRecord,
    ProtectionLog,
    TopicProtection,
    current_levels,
    gate_line,
    level_line,
)

KEY = b'["gate","orders","proxy-1"]'
# As processes wrote it that said nothing of their state.
EARLIER = b'{"level":1,"confirmed":{"0":7},"alone":{"1":3},"at_ms":5,"ttl_ms":10000}'


def read(value: bytes | None) -> GateRecord:
    log = GateLog()
    log.take(KEY, value)
    return log.gates["orders", "proxy-1"]


def test_a_record_of_an_earlier_version_is_read() -> None:
    assert read(EARLIER) == GateRecord(1, {0: 7}, {1: 3}, 5, 10_000)


@pytest.mark.parametrize("more", [{}, {"later": 1}, {"state": "a later state", "waiting": {"a later cause": 2}}])
def test_a_record_is_read_as_it_was_written_and_with_what_later_versions_add(more: dict[str, object]) -> None:
    """A reader that dropped it would not know what was acknowledged alone."""
    said = GateRecord(1, {0: 7}, {1: 3}, 5, 10_000, ("app",), GateState.ALONE, 4, {WaitCause.TWIN_AWAY: 2}, 2.5)
    key, value = gate_line("orders", "proxy-1", said)
    assert key == KEY
    assert value is not None
    found = read(json.dumps({**json.loads(value), **more}).encode())
    assert (found.level, found.confirmed, found.alone) == (1, {0: 7}, {1: 3})
    assert more or found == said


def test_a_level_of_the_settings_never_replaces_an_operators_that_was_written_meanwhile() -> None:
    log, strict = ProtectionLog(), TopicProtection(ProtectionLevel.STRICT, 1)
    for protection in (strict, TopicProtection(ProtectionLevel.SYNC, 0)):
        log.take(*level_line("orders", protection))
    assert log.levels == {"orders": strict}
    log.take(level_line("orders", strict)[0], None)
    assert log.levels == {}


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_levels_that_were_set_at_once_the_stricter_counts_in_any_order(order: int) -> None:
    strict, sync = (TopicProtection(level, 5) for level in (ProtectionLevel.STRICT, ProtectionLevel.SYNC))
    logs = [ProtectionLog(), ProtectionLog(), ProtectionLog()]
    for log, lines in zip(logs, ((strict, sync), (strict,), (sync,)), strict=True):
        for protection in lines[::order]:
            log.take(*level_line("orders", protection))
    assert logs[0].levels == {"orders": strict}
    assert current_levels(logs[1:][::order]) == {"orders": strict}


def test_a_level_that_readers_would_ignore_is_not_written() -> None:
    with pytest.raises(ValidationError):
        level_line("orders", TopicProtection(ProtectionLevel.SYNC, 1, alone_after_s=90_000))


@pytest.mark.parametrize(
    ("others", "number", "covered"),
    [
        ([], 2, False),
        ([GateRecord(2, {0: 7})], 2, False),
        ([GateRecord(2, {0: 7, 1: 3})], 2, True),
        ([GateRecord(2, {0: 9}), GateRecord(2, {1: 3})], 2, True),
        ([GateRecord(1, {0: 7, 1: 3})], 2, False),
        ([], 3, True),
    ],
)
def test_an_ended_process_says_no_more_than_others(others: list[GateRecord], number: int, covered: bool) -> None:
    assert is_covered(GateRecord(2, {0: 7, 1: 3}), others, number) is covered
