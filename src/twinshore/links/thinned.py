"""Twins of which a fresh queue may have dropped records that no receipt tells of: noted before the first is dropped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import groupby

from twinshore.fleet import Link, is_heartbeats
from twinshore.service.clock import wall_ms
from twinshore.store import Remembered, Store, TwinRow

KIND = "thinned to"
ALWAYS = (1 << 63) - 1


def thinned(store: Store, link: Link, ends: Mapping[TwinRow, int]) -> dict[tuple[str, int], int]:
    """By partition, up to which receipt records may be missing behind it. `ends`: where the receipts of these mapped
    twins end now. Behind a later receipt than where its queue became `keep` again, a twin has all."""
    known = {row.subject: row.value for row in store.memories.of(link.name, KIND)}
    found: dict[tuple[str, int], int] = {}
    told: list[Remembered] = []
    for topic, some in groupby(sorted(ends, key=lambda row: (row.topic, row.partition)), lambda row: row.topic):
        rows = list(some)
        fresh = json.dumps([rows[0].target_topic_id, {}])
        before = known.get(topic, "")
        if is_heartbeats(topic) or not (link.queue.fresh or json.loads(before or "[0]")[0] == rows[0].target_topic_id):
            continue
        now = before
        if link.queue.fresh:
            now = fresh
        elif before == fresh:
            now = json.dumps([rows[0].target_topic_id, {row.partition: ends[row] for row in rows}])
        if now != before:
            told.append(Remembered(link.name, KIND, topic, now, "", wall_ms()))
        kept_from = json.loads(now)[1]
        for row in rows:
            found[topic, row.partition] = ALWAYS if link.queue.fresh else kept_from.get(str(row.partition), -1)
    if told:
        store.memories.remember(told)
    return found
