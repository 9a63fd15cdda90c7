"""Proposes Twinshore settings from MirrorMaker 2 settings, and reports what became of each property.

`mirrormaker_properties.json` gives each property's counterpart, or why it has none. Passwords are named, never copied.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib import resources
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from twinshore.config.errors import ConfigError
from twinshore.config.model import SaslMechanism
from twinshore.config.schema import did_you_mean


class ImportOutcome(StrEnum):
    """CONVERTED: in the proposal. UNNEEDED: nothing is lost. DIFFERS: check first. UNKNOWN: no such property."""

    CONVERTED = "became"
    UNNEEDED = "needless"
    DIFFERS = "differs"
    UNKNOWN = "unknown"


class PropertyMeaning(NamedTuple):
    fate: ImportOutcome
    sentence: str


UNNEEDED, DIFFERS = ImportOutcome.UNNEEDED, ImportOutcome.DIFFERS


@cache
def known_properties(kind: str) -> dict[str, PropertyMeaning]:
    """What each property becomes, and why. `link`: properties of a link; without a link's prefix they apply to all
    links. `cluster`: those after a cluster's alias. `patterns`: expressions for properties with any prefix; the first
    that matches counts.
    """
    text = resources.files(__package__).joinpath("mirrormaker_properties.json").read_text(encoding="utf-8")
    rows = json.loads(text)[kind].items()
    return {key: PropertyMeaning(ImportOutcome(fate), sentence) for key, (fate, sentence) in rows}


def match_property(key: str) -> PropertyMeaning | None:
    """The meaning of a property that belongs to neither a link nor a cluster."""
    return next(
        (meaning for pattern, meaning in known_properties("patterns").items() if re.fullmatch(pattern, key)), None
    )


SOURCE_CONNECTOR = "MirrorSourceConnector"
CONNECTORS = (SOURCE_CONNECTOR, "MirrorCheckpointConnector", "MirrorHeartbeatConnector")
# Properties of the Connect connector, not of the link.
CONNECT_PROPERTIES = ("connector.class", "name", "source.cluster.alias", "target.cluster.alias")
_PARTS = re.compile(r"((?:\\.|[^\\=: \t])*)[ \t]*[=:]?[ \t]*(.*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True, slots=True)
class PropertyValue:
    value: str
    place: str


Properties = dict[str, PropertyValue]
SettingValue = str | bool | int | Sequence[str]
Tables = dict[str, dict[str, SettingValue]]


def read_properties(text: str, name: str) -> Properties:
    """Properties of a dedicated MirrorMaker, or of Connect's JSON in the same form."""
    if text.lstrip()[:1] in ("{", "["):
        return _from_connect(text, name)
    found: Properties = {}
    for number, line in _logical_lines(text):
        key, value = _parted(line)
        if not key:
            raise ConfigError("config.property-without-name", path=name, line=number, text=line.strip())
        found[key] = PropertyValue(value, f"line {number}")
    if not found:
        raise ConfigError("config.no-properties", path=name)
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments. A line that ends in a single backslash continues in the next."""
    begun, first = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.lstrip()
        if not begun and (not line or line[0] in "#!"):
            continue
        first = first if begun else number
        whole = begun + line
        if (len(whole) - len(whole.rstrip("\\"))) % 2:
            begun = whole[:-1]
            continue
        begun = ""
        yield first, whole
    if begun:
        yield first, begun


def _parted(line: str) -> tuple[str, str]:
    """Key and value, split and unescaped like java.util.Properties. `a->b.topics` holds no separator."""
    found = _PARTS.fullmatch(line)
    return (_unescaped(found[1]), _unescaped(found[2]).rstrip()) if found else ("", "")


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda one: chr(int(one[1], 16)) if one[1] else _ESCAPES.get(one[2], one[2]), text)


def _from_connect(text: str, name: str) -> Properties:
    try:
        raw: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError("config.not-json", path=name, line=error.lineno, cause=error.msg) from error
    if isinstance(raw, dict) and raw and all(isinstance(one, dict) and "info" in one for one in raw.values()):
        raw = [one["info"] for one in raw.values()]  # GET /connectors?expand=info
    connectors = raw if isinstance(raw, list) else [raw]
    found: Properties = {}
    clusters: list[str] = []
    for number, one in enumerate(connectors, 1):
        config = one.get("config", one) if isinstance(one, dict) else None
        if not isinstance(config, dict):
            raise ConfigError("config.not-a-connector", path=name, number=number)
        place = str(one.get("name") or config.get("name") or f"connector {number}")
        for alias in _one_connector(config, place, name, found):
            if alias not in clusters:
                clusters.append(alias)
    found["clusters"] = PropertyValue(",".join(clusters), name)
    return found


def _one_connector(config: dict[str, Any], place: str, name: str, found: Properties) -> tuple[str, str]:
    kind = str(config.get("connector.class", "")).rsplit(".", 1)[-1]
    if kind not in CONNECTORS:
        near = did_you_mean(kind, CONNECTORS)
        raise ConfigError("config.unknown-connector", path=name, connector=place, kind=kind, near=near)
    aliases = []
    for side in ("source", "target"):
        key = f"{side}.cluster.alias"
        if not config.get(key):
            near = did_you_mean(key, [other for other in config if "alias" in other])
            raise ConfigError("config.missing-property", path=name, place=place, key=key, near=near)
        aliases.append(str(config[key]))
    source, target = aliases
    if kind == SOURCE_CONNECTOR:
        enabled = _text_of(config.get("enabled", True))
        key = f"{source}->{target}.enabled"
        # Several connectors may share a pair's topics; one that runs is enough.
        if key not in found or is_true(enabled):
            found[key] = PropertyValue(enabled, place)
    for key, value in config.items():
        # Without the source connector the others replicate nothing, even if enabled.
        if key in CONNECT_PROPERTIES or key == "enabled":
            continue
        where = f"{source}->{target}.{key}"
        for side, alias in (("source", source), ("target", target)):
            if key.startswith(f"{side}.cluster."):
                where = f"{alias}.{key.removeprefix(f'{side}.cluster.')}"
        found.setdefault(where, PropertyValue(_text_of(value), place))
    return source, target


def is_true(text: str) -> bool:
    """As Kafka reads a boolean."""
    return text.strip().lower() == "true"


def _text_of(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_OPTION = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;]+))")
# A value that Connect's ConfigProvider would fetch.
PLACEHOLDER = re.compile(r"\$\{[^}]*\}")


@dataclass(slots=True)
class ClusterLogin:
    """`values`: the section's. `steps`: what the operator must do by hand. `wrong`: what has no counterpart."""

    values: dict[str, SettingValue] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def build_login(cluster: str, given: Mapping[str, PropertyValue]) -> ClusterLogin:
    """The section of one cluster, from its properties without alias."""
    found = ClusterLogin()
    texts = {key: property_value.value for key, property_value in given.items()}
    protocol = texts.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        found.wrong.append(f"security.protocol: Kafka has no {protocol!r}")
        return found
    if protocol.endswith("SSL"):
        _tls(cluster, texts, found)
    if protocol.startswith("SASL"):
        _sasl(cluster, texts, found)
    return found


