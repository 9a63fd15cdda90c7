"""A real Kafka cluster on loopback: one broker or three, each a controller too."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from twinshore.fleet import Cluster, ConfigError
from twinshore.lab.broker import LabBroker
from twinshore.lab.broker_settings import BrokerPorts, broker_settings
from twinshore.lab.clients import create_topic, wait_for_brokers
from twinshore.lab.format import format_storage, new_cluster_id
from twinshore.lab.jars import KAFKA_NEWEST, kafka_classpath
from twinshore.lab.ports import free_port
from twinshore.lab.security import LabSecurity


class LabCluster:
    """Start it, use `cluster` or `bootstrap`, do what you must to its `brokers`, stop it.

    Without `folder` its data is in a temporary one that goes at `stop`. With `folder` the data stays. One object lives
    once: brokers restart, a stopped cluster does not.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str = KAFKA_NEWEST,
        brokers: int = 1,
        security: LabSecurity = LabSecurity.PLAINTEXT,
        settings: Mapping[str, str] | None = None,
        folder: Path | None = None,
        heap_mb: int = 512,
        jvm_flags: Sequence[str] = (),
        detached: bool = False,
    ) -> None:
        if brokers not in (1, 3):
            raise ConfigError(f"a lab cluster has 1 or 3 brokers, not {brokers}")
        self.name = name
        self.version = version
        self.cluster_id = new_cluster_id()
        self.brokers: tuple[LabBroker, ...] = ()
        self._broker_count = brokers
        self._security = security
        self._settings = dict(settings or {})
        self._heap_mb = heap_mb
        self._jvm_flags = tuple(jvm_flags)
        self._detached = detached
        self._keep = folder is not None
        self._folder = folder

    def start(self) -> None:
        """Returns when every broker serves and knows the others."""
        if self.brokers:
            raise ConfigError(f"cluster {self.name} was started before")
        classpath = kafka_classpath(self.version)
        self.folder = self._folder or Path(tempfile.mkdtemp(prefix=f"twinshore-lab-{self.name}-"))
        ports = tuple(
            BrokerPorts(node_id=node_id, controller=free_port(), internal=free_port(), client=free_port())
            for node_id in range(1, self._broker_count + 1)
        )
        self.bootstrap = tuple(f"127.0.0.1:{one.client}" for one in ports)
        self._internal = Cluster(self.name, tuple(f"127.0.0.1:{one.internal}" for one in ports))
        try:
            self.brokers = tuple(self._broker(one, ports, classpath) for one in ports)
            for broker in self.brokers:
                broker.launch()
            for broker in self.brokers:
                broker.wait_ready()
            wait_for_brokers(self._internal, {broker.node_id for broker in self.brokers})
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends every broker; at once where the data goes anyway, in order where it stays."""
        if self._keep:
            for broker in self.brokers:
                if broker.alive:
                    broker.stop()
        for broker in self.brokers:
            if broker.alive:
                broker.kill()
        if not self._keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def cluster(self) -> Cluster:
        """How a client reaches it, as the user who may do everything."""
        return Cluster(self.name, self.bootstrap)

    def create_topic(
        self, topic: str, *, partitions: int = 1, copies: int = -1, settings: Mapping[str, str] | None = None
    ) -> None:
        """Creates a topic and returns when every partition has a leader."""
        create_topic(self._internal, topic, partitions=partitions, copies=copies, settings=settings)

    def _broker(self, own: BrokerPorts, everyone: tuple[BrokerPorts, ...], classpath: str) -> LabBroker:
        folder = self.folder / f"broker-{own.node_id}"
        folder.mkdir(parents=True)
        data = folder / "data"
        format_storage(self.version, data, cluster_id=self.cluster_id, node_id=own.node_id)
        settings = broker_settings(own, everyone, data=data, protocol="PLAINTEXT", security={}, chosen=self._settings)
        return LabBroker(
            node_id=own.node_id,
            port=own.client,
            folder=folder,
            classpath=classpath,
            settings=settings,
            heap_mb=self._heap_mb,
            jvm_flags=self._jvm_flags,
            registered=self._wait_registered,
            detached=self._detached,
        )

    def _wait_registered(self, node_id: int) -> None:
        wait_for_brokers(self._internal, {node_id})
