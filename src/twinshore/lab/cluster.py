"""A real Kafka cluster on loopback: one broker or three, each also a controller."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from twinshore.config.errors import ConfigError
from twinshore.config.model import Cluster
from twinshore.lab.broker import BrokerPorts, LabBroker, archive_flags, broker_settings, format_storage, new_cluster_id
from twinshore.lab.clients import create_topic, wait_for_brokers, wait_for_leaders
from twinshore.lab.jars import KAFKA_NEWEST, fetch_kafka_classpath
from twinshore.lab.ports import free_port
from twinshore.lab.processes import scratch_folder

HEAP_MB = 512


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
        settings: Mapping[str, str] | None = None,
        folder: Path | None = None,
        heap_mb: int = HEAP_MB,
        jvm_flags: Sequence[str] = (),
        detached: bool = False,
    ) -> None:
        check_brokers(brokers)
        self.name = name
        self.version = version
        self.cluster_id = new_cluster_id()
        self.brokers: tuple[LabBroker, ...] = ()
        self._broker_count = brokers
        self._settings = dict(settings or {})
        self._heap_mb = heap_mb
        self._jvm_flags = tuple(jvm_flags)
        self._detached = detached
        self._keep = folder is not None
        self._folder = folder

    def start(self) -> None:
        """Returns when every broker serves and knows the others."""
        if self.brokers:
            raise ConfigError("lab.started-before", cluster=self.name)
        classpath = fetch_kafka_classpath(self.version)
        self.folder = self._folder or scratch_folder(f"lab-{self.name}")
        try:
            self._start_brokers(classpath)
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
        if not self._keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def cluster(self) -> Cluster:
        """The client's view."""
        return Cluster(self.name, self.bootstrap)

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

    def _start_brokers(self, classpath: str) -> None:
        ports = [
            BrokerPorts(node_id=node_id, controller=free_port(), internal=free_port(), client=free_port())
            for node_id in range(1, self._broker_count + 1)
        ]
        self.bootstrap = tuple(f"127.0.0.1:{broker_ports.client}" for broker_ports in ports)
        self._internal = Cluster(self.name, tuple(f"127.0.0.1:{broker_ports.internal}" for broker_ports in ports))
        self.brokers = tuple(self._broker(broker_ports, ports, classpath) for broker_ports in ports)
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.wait_ready()
        wait_for_brokers(self._internal, {broker.node_id for broker in self.brokers})

    def _broker(self, own: BrokerPorts, everyone: Sequence[BrokerPorts], classpath: str) -> LabBroker:
        folder = self.folder / f"broker-{own.node_id}"
        folder.mkdir(parents=True)
        data = folder / "data"
        format_storage(self.version, data, cluster_id=self.cluster_id, node_id=own.node_id)
        return LabBroker(
            node_id=own.node_id,
            port=own.client,
            folder=folder,
            classpath=classpath,
            settings=self._broker_settings(own, everyone, data),
            heap_mb=self._heap_mb,
            jvm_flags=self._flags(self.version),
            registered=self._wait_registered,
            detached=self._detached,
        )

    def _broker_settings(self, own: BrokerPorts, everyone: Sequence[BrokerPorts], data: Path) -> dict[str, str]:
        return {**broker_settings(own, everyone, data), **self._settings}

    def _flags(self, version: str) -> tuple[str, ...]:
        return (*archive_flags(version), *self._jvm_flags)

    def _wait_registered(self, node_id: int) -> None:
        serving = (text for text, broker in zip(self._internal.bootstrap, self.brokers, strict=True) if broker.answers)
        wait_for_brokers(replace(self._internal, bootstrap=tuple(serving)), {node_id})
