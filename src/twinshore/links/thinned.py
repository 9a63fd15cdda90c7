"""Topics whose twins may lack records that their source has, as a fresh queue dropped them: remembered from before the
first is dropped, for as long as the twin is the same topic, whatever the queue is by then."""

from __future__ import annotations

from collections.abc import Mapping

from twinshore.fleet import Link, is_heartbeats
from twinshore.service.clock import wall_ms
from twinshore.store import Remembered, Store, TwinRow

THINNED_KIND = "thinned"


def thinned_of(store: Store, link: str) -> dict[str, str]:
    """By topic, the id of the twin's topic."""
    return {row.subject: row.value for row in store.memories.of(link, THINNED_KIND)}


def may_lack(store: Store, link: Link, row: TwinRow) -> bool:
    """Whether its queue may have dropped records of this twin. Where a store was lost, the queue of now alone tells."""
    dropping = link.queue.fresh and not is_heartbeats(row.topic)
    return dropping or thinned_of(store, link.name).get(row.topic) == row.target_topic_id


def note(store: Store, link: str, twins: Mapping[str, str]) -> None:
    """The ids of the twins' topics by topic, whose queue may drop from now on."""
    known = thinned_of(store, link)
    rows = [
        Remembered(link, THINNED_KIND, topic, topic_id, "", wall_ms())
        for topic, topic_id in sorted(twins.items())
        if known.get(topic) != topic_id and not is_heartbeats(topic)
    ]
    if rows:
        store.memories.remember(rows)
