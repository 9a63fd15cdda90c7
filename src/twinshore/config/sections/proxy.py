"""The section `proxy`: where `twinshore proxy run` listens, for which clusters, and with which credentials."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from twinshore.config.declaration import live_setting, setting
from twinshore.config.frozen import PROXY_CLUSTER_ID
from twinshore.config.model import Cluster, SaslMechanism, Secret
from twinshore.config.schema import (
    TOPIC_WILDCARD,
    Complaints,
    RawSection,
    Section,
    did_you_mean,
    network_error,
    read_secret,
    read_section,
)

PORT_MAX = 65535
_BY_NAME = "new_topics_by_name"
WILDCARD_ADDRESSES = ("0.0.0.0", "::")
SAME_CREDENTIALS = "same"
START_AFTER_LEASE, START_AFTER_ALL = "lease", "all"
OWN_CREDENTIALS = "own"
_HOST = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)+", re.IGNORECASE)
# Mechanisms by which clients may log in here.
CLIENT_MECHANISMS = (SaslMechanism.PLAIN.value, SaslMechanism.SCRAM_SHA_512.value)


@dataclass(frozen=True, slots=True)
class ClusterCredentials:
    username: str
    password: Secret


# Keyed by the client's principal and the cluster's name.
CredentialsMap = Mapping[tuple[str, str], ClusterCredentials]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmSection:
    """An alarm opens when this proxy's traffic is above or below one of the bounds without a break, and closes when all
    is well for longer; see docs/client-audit.md. A bound of 0 is none.
    """

    topic: str = setting("*", "topic; with a trailing `*`, all topics with this prefix together")
    client: str = setting("*", "client id; with a trailing `*`, all client ids with this prefix together")
    kind: Literal["produce", "fetch"] = setting("produce", "`produce` or `fetch`")
    above_bytes_s: int = setting(0, "alarm above these bytes per second", low=0)
    below_bytes_s: int = setting(0, "alarm below these bytes per second", low=0)
    above_records_s: int = setting(0, "alarm above these produced records per second", low=0)
    below_records_s: int = setting(0, "alarm below these produced records per second", low=0)
    latency_ms: int = setting(0, "alarm if the 99th percentile of produce latency is longer", low=0)
    for_s: int = setting(30, "how long the condition must last before the alarm is raised", low=1)
    quiet_s: int = setting(
        60, "how long traffic must be normal before the alarm is cleared: at most half of upper bounds", low=1
    )

    @property
    def bounds(self) -> tuple[int, ...]:
        above = (self.above_bytes_s, self.above_records_s, self.latency_ms)
        return (*above, self.below_bytes_s, self.below_records_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    """Where `twinshore proxy run` serves clients; see docs/proxy.md. Besides `new_topics_by_name`, a table from name to
    cluster, where `*` stands for any characters: the first that fits the whole name of a new topic counts, instead of
    `new_topics`.
    """

    address: str = setting("127.0.0.1", "address to listen on; `0.0.0.0` for all")
    port: int = setting(19092, "bootstrap port; each broker has one of the ports after it", low=1, high=PORT_MAX)
    advertised_host: str = setting("", "host name that clients use for this machine; empty: `address`")
    processes: int = setting(
        1,
        "number of processes; each uses one core. Limits, quotas and breakers with limits count in each process"
        " separately",
        low=1,
        high=256,
    )
    clusters: tuple[str, ...] = setting(
        (),
        "clusters behind the proxy; the first is the groups' home. Append new ones, since the order decides ports"
        " and broker ids; empty: all",
    )
    node_hosts: str = setting(
        "",
        "host name of each broker, with `*` for its id, as `node-*.kafka.example.com`: all clients then connect"
        " to `port`, and the server name in TLS selects the broker; empty: each broker has its own port",
    )
    nodes_per_cluster: int = setting(100, "number of ports for each cluster; never change it", low=1, high=10_000)
    cluster_id: str = setting(PROXY_CLUSTER_ID, "cluster id that clients see")
    follows_switches: bool = setting(
        True,
        "pause writers while a switch moves their topics; the proxy registers for this in `twinshore.followers`."
        " false: if no switch ever moves a topic of these clusters",
    )
    start: Literal["lease", "all"] = setting(
        "lease",
        "for a proxy that starts while a cluster does not answer and nothing remembers its topics' homes: `lease`"
        " waits five seconds and then relies on the other clusters; `all` keeps these topics leaderless until it"
        " answers",
    )
    memory_file: str = setting(
        "",
        "file that keeps the breakers for a start while the store does not answer; empty: the proxy then waits"
        " five seconds and serves without breakers",
    )
    client_bytes_s: int = live_setting(
        0, "quota of each client id at this proxy, in bytes per second sent and received; 0: no limit", low=0
    )
    queued_bytes_max: int = setting(
        256 << 20,
        "maximum bytes of requests above 64 KiB in a process at once, as brokers' `queued.max.request.bytes`;"
        " more requests wait",
        low=128 << 20,
    )
    clients_max: int = live_setting(0, "maximum number of client connections; 0: no limit", low=0)
    clients_of_one_address_max: int = live_setting(
        0, "maximum number of client connections from one address; 0: no limit", low=0
    )
    balancers: tuple[str, ...] = setting(
        (),
        "networks or addresses of load balancers: connections from them must begin with a PROXY header, and no"
        " others may",
    )
    new_topics: str = live_setting("", "cluster on which clients' new topics are created; empty: the first one")
    certificate_file: str = setting(
        "", "PEM file with the proxy's certificate and chain; it enables TLS. Reread when it changes"
    )
    key_file: str = setting("", "PEM file with the certificate's key, without a password")
    client_ca_file: str = setting("", "PEM file of authorities; clients must have a certificate of one of them")
    sasl: tuple[str, ...] = setting((), "SASL mechanisms for clients: `PLAIN`, `SCRAM-SHA-512`; empty: no login")
    users_file: str = setting("", "TOML file of the users; reread when it changes")
    credentials: str = setting(
        "",
        "`same`: the proxy logs in at clusters with the client's user and password. Empty: by the tables"
        " `[proxy.credentials.PRINCIPAL]`; without tables as the clusters' own users",
    )
    credentials_else: str = setting(
        "",
        "`own`: principals without a table use the clusters' own users, also at clusters that their table does"
        " not name. Empty: they are refused once there is a table",
    )
    traffic_every_s: int = setting(10, "length of a traffic window, see `twinshore proxy traffic`", low=1, high=3600)
    traffic_keep_hours: int = setting(24, "how long the store keeps traffic windows; 0: none are stored", low=0)
    traffic_topic: str = setting("", "topic to which traffic windows are also written, as JSON; empty: none")
    traffic_cluster: str = setting("", "cluster of that topic; empty: the first one")
    metrics_address: str = setting("127.0.0.1", "address that serves /metrics and /health")
    metrics_port: int = setting(0, "port of /metrics and /health; 0: none", low=0, high=PORT_MAX)
    new_topics_by_name: tuple[tuple[str, str], ...] = ()
    logins: CredentialsMap = field(default_factory=dict)
    alarms: tuple[tuple[str, AlarmSection], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialsSection:
    """The credentials of this principal's clients at all clusters that ask for a login; see docs/proxy.md."""

    username: str = setting("", "user on the clusters")
    password_env: str = setting("", "environment variable that holds the user's password")
    password_file: str = setting("", "file that holds the user's password")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCredentialsSection(CredentialsSection):
    """The same for this cluster alone, where different."""


