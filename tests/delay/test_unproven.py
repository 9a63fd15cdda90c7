"""What was proven and waits too long to be read again is an alarm, where an age was asked for."""

from __future__ import annotations

from dataclasses import replace

from tests.store.test_proofs import LINK, ROW
from twinshore.delay.alarms import AlarmKey, AlarmKind
from twinshore.delay.signs import unproven_signs

HOUR_MS = 3_600_000
READ_MS = ROW.pieces[0].read_ms
YOUNG = replace(ROW, pieces=ROW.pieces[:1], to_offset=ROW.pieces[0].to_offset)


def test_the_alarm_names_the_partition_that_waits_longest() -> None:
    key = AlarmKey(LINK, AlarmKind.UNPROVEN)
    assert unproven_signs(LINK, [YOUNG], READ_MS + 99 * HOUR_MS, 0.0) == [], "nothing was asked for"
    (well,) = unproven_signs(LINK, [YOUNG], READ_MS + 24 * HOUR_MS, 24.0)
    assert (well.key, well.wrong) == (key, False)
    older = replace(YOUNG, topic="payments", pieces=(YOUNG.pieces[0]._replace(read_ms=READ_MS - HOUR_MS),))
    (wrong,) = unproven_signs(LINK, [YOUNG, older], READ_MS + 23 * HOUR_MS + 1, 24.0)
    assert wrong.wrong and wrong.key == key
    assert "payments-3 was last proven whole 24.0 h ago (asked for: every 24 h), and so were 1 of 2" in wrong.sentence
    (unknown,) = unproven_signs(LINK, [YOUNG, ROW], READ_MS, 24.0)
    assert "orders-3 was last proven whole nobody knows when" in unknown.sentence
