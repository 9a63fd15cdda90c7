"""Each section's own sense: what fits together, what belongs to Twinshore, which names exist."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

from twinshore.fleet.nouns import Cluster, GroupRules, Link, MappedFrom, Mode, Naming, SaslMechanism, Secret, Security
from twinshore.fleet.settings_control import read_control
from twinshore.fleet.settings_edge import Complaints, did_you_mean, read_section
from twinshore.fleet.settings_follow import read_follow
from twinshore.fleet.settings_outputs import read_outputs
from twinshore.fleet.settings_table import (
    ClusterSection,
    GroupsSection,
    LinkSection,
    MirrorSettings,
    SecuritySection,
    SparkSection,
    SparkSettings,
    StoreSection,
)

SECRETS = ("password", "passwd", "passphrase", "secret")  # in the name of what a URL asks for
STORE_KINDS = ("sqlite", "postgresql", "mysql", "mariadb")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%a-z]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")
MASTER = re.compile(r"local(\[(\*|[1-9][0-9]*)\])?|(spark|k8s)://\S+|yarn")
# A pump asks for its grant that often while it lasts: one answer may be late, and a turn of its loop takes its time.
ASKS_MIN = 3
NAMINGS = tuple(policy.value for policy in Naming)
TWINS_OWN = (
    "cleanup.policy",
    "compression.type",
    "max.message.bytes",
    "message.timestamp.type",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.difference.max.ms",
    "retention.bytes",
    "retention.ms",
)
SPARKS_FIXED = {
    "spark.master": "use master",
    "spark.speculation": "two pumps must never run one lane",
    "spark.scheduler.mode": "lanes run side by side, so it is FAIR",
    "spark.task.maxFailures": "the mirror itself starts a lane again",
}


def read_store(raw: object, complaints: Complaints) -> tuple[str, Secret] | None:
    """The store's URL and where its password is kept."""
    place = "[store]"
    section = read_section(StoreSection, raw, place, complaints)
    if section is None:
        return None
    kind = section.url.split(":", 1)[0].split("+", 1)[0]
    if kind not in STORE_KINDS or "://" not in section.url:
        complaints.add(place, f"url: no such kind of store {kind!r}{did_you_mean(kind, STORE_KINDS)}")
    else:
        _check_store_url(section.url, place, complaints)
    return section.url, _secret(section.password_env, section.password_file, "password", place, complaints)


def _check_store_url(url: str, place: str, complaints: Complaints) -> None:
    # What is wrong may be the password, so the URL itself is never repeated.
    parts = _split(url)
    if parts is None:
        complaints.add(place, "url: is none; write sqlite:///file or a kind://user@host:port/database")
    elif parts.password or any(one in name.lower() for name, _ in parse_qsl(parts.query) for one in SECRETS):
        complaints.add(place, "url: a secret never stands in the settings; use password_env or password_file")


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        no_port = parts.port is None and parts.netloc.endswith(":")
    except ValueError:
        return None
    return None if no_port or (parts.netloc and parts.fragment) else parts


def read_clusters(raw: object, complaints: Complaints) -> dict[str, Cluster | None]:
    """Every cluster named; None for one with something wrong, so that links to it are not called unknown as well."""
    if not isinstance(raw, Mapping):
        complaints.add("[clusters]", "must hold one section per cluster, like [clusters.east]")
        return {}
    return {name: _cluster(name, section, complaints) for name, section in raw.items()}


def _cluster(name: str, raw: object, complaints: Complaints) -> Cluster | None:
    place = f"[clusters.{name}]"
    before = len(complaints.lines)
    if not NAME.fullmatch(name):
        complaints.add(place, f"{name!r} is not a cluster's name: letters, digits, dot, dash, underscore, at most 64")
    rest = dict(raw) if isinstance(raw, Mapping) else raw
    security_raw = rest.pop("security", {}) if isinstance(rest, dict) else {}
    section = read_section(ClusterSection, rest, place, complaints)
    security = _security(security_raw, f"[clusters.{name}.security]", complaints)
    if section is not None:
        if not section.bootstrap:
            complaints.add(place, "bootstrap: needs at least one address host:port")
        for address in section.bootstrap:
            _check_address(address, place, complaints)
    if section is None or security is None or len(complaints.lines) > before:
        return None
    return Cluster(name, section.bootstrap, security, section.site)


