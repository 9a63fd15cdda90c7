"""A command that looks at many links asks a cluster that does not answer for one of them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from tests.kafka.peers import peer
from twinshore.config.errors import KafkaError
from twinshore.config.model import Cluster
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.pool import ConnectionPool, current_waits

CLUSTERS = 20


@contextmanager
def mute(dials: list[int]) -> Iterator[str]:
    """Takes each connection and hangs up at once; counts them."""

    def talk(_: socket.socket) -> None:
        dials.append(1)

    with peer(talk) as (host, port):
        yield f"{host}:{port}"


def ask(address: str, pool: ConnectionPool | None, patience_s: float = 0.3) -> KafkaError:
    cluster = KafkaCluster(Cluster("west", (address,)), patience_s=patience_s, call_s=patience_s, pool=pool)
    with closing(cluster), pytest.raises(KafkaError) as caught:
        cluster.metadata([])
    return caught.value


def test_a_cluster_that_was_waited_for_in_vain_is_dialled_no_more_by_this_command() -> None:
    dials: list[int] = []
    with mute(dials) as address:
        pool = ConnectionPool(once=True)
        first = ask(address, pool)
        assert (first.silent, bool(first.cause)) == ("west", True)
        dialled = len(dials)
        assert dialled >= 2, "it was tried again while there was time"
        others = [ask(address, pool) for _ in range(CLUSTERS)]
        assert len(dials) == dialled
        assert {(one.silent, one.cause) for one in others} == {("west", first.cause)}
        ask(address, ConnectionPool(once=True))
        assert len(dials) > dialled, "another command asks"


def test_silence_is_of_one_cluster_alone() -> None:
    dials: list[int] = []
    with mute(dials) as address, socket.create_server(("127.0.0.1", 0)) as free:
        closed = f"127.0.0.1:{free.getsockname()[1]}"
        free.close()
        pool = ConnectionPool(once=True)
        assert "cannot connect" in ask(closed, pool).cause
        ask(address, pool)
        assert dials, "another cluster has its own silence"


def test_who_is_waited_for_is_known_while_it_is() -> None:
    seen: list[tuple[str, str]] = []

    def talk(_: socket.socket) -> None:
        seen.extend((wait.cluster, wait.at) for wait in current_waits())

    with peer(talk) as (host, port):
        ask(f"{host}:{port}", None)
        assert ("west", f"{host}:{port}") in seen
    assert not [wait for wait in current_waits() if wait.cluster == "west"]