def secret_variable(cluster: str, what: str) -> str:
    return re.sub(r"[^A-Z0-9]", "_", f"{cluster}_{what}".upper())


def _tls(cluster: str, texts: Mapping[str, str], found: ClusterLogin) -> None:
    found.values["tls"] = True
    trusted = texts.get("ssl.truststore.location", "")
    if trusted:
        found.values["ca_file"] = _pem(cluster, trusted, texts.get("ssl.truststore.type", ""), "ca", found)
    ours = texts.get("ssl.keystore.location", "")
    if ours:
        pem = _pem(cluster, ours, texts.get("ssl.keystore.type", ""), "cert", found)
        found.values |= {"cert_file": pem, "key_file": pem}
        if texts.get("ssl.key.password"):
            name = secret_variable(cluster, "key_password")
            found.values["key_password_env"] = name
            found.steps.append(f"put the key's password of {cluster} into the environment variable {name}")
    # In Java an empty value says so.
    if "ssl.endpoint.identification.algorithm" in texts and not texts["ssl.endpoint.identification.algorithm"]:
        found.values["check_hostname"] = False


def _pem(cluster: str, location: str, kind: str, what: str, found: ClusterLogin) -> str:
    path = PurePosixPath(location)
    if kind.upper() == "PEM" or path.suffix in (".pem", ".crt", ".cer"):
        return location
    pem = str(path.with_suffix(".pem"))
    found.steps.append(f"turn {location} into the PEM file {pem} (keytool, then openssl): {what} of {cluster}")
    return pem


