"""A site: one of the clusters that an application may meet, in the words of its client's own settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from twinshore.fleet import Cluster, ConfigError, NotYetError, SaslMechanism, Secret, Security
from twinshore.kafka.client_settings import client_settings

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
CLUSTER_ID = "twinshore.cluster.id"
_SAFE = ("ssl.", "sasl.", "security.", "oauth", "twinshore.")
_KNOWN = (
    *("bootstrap.servers", "security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"),
    *("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password", CLUSTER_ID),
    "ssl.endpoint.identification.algorithm",
)


@dataclass(frozen=True)
class Given(Secret):
    """A secret that the application holds itself: it is read nowhere, and never shown."""

    value: str = field(default="", repr=False)

    def read(self) -> str:
        return self.value

    def __bool__(self) -> bool:
        return bool(self.value)


@dataclass(frozen=True, slots=True)
class Site:
    """`clients`: what its producers and consumers are set to besides. `cluster_id`: which cluster must answer there;
    empty for whichever does."""

    cluster: Cluster
    clients: Mapping[str, Any] = field(default_factory=dict, repr=False)
    cluster_id: str = ""

    @property
    def name(self) -> str:
        return self.cluster.name

    def settings(self) -> dict[str, Any]:
        """For a client of confluent-kafka. Holds secrets: never log it."""
        return {**client_settings(self.cluster), **self.clients}


def sites_of(given: Mapping[str, Mapping[str, Any] | Cluster], shared: Mapping[str, Any]) -> dict[str, Site]:
    """Each by its name; `shared` holds for all of them. ConfigError where one cannot be followed as it is set;
    NotYetError for a producer of transactions."""
    if not given:
        raise ConfigError("no cluster is named", hint='clusters={"east": {"bootstrap.servers": "..."}, "west": {...}}')
    return {name: _site(name, one, shared) for name, one in given.items()}


def _site(name: str, given: Mapping[str, Any] | Cluster, shared: Mapping[str, Any]) -> Site:
    every = dict(shared) if isinstance(given, Cluster) else {**shared, **given}
    if "transactional.id" in every:
        raise NotYetError(
            f"cluster {name}: a producer of transactions cannot follow its topics yet", hint="stop it for the switch"
        )
    if isinstance(given, Cluster):
        return Site(given, every)
    clients = {key: value for key, value in every.items() if key not in _KNOWN}
    if strange := sorted(key for key in clients if key.startswith(_SAFE)):
        raise ConfigError(
            f"cluster {name}: {strange[0]} is not known here: the client asks this cluster by connections of its own",
            hint=f"known are {', '.join(sorted(_KNOWN))}",
        )
    bootstrap = tuple(one.strip() for one in str(every.get("bootstrap.servers", "")).split(",") if one.strip())
    if not bootstrap:
        raise ConfigError(f"cluster {name}: bootstrap.servers is not set")
    cluster = Cluster(name, bootstrap, _security(name, every))
    return Site(cluster, clients, str(every.get(CLUSTER_ID, "")))


def _security(name: str, given: Mapping[str, Any]) -> Security:
    protocol = str(given.get("security.protocol", "PLAINTEXT")).upper()
    if protocol not in PROTOCOLS:
        raise ConfigError(f"cluster {name}: security.protocol {protocol} is none of {', '.join(PROTOCOLS)}")
    sasl = _mechanism(name, given) if protocol.startswith("SASL") else None
    return Security(
        tls=protocol.endswith("SSL"),
        ca_file=str(given.get("ssl.ca.location", "")),
        cert_file=str(given.get("ssl.certificate.location", "")),
        key_file=str(given.get("ssl.key.location", "")),
        key_password=Given(value=str(given.get("ssl.key.password", ""))),
        check_hostname=str(given.get("ssl.endpoint.identification.algorithm", "https")) != "none",
        sasl=sasl,
        username=str(given.get("sasl.username", "")),
        password=Given(value=str(given.get("sasl.password", ""))),
    )


def _mechanism(name: str, given: Mapping[str, Any]) -> SaslMechanism:
    known = (SaslMechanism.PLAIN, SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512)
    asked = str(given.get("sasl.mechanism", given.get("sasl.mechanisms", "")))
    for one in known:
        if asked == one.value:
            return one
    raise ConfigError(
        f"cluster {name}: sasl.mechanism {asked or '(none)'} is none of {', '.join(one.value for one in known)}",
        hint="for another one, give the cluster as a twinshore.fleet.Cluster",
    )
