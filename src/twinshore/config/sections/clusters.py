"""The section `clusters`: each cluster by the name that links use, and how to connect."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from twinshore.config.declaration import required, setting, shared_fields
from twinshore.config.model import Cluster, SaslMechanism, Security
from twinshore.config.schema import Complaints, RawSection, Section, did_you_mean, read_secret, read_section

CLUSTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
BROKER_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%a-z]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSection:
    """One cluster, by the name that links use."""

    bootstrap: tuple[str, ...] = required("bootstrap addresses, `host:port`; name several, since one may be down")
    site: str = setting("", "where the cluster is: region, data centre")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySection:
    """How to speak to that cluster. Without this section: PLAINTEXT."""

    tls: bool = setting(False, "speak TLS")
    ca_file: str = setting("", "PEM file of trusted authorities; empty: the system's")
    cert_file: str = setting("", "PEM file with the client certificate, for mutual TLS")
    key_file: str = setting("", "PEM file with the client key, for mutual TLS")
    key_password_env: str = setting("", "environment variable that holds the key's password")
    key_password_file: str = setting("", "file that holds the key's password")
    check_hostname: bool = setting(True, "the certificate must name the host")
    sasl: str = setting("", "`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`; empty: none")
    username: str = setting("", "SASL user; for OAUTHBEARER the client id")
    password_env: str = setting("", "environment variable that holds the SASL password or client secret")
    password_file: str = setting("", "file that holds the SASL password or client secret")
    token_url: str = setting("", "OAUTHBEARER: URL of the token endpoint")
    token_file: str = setting("", "OAUTHBEARER: file that holds a token; it is read for each connection")
    token_scope: str = setting("", "OAUTHBEARER: requested scope")


def read_clusters(raw: RawSection, complaints: Complaints) -> dict[str, Cluster]:
    """Every named cluster, even a faulty one, so that its links are not called unknown too."""
    if not isinstance(raw.raw, Mapping):
        complaints.add(raw.place, "must hold one section per cluster, like [clusters.east]")
        return {}
    return {name: _cluster(name, section, complaints) for name, section in raw.raw.items()}


def _cluster(name: str, raw: object, complaints: Complaints) -> Cluster:
    place = f"[clusters.{name}]"
    before = len(complaints.lines)
    if not CLUSTER_NAME.fullmatch(name):
        complaints.add(place, f"{name!r} is not a cluster's name: letters, digits, dot, dash, underscore, at most 64")
    rest, inner = RawSection(raw, place).parted("security")
    section = read_section(ClusterSection, rest, place, complaints)
    security = _security(inner["security"], f"[clusters.{name}.security]", complaints)
    if section is not None:
        if not section.bootstrap:
            complaints.add(place, "bootstrap: needs at least one address host:port")
        for address in section.bootstrap:
            _check_address(address, place, complaints)
    if section is None or security is None or len(complaints.lines) > before:
        return Cluster(name, ())
    return Cluster(name, section.bootstrap, security, section.site)


def _check_address(address: str, place: str, complaints: Complaints) -> None:
    found = BROKER_ADDRESS.fullmatch(address)
    if found is None:
        bare = address.split("://", 1)[-1].strip().rstrip("/")
        nearest = bare if BROKER_ADDRESS.fullmatch(bare) else f"{bare}:9092"
        clause = f"; did you mean {nearest}?" if BROKER_ADDRESS.fullmatch(nearest) else ""
        complaints.add(place, f"bootstrap: {address!r} is not host:port{clause}")
    elif not 1 <= int(found["port"]) <= 65535:
        complaints.add(place, f"bootstrap: {address!r} has no such port, they end at 65535")


def _security(raw: object, place: str, complaints: Complaints) -> Security | None:
    section = read_section(SecuritySection, raw, place, complaints)
    if section is None:
        return None
    before = len(complaints.lines)
    for sentence in _security_conflicts(section):
        complaints.add(place, sentence)
    mechanism = _mechanism(section.sasl, place, complaints)
    key_password = read_secret(section.key_password_env, section.key_password_file, "key_password", place, complaints)
    password = read_secret(section.password_env, section.password_file, "password", place, complaints)
    if mechanism in (SaslMechanism.PLAIN, SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512) and not (
        section.username and password
    ):
        complaints.add(place, f"sasl: {mechanism} needs username and password_env or password_file")
    if mechanism is SaslMechanism.OAUTHBEARER and bool(section.token_url) == bool(section.token_file):
        complaints.add(place, "sasl: OAUTHBEARER needs either token_url or token_file")
    if len(complaints.lines) > before:
        return None
    secrets = {"sasl": mechanism, "key_password": key_password, "password": password}
    return Security(**{**shared_fields(section, Security), **secrets})


def _security_conflicts(section: SecuritySection) -> Iterator[str]:
    if not section.tls:
        for name in ("ca_file", "cert_file", "key_file"):
            if getattr(section, name):
                yield f"{name}: has no effect without tls = true"
    if bool(section.cert_file) != bool(section.key_file):
        yield "cert_file and key_file: one needs the other"
    if not section.sasl:
        for name in ("username", "password_env", "password_file", "token_url", "token_file"):
            if getattr(section, name):
                yield f"{name}: has no effect without sasl"


def _mechanism(text: str, place: str, complaints: Complaints) -> SaslMechanism | None:
    if not text:
        return None
    try:
        return SaslMechanism(text)
    except ValueError:
        known = [mechanism.value for mechanism in SaslMechanism]
        complaints.add(place, f"sasl: no mechanism {text!r}{did_you_mean(text.upper().replace('_', '-'), known)}")
        return None


SECTION = Section(
    "clusters", 20, (("[clusters.NAME]", ClusterSection), ("[clusters.NAME.security]", SecuritySection)), read_clusters
)