def _sasl(cluster: str, texts: Mapping[str, str], found: ClusterLogin) -> None:
    mechanism, known = texts.get("sasl.mechanism", "GSSAPI"), [one.value for one in SaslMechanism]
    if mechanism not in known:
        found.wrong.append(f"sasl.mechanism: Twinshore does not speak {mechanism}; it speaks {', '.join(known)}")
        return
    found.values["sasl"] = mechanism
    jaas = _OPTION.findall(texts.get("sasl.jaas.config", ""))
    options = {key: (quoted or bare).replace('\\"', '"') for key, quoted, bare in jaas}
    user = options.get("username") or options.get("clientId", "")
    if PLACEHOLDER.search(user):
        found.steps.append(f"write the user of {cluster} as username: it stood as {user}")
        user = "TO-BE-WRITTEN"
    if user:
        found.values["username"] = user
    name = secret_variable(cluster, "password")
    if mechanism == SaslMechanism.OAUTHBEARER:
        url = texts.get("sasl.oauthbearer.token.endpoint.url", "")
        if url.startswith("file:"):
            found.values["token_file"] = url.removeprefix("file:").replace("//", "/", 1)
            return
        found.values["token_url"] = url or "https://token.invalid"
        if not url:
            found.steps.append(f"write where tokens of {cluster} are fetched as token_url")
        if options.get("scope"):
            found.values["token_scope"] = options["scope"]
        if not options.get("clientSecret"):
            return
    elif not user:
        found.values["username"] = "TO-BE-WRITTEN"
        found.steps.append(f"write the user of {cluster} as username: it is not in sasl.jaas.config")
    found.values["password_env"] = name
    found.steps.append(f"put the password of {cluster} into the environment variable {name}")


TOPICS_DEFAULT = ".*"
# Its older and newer default list, and the topics that it creates for itself.
EXCLUDE_DEFAULT = r".*[\-\.]internal, .*\.replica, __.*"
GROUPS_EXCLUDE_DEFAULT = "console-consumer-.*, connect-.*, __.*"
IDENTITY_POLICY, DEFAULT_POLICY = "IdentityReplicationPolicy", "DefaultReplicationPolicy"
LINK_PROPERTY = re.compile(r"(?P<source>.+?)->(?P<target>[^.]+)\.(?P<rest>.+)")


@dataclass(frozen=True, slots=True)
class PropertyFinding:
    key: str
    place: str
    fate: ImportOutcome
    sentence: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """`text`: a settings file. `steps`: what is left to do by hand."""

    text: str
    findings: tuple[PropertyFinding, ...]
    steps: tuple[str, ...]
    links: tuple[str, ...]


def propose(text: str, name: str) -> Proposal:
    """The same links as Twinshore settings. Raises ConfigError if there are none, with the nearest right thing."""
    given = read_properties(text, name)
    clusters = _clusters(given, name)
    pairs = _pairs(given, clusters, name)
    findings: list[PropertyFinding] = []
    steps: list[str] = []
    links: Tables = {}
    for source, target in pairs:
        links |= _link(given, source, target, findings, steps)
    tables: Tables = {"store": {"url": "sqlite:///twinshore.db"}}
    for cluster in (cluster for cluster in clusters if any(cluster in pair for pair in pairs)):
        properties = _of_cluster(given, cluster)
        login = build_login(cluster, properties)
        tables[f"clusters.{_key(cluster)}"] = {"bootstrap": _listed(given[f"{cluster}.bootstrap.servers"].value)}
        tables[f"clusters.{_key(cluster)}.security"] = login.values
        steps += login.steps
        for wrong in login.wrong:
            key = wrong.split(":")[0]
            place = properties[key].place if key in properties else name
            findings.append(PropertyFinding(f"{cluster}.{key}", place, DIFFERS, wrong.split(": ", 1)[1]))
    tables |= links
    judged = {finding.key for finding in findings}
    findings += [_finding(key, value, clusters, pairs) for key, value in given.items() if key not in judged]
    for key, value in given.items():
        if PLACEHOLDER.search(value.value) and "jaas" not in key and "password" not in key:
            steps.append(f"{key} ({value.place}) is fetched by a config provider: write its value into the proposal")
    findings.sort(key=lambda finding: (list(ImportOutcome).index(finding.fate), finding.key))
    body = _render(name, tables, steps)
    return Proposal(body, tuple(findings), tuple(dict.fromkeys(steps)), tuple(f"{a}->{b}" for a, b in pairs))


