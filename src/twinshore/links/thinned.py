"""Topics whose twins may lack records that their source has, as a fresh queue dropped them: remembered from before the
first is dropped, for as long as the twin is the same topic, whatever the queue is by then."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from twinshore.fleet import Link, is_heartbeats
from twinshore.service.clock import wall_ms
from twinshore.store import Remembered, Store, TwinRow

THINNED_KIND = "thinned"


def thinned(store: Store, link: str, rows: Iterable[TwinRow]) -> frozenset[str]:
    """Those of these twins' topics of which a queue may have dropped records, since the twin is the topic that it is.
    One question to the store for all."""
    known = _known(store, link)
    return frozenset(row.topic for row in rows if known.get(row.topic) == row.target_topic_id)


def may_lack(store: Store, link: Link, rows: Collection[TwinRow]) -> frozenset[str]:
    """The same by the queue of now as well, which alone tells where a store was lost."""
    dropping = {row.topic for row in rows if link.queue.fresh and not is_heartbeats(row.topic)}
    return thinned(store, link.name, rows) | dropping


def note(store: Store, link: str, twins: Mapping[str, str]) -> None:
    """The ids of the twins' topics by topic, whose queue may drop from now on."""
    known = _known(store, link)
    rows = [
        Remembered(link, THINNED_KIND, topic, topic_id, "", wall_ms())
        for topic, topic_id in sorted(twins.items())
        if known.get(topic) != topic_id and not is_heartbeats(topic)
    ]
    if rows:
        store.memories.remember(rows)


def _known(store: Store, link: str) -> dict[str, str]:
    """By topic, the id of the twin's topic."""
    return {row.subject: row.value for row in store.memories.of(link, THINNED_KIND)}
