"""A lab cluster with what only tests and benches need: security, users, other versions, and a network that fails."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from testkit.access import ADMIN, LabAccess, LabSecurity
from testkit.fault_proxy import FaultProxy
from twinshore.config.model import Cluster
from twinshore.lab.cluster import HEAP_MB, BrokerPorts, LabBroker, LabCluster
from twinshore.lab.jars import KAFKA_NEWEST, fetch_kafka_classpath
from twinshore.lab.ports import free_port
from twinshore.lab.processes import LabError

_ROTATED_WITHIN_S = 20.0
_NETWORK_THREADS_MAX = 8


class RigCluster(LabCluster):
    """A LabCluster whose clients log in as `security` says, and reach it through fault proxies with `via_proxy`."""

    def __init__(
        self,
        name: str,
        *,
        version: str = KAFKA_NEWEST,
        brokers: int = 1,
        security: LabSecurity = LabSecurity.PLAINTEXT,
        tls: bool = False,
        authorizer: bool = False,
        users: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
        folder: Path | None = None,
        heap_mb: int = HEAP_MB,
        jvm_flags: Sequence[str] = (),
        via_proxy: bool = False,
    ) -> None:
        super().__init__(
            name,
            version=version,
            brokers=brokers,
            settings=settings,
            folder=folder,
            heap_mb=heap_mb,
            jvm_flags=jvm_flags,
        )
        self.access = LabAccess(security, tls=tls, authorizer=authorizer, users=users, version=version, cluster=name)
        self.proxies: tuple[FaultProxy, ...] = ()
        self._via_proxy = via_proxy

    def stop(self) -> None:
        super().stop()
        for proxy in self.proxies:
            proxy.stop()

    @property
    def cluster(self) -> Cluster:
        """The client's view as the all-powerful user."""
        return self.cluster_as(ADMIN)

    def cluster_as(self, user: str) -> Cluster:
        return Cluster(self.name, self.bootstrap, self.access.security_of(user))

    def add_user(self, name: str, password: str = "") -> Cluster:
        """Adds a user, or changes the password; returns the client's view as this user.

        With SASL PLAIN the brokers must restart one after the other; otherwise they keep running.
        """
        self.access.add_user(name, password)
        if self.access.read_at_start_only:
            for broker in self.brokers:
                broker.settings.update(self._listener_security())
                broker.restart()
        return self.cluster_as(name)

    def upgrade(self, version: str) -> Iterator[LabBroker]:
        """Restarts each broker in turn with another version and yields it, so that the caller can wait for replicas.

        The cluster's metadata.version stays.
        """
        classpath = fetch_kafka_classpath(version)
        self.version = version
        for broker in self.brokers:
            broker.runs(classpath, self._flags(version))
            broker.restart()
            yield broker

    def rotate_certificates(self) -> None:
        """Replaces all certificates without a restart. Returns when every broker serves the new one."""
        expected = self.access.rotate_certificates().split()
        deadline = time.monotonic() + _ROTATED_WITHIN_S
        for broker in self.brokers:
            seen = 0
            # Each of a broker's network threads loads the new one by itself, and they take connections in turn.
            while seen < _NETWORK_THREADS_MAX:
                served = ssl.get_server_certificate(("127.0.0.1", broker.port)).split()
                seen = seen + 1 if served == expected else 0
                if time.monotonic() > deadline:
                    raise LabError(f"broker {broker.node_id} still serves its old certificate")
                if not seen:
                    time.sleep(0.1)

    @property
    def wan_bootstrap(self) -> tuple[str, ...]:
        """The brokers' addresses through their proxies; only with `via_proxy`."""
        if not self.proxies:
            raise LabError(f"cluster {self.name} has no proxies", hint="start it with via_proxy=True")
        return tuple(proxy.address for proxy in self.proxies)

    @property
    def wan_cluster(self) -> Cluster:
        """The client's view through the proxies, whose addresses the brokers advertise."""
        return Cluster(self.name, self.wan_bootstrap, self.access.security_of(ADMIN))

    def proxy(self, index: int) -> FaultProxy:
        return self.proxies[index]

    def _start_brokers(self, classpath: str) -> None:
        self.access.prepare(self.folder / "access")
        super()._start_brokers(classpath)
        node_ids = tuple(broker.node_id for broker in self.brokers)
        self.access.opened(self._internal, node_ids, wan=self._via_proxy)

    def _broker_settings(self, own: BrokerPorts, everyone: Sequence[BrokerPorts], data: Path) -> dict[str, str]:
        settings = super()._broker_settings(own, everyone, data)
        protocol = self.access.protocol
        protocols = {"CONTROLLER": "PLAINTEXT", "INTERNAL": "PLAINTEXT", "CLIENT": protocol}
        if self._via_proxy:
            wan = free_port()
            proxy = FaultProxy("127.0.0.1", wan)
            self.proxies += (proxy,)
            settings["listeners"] += f",WAN://127.0.0.1:{wan}"
            settings["advertised.listeners"] += f",WAN://{proxy.address}"
            protocols["WAN"] = protocol
        settings["listener.security.protocol.map"] = ",".join(f"{name}:{kind}" for name, kind in protocols.items())
        return {**settings, **self._listener_security(), **self.access.cluster_settings(), **self._settings}

    def _listener_security(self) -> dict[str, str]:
        """The settings of the clients' listeners, under the prefix of each."""
        listeners = ("client", "wan") if self._via_proxy else ("client",)
        security = self.access.listener_settings().items()
        return {f"listener.name.{one}.{name}": value for one in listeners for name, value in security}

    def _flags(self, version: str) -> tuple[str, ...]:
        return (*super()._flags(version), *self.access.jvm_flags())


def rigged(cluster: LabCluster) -> RigCluster:
    """The cluster, which tests started with its users or proxies."""
    assert isinstance(cluster, RigCluster)
    return cluster