def _clusters(given: Properties, name: str) -> list[str]:
    if "clusters" not in given:
        near = did_you_mean("clusters", [key for key in given if "." not in key])
        raise ConfigError("config.no-clusters-property", path=name, near=near)
    clusters = _listed(given["clusters"].value)
    for cluster in clusters:
        key = f"{cluster}.bootstrap.servers"
        if key not in given:
            near = did_you_mean(key, [other for other in given if other.endswith("bootstrap.servers")])
            raise ConfigError("config.missing-property", path=name, place=f"cluster {cluster}", key=key, near=near)
    return clusters


def _pairs(given: Properties, clusters: list[str], name: str) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for key, property_value in given.items():
        found = LINK_PROPERTY.fullmatch(key)
        if not found:
            continue
        for side in (found["source"], found["target"]):
            if side not in clusters:
                place, near = property_value.place, did_you_mean(side, clusters)
                code = "config.unknown-cluster-in-property"
                raise ConfigError(code, path=name, place=place, key=key, cluster=side, near=near)
        if found["rest"] == "enabled" and is_true(property_value.value):
            pairs.append((found["source"], found["target"]))
    if not pairs:
        arrows = [f"{a}->{b}.enabled = true" for a in clusters for b in clusters if a != b][:2]
        raise ConfigError("config.no-link-enabled", path=name, properties=" or ".join(arrows))
    return pairs


def _link(given: Properties, source: str, target: str, findings: list[PropertyFinding], steps: list[str]) -> Tables:
    """The link's section and its subsections, without empty ones."""

    def value_of(key: str, default: str = "") -> str:
        return _value(given, source, target, key, default)

    def is_on(key: str) -> bool:
        return value_of(key, "true").strip().lower() != "false"

    exclude = value_of("topics.exclude", value_of("topics.blacklist", EXCLUDE_DEFAULT))
    section: dict[str, SettingValue] = {
        "topics": _patterns(value_of("topics", TOPICS_DEFAULT), "topics", steps),
        "exclude": _patterns(exclude, "topics.exclude", steps),
        "naming": _naming(given, source, target, findings),
    }
    factor = value_of("replication.factor", "0").strip()
    if factor.isdigit() and int(factor):
        section["replication_factor"] = int(factor)
    # Topics that MirrorMaker 2 has written hold data at their own offsets.
    section["mode"] = "mapped"
    groups = _patterns(value_of("groups", ".*"), "groups", steps)
    groups_exclude = value_of("groups.exclude", value_of("groups.blacklist", GROUPS_EXCLUDE_DEFAULT))
    excluded = _patterns(groups_exclude, "groups.exclude", steps)
    configs = value_of("config.properties.exclude", value_of("config.properties.blacklist"))
    unsynced = _patterns(configs, "config.properties.exclude", steps)
    follow: dict[str, SettingValue] = {} if is_on("sync.topic.acls.enabled") else {"acls": False}
    if not is_on("sync.topic.configs.enabled"):
        follow["settings_exclude"] = [".*"]
    elif unsynced:
        follow["settings_exclude"] = unsynced
    place = f'links."{source}->{target}"'
    return {
        place: section,
        f"{place}.control": {"groups": groups, "exclude_groups": excluded} if groups != [".*"] or excluded else {},
        f"{place}.groups": {} if is_on("sync.group.offsets.enabled") else {"enabled": False},
        f"{place}.follow": follow,
    }


def _naming(given: Properties, source: str, target: str, findings: list[PropertyFinding]) -> str:
    policy = _value(given, source, target, "replication.policy.class", DEFAULT_POLICY).rsplit(".", 1)[-1].strip()
    key, property_value = _where(given, source, target, "replication.policy.class")
    if property_value and policy not in (IDENTITY_POLICY, DEFAULT_POLICY):
        sentence = f"a class of your own: proposed is prefix; Twinshore knows {DEFAULT_POLICY} and {IDENTITY_POLICY}"
        findings.append(PropertyFinding(key, property_value.place, DIFFERS, sentence))
    key, property_value = _where(given, source, target, "replication.policy.separator")
    if property_value and property_value.value != "." and policy != IDENTITY_POLICY:
        sentence = f"twins are called {source}.topic, with a dot, not {property_value.value!r}: readers must be told"
        findings.append(PropertyFinding(key, property_value.place, DIFFERS, sentence))
    return "same" if policy == IDENTITY_POLICY else "prefix"


