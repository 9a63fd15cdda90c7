"""Whom a link writes as, and which two clusters it has always been between."""

from __future__ import annotations

from collections.abc import Iterable

from twinshore.fleet import Link, RefusedError
from twinshore.kafka.cluster import KafkaCluster
from twinshore.store import LinkIdentity, Store


def recognise(link: Link, store: Store, source: KafkaCluster, target: KafkaCluster) -> LinkIdentity | None:
    """The link's identity, None before its first start; RefusedError where these cannot be its clusters."""
    source_id, target_id = source.cluster_id(), target.cluster_id()
    if source_id == target_id:
        raise RefusedError(
            f"link {link.name}: {link.source} and {link.target} are the same cluster ({source_id})",
            hint="check the bootstrap addresses of both clusters",
        )
    known = store.links.identity(link.name)
    if known and (known.source_cluster_id, known.target_cluster_id) != (source_id, target_id):
        raise RefusedError(
            f"link {link.name} was between clusters {known.source_cluster_id} and {known.target_cluster_id}, "
            f"the addresses now lead to {source_id} and {target_id}",
            hint="check the bootstrap addresses; for other clusters give the link another store or name",
        )
    return known


def hold_to(link: Link, store: Store, source: KafkaCluster, target: KafkaCluster) -> bool:
    """Has connections of somebody's own refuse any clusters but the link's. Returns whether these are known yet."""
    known = store.links.identity(link.name)
    if known is None:
        return False
    source.must_be(known.source_cluster_id)
    target.must_be(known.target_cluster_id)
    return True


def known_clusters(links: Iterable[Link], store: Store) -> dict[str, str]:
    """The id of each cluster by its name, as the links of a store knew it when they began. One that they do not agree
    on is left out: some of them had another cluster of that name."""
    found: dict[str, set[str]] = {}
    for link in links:
        known = store.links.identity(link.name)
        if known is not None:
            found.setdefault(link.source, set()).add(known.source_cluster_id)
            found.setdefault(link.target, set()).add(known.target_cluster_id)
    return {name: next(iter(ids)) for name, ids in found.items() if len(ids) == 1}
