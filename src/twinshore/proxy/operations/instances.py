"""Which processes serve clients, and which of them go by the fuses as they are now."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from twinshore.service.clock import wall_ms
from twinshore.store import InstanceRow, Store

# A proxy says every two seconds that it lives.
GONE_MS: Final = 10_000


def serving(store: Store) -> list[InstanceRow]:
    """The proxies that have been heard of lately."""
    now_ms = wall_ms()
    return [one for one in store.proxies.instances() if now_ms - one.seen_ms < GONE_MS]


def look(store: Store) -> list[dict[str, Any]]:
    """All that were heard of within a week, and have not ended in good order."""
    revision, now_ms = store.proxies.revision(), wall_ms()
    rows = store.proxies.instances()
    return [asdict(row) | {"stands": _stands(now_ms - row.seen_ms, revision - row.revision)} for row in rows]


def _stands(silent_ms: int, behind: int) -> str:
    if silent_ms >= GONE_MS:
        return "gone"
    return "serves" if behind <= 0 else f"{behind} change{'s' if behind > 1 else ''} behind"