def _value(given: Properties, source: str, target: str, key: str, default: str) -> str:
    _, property_value = _where(given, source, target, key)
    return property_value.value if property_value else default


def _where(given: Properties, source: str, target: str, key: str) -> tuple[str, PropertyValue | None]:
    """The link's own property, or else the one for all links."""
    for name in (f"{source}->{target}.{key}", key):
        if name in given:
            return name, given[name]
    return key, None


def _of_cluster(given: Properties, cluster: str) -> dict[str, PropertyValue]:
    """The cluster's properties. Those without an alias apply to all clusters."""
    head = f"{cluster}."
    shared = {key: value for key, value in given.items() if key in known_properties("cluster")}
    return shared | {key.removeprefix(head): value for key, value in given.items() if key.startswith(head)}


def _finding(key: str, value: PropertyValue, clusters: list[str], pairs: list[tuple[str, str]]) -> PropertyFinding:
    arrow = LINK_PROPERTY.fullmatch(key)
    if arrow and (arrow["source"], arrow["target"]) not in pairs:
        link = f"{arrow['source']}->{arrow['target']}"
        off = "" if arrow["rest"] == "enabled" else f", since {link}.enabled is not true"
        return PropertyFinding(key, value.place, UNNEEDED, f"link {link} is off and not proposed{off}")
    return PropertyFinding(key, value.place, *_meaning(key, clusters))


def _meaning(key: str, clusters: list[str]) -> PropertyMeaning:
    arrow = LINK_PROPERTY.fullmatch(key)
    bare = arrow["rest"] if arrow else key
    links, of_clusters = known_properties("link"), known_properties("cluster")
    known = links
    if not arrow:
        alias = next((one for one in clusters if key.startswith(f"{one}.")), "")
        bare = key.removeprefix(f"{alias}.") if alias else key
        known = of_clusters if alias else links | of_clusters
    # A client's property in front of a cluster's: consumer.ssl.truststore.location.
    plain = re.sub(r"^(source\.|target\.)?(consumer|producer|admin)\.(?=ssl|sasl|security)", "", bare)
    found = known.get(bare) or (of_clusters.get(plain) if plain != bare else None)
    found = found or match_property(bare) or match_property(key)
    if found and plain != bare:
        one_login = "Twinshore has one login for each cluster: write it in the section security"
        return PropertyMeaning(DIFFERS, one_login)
    unknown = f"not a property of MirrorMaker 2{did_you_mean(bare, known)}"
    return found or PropertyMeaning(ImportOutcome.UNKNOWN, unknown)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _patterns(text: str, key: str, steps: list[str]) -> list[str]:
    """MirrorMaker's lists are separated by commas; each part matches a whole name, as in Twinshore."""
    found = []
    for part in _listed(text):
        try:
            re.compile(part)
        except re.error as error:
            steps.append(f"{key}: {part!r} is left out: not an expression here ({error.msg}); write it again")
            continue
        found.append(part)
    return found


_BARE = re.compile(r"[A-Za-z0-9_-]+")


def _render(name: str, tables: Tables, steps: Sequence[str]) -> str:
    lines = [f"# Proposed from {name}.", "#", "# Before you start it:"]
    lines += [f"# - {step}" for step in dict.fromkeys(steps)]
    lines += ["# - read `twinshore mirror plan`: it says every step, and does none"]
    lines += ["# - stop MirrorMaker, then look at the plan again: docs/from-mirrormaker.md", ""]
    for place, table in tables.items():
        if table:
            lines += [f"[{place}]", *(f"{key} = {_text(value)}" for key, value in table.items()), ""]
    return "\n".join(lines)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _text(value: SettingValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        # A literal string if possible: expressions are full of backslashes.
        if "'" not in value and value.isprintable():
            return f"'{value}'"
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in escaped) + '"'
    return "[" + ", ".join(_text(part) for part in value) + "]"
