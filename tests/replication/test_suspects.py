"""Which tasks may share a task: one in whose turn a task ended may not, until it has been carried for long enough."""

from __future__ import annotations

from twinshore.replication.core.planner import QUARANTINE_S, SUSPICION_S, Quarantine

TASK, OTHER = ("east->west", 0), ("north->south", 1)
NOBODY: frozenset[tuple[str, int]] = frozenset()


def test_task_groups_tell_their_turns_for_a_while_after_one_has_ended() -> None:
    suspects = Quarantine()
    assert not suspects.tells(100.0)
    assert not suspects.ended(None, 100.0), "nobody is known yet"
    assert suspects.tells(100.0)
    assert suspects.tells(100.0 + SUSPICION_S - 1)
    assert not suspects.tells(100.0 + SUSPICION_S)


def test_a_task_in_whose_turn_a_task_ended_is_apart() -> None:
    suspects = Quarantine()
    assert suspects.ended(TASK, 0.0)
    assert not suspects.ended(TASK, 1.0), "it is already"
    assert suspects.apart == {TASK}
    assert suspects.ended(OTHER, 1.0)
    assert suspects.apart == {TASK, OTHER}


def test_it_comes_back_once_it_has_been_carried_for_long_enough() -> None:
    suspects = Quarantine()
    suspects.ended(TASK, 0.0)
    assert suspects.turn(frozenset([TASK]), QUARANTINE_S - 1) == NOBODY
    assert suspects.turn(NOBODY, 2 * QUARANTINE_S - 2) == NOBODY, "nobody carried it meanwhile"
    assert suspects.turn(NOBODY, 2 * QUARANTINE_S - 1) == {TASK}
    assert suspects.apart == NOBODY


def test_each_time_takes_twice_as_long() -> None:
    suspects, now_s = Quarantine(), 0.0
    for time in range(3):
        assert suspects.ended(TASK, now_s)
        now_s += QUARANTINE_S * 2**time - 1
        assert suspects.turn(NOBODY, now_s) == NOBODY
        now_s += 1
        assert suspects.turn(NOBODY, now_s) == {TASK}
