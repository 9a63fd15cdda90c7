"""What the ledger and the filters say of topics, before a link's lag is counted."""

from __future__ import annotations

from collections.abc import Mapping

from twinshore.fleet import Link, NamedPartition
from twinshore.links.filters import admits
from twinshore.mirror.incidents.kinds import rests
from twinshore.store import IncidentKind, Store


def made_again(store: Store, link: str) -> frozenset[str]:
    """Topics of which the ledger says that they are others now than their twins were made of."""
    rows = store.ledger.rows(link, open_only=True)
    return frozenset(row.incident.topic for row in rows if row.incident.kind is IncidentKind.RECREATED_TOPIC)


def refused_topics(store: Store, link: str) -> frozenset[str]:
    """Topics of which the ledger says that the link refuses them, and that it never began with."""
    rows = [row.incident for row in store.ledger.rows(link, open_only=True)]
    found = {one.topic for one in rows if one.topic and one.partition < 0 and rests(one.kind, one.policy)}
    return frozenset(found - store.twins.begun(link, found)) if found else frozenset()


def admitted(link: Link, reached: Mapping[NamedPartition, int]) -> dict[NamedPartition, int]:
    """The partitions of topics that the link's filters admit; each topic is asked about once."""
    topics = {topic for topic in {named.topic for named in reached} if admits(link, topic)}
    return {named: at for named, at in reached.items() if named.topic in topics}
