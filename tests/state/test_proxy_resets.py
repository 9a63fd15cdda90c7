"""Resets of groups have one writer at a time, and what proxies say of them replaces what they said before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from twinshore.state.core.proxy_values import ResetGoal, ResetRow, ResetState, ResetStatusRow
from twinshore.state.core.values import AuditRow
from twinshore.state.proxies import RESET_RETENTION_MS as FORGOTTEN_MS
from twinshore.state.store import Store

GOALS = ResetGoal("east", "orders", 0, 40, 10), ResetGoal("west", "bills", 3, None, 0)
HELD = ResetRow("billing", "1" * 32, ResetState.HELD, "anna", 1_000, 61_000, GOALS)
TOLD = AuditRow(1_000, "", "proxy offsets", "billing", "", "0: 10", "done", "anna", group="billing")


def test_of_two_who_saw_the_same_only_the_first_begins(store: Store, open_another: Callable[[], Store]) -> None:
    other = open_another().proxy_resets
    assert other.all() == (0, ())
    assert store.proxy_resets.change(HELD, seen=0)
    assert not other.change(replace(HELD, run="2" * 32), seen=0)
    assert (other.revision(), other.all()) == (1, (1, (HELD,)))
    done = replace(HELD, state=ResetState.DONE, members=frozenset({"app-1", "app-2"}))
    assert other.change(done, seen=1, rows=[TOLD])
    assert store.proxy_resets.all() == (2, (done,))
    assert [row.group for row in store.audit.rows("")] == ["billing"]


def test_what_is_unfinished_is_kept_and_what_is_long_over_goes(store: Store) -> None:
    done = replace(HELD, group="done", state=ResetState.DONE)
    assert store.proxy_resets.change(done, seen=0)
    assert store.proxy_resets.change(replace(HELD, state=ResetState.SETTING), seen=1)
    late_ms = HELD.until_ms + FORGOTTEN_MS + 1
    assert store.proxy_resets.change(replace(HELD, group="late", since_ms=late_ms), seen=2)
    assert [row.group for row in store.proxy_resets.all()[1]] == ["billing", "late"]


def test_a_proxy_s_words_replace_its_earlier_ones(store: Store) -> None:
    words = [ResetStatusRow("p1", HELD.run, 0, 1_000), ResetStatusRow("p2", HELD.run, 2, 1_000)]
    store.proxy_resets.tell(words)
    store.proxy_resets.tell([])
    store.proxy_resets.tell([replace(words[0], waiting_members=3, at_ms=2_000)])
    assert sorted(store.proxy_resets.statuses(HELD.run), key=lambda one: one.instance) == [
        replace(words[0], waiting_members=3, at_ms=2_000),
        words[1],
    ]
    assert store.proxy_resets.statuses("3" * 32) == ()
    store.proxy_resets.tell([ResetStatusRow("p3", "3" * 32, 0, 3_000 + FORGOTTEN_MS)])
    assert store.proxy_resets.statuses(HELD.run) == ()
