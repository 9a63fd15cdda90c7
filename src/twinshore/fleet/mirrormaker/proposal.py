"""MirrorMaker 2's links and logins proposed as Twinshore's, with what became of each property. Passwords are named,
never copied. Pure: text in, text out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from twinshore.fleet.errors import ConfigError
from twinshore.fleet.mirrormaker.meanings import OF_CLUSTERS, OF_LINKS, Fate, Meaning, by_pattern
from twinshore.fleet.mirrormaker.reading import Properties, Written, is_true, read_properties
from twinshore.fleet.nouns import SaslMechanism
from twinshore.fleet.settings.edge import did_you_mean

_OPTION = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;]+))")
# A value that a ConfigProvider of Connect's would fetch from elsewhere.
PLACEHOLDER = re.compile(r"\$\{[^}]*\}")


@dataclass(slots=True)
class Login:
    """`values` are the section's; `steps` is what the operator must do by hand; `wrong` is what cannot be said."""

    values: dict[str, str | bool] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def login(cluster: str, given: Mapping[str, Written]) -> Login:
    """The section of one cluster, out of its properties without their alias."""
    found = Login()
    texts = {key: one.value for key, one in given.items()}
    protocol = texts.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        found.wrong.append(f"security.protocol: Kafka has no {protocol!r}")
        return found
    if protocol.endswith("SSL"):
        _tls(cluster, texts, found)
    if protocol.startswith("SASL"):
        _sasl(cluster, texts, found)
    return found


def variable(cluster: str, what: str) -> str:
    """The environment variable that is to hold a secret of this cluster."""
    return re.sub(r"[^A-Z0-9]", "_", f"{cluster}_{what}".upper())


def _tls(cluster: str, texts: Mapping[str, str], found: Login) -> None:
    found.values["tls"] = True
    trusted = texts.get("ssl.truststore.location", "")
    if trusted:
        found.values["ca_file"] = _pem(cluster, trusted, texts.get("ssl.truststore.type", ""), "ca", found)
    ours = texts.get("ssl.keystore.location", "")
    if ours:
        pem = _pem(cluster, ours, texts.get("ssl.keystore.type", ""), "cert", found)
        found.values |= {"cert_file": pem, "key_file": pem}
        if texts.get("ssl.key.password"):
            name = variable(cluster, "key_password")
            found.values["key_password_env"] = name
            found.steps.append(f"put the key's password of {cluster} into the environment variable {name}")
    # Java's way to say so is to leave it empty.
    if "ssl.endpoint.identification.algorithm" in texts and not texts["ssl.endpoint.identification.algorithm"]:
        found.values["check_hostname"] = False


def _pem(cluster: str, location: str, kind: str, what: str, found: Login) -> str:
    path = PurePosixPath(location)
    if kind.upper() == "PEM" or path.suffix in (".pem", ".crt", ".cer"):
        return location
    pem = str(path.with_suffix(".pem"))
    found.steps.append(f"turn {location} into the PEM file {pem} (keytool, then openssl): {what} of {cluster}")
    return pem


def _sasl(cluster: str, texts: Mapping[str, str], found: Login) -> None:
    mechanism = texts.get("sasl.mechanism", "GSSAPI")
    if mechanism not in {one.value for one in SaslMechanism}:
        known = ", ".join(one.value for one in SaslMechanism)
        found.wrong.append(f"sasl.mechanism: Twinshore does not speak {mechanism}; it speaks {known}")
        return
    found.values["sasl"] = mechanism
    options = {
        key: (quoted or bare).replace('\\"', '"')
        for key, quoted, bare in _OPTION.findall(texts.get("sasl.jaas.config", ""))
    }
    user = options.get("username") or options.get("clientId", "")
    if PLACEHOLDER.search(user):
        found.steps.append(f"write the user of {cluster} as username: it stood as {user}")
        user = "TO-BE-WRITTEN"
    if user:
        found.values["username"] = user
    name = variable(cluster, "password")
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
# Both of its default lists, the older and the newer, and what it makes for itself.
EXCLUDE_DEFAULT = r".*[\-\.]internal, .*\.replica, __.*"
GROUPS_EXCLUDE_DEFAULT = "console-consumer-.*, connect-.*, __.*"
IDENTITY, PREFIX = "IdentityReplicationPolicy", "DefaultReplicationPolicy"
ARROW = re.compile(r"(?P<source>.+?)->(?P<target>[^.]+)\.(?P<rest>.+)")