def read_proxy(raw_section: RawSection, complaints: Complaints) -> ProxySettings:
    raw, tables = _without_tables(raw_section)
    rest, inner = RawSection(raw, raw_section.place, raw_section.before).parted(_BY_NAME, "alarms")
    found = read_section(ProxySettings, rest, raw_section.place, complaints) or ProxySettings()
    known = raw_section.before.get("clusters", {})
    for name in found.clusters:
        if name not in known:
            complaints.add(raw_section.place, f"clusters: no cluster {name!r}{did_you_mean(name, known)}")
    if len(set(found.clusters)) != len(found.clusters):
        complaints.add(raw_section.place, "clusters: each once")
    if found.address in WILDCARD_ADDRESSES and not found.advertised_host:
        complaints.add(raw_section.place, f"advertised_host: is required where address is {found.address}")
    names = found.clusters or tuple(known)
    whole = replace(found, clusters=names, advertised_host=found.advertised_host or found.address)
    by_name = _read_names(inner[_BY_NAME], whole, raw_section.place, complaints)
    for name, cluster in (("new_topics", whole.new_topics), ("traffic_cluster", whole.traffic_cluster)):
        if cluster and cluster not in whole.clusters:
            complaints.add(raw_section.place, f"{name}: no cluster {cluster!r}{did_you_mean(cluster, whole.clusters)}")
    ports = 0 if whole.node_hosts else whole.nodes_per_cluster * len(whole.clusters)
    if raw_section.raw and (last := whole.port + ports) > PORT_MAX:
        sentence = f"the last port would be {last}, they end at {PORT_MAX}"
        complaints.add(raw_section.place, f"port, nodes_per_cluster: {sentence}")
    behind = [known[name] for name in names if name in known]
    for sentence in _conflicts(whole, behind, bool(tables)):
        complaints.add(raw_section.place, sentence)
    alarms = read_alarms(inner["alarms"], raw_section.place, complaints)
    logins = _logins(tables, behind, found.credentials_else == OWN_CREDENTIALS, complaints)
    return replace(whole, new_topics_by_name=by_name, logins=logins, alarms=alarms)