def _check_address(address: str, place: str, complaints: Complaints) -> None:
    found = ADDRESS.fullmatch(address)
    if found is None:
        bare = address.split("://", 1)[-1].strip().rstrip("/")
        nearest = bare if ADDRESS.fullmatch(bare) else f"{bare}:9092"
        clause = f"; did you mean {nearest}?" if ADDRESS.fullmatch(nearest) else ""
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
    key_password = _secret(section.key_password_env, section.key_password_file, "key_password", place, complaints)
    password = _secret(section.password_env, section.password_file, "password", place, complaints)
    if mechanism in (SaslMechanism.PLAIN, SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512) and not (
        section.username and password
    ):
        complaints.add(place, f"sasl: {mechanism} needs username and password_env or password_file")
    if mechanism is SaslMechanism.OAUTHBEARER and bool(section.token_url) == bool(section.token_file):
        complaints.add(place, "sasl: OAUTHBEARER needs either token_url or token_file")
    if len(complaints.lines) > before:
        return None
    return Security(
        tls=section.tls,
        ca_file=section.ca_file,
        cert_file=section.cert_file,
        key_file=section.key_file,
        key_password=key_password,
        check_hostname=section.check_hostname,
        sasl=mechanism,
        username=section.username,
        password=password,
        token_url=section.token_url,
        token_file=section.token_file,
        token_scope=section.token_scope,
    )


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


def _secret(env: str, file: str, name: str, place: str, complaints: Complaints) -> Secret:
    if env and file:
        complaints.add(place, f"{name}_env and {name}_file: one or the other")
    return Secret(env=env, file=file)


def read_links(raw: object, clusters: Mapping[str, Cluster | None], complaints: Complaints) -> tuple[Link, ...]:
    """Every link whose name, clusters and expressions are right."""
    if not isinstance(raw, Mapping):
        complaints.add("[links]", 'must hold one section per link, like [links."east->west"]')
        return ()
    links = [_link(name, section, clusters, complaints) for name, section in raw.items()]
    return tuple(link for link in links if link is not None)


def _link(name: str, raw: object, clusters: Mapping[str, Cluster | None], complaints: Complaints) -> Link | None:
    place = f'[links."{name}"]'
    before = len(complaints.lines)
    source, arrow, target = name.partition("->")
    if not arrow or not NAME.fullmatch(source) or not NAME.fullmatch(target):
        complaints.add(place, f'is not a link\'s name: write [links."source->target"]{_nearest_link(name, clusters)}')
        source = target = ""
    for side in (source, target):
        if side and side not in clusters:
            complaints.add(place, f"no cluster {side!r}{did_you_mean(side, clusters)}")
    if source:
        _check_sides(source, target, clusters, place, complaints)
    rest = dict(raw) if isinstance(raw, Mapping) else raw
    if isinstance(rest, dict) and isinstance(rest.get("topic_settings"), Mapping):
        rest["topic_settings"] = flat(rest["topic_settings"])
    follow_raw = rest.pop("follow", {}) if isinstance(rest, dict) else {}
    follow = read_follow(follow_raw, f"{place[:-1]}.follow]", complaints)
    control_raw = rest.pop("control", {}) if isinstance(rest, dict) else {}
    control = read_control(control_raw, f"{place[:-1]}.control]", complaints)
    groups_raw = rest.pop("groups", {}) if isinstance(rest, dict) else {}
    groups_rest = dict(groups_raw) if isinstance(groups_raw, Mapping) else groups_raw
    outputs_raw = groups_rest.pop("outputs", {}) if isinstance(groups_rest, dict) else {}
    outputs = read_outputs(outputs_raw, f"{place[:-1]}.groups]", complaints)
    groups = read_section(GroupsSection, groups_rest, f"{place[:-1]}.groups]", complaints, beside=["outputs"])
    section = read_section(LinkSection, rest, place, complaints, beside=["control", "follow", "groups"])
    if section is None or groups is None:
        return None
    _check_filters(section, place, complaints)
    if section.naming not in NAMINGS:
        complaints.add(place, f"naming: no such policy {section.naming!r}{did_you_mean(section.naming, NAMINGS)}")
    for name, kinds in (("mode", list(Mode)), ("mapped_from", list(MappedFrom))):
        said, known = getattr(section, name), [str(kind) for kind in kinds]
        if said not in known:
            complaints.add(place, f"{name}: no such one {said!r}{did_you_mean(said, known)}")
    if len(complaints.lines) > before:
        return None
    return Link(
        source,
        target,
        section.topics,
        section.exclude,
        section.replication_factor,
        section.topic_settings,
        follow,
        Naming(section.naming),
        section.chain,
        control,
        GroupRules(groups.enabled, groups.every_s, groups.resets, groups.back, groups.verify_s, groups.marks, outputs),
        Mode(section.mode),
        MappedFrom(section.mapped_from),
    )