@dataclass(frozen=True, slots=True)
class Finding:
    """What one property became."""

    key: str
    place: str
    fate: Fate
    sentence: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """`text` is a settings file. `steps` is what is left to do by hand."""

    text: str
    findings: tuple[Finding, ...]
    steps: tuple[str, ...]
    links: tuple[str, ...]


def propose(text: str, name: str) -> Proposal:
    """The same links as Twinshore's settings; ConfigError, naming the nearest right thing, where there are none."""
    given = read_properties(text, name)
    clusters = _clusters(given, name)
    pairs = _pairs(given, clusters, name)
    findings: list[Finding] = []
    steps: list[str] = []
    links = [_link(given, source, target, findings, steps) for source, target in pairs]
    used = [cluster for cluster in clusters if any(cluster in pair for pair in pairs)]
    logins = {}
    for cluster in used:
        ours = _of_cluster(given, cluster)
        found = login(cluster, ours)
        logins[cluster] = found.values
        steps += found.steps
        for wrong in found.wrong:
            key = wrong.split(":")[0]
            place = ours[key].place if key in ours else name
            findings.append(Finding(f"{cluster}.{key}", place, Fate.DIFFERS, wrong.split(": ", 1)[1]))
    told = {finding.key for finding in findings}
    findings += [_finding(key, one, clusters, pairs) for key, one in given.items() if key not in told]
    for key, one in given.items():
        if PLACEHOLDER.search(one.value) and "jaas" not in key and "password" not in key:
            steps.append(f"{key} ({one.place}) is fetched by a config provider: write its value into the proposal")
    addresses = {cluster: _listed(given[f"{cluster}.bootstrap.servers"].value) for cluster in used}
    findings.sort(key=lambda finding: (list(Fate).index(finding.fate), finding.key))
    body = render(name, addresses, logins, links, steps)
    return Proposal(body, tuple(findings), tuple(dict.fromkeys(steps)), tuple(f"{a}->{b}" for a, b in pairs))


def _clusters(given: Properties, name: str) -> list[str]:
    if "clusters" not in given:
        near = did_you_mean("clusters", [key for key in given if "." not in key])
        raise ConfigError(
            f"{name}: no property `clusters`{near}",
            hint="this reads the properties of connect-mirror-maker.sh, or JSON of MirrorSourceConnector",
        )
    clusters = _listed(given["clusters"].value)
    for cluster in clusters:
        if f"{cluster}.bootstrap.servers" not in given:
            known = [key for key in given if key.endswith("bootstrap.servers")]
            near = did_you_mean(f"{cluster}.bootstrap.servers", known)
            raise ConfigError(f"{name}: cluster {cluster} has no {cluster}.bootstrap.servers{near}")
    return clusters


def _pairs(given: Properties, clusters: list[str], name: str) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for key, one in given.items():
        found = ARROW.fullmatch(key)
        if not found:
            continue
        for side in (found["source"], found["target"]):
            if side not in clusters:
                raise ConfigError(f"{name}, {one.place}: {key}: no cluster {side}{did_you_mean(side, clusters)}")
        if found["rest"] == "enabled" and is_true(one.value):
            pairs.append((found["source"], found["target"]))
    if not pairs:
        arrows = [f"{a}->{b}.enabled = true" for a in clusters for b in clusters if a != b][:2]
        raise ConfigError(f"{name}: no link is enabled", hint=f"MirrorMaker 2 mirrors only with {' or '.join(arrows)}")
    return pairs


