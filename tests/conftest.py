"""Real servers for every room's tests: started when first asked for, shared by the session, ended with it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from twinshore.lab import LabCluster, MariaDbServer, PostgresServer

_numbers = itertools.count(1)

# Brokers of tests live for seconds: the JVM's second compiler would cost more than it saves.
_QUICK = ("-XX:TieredStopAtLevel=1",)

ClusterFactory = Callable[..., LabCluster]


@pytest.fixture(scope="session")
def east() -> Iterator[LabCluster]:
    """A shared single-broker cluster of the newest Kafka. Do not kill its broker: take `cluster_factory` for that."""
    with LabCluster("east", jvm_flags=_QUICK) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def west() -> Iterator[LabCluster]:
    """A second one."""
    with LabCluster("west", jvm_flags=_QUICK) as cluster:
        yield cluster


@pytest.fixture
def cluster_factory() -> Iterator[ClusterFactory]:
    """Starts clusters of the test's own (LabCluster's arguments); they end with the test."""
    started: list[LabCluster] = []

    def start(name: str = "own", **arguments: Any) -> LabCluster:
        cluster = LabCluster(name, **{"jvm_flags": _QUICK, **arguments})
        started.append(cluster)
        cluster.start()
        return cluster

    yield start
    for cluster in started:
        cluster.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server; take a `new_database` of it."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDbServer]:
    """A MariaDB server; take a `new_database` of it."""
    with MariaDbServer() as server:
        yield server


@pytest.fixture
def unique_topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test of this session has."""
    return f"{re.sub('[^a-zA-Z0-9._-]', '-', request.node.name)[:80]}-{next(_numbers)}"
