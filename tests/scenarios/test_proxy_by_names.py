"""One port for all brokers: real clients come by TLS, and the name that they ask for says which broker they mean."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from testkit.certificates import CertificateAuthority
from testkit.errors import mentions
from tests.kafka.protocol.serving.java_clients import java_clients
from tests.proxy.by_names import can_know_hosts, known_by
from tests.proxy.served import NODES, ProxyProcess, proxy_before
from twinshore.config.settings import load_settings
from twinshore.lab.cluster import LabCluster
from twinshore.lab.jars import KAFKA_NEWEST, KAFKA_OLDEST
from twinshore.proxy.operations.run import preview_proxy

COUNT = 40
BROKERS = (("east", 1), ("west", 1))
FIRST, NAMES = "kafka.example", "node-*.kafka.example"


@dataclass
class Served:
    """A proxy with one port before two clusters, its authority, and a file of hosts by which it is known."""

    proxy: ProxyProcess
    authority: CertificateAuthority
    hosts: Path

    @property
    def bootstrap(self) -> str:
        return f"{FIRST}:{self.proxy.port}"


@pytest.fixture(scope="module")
def served(east: LabCluster, west: LabCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("names")
    authority = CertificateAuthority(folder, "proxy")
    pair = authority.issue("proxy", FIRST, NAMES.replace("node-*", "*"))
    more = f'certificate_file = "{pair.cert_file}"\nkey_file = "{pair.key_file}"\n'
    more += f'advertised_host = "{FIRST}"\nnode_hosts = "{NAMES}"\n'
    names = [NAMES.replace("*", str(number)) for number in range(2 * NODES)]
    (folder / "names").write_text(f"127.0.0.1 localhost {' '.join([FIRST, *names])}\n")
    east.create_topic("names-east")
    west.create_topic("names-west")
    with proxy_before(folder, east.cluster, west.cluster, more=more) as proxy:
        yield Served(proxy, authority, folder / "names")


def ports_of(proxy: ProxyProcess) -> set[int]:
    """At which clients are let in."""
    found = proxy.process.net_connections("inet")
    return {one.laddr.port for one in found if one.status == "LISTEN"} - {proxy.metrics_port}


@pytest.mark.claim("proxy", "names", "one port for all brokers: the names that clients ask for in TLS tell them apart")
def test_clients_of_librdkafka_reach_both_clusters_by_names_at_one_port(served: Served, tmp_path: Path) -> None:
    if not shutil.which("unshare") or not can_know_hosts(tmp_path):
        return  # Not every system lets a process have hosts of its own, and librdkafka asks nobody else.
    own = {"security.protocol": "SSL", "ssl.ca.location": str(served.authority.ca_file), "log_level": 2}
    settings = {"bootstrap.servers": served.bootstrap, **own}
    job = {"settings": settings, "topics": ["names-east", "names-west"], "count": COUNT, "group": "names-rdkafka"}
    found = known_by(served.hosts, job)
    assert (found["failed"], found["left"], found["read"]) == ([], 0, 2 * COUNT)
    nodes = sorted(NAMES.replace("*", str(number)) for number in (served.proxy.number_of(*one) for one in BROKERS))
    assert found["brokers"] == [f"{node}:{served.proxy.port}" for node in nodes]
    assert ports_of(served.proxy) == {served.proxy.port}


@pytest.mark.claim("proxy", "names", "one port for all brokers: the names that clients ask for in TLS tell them apart")
@pytest.mark.parametrize("version", [KAFKA_NEWEST, pytest.param(KAFKA_OLDEST, marks=pytest.mark.long)])
def test_clients_of_java_reach_both_clusters_by_names_at_one_port(served: Served, version: str) -> None:
    settings = {"security.protocol": "SSL", "ssl.truststore.type": "PEM"}
    settings["ssl.truststore.location"] = str(served.authority.ca_file)
    topics = ["names-east", "names-west"]
    with java_clients(version, f"-Djdk.net.hosts.file={served.hosts}") as java:
        for topic in topics:
            values = [f"{version} {topic} {number}" for number in range(COUNT)]
            java.produce(served.bootstrap, topic, values, settings)
            found = java.consume(served.bootstrap, topic, 10 * COUNT, 8, settings)
            assert found[-COUNT:] == values


def test_a_plan_says_which_names_must_lead_to_the_proxy(served: Served) -> None:
    plan = preview_proxy(load_settings(served.proxy.settings, env={}))
    text = "\n".join(plan.sentences())
    assert mentions(text, served.proxy.port, f"{FIRST}, {NAMES}")
    assert f"1 at node-{NODES + 1}.kafka.example:{served.proxy.port}" in text
    assert plan.values()["node_hosts"] == NAMES
