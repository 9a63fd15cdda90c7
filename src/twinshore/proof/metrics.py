"""What is proven, for Prometheus: read from the store at each scrape."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from twinshore.fleet import StoreError
from twinshore.service.server import MetricsServer
from twinshore.store import Store

LABELS = ("link", "topic", "partition")
OWED = "twinshore_proof_owed_deletions"
READ_AGE = "twinshore_proof_read_age_seconds"
TABLE = {
    "twinshore_proof_offset": "Both sides hold the same records up to, not including, this offset of the source.",
    "twinshore_proof_behind_records": "Offsets of the source that were there but not proven, at the last proof.",
    "twinshore_proof_age_seconds": "How long ago that was proven, or seen to be all that there is.",
    "twinshore_proof_differs": "1 where both sides were found to differ.",
    READ_AGE: "How long ago the oldest part of what is proven was read from both sides; none where nobody knows.",
    OWED: "Keys that the source has deleted and the compacted twin still shows, at the last look at its keys.",
}


class ProofCollector(Collector):
    """Keeps nothing of its own. While the store is away it tells nothing."""

    def __init__(self, store: Store, now_s: Callable[[], float] = time.time) -> None:
        self._store, self._now_s = store, now_s

    def collect(self) -> Iterator[Metric]:
        families = {name: GaugeMetricFamily(name, says, labels=LABELS) for name, says in TABLE.items()}
        try:
            rows, looks = self._store.proofs.of(), self._store.key_looks.of()
        except StoreError:
            rows, looks = (), ()
        for look in looks:
            families[OWED].add_metric([look.link, look.topic, str(look.partition)], look.owed)
        of_rows = [family for name, family in families.items() if name not in (OWED, READ_AGE)]
        for row in rows:
            labels = [row.link, row.topic, str(row.partition)]
            if row.read_ms:
                families[READ_AGE].add_metric(labels, max(0.0, self._now_s() - row.read_ms / 1000))
            values = (
                row.to_offset,
                max(0, row.source_end - row.to_offset),
                max(0.0, self._now_s() - row.proven_ms / 1000),
                row.state == "differs",
            )
            for family, value in zip(of_rows, values, strict=True):
                family.add_metric(labels, value)
        yield from families.values()

    def describe(self) -> list[Metric]:
        """The registry asks at the start; the store need not answer then."""
        return [GaugeMetricFamily(name, says, labels=LABELS) for name, says in TABLE.items()]

    def links(self) -> dict[str, Any]:
        """How each link stands, for whoever looks at /health."""
        found: dict[str, Any] = {}
        for row in self._store.proofs.of():
            link = found.setdefault(row.link, {"partitions": 0, "differ": 0, "oldest_proof_s": 0.0})
            link["partitions"] += 1
            link["differ"] += row.state == "differs"
            link["oldest_proof_s"] = max(link["oldest_proof_s"], round(self._now_s() - row.proven_ms / 1000, 1))
        return found


@contextlib.contextmanager
def served(port: int, store: Store) -> Iterator[Callable[[], None]]:
    """Serves /metrics and /health on this port, 0: on none. What is yielded is called by whatever must not stand
    still."""
    if not port:
        yield lambda: None
        return
    collector = ProofCollector(store)
    server = MetricsServer("127.0.0.1", port, collector, collector.links)
    try:
        yield server.beat
    finally:
        server.close()