def _read_names(table: object, whole: ProxySettings, place: str, complaints: Complaints) -> tuple[tuple[str, str], ...]:
    if not isinstance(table, Mapping):
        complaints.add(place, f'{_BY_NAME}: must be a table like {{ "billing-*" = "west" }}, not {table!r}')
        return ()
    found = []
    for pattern, cluster in table.items():
        if not TOPIC_WILDCARD.fullmatch(pattern):
            complaints.add(place, f"{_BY_NAME}: {pattern!r} is no name of topics with `*` in it")
        elif cluster not in whole.clusters:
            near = did_you_mean(str(cluster), whole.clusters)
            complaints.add(place, f"{_BY_NAME}: {pattern!r}: no cluster {cluster!r}{near}; quote names with dots")
        else:
            found.append((pattern, str(cluster)))
    return tuple(found)


def _without_tables(raw: RawSection) -> tuple[object, Mapping[str, object]]:
    """The section, and the tables of `credentials` if it holds tables and not a word."""
    if isinstance(raw.raw, Mapping) and isinstance(tables := raw.raw.get("credentials"), Mapping):
        return raw.parted("credentials")[0], tables
    return raw.raw, {}


def _conflicts(found: ProxySettings, behind: list[Cluster], tables: bool) -> Iterator[str]:
    if bool(found.certificate_file) != bool(found.key_file):
        yield "certificate_file and key_file: one needs the other"
    if found.client_ca_file and not found.certificate_file:
        yield "client_ca_file: has no effect without certificate_file"
    yield from _conflicts_of_names(found)
    for network in found.balancers:
        if why := network_error(network):
            yield f"balancers: {why}"
    for name in found.sasl:
        if name not in CLIENT_MECHANISMS:
            yield f"sasl: no mechanism {name!r} here{did_you_mean(name.upper().replace('_', '-'), CLIENT_MECHANISMS)}"
    if found.users_file and not found.sasl:
        yield "users_file: has no effect without sasl"
    yield from _conflicts_of_credentials(found, behind, tables)


def _conflicts_of_credentials(found: ProxySettings, behind: list[Cluster], tables: bool) -> Iterator[str]:
    if tables and not (found.sasl or found.client_ca_file):
        yield "credentials: have no effect without sasl or client_ca_file, since clients have no name then"
    if found.credentials_else not in ("", OWN_CREDENTIALS):
        yield f"credentials_else: must be `own` or empty, not {found.credentials_else!r}"
    if found.credentials_else and not tables:
        yield "credentials_else: has no effect without tables [proxy.credentials.PRINCIPAL]"
    if found.credentials == SAME_CREDENTIALS:
        yield from _conflicts_of_same(found, behind)
    elif found.credentials:
        yield f"credentials: must be `same`, or tables [proxy.credentials.PRINCIPAL], not {found.credentials!r}"
    elif found.sasl and not found.users_file:
        yield "sasl: needs users_file"


def _conflicts_of_names(found: ProxySettings) -> Iterator[str]:
    """A certificate's wildcard covers only the first label of a name."""
    pattern = found.node_hosts
    first, dot, rest = pattern.partition(".")
    if not pattern:
        return
    if first.count("*") != 1 or "*" in rest or not dot:
        yield f"node_hosts: must have one `*`, before the first dot, like node-*.kafka.example.com, not {pattern!r}"
    elif not _HOST.fullmatch(pattern.replace("*", "0")):
        yield f"node_hosts: {pattern!r} is no name of hosts"
    if not found.certificate_file:
        yield "node_hosts: needs certificate_file, as nothing but TLS says by which name a client comes"