def _link(given: Properties, source: str, target: str, findings: list[Finding], steps: list[str]) -> ProposedLink:
    def say(key: str, default: str = "") -> str:
        return _value(given, source, target, key, default)

    exclude = say("topics.exclude", say("topics.blacklist", EXCLUDE_DEFAULT))
    groups_exclude = say("groups.exclude", say("groups.blacklist", GROUPS_EXCLUDE_DEFAULT))
    configs = say("config.properties.exclude", say("config.properties.blacklist"))
    factor = say("replication.factor", "0").strip()
    return ProposedLink(
        source,
        target,
        topics=_patterns(say("topics", TOPICS_DEFAULT), "topics", steps),
        exclude=_patterns(exclude, "topics.exclude", steps),
        groups=_patterns(say("groups", ".*"), "groups", steps),
        exclude_groups=_patterns(groups_exclude, "groups.exclude", steps),
        # Its own default is 2, chosen for no cluster in particular; ours is the source's.
        replication_factor=int(factor) if factor.isdigit() else 0,
        naming=_naming(given, source, target, findings),
        acls=say("sync.topic.acls.enabled", "true").strip().lower() != "false",
        settings_exclude=(".*",)
        if say("sync.topic.configs.enabled", "true").strip().lower() == "false"
        else _patterns(configs, "config.properties.exclude", steps),
        groups_follow=say("sync.group.offsets.enabled", "true").strip().lower() != "false",
    )


def _naming(given: Properties, source: str, target: str, findings: list[Finding]) -> str:
    policy = _value(given, source, target, "replication.policy.class", PREFIX).rsplit(".", 1)[-1].strip()
    key, one = _where(given, source, target, "replication.policy.class")
    if one and policy not in (IDENTITY, PREFIX):
        sentence = f"a class of your own: proposed is prefix; Twinshore knows {PREFIX} and {IDENTITY}"
        findings.append(Finding(key, one.place, Fate.DIFFERS, sentence))
    key, one = _where(given, source, target, "replication.policy.separator")
    if one and one.value != "." and policy != IDENTITY:
        sentence = f"twins are called {source}.topic, with a dot, not {one.value!r}: readers must be told"
        findings.append(Finding(key, one.place, Fate.DIFFERS, sentence))
    return "same" if policy == IDENTITY else "prefix"


def _value(given: Properties, source: str, target: str, key: str, default: str) -> str:
    _, one = _where(given, source, target, key)
    return one.value if one else default


def _where(given: Properties, source: str, target: str, key: str) -> tuple[str, Written | None]:
    """The link's own property, or else the one for all links."""
    for name in (f"{source}->{target}.{key}", key):
        if name in given:
            return name, given[name]
    return key, None


def _of_cluster(given: Properties, cluster: str) -> dict[str, Written]:
    """The cluster's own properties; those without an alias stand for all clusters."""
    shared = {key: one for key, one in given.items() if key in OF_CLUSTERS}
    head = f"{cluster}."
    return shared | {key.removeprefix(head): one for key, one in given.items() if key.startswith(head)}


def _finding(key: str, one: Written, clusters: list[str], pairs: list[tuple[str, str]]) -> Finding:
    arrow = ARROW.fullmatch(key)
    if arrow and (arrow["source"], arrow["target"]) not in pairs:
        link = f"{arrow['source']}->{arrow['target']}"
        off = "" if arrow["rest"] == "enabled" else f", since {link}.enabled is not true"
        return Finding(key, one.place, Fate.NEEDLESS, f"link {link} is off and not proposed{off}")
    meaning = _meaning(key, clusters)
    return Finding(key, one.place, meaning.fate, meaning.sentence)


