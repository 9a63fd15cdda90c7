"""A broker's server.properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class BrokerPorts:
    """The listeners of one broker. `wan` is 0 without a proxy; `wan_advertised` is the proxy's port."""

    node_id: int
    controller: int
    internal: int
    client: int
    wan: int = 0
    wan_advertised: int = 0


def broker_settings(
    own: BrokerPorts,
    everyone: tuple[BrokerPorts, ...],
    *,
    data: Path,
    protocol: str,
    security: Mapping[str, str],
    chosen: Mapping[str, str],
) -> dict[str, str]:
    """All settings of one broker; `chosen` overrides every default.

    `protocol`: the clients' security protocol. `security`: settings of a client listener, without prefix. Brokers and
    the lab have plain-text loopback listeners, so changed client credentials cannot break the cluster.
    """
    copies = str(min(len(everyone), 3))
    listeners = {"CONTROLLER": own.controller, "INTERNAL": own.internal, "CLIENT": own.client}
    advertised = {"INTERNAL": own.internal, "CLIENT": own.client}
    if own.wan:
        listeners["WAN"] = own.wan
        advertised["WAN"] = own.wan_advertised
    protocols = {"CONTROLLER": "PLAINTEXT", "INTERNAL": "PLAINTEXT", "CLIENT": protocol, "WAN": protocol}
    settings = {
        "process.roles": "broker,controller",
        "node.id": str(own.node_id),
        "controller.quorum.voters": ",".join(f"{ports.node_id}@127.0.0.1:{ports.controller}" for ports in everyone),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "INTERNAL",
        "listeners": _addresses(listeners),
        "advertised.listeners": _addresses(advertised),
        "listener.security.protocol.map": ",".join(f"{name}:{protocols[name]}" for name in listeners),
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "default.replication.factor": copies,
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "5",
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "5",
        "group.initial.rebalance.delay.ms": "0",
        # A broker killed with -9 can register again only when its old session has ended: 9 s by Kafka's default.
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "1000",
        # Idle controllers write to their log twice a second, a third of an idle broker's work. Several brokers share a
        # small machine.
        "metadata.max.idle.interval.ms": "5000",
    }
    settings.update(on_listeners(security, wan=bool(own.wan)))
    settings.update(chosen)
    return settings


def on_listeners(security: Mapping[str, str], *, wan: bool) -> dict[str, str]:
    """Client listener settings under the prefix of each client listener."""
    listeners = ("client", "wan") if wan else ("client",)
    return {f"listener.name.{one}.{name}": value for one in listeners for name, value in security.items()}


def _addresses(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