def _check_sides(
    source: str, target: str, clusters: Mapping[str, Cluster | None], place: str, complaints: Complaints
) -> None:
    if source == target:
        complaints.add(place, f"source and target are the same cluster {source!r}")
        return
    one, other = clusters.get(source), clusters.get(target)
    shared = set(one.bootstrap) & set(other.bootstrap) if one and other else set()
    if shared:
        complaints.add(place, f"source and target are the same cluster: both have the address {min(shared)}")


def _nearest_link(name: str, clusters: Mapping[str, Cluster | None]) -> str:
    known = [f"{one}->{other}" for one in clusters for other in clusters if one != other]
    return did_you_mean(name.replace(" ", ""), known) if known else ""


def _check_filters(section: LinkSection, place: str, complaints: Complaints) -> None:
    if not section.topics:
        complaints.add(place, 'topics: needs at least one expression; ".*" is all')
    for name, patterns in (("topics", section.topics), ("exclude", section.exclude)):
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                where = "" if error.pos is None else f" at character {error.pos + 1}"
                complaints.add(place, f"{name}: {pattern!r} is not a regular expression: {error.msg}{where}")
    for key, _ in section.topic_settings:
        if key in TWINS_OWN:
            complaints.add(place, f"topic_settings: {key} is Twinshore's own while a topic is a twin")


def read_mirror(raw: object, complaints: Complaints) -> MirrorSettings | None:
    """How the mirror works, with what is passed through to Spark."""
    place = "[mirror]"
    rest = dict(raw) if isinstance(raw, Mapping) else raw
    spark = _spark(rest.pop("spark", {}) if isinstance(rest, dict) else {}, complaints)
    section = read_section(MirrorSettings, rest, place, complaints)
    if section is None or spark is None:
        return None
    if ASKS_MIN * section.receipts_s > section.lease_s:
        most = f"a third of lease_s ({section.lease_s:g}) at most"
        complaints.add(place, f"receipts_s: is {section.receipts_s:g}, must be {most}, or a busy pump loses its grant")
    values: dict[str, Any] = {name: getattr(section, name) for name in section.__dataclass_fields__}
    return MirrorSettings(**{**values, "spark": spark})


def _spark(raw: object, complaints: Complaints) -> SparkSettings | None:
    place = "[mirror.spark]"
    if not isinstance(raw, Mapping):
        complaints.add(place, f"must be a section with keys, not {raw!r}")
        return None
    pairs = flat({key: value for key, value in raw.items() if key == "spark" or key.startswith("spark.")})
    rest = {key: value for key, value in raw.items() if key != "spark" and not key.startswith("spark.")}
    section = read_section(SparkSection, rest, place, complaints)
    for key, _ in pairs:
        if key in SPARKS_FIXED:
            complaints.add(place, f"{key}: not here, {SPARKS_FIXED[key]}")
    if section is None:
        return None
    if not MASTER.fullmatch(section.master):
        complaints.add(
            place, f"master: {section.master!r} is not a Spark master like local, local[4], spark://host:7077"
        )
    return SparkSettings(section.master, pairs)


def flat(table: Mapping[str, object], prefix: str = "") -> tuple[tuple[str, str], ...]:
    """Pairs of dotted names and text: TOML makes tables of names that hold dots and stand without quotes."""
    pairs: list[tuple[str, str]] = []
    for key, value in table.items():
        if isinstance(value, Mapping):
            pairs.extend(flat(value, f"{prefix}{key}."))
        elif isinstance(value, bool):
            pairs.append((prefix + key, "true" if value else "false"))
        else:
            pairs.append((prefix + key, str(value)))
    return tuple(sorted(pairs))
