"""A real Kafka cluster on loopback: one broker or three, each also a controller."""

from __future__ import annotations

import shutil
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from twinshore.config.errors import ConfigError
from twinshore.config.model import Cluster
from twinshore.lab.access import ADMIN, LabAccess, LabSecurity
from twinshore.lab.archive import archive_flags, format_storage, new_cluster_id
from twinshore.lab.broker import LabBroker
from twinshore.lab.broker_settings import BrokerPorts, broker_settings, on_listeners
from twinshore.lab.clients import create_topic, wait_for_brokers, wait_for_leaders
from twinshore.lab.errors import LabError
from twinshore.lab.fault_proxy import FaultProxy
from twinshore.lab.jars import KAFKA_NEWEST, fetch_kafka_classpath
from twinshore.lab.ports import free_port
from twinshore.lab.processes import scratch_folder

HEAP_MB = 512
_ROTATED_WITHIN_S = 20.0
_NETWORK_THREADS_MAX = 8


def check_brokers(count: int) -> None:
    """Raises ConfigError for an impossible number of brokers."""
    if count not in (1, 3):
        raise ConfigError("lab.broker-count", brokers=count)


class LabCluster:
    """A cluster to start, use by `cluster` or `bootstrap`, break by its `brokers`, and stop.

    Without `folder` the data is removed by `stop`. Brokers can restart, a stopped cluster cannot.
    """

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
        detached: bool = False,
    ) -> None:
        if via_proxy and detached:
            raise ConfigError("lab.detached-proxies")
        check_brokers(brokers)
        self.name = name
        self.version = version
        self.cluster_id = new_cluster_id()
        self.brokers: tuple[LabBroker, ...] = ()
        self._broker_count = brokers
        self.access = LabAccess(security, tls=tls, authorizer=authorizer, users=users, version=version, cluster=name)
        self._settings = dict(settings or {})
        self._heap_mb = heap_mb
        self._jvm_flags = tuple(jvm_flags)
        self._via_proxy = via_proxy
        self._detached = detached
        self._proxies: list[FaultProxy] = []
        self._keep = folder is not None
        self._folder = folder

    def start(self) -> None:
        """Returns when every broker serves and knows the others."""
        if self.brokers:
            raise ConfigError("lab.started-before", cluster=self.name)
        classpath = fetch_kafka_classpath(self.version)
        self.folder = self._folder or scratch_folder(f"lab-{self.name}")
        try:
            ports = tuple(self._ports(node_id) for node_id in range(1, self._broker_count + 1))
            self.bootstrap = tuple(f"127.0.0.1:{broker_ports.client}" for broker_ports in ports)
            self._internal = Cluster(self.name, tuple(f"127.0.0.1:{broker_ports.internal}" for broker_ports in ports))
            self.access.prepare(self.folder / "access")
            self.brokers = tuple(self._broker(broker_ports, ports, classpath) for broker_ports in ports)
            for broker in self.brokers:
                broker.launch()
            for broker in self.brokers:
                broker.wait_ready()
            node_ids = tuple(broker.node_id for broker in self.brokers)
            wait_for_brokers(self._internal, set(node_ids))
            self.access.opened(self._internal, node_ids, wan=self._via_proxy)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends every broker: in order if the data stays, otherwise by kill."""
        if self._keep:
            for broker in self.brokers:
                if broker.alive:
                    broker.stop()
        for broker in self.brokers:
            if broker.alive:
                broker.kill()
        for proxy in self._proxies:
            proxy.stop()
        if not self._keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

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
                listeners = on_listeners(self.access.listener_settings(), wan=self._via_proxy)
                broker.settings.update(listeners)
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
                    raise LabError("lab.old-certificate", broker=broker.node_id)
                if not seen:
                    time.sleep(0.1)

    @property
    def wan_bootstrap(self) -> tuple[str, ...]:
        """The brokers' addresses through their proxies; only with `via_proxy`."""
        if not self._proxies:
            raise ConfigError("lab.no-proxies", cluster=self.name)
        return tuple(proxy.address for proxy in self._proxies)

    @property
    def wan_cluster(self) -> Cluster:
        """The client's view through the proxies, whose addresses the brokers advertise."""
        return Cluster(self.name, self.wan_bootstrap, self.access.security_of(ADMIN))

    @property
    def proxies(self) -> tuple[FaultProxy, ...]:
        return tuple(self._proxies)

    def proxy(self, index: int) -> FaultProxy:
        return self._proxies[index]

    def create_topic(
        self, topic: str, *, partitions: int = 1, copies: int = -1, settings: Mapping[str, str] | None = None
    ) -> None:
        """Creates a topic and returns when each serving broker shows a leader of every partition."""
        create_topic(self._internal, topic, partitions=partitions, copies=copies, settings=settings)
        if len(self.brokers) == 1:
            return
        # Each broker learns of a topic by itself, and the next request may go to any of them.
        alive = (text for text, broker in zip(self._internal.bootstrap, self.brokers, strict=True) if broker.alive)
        wait_for_leaders(replace(self._internal, bootstrap=tuple(alive)), topic, partitions)

    def _ports(self, node_id: int) -> BrokerPorts:
        ports = BrokerPorts(node_id=node_id, controller=free_port(), internal=free_port(), client=free_port())
        if not self._via_proxy:
            return ports
        wan = free_port()
        proxy = FaultProxy("127.0.0.1", wan)
        self._proxies.append(proxy)
        return replace(ports, wan=wan, wan_advertised=proxy.port)

    def _broker(self, own: BrokerPorts, everyone: tuple[BrokerPorts, ...], classpath: str) -> LabBroker:
        folder = self.folder / f"broker-{own.node_id}"
        folder.mkdir(parents=True)
        data = folder / "data"
        format_storage(self.version, data, cluster_id=self.cluster_id, node_id=own.node_id)
        settings = broker_settings(
            own,
            everyone,
            data=data,
            protocol=self.access.protocol,
            security=self.access.listener_settings(),
            chosen={**self.access.cluster_settings(), **self._settings},
        )
        return LabBroker(
            node_id=own.node_id,
            port=own.client,
            folder=folder,
            classpath=classpath,
            settings=settings,
            heap_mb=self._heap_mb,
            jvm_flags=self._flags(self.version),
            registered=self._wait_registered,
            detached=self._detached,
        )

    def _flags(self, version: str) -> tuple[str, ...]:
        return (*archive_flags(version), *self._jvm_flags, *self.access.jvm_flags())

    def _wait_registered(self, node_id: int) -> None:
        serving = (text for text, broker in zip(self._internal.bootstrap, self.brokers, strict=True) if broker.answers)
        wait_for_brokers(replace(self._internal, bootstrap=tuple(serving)), {node_id})
