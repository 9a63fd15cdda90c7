"""Parses pushed settings. A push is valid as a whole or changes nothing.

A push is one JSON object: `clusters` by name, `home` (the cluster for topics without a home record), `settings` for all
clients, and `topics` that it is meant for. Topics that the application does not have make it invalid. The application's
own logins, keys and cluster ids win.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from twinshore.client.sites import Site, sites_of
from twinshore.config.errors import ConfigError
from twinshore.config.frozen import CLUSTER_ID_SETTING
from twinshore.config.sentences import join_names
from twinshore.routing.core.subscribers import any_pattern_matches

PUSH_CHARS_MAX = 1 << 20
CLUSTERS_MAX = 64
NAMES_SHOWN_MAX = 5
_ITS_OWN = ("plugin.", "enable.ssl.certificate.verification", "ssl.endpoint.identification.algorithm")
_GROUPS = ("sasl.", "ssl.", CLUSTER_ID_SETTING)  # of which an application sets all or none
PUSH_KEYS = ("clusters", "home", "settings", "topics")


@dataclass(frozen=True, slots=True)
class ApplicationSettings:
    """The application's own settings: `shared` for all clusters, `clusters` by name. `in_clear`: others may change
    pushes in transit, so only the home and the names of the application's own clusters are taken.
    """

    shared: Mapping[str, Any] = field(default_factory=dict, repr=False)
    clusters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    in_clear: bool = False

    def of(self, cluster: str) -> Mapping[str, Any]:
        return {**self.shared, **self.clusters.get(cluster, {})}


@dataclass(frozen=True, slots=True)
class PushedSettings:
    """`begin`: the site for topics without a home record. `digest`: SHA-256 of the text."""

    sites: Mapping[str, Site]
    begin: str
    digest: str


def read_pushed(text: str, own: ApplicationSettings, topics: Iterable[str]) -> PushedSettings:
    """Parse a push for an application with these `topics`. ConfigError, without secrets, for anything else."""
    raw = _object(text)
    if strange := sorted(raw.keys() - set(PUSH_KEYS)):
        raise ConfigError("client.push-key-unknown", key=strange[0], known=", ".join(PUSH_KEYS))
    clusters, settings = _clusters(raw.get("clusters")), _settings("settings", raw.get("settings", {}))
    home = raw.get("home")
    if not isinstance(home, str) or home not in clusters:
        known = join_names(sorted(clusters), NAMES_SHOWN_MAX)
        raise ConfigError("client.push-home-unknown", home=str(home), clusters=known)
    meant = raw.get("topics", [])
    if not isinstance(meant, list) or not all(isinstance(one, str) and one for one in meant):
        raise ConfigError("client.push-topics-invalid")
    mine = list(topics)
    if foreign := [one for one in meant if not any_pattern_matches(one, mine)]:
        raise ConfigError("client.push-for-other-topics", topics=join_names(foreign, NAMES_SHOWN_MAX))
    if own.in_clear:
        if strange := sorted(name for name in clusters if name not in own.clusters):
            raise ConfigError("client.push-of-unknown-cluster", cluster=strange[0])
        made = {name: own.of(name) for name in clusters}
    else:
        made = {name: _own_first(own.of(name), name, {**settings, **one}) for name, one in clusters.items()}
    sites = sites_of(made, {})
    return PushedSettings(sites, home, hashlib.sha256(text.encode()).hexdigest())


def _own_first(own: Mapping[str, Any], cluster: str, pushed: Mapping[str, Any]) -> dict[str, Any]:
    """Merge settings. A push may not run code, nor send passwords in clear or to another server."""
    if owned := sorted(name for name in pushed if name.startswith(_ITS_OWN)):
        raise ConfigError("client.push-of-reserved-setting", cluster=cluster, key=owned[0])
    mine = tuple(one for one in _GROUPS if any(name.startswith(one) for name in own))
    asked = pushed.get("security.protocol")
    protocol = str(own.get("security.protocol", "SASL_SSL" if "sasl." in mine else "PLAINTEXT")).upper()
    if asked is not None and _guards(protocol) - _guards(str(asked).upper()):
        raise ConfigError("client.push-of-weaker-protocol", cluster=cluster, pushed=str(asked), own=protocol)
    return {**own, **{name: value for name, value in pushed.items() if not mine or not name.startswith(mine)}}


def _guards(protocol: str) -> set[str]:
    return {one for one in ("SASL", "SSL") if one in protocol.split("_")}


def _object(text: str) -> dict[str, Any]:
    if len(text) > PUSH_CHARS_MAX:
        raise ConfigError("client.push-too-long", max=PUSH_CHARS_MAX)
    try:
        raw = json.loads(text, object_pairs_hook=_once_each)
    except (ValueError, RecursionError) as error:
        raise ConfigError("client.push-not-json") from error
    if not isinstance(raw, dict):
        raise ConfigError("client.push-not-json")
    return raw


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse duplicate keys, which parsers read differently."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ConfigError("client.push-key-twice")
    return found


def _clusters(raw: object) -> dict[str, dict[str, Any]]:
    if not isinstance(raw, dict) or not 0 < len(raw) <= CLUSTERS_MAX:
        raise ConfigError("client.push-clusters-invalid", max=CLUSTERS_MAX)
    return {name: _settings(f"cluster {name}", one) for name, one in raw.items()}


def _settings(what: str, raw: object) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise ConfigError("client.push-settings-invalid", place=what)
    if odd := [name for name, value in raw.items() if not isinstance(value, str | int | float | bool)]:
        raise ConfigError("client.push-value-invalid", place=what, key=odd[0])
    return raw


_FORM = re.compile(r'(?:W/)?"(?P<revision>[0-9]{1,18})-(?P<digest>[0-9a-f]{64})"')


@dataclass(frozen=True, slots=True)
class PushTag:
    """The revision of a push, and the digest of its text. A server may lag: clients ignore older revisions."""

    revision: int
    digest: str

    def __str__(self) -> str:
        return f'"{self.revision}-{self.digest}"'


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def read_tag(header: str) -> PushTag | None:
    """Returns the tag in an ETag header, or None."""
    found = _FORM.fullmatch(header.strip())
    return PushTag(int(found["revision"]), found["digest"]) if found else None
