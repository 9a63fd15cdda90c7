"""What runs beside a link in the same process and is not the mirror's business: rooms further down bring it along.

The connections to clusters that all links of a process share: a few to each broker, however many links there are.

There are two registries. Who gives up within seconds, and says so, must not stand behind those who ask much and wait
long. Of a cluster that has been silent for some seconds only one is asking at a time. Pumps have connections of their
own, and so has who drives one by himself.

The two clusters of a link, for whoever has something to ask both: by connections of its own, or by shared ones.

Whom a link writes as, and which two clusters it has always been between.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from twinshore.config.errors import RefusedError
from twinshore.config.frozen import CLIENT_ID, LOOKS_CLIENT_ID
from twinshore.config.model import Link
from twinshore.config.settings import Settings
from twinshore.kafka.cluster import API_TIMEOUT_S, REQUEST_TIMEOUT_S, KafkaCluster
from twinshore.kafka.pool import ConnectionPool
from twinshore.state.core.values import LinkIdentity
from twinshore.state.store import Store


@dataclass(frozen=True, slots=True)
class LinkContext:
    """A link that this process runs. `active`: whether it is ours to act for at this moment, by its lease."""

    link: Link
    settings: Settings
    store: Store
    active: Callable[[], bool]
    log: Callable[[str], None]


class LinkService(Protocol):
    """It starts with its making, in a task or a thread, and its failures stay its own."""

    def close(self) -> None:
        """Ends it; called before the link gives back its lease."""


StartService = Callable[[LinkContext], LinkService]

CONNECTIONS_PER_BROKER = 8  # to one broker: as many questions are on their way to it at once


@dataclass(frozen=True, slots=True)
class SharedConnections:
    """`client_id`: what brokers know its connections by."""

    client_id: str
    pool: ConnectionPool = field(default_factory=lambda: ConnectionPool(CONNECTIONS_PER_BROKER, spares=True))


SHORT_TIMEOUT_CONNECTIONS = SharedConnections(LOOKS_CLIENT_ID)
LONG_TIMEOUT_CONNECTIONS = SharedConnections(CLIENT_ID)


def one_shot_connections(client_id: str) -> SharedConnections:
    """For a command that looks at many links: a cluster for which it has waited in vain it asks no more."""
    return SharedConnections(client_id, ConnectionPool(CONNECTIONS_PER_BROKER, once=True))


class LinkClients:
    """`source` and `target` dial when they are first asked. One thread at a time; `close`, or the block's end, ends
    their connections, of shared ones those that nobody else asks by."""

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
        """Ends both clusters' connections."""
        self.source.close()
        self.target.close()

    def __enter__(self) -> LinkClients:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def verify_cluster_ids(link: Link, store: Store, source: KafkaCluster, target: KafkaCluster) -> LinkIdentity | None:
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


def pin_cluster_ids(link: Link, store: Store, source: KafkaCluster, target: KafkaCluster) -> bool:
    """Has connections of somebody's own refuse any clusters but the link's. Returns whether these are known yet."""
    known = store.links.identity(link.name)
    if known is None:
        return False
    source.expect_cluster_id(known.source_cluster_id)
    target.expect_cluster_id(known.target_cluster_id)
    return True


def known_cluster_ids(links: Iterable[Link], store: Store) -> dict[str, str]:
    """The id of each cluster by its name, as the links of a store knew it when they began. One that they do not agree
    on is left out: some of them had another cluster of that name."""
    found: dict[str, set[str]] = {}
    for link in links:
        known = store.links.identity(link.name)
        if known is not None:
            found.setdefault(link.source, set()).add(known.source_cluster_id)
            found.setdefault(link.target, set()).add(known.target_cluster_id)
    return {name: next(iter(ids)) for name, ids in found.items() if len(ids) == 1}
