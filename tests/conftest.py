"""Real servers for every room's tests: started when first asked for, shared by the session, ended with it."""

from __future__ import annotations

import functools
import itertools
import re
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from confluent_kafka.admin import AdminClient

from testkit.clients import forget_links
from testkit.cluster import RigCluster
from testkit.databases import DatabaseServer, MariaDbServer, PostgresServer
from testkit.log_lines import LogLines, keep_log_lines
from testkit.watermarks import close_kept_consumers
from twinshore.config.model import Cluster
from twinshore.kafka.pool import RetryPolicy
from twinshore.lab.clients import create_admin_client

_numbers = itertools.count(1)

# Brokers of tests live for seconds: the JVM's second compiler would cost more than it saves.
_QUICK = ("-XX:TieredStopAtLevel=1",)

PATIENCE_S = 0.3

_shared: list[RigCluster] = []
_databases: list[DatabaseServer] = []

ClusterFactory = Callable[..., RigCluster]

# How long an example takes tells of the machine, which several processes share, and not of what is tested.
hypothesis.settings.register_profile("house", deadline=None)
hypothesis.settings.load_profile("house")

# The longest files, up to a minute and a half each. They begin first, the other ones with real servers next, pure ones
# last: so the last file that a worker takes is a short one, and no worker waits long for the other.
_LONGEST = (
    "scenarios/test_protection_kills.py",
    "scenarios/test_protection_faults.py",
    "scenarios/test_protocol_beliefs.py",
    "scenarios/test_switch_rights_beliefs.py",
    "scenarios/test_switch_transaction_beliefs.py",
    "scenarios/test_switch_beliefs.py",
    "scenarios/test_incidents.py",
    "scenarios/test_topologies.py",
    "scenarios/test_status_says_so.py",
    "scenarios/test_live_links.py",
    "scenarios/test_mirror_any_log.py",
    "cli/test_demo.py",
    "scenarios/test_mirror_refusals.py",
    "scenarios/test_mirror_basic.py",
    "scenarios/test_groups.py",
    "scenarios/test_proxy.py",
    "scenarios/test_proxy_logins.py",
    "scenarios/test_live_control.py",
    "scenarios/test_lost_store.py",
    "scenarios/test_mirror_faults.py",
    "scenarios/test_mirror_clusters.py",
    "scenarios/test_topics_follow.py",
    "scenarios/test_two_stores.py",
    "scenarios/test_topics_apart.py",
    "scenarios/test_mapped_twins.py",
    "scenarios/test_owed_deletions.py",
    "pages/test_kafka_commands.py",
    "pages/test_verbs.py",
    "test_rights.py",
    "replication/test_start_up.py",
    "simulation/test_seeds.py",
    "lab/test_security.py",
    "lab/test_cluster.py",
)
_TESTS = Path(__file__).parent


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.import_plugin("tests.recording")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _turn(item.path))


def _turn(path: Path) -> int:
    """When a file begins; files of one turn keep their order."""
    file = path.relative_to(_TESTS) if path.is_relative_to(_TESTS) else path.relative_to(_TESTS.parent)
    if file.as_posix() in _LONGEST:
        return _LONGEST.index(file.as_posix())
    return len(_LONGEST) + (file.parts[0] not in {"scenarios", "pages", "cli", "lab", "kafka"})


@pytest.fixture(scope="session")
def east() -> Iterator[RigCluster]:
    """A shared single-broker cluster of the newest Kafka. Do not kill its broker: take `cluster_factory` for that."""
    with RigCluster("east", jvm_flags=_QUICK) as cluster:
        _shared.append(cluster)
        yield cluster


@pytest.fixture(scope="session")
def west() -> Iterator[RigCluster]:
    """A second one."""
    with RigCluster("west", jvm_flags=_QUICK) as cluster:
        _shared.append(cluster)
        yield cluster


@pytest.fixture(autouse=True, scope="module")
def _no_links_of_earlier_modules(request: pytest.FixtureRequest) -> None:
    _forget_links(request)


@pytest.fixture(autouse=True)
def _no_links_of_earlier_tests(request: pytest.FixtureRequest) -> None:
    _forget_links(request)


@pytest.fixture(autouse=True)
def _no_clients_of_earlier_tests() -> Iterator[None]:
    yield
    close_kept_consumers()


def _forget_links(request: pytest.FixtureRequest) -> None:
    """Each test that runs mirrors has a store of its own: who wrote its links before is nobody's affair."""
    if {"scenarios", "cli"} & set(request.path.parts):
        for lab in _shared:
            forget_links(lab.cluster, _admin_of(lab.cluster))


@functools.cache
def _admin_of(cluster: Cluster) -> AdminClient:
    """One for as long as the shared cluster lives: a new one would take longer than many a test."""
    return create_admin_client(cluster)


@pytest.fixture
def no_topics_before() -> None:
    """For tests in which all groups of a cluster count: of those of earlier tests no topic is left."""
    _forget_topics()


@pytest.fixture(scope="module")
def no_topics_of_earlier_modules() -> None:
    """The same, where the module's tests share topics."""
    _forget_topics()


def _forget_topics() -> None:
    for lab in _shared:
        admin = _admin_of(lab.cluster)
        forget_links(lab.cluster, admin)
        topics = [one for one in admin.list_topics(timeout=30).topics if not one.startswith(("__", "twinshore."))]
        for gone in admin.delete_topics(topics, operation_timeout=30).values() if topics else ():
            gone.result(timeout=40)


@pytest.fixture
def cluster_factory() -> Iterator[ClusterFactory]:
    """Starts clusters of the test's own (RigCluster's arguments); they end with the test."""
    started: list[RigCluster] = []

    def start(name: str = "own", **arguments: Any) -> RigCluster:
        cluster = RigCluster(name, **{"jvm_flags": _QUICK, **arguments})
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
        _databases.append(server)
        yield server
        _databases.remove(server)


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDbServer]:
    """A MariaDB server; take a `new_database` of it."""
    with MariaDbServer() as server:
        _databases.append(server)
        yield server
        _databases.remove(server)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A server that died says why in the report of the test that met it, and the tests after that have it again."""
    report = yield
    for server in _databases:
        if not server.alive():
            report.sections.append((f"{server.kind} died; the end of its log", server.read_log_tail()))
            server.revive()
    return report


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that does not answer is given up within a moment, and not after the seconds that an operator waits."""

    def policy(place: str, limit_s: float, *ways: Any) -> RetryPolicy:
        return RetryPolicy(place, min(limit_s, PATIENCE_S), *ways)

    monkeypatch.setattr("twinshore.kafka.cluster.RetryPolicy", policy)


@pytest.fixture
def unique_topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test of this session has."""
    return f"{re.sub('[^a-zA-Z0-9._-]', '-', request.node.name)[:80]}-{next(_numbers)}"


@pytest.fixture
def log_lines() -> Iterator[LogLines]:
    """What Twinshore logs in this process during the test."""
    with keep_log_lines() as lines:
        yield lines


@pytest.fixture
def a_terminal() -> Iterator[None]:
    """What a test starts hears that its terminal is closed, also where `nohup` has told the tests to outlive theirs."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