def _meaning(key: str, clusters: list[str]) -> Meaning:
    arrow = ARROW.fullmatch(key)
    bare = arrow["rest"] if arrow else key
    known: Mapping[str, Meaning] = OF_LINKS
    if not arrow:
        alias = next((one for one in clusters if key.startswith(f"{one}.")), "")
        bare = key.removeprefix(f"{alias}.") if alias else key
        known = OF_CLUSTERS if alias else {**OF_LINKS, **OF_CLUSTERS}
    # One of a client, in front of what is a cluster's: consumer.ssl.truststore.location.
    plain = re.sub(r"^(source\.|target\.)?(consumer|producer|admin)\.(?=ssl|sasl|security)", "", bare)
    found = (
        known.get(bare) or (OF_CLUSTERS.get(plain) if plain != bare else None) or by_pattern(bare) or by_pattern(key)
    )
    if found and plain != bare:
        return Meaning(Fate.DIFFERS, "Twinshore has one login for each cluster: write it in the section security")
    return found or Meaning(Fate.UNKNOWN, f"not a property of MirrorMaker 2{did_you_mean(bare, known)}")


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _patterns(text: str, key: str, steps: list[str]) -> tuple[str, ...]:
    """Its lists are parted by commas; each part matches a whole name, as ours do."""
    found = []
    for part in _listed(text):
        try:
            re.compile(part)
        except re.error as error:
            steps.append(f"{key}: {part!r} is left out: not an expression here ({error.msg}); write it anew")
            continue
        found.append(part)
    return tuple(found)


Value = str | bool | int | Sequence[str]
_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class ProposedLink:
    """One link, in Twinshore's words."""

    source: str
    target: str
    topics: tuple[str, ...] = (".*",)
    exclude: tuple[str, ...] = ()
    groups: tuple[str, ...] = (".*",)
    exclude_groups: tuple[str, ...] = ()
    replication_factor: int = 0
    naming: str = "prefix"
    acls: bool = True
    settings_exclude: tuple[str, ...] = field(default=())
    groups_follow: bool = True


def render(
    name: str,
    addresses: Mapping[str, Sequence[str]],
    logins: Mapping[str, Mapping[str, str | bool]],
    links: Sequence[ProposedLink],
    steps: Sequence[str],
) -> str:
    """The whole file."""
    lines = [f"# Proposed from {name}.", "#", "# Before you start it:"]
    lines += [f"# - {step}" for step in dict.fromkeys(steps)]
    lines += ["# - read `twinshore mirror plan`: it says every step, and does none"]
    lines += ["# - stop MirrorMaker, then look at the plan again: docs/from-mirrormaker.md", ""]
    lines += ["[store]", 'url = "sqlite:///twinshore.db"', ""]
    for cluster, servers in addresses.items():
        lines += [f"[clusters.{_key(cluster)}]", f"bootstrap = {_text(servers)}", ""]
        if logins[cluster]:
            lines += [f"[clusters.{_key(cluster)}.security]"]
            lines += [f"{key} = {_text(value)}" for key, value in logins[cluster].items()] + [""]
    for link in links:
        lines += [*_rendered(link), ""]
    return "\n".join(lines)


def _rendered(link: ProposedLink) -> Iterator[str]:
    place = f'links."{link.source}->{link.target}"'
    yield f"[{place}]"
    yield f"topics = {_text(link.topics)}"
    yield f"exclude = {_text(link.exclude)}"
    yield f"naming = {_text(link.naming)}"
    if link.replication_factor:
        yield f"replication_factor = {link.replication_factor}"
    # Topics that MirrorMaker 2 has made hold data at offsets of their own.
    yield "mode = 'mapped'"
    if link.groups != (".*",) or link.exclude_groups:
        yield ""
        yield f"[{place}.control]"
        yield f"groups = {_text(link.groups)}"
        yield f"exclude_groups = {_text(link.exclude_groups)}"
    if not link.groups_follow:
        yield ""
        yield f"[{place}.groups]"
        yield "enabled = false"
    if not link.acls or link.settings_exclude:
        yield ""
        yield f"[{place}.follow]"
        if not link.acls:
            yield "acls = false"
        if link.settings_exclude:
            yield f"settings_exclude = {_text(link.settings_exclude)}"


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        # Literal where it can be: expressions are full of backslashes.
        if "'" not in value and value.isprintable():
            return f"'{value}'"
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in escaped) + '"'
    return "[" + ", ".join(_text(part) for part in value) + "]"
