"""The guard of a cluster is written by whoever holds its lease, and by nobody who has lost it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from twinshore.state.core.values import WriteBlockRow
from twinshore.state.store import Store

LEASE = "guard of east"
ROW = WriteBlockRow("east", '{"topics": ["orders"]}', 1_000)


def test_who_has_lost_the_lease_writes_no_guard(store: Store, open_another: Callable[[], Store]) -> None:
    other = open_another()
    assert store.write_blocks.of("east") is None
    first = store.leases.take(LEASE, "anna", 10_000, row=None)
    assert first is not None
    assert store.write_blocks.save(ROW, first)
    # Anna is paused for so long that Bob takes it.
    second = other.leases.take(LEASE, "bob", 10_000, row=first)
    assert second is not None
    bobs = replace(ROW, block='{"topics": ["bills", "orders"]}', changed_ms=2_000)
    assert other.write_blocks.save(bobs, second)
    assert not store.write_blocks.save(replace(ROW, changed_ms=3_000), first)
    assert store.write_blocks.of("east") == bobs
    assert other.leases.release(second)
    assert not other.write_blocks.save(ROW, second)
    assert store.write_blocks.of("west") is None
