"""The section `proxy`: where `twinshore proxy run` listens for clients, and which clusters they reach through it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from twinshore.fleet.settings.declaring import setting
from twinshore.fleet.settings.edge import Complaints, did_you_mean, read_section
from twinshore.fleet.settings.section import Section, Written

PORT_MAX = 65535
EVERY_ADDRESS = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    """Where `twinshore proxy run` serves clients; see docs/proxy.md."""

    address: str = setting("127.0.0.1", "address to listen at; `0.0.0.0` for every one of this machine's")
    port: int = setting(
        19092, "port that clients are given; each broker has one of those behind it", low=1, high=PORT_MAX
    )
    advertised_host: str = setting("", "host by which clients reach this machine; empty: `address`")
    clusters: tuple[str, ...] = setting(
        (),
        "clusters behind the proxy; the first one is the groups' home. Add others at the end, since ports and"
        " numbers of brokers follow from the order; empty: all",
    )
    nodes_per_cluster: int = setting(100, "how many ports each cluster has; never change it", low=1, high=10_000)
    cluster_id: str = setting("twinshore", "id of the one cluster that clients see")
    metrics_address: str = setting("127.0.0.1", "address that serves /metrics and /health")
    metrics_port: int = setting(0, "port that serves them; 0: none", low=0, high=PORT_MAX)


def read_proxy(written: Written, complaints: Complaints) -> ProxySettings:
    """The section with its defaults filled in; complaints are added where it is wrong."""
    found = read_section(ProxySettings, written.raw, written.place, complaints) or ProxySettings()
    known = written.before.get("clusters", {})
    for name in found.clusters:
        if name not in known:
            complaints.add(written.place, f"clusters: no cluster {name!r}{did_you_mean(name, known)}")
    if len(set(found.clusters)) != len(found.clusters):
        complaints.add(written.place, "clusters: each once")
    if found.address in EVERY_ADDRESS and not found.advertised_host:
        complaints.add(written.place, f"advertised_host: is required where address is {found.address}")
    whole = replace(
        found, clusters=found.clusters or tuple(known), advertised_host=found.advertised_host or found.address
    )
    if written.raw and (last := whole.port + whole.nodes_per_cluster * len(whole.clusters)) > PORT_MAX:
        complaints.add(written.place, f"port, nodes_per_cluster: the last port would be {last}, they end at {PORT_MAX}")
    return whole


SECTION = Section("proxy", 85, (("[proxy]", ProxySettings),), read_proxy, overridden=True)
