"""Breakers have one writer at a time, and what proxies say of themselves replaces what they said before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from twinshore.state.core.proxy_values import (
    BreakerCountRow,
    BreakerKind,
    BreakerLimits,
    BreakerPolicy,
    BreakerRow,
    BreakerState,
    DroppedRecordsRow,
    ProxyInstanceRow,
)
from twinshore.state.core.values import AuditRow
from twinshore.state.proxies import INSTANCE_RETENTION_MS
from twinshore.state.store import Store

OPEN = BreakerRow(
    "orders",
    "*",
    BreakerKind.PRODUCE,
    BreakerState.OPEN,
    BreakerPolicy.REFUSE,
    "too much",
    "anna",
    1_000,
    61_000,
    BreakerLimits(10),
)
TOLD = AuditRow(1_000, "", "proxy breaker", "orders", "", "open", "done", "anna")
SERVES = ProxyInstanceRow("p1", "proxy a:19092", "a", 19092, 500, 0, 1_000)


def test_of_two_changes_of_breakers_only_the_first_is_made(store: Store, open_another: Callable[[], Store]) -> None:
    other = open_another().breakers
    assert store.breakers.revision() == 0
    assert store.breakers.change([OPEN], seen=0, told=[TOLD])
    assert not other.change([replace(OPEN, reason="mine")], seen=0, told=[TOLD])
    assert other.all() == (1, (OPEN,))
    closed = replace(OPEN, state=BreakerState.CLOSED, until_ms=0, reason="all is well: \0")
    assert other.change([closed], seen=1, told=[TOLD])
    assert store.breakers.all() == (2, (replace(closed, reason="all is well: \ufffd"),))
    assert len(store.audit.rows("")) == 2, "what was not done is not told"


def test_a_proxy_s_words_replace_its_earlier_ones_and_the_ledger_stays(store: Store) -> None:
    count = BreakerCountRow("p1", "orders", "*", BreakerKind.PRODUCE, 1, 2, 30, False, 1_000)
    drop = DroppedRecordsRow("p1", "orders", "app", 900, "orders", "0", 2, 30, 1_000)
    store.proxies.tell(SERVES, [count], [drop])
    later = replace(SERVES, revision=3, seen_ms=2_000)
    more, dropped = replace(count, requests=2, changed_ms=2_000), replace(drop, partitions="0,1", records=5)
    store.proxies.tell(later, [more], [dropped, replace(drop, since_ms=1_500, client="x" * 300)])
    assert store.proxies.instances() == (later,)
    assert store.proxies.counts() == (more,)
    assert store.proxies.drops() == (replace(drop, since_ms=1_500, client="x" * 255), dropped)
    store.proxies.leave("p1")
    assert store.proxies.instances() == ()
    assert store.proxies.counts() == (more,)
    store.proxies.tell(later, [], [])
    store.proxies.forget_before(2_001 + INSTANCE_RETENTION_MS)
    assert (store.proxies.instances(), store.proxies.counts()) == ((), ())
    assert len(store.proxies.drops()) == 2, "it is never taken away"
