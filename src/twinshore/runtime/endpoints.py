"""What jobs of a link share: context, connections to both clusters, and the check of cluster ids.

Links share a few connections to each broker, in two pools: calls that give up within seconds never queue behind calls
that wait long. Only one caller at a time asks a silent cluster. Tasks have connections of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from twinshore.config.errors import RefusedError
from twinshore.config.frozen import CLIENT_ID, LOOKS_CLIENT_ID
from twinshore.config.model import Cluster, Link
from twinshore.config.settings import Settings
from twinshore.kafka.cluster import API_TIMEOUT_S, REQUEST_TIMEOUT_S, KafkaCluster
from twinshore.kafka.pool import ConnectionPool
from twinshore.runtime.logging import OutageLog
from twinshore.state.core.values import LinkIdentity
from twinshore.state.store import Store


@dataclass(frozen=True, slots=True)
class LinkContext:
    """A link that this process runs. `active`: whether this process holds the link's lease now."""

    link: Link
    settings: Settings
    store: Store
    active: Callable[[], bool]
    outages: OutageLog


class LinkService(Protocol):
    """A service beside a link. The constructor starts a task or thread, which handles all failures."""

    def close(self) -> None:
        """Ends the service; called before the link releases its lease."""


StartService = Callable[[LinkContext], LinkService]

CONNECTIONS_PER_BROKER = 8  # concurrent requests to one broker


@dataclass(frozen=True, slots=True)
class SharedConnections:
    """Connections of many links. `client_id`: their client id at brokers."""

    client_id: str
    pool: ConnectionPool = field(default_factory=lambda: ConnectionPool(CONNECTIONS_PER_BROKER, spares=True))

    def client(self, cluster: Cluster, timeout_s: float) -> KafkaCluster:
        """Returns a client of the cluster whose calls, with all their retries, end after `timeout_s`."""
        return KafkaCluster(cluster, client_id=self.client_id, patience_s=timeout_s, call_s=timeout_s, pool=self.pool)


SHORT_TIMEOUT_CONNECTIONS = SharedConnections(LOOKS_CLIENT_ID)
LONG_TIMEOUT_CONNECTIONS = SharedConnections(CLIENT_ID)


def one_shot_connections(client_id: str) -> SharedConnections:
    """For a command that reads many links: a cluster that timed out is not asked again."""
    return SharedConnections(client_id, ConnectionPool(CONNECTIONS_PER_BROKER, once=True))


class LinkClients:
    """A link's two clusters, which connect on first use. One thread at a time. `close`, or the block's end, ends
    connections that are not shared with others.
    """

    def __init__(
        self,
        link: Link,
        settings: Settings,
        *,
        client_id: str = CLIENT_ID,
        patience_s: float = API_TIMEOUT_S,
        call_s: float = REQUEST_TIMEOUT_S,
        sleep: Callable[[float], None] = time.sleep,
        shared: SharedConnections | None = None,
    ) -> None:
        self.source, self.target = (
            KafkaCluster(
                settings.cluster(name),
                client_id=shared.client_id if shared else client_id,
                patience_s=patience_s,
                call_s=call_s,
                sleep=sleep,
                pool=shared.pool if shared else None,
            )
            for name in (link.source, link.target)
        )

    def close(self) -> None:
        self.source.close()
        self.target.close()

    def __enter__(self) -> LinkClients:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def verify_cluster_ids(link: Link, store: Store, source: KafkaCluster, target: KafkaCluster) -> LinkIdentity | None:
    """Returns the link's identity, None before the first start. Raises RefusedError where these are not the link's
    clusters.
    """
    source_id, target_id = source.cluster_id(), target.cluster_id()
    if source_id == target_id:
        sides = {"source": link.source, "target": link.target}
        raise RefusedError("runtime.same-cluster", link=link.name, **sides, cluster_id=source_id)
    identity = store.links.identity(link.name)
    if identity and (identity.source_cluster_id, identity.target_cluster_id) != (source_id, target_id):
        before, now = f"{identity.source_cluster_id} and {identity.target_cluster_id}", f"{source_id} and {target_id}"
        raise RefusedError("runtime.other-clusters", link=link.name, before=before, now=now)
    return identity


def pin_cluster_ids(link: Link, store: Store, source: KafkaCluster, target: KafkaCluster) -> bool:
    """Makes connections refuse all clusters but the link's. Returns whether those are known yet."""
    identity = store.links.identity(link.name)
    if identity is None:
        return False
    source.expect_cluster_id(identity.source_cluster_id)
    target.expect_cluster_id(identity.target_cluster_id)
    return True


def known_cluster_ids(links: Iterable[Link], store: Store) -> dict[str, str]:
    """Returns cluster ids by name, as a store's links recorded them. Leaves out names on which links disagree: some had
    another cluster of that name.
    """
    found: dict[str, set[str]] = {}
    for link in links:
        identity = store.links.identity(link.name)
        if identity is not None:
            found.setdefault(link.source, set()).add(identity.source_cluster_id)
            found.setdefault(link.target, set()).add(identity.target_cluster_id)
    return {name: next(iter(ids)) for name, ids in found.items() if len(ids) == 1}