def _conflicts_of_same(found: ProxySettings, behind: list[Cluster]) -> Iterator[str]:
    if found.sasl != (SaslMechanism.PLAIN.value,):
        yield 'credentials: same needs sasl = ["PLAIN"], as no other way to log in shows the password'
    for cluster in behind:
        if cluster.security.sasl is SaslMechanism.OAUTHBEARER:
            yield f"credentials: same is of no use to cluster {cluster.name}, which takes OAUTHBEARER"
        elif not cluster.security.sasl:
            yield f"credentials: same lets everybody in as the proxy at cluster {cluster.name}, which asks for no login"


def _logins(
    tables: Mapping[str, object], behind: list[Cluster], else_own: bool, complaints: Complaints
) -> CredentialsMap:
    found: dict[tuple[str, str], ClusterCredentials] = {}
    for principal, raw in tables.items():
        place = f'[proxy.credentials."{principal}"]'
        rest, inner = RawSection(raw, place).parted("clusters")
        for_all = _login(rest, place, complaints)
        apart = inner["clusters"] if isinstance(inner["clusters"], Mapping) else {}
        if not for_all and not apart:
            complaints.add(place, "needs username and password_env or password_file")
        names = [cluster.name for cluster in behind]
        for name, section in apart.items():
            if name not in names:
                complaints.add(place, f"clusters: no cluster {name!r} behind the proxy{did_you_mean(name, names)}")
            elif login := _login(section, f"{place[:-1]}.clusters.{name}]", complaints):
                found[principal, name] = login
        for cluster in behind:
            if for_all:
                found.setdefault((principal, cluster.name), for_all)
            if (principal, cluster.name) in found and (why := _useless(cluster, cluster.name in apart)):
                complaints.add(place, f"cluster {cluster.name} {why}")
            elif not else_own and (why := _as_proxy(cluster, (principal, cluster.name) in found)):
                complaints.add(place, f'cluster {cluster.name} {why}; or set credentials_else = "own"')
    return found


def _login(raw: object, place: str, complaints: Complaints) -> ClusterCredentials | None:
    section = read_section(CredentialsSection, raw, place, complaints, beside=("clusters",))
    if section is None:
        return None
    password = read_secret(section.password_env, section.password_file, "password", place, complaints)
    if bool(section.username) != bool(password):
        complaints.add(place, "needs username and password_env or password_file")
    return ClusterCredentials(section.username, password) if section.username and password else None


def _useless(cluster: Cluster, named: bool) -> str:
    """Why a user and password cannot be used at this cluster. Common ones are no fault at a cluster without login."""
    if cluster.security.token_file:
        return "logs in by the token in token_file, not by a user and a password"
    if named and not cluster.security.sasl:
        return "asks for no login"
    return ""


def _as_proxy(cluster: Cluster, has_login: bool) -> str:
    """Why a client would log in there as the proxy itself; empty if not."""
    if cluster.security.sasl and not has_login:
        return "has no user for it: add username and password_env or password_file"
    if cluster.security.cert_file and not cluster.security.sasl:
        return "knows clients by the proxy's own certificate: set sasl in its security"
    return ""


def read_alarms(table: object, place: str, complaints: Complaints) -> tuple[tuple[str, AlarmSection], ...]:
    if not isinstance(table, Mapping):
        complaints.add(place, f"alarms: must be tables [proxy.alarms.NAME], not {table!r}")
        return ()
    found = []
    for name, raw in table.items():
        where = f"[proxy.alarms.{name}]"
        section = read_section(AlarmSection, raw, where, complaints)
        if section is None:
            continue
        if not any(section.bounds):
            complaints.add(where, "needs a bound, such as above_bytes_s")
        if section.kind == "fetch" and (section.above_records_s or section.below_records_s or section.latency_ms):
            complaints.add(where, "kind: what consumers read is measured in bytes alone")
        found.append((str(name), section))
    return tuple(found)


SECTION = Section(
    "proxy",
    85,
    (
        ("[proxy]", ProxySettings),
        ("[proxy.alarms.NAME]", AlarmSection),
        ("[proxy.credentials.PRINCIPAL]", CredentialsSection),
        ("[proxy.credentials.PRINCIPAL.clusters.NAME]", ClusterCredentialsSection),
    ),
    read_proxy,
    overridden=True,
    live_tables=(_BY_NAME, "alarms"),
)
