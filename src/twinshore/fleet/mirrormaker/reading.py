"""MirrorMaker 2's settings as flat properties, whichever way they were written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from twinshore.fleet.errors import ConfigError
from twinshore.fleet.settings.edge import did_you_mean

SOURCE_CONNECTOR = "MirrorSourceConnector"
CONNECTORS = (SOURCE_CONNECTOR, "MirrorCheckpointConnector", "MirrorHeartbeatConnector")
# What belongs to the connector as a thing of Connect's, and not to the link.
OF_CONNECT = ("connector.class", "name", "source.cluster.alias", "target.cluster.alias")
_PARTS = re.compile(r"((?:\\.|[^\\=: \t])*)[ \t]*[=:]?[ \t]*(.*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True, slots=True)
class Written:
    """A property and where it stands."""

    value: str
    place: str


Properties = dict[str, Written]


def read_properties(text: str, name: str) -> Properties:
    """Properties of a dedicated MirrorMaker; Connect's JSON is brought into the same form."""
    if text.lstrip()[:1] in ("{", "["):
        return _from_connect(text, name)
    found: Properties = {}
    for number, line in _logical_lines(text):
        key, value = _parted(line)
        if not key:
            raise ConfigError(f"{name}, line {number}: a property without a name: {line.strip()!r}")
        found[key] = Written(value, f"line {number}")
    if not found:
        raise ConfigError(
            f"{name} holds no property", hint="name the file that connect-mirror-maker.sh is started with"
        )
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments; one that ends in a single backslash goes on in the next."""
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
    """Key and value, as java.util.Properties parts and unescapes them. `a->b.topics` holds no separator."""
    found = _PARTS.fullmatch(line)
    return (_unescaped(found[1]), _unescaped(found[2]).rstrip()) if found else ("", "")


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda one: chr(int(one[1], 16)) if one[1] else _ESCAPES.get(one[2], one[2]), text)


def _from_connect(text: str, name: str) -> Properties:
    try:
        raw: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{name} is not JSON: {error.msg} in line {error.lineno}") from error
    if isinstance(raw, dict) and raw and all(isinstance(one, dict) and "info" in one for one in raw.values()):
        raw = [one["info"] for one in raw.values()]  # GET /connectors?expand=info
    connectors = raw if isinstance(raw, list) else [raw]
    found: Properties = {}
    clusters: list[str] = []
    for number, one in enumerate(connectors, 1):
        config = one.get("config", one) if isinstance(one, dict) else None
        if not isinstance(config, dict):
            raise ConfigError(f"{name}: connector {number} is no table of properties")
        place = str(one.get("name") or config.get("name") or f"connector {number}")
        for alias in _one_connector(config, place, name, found):
            if alias not in clusters:
                clusters.append(alias)
    found["clusters"] = Written(",".join(clusters), name)
    return found


def _one_connector(config: dict[str, Any], place: str, name: str, found: Properties) -> tuple[str, str]:
    kind = str(config.get("connector.class", "")).rsplit(".", 1)[-1]
    if kind not in CONNECTORS:
        raise ConfigError(f"{name}: {place}: no connector of MirrorMaker 2: {kind!r}{did_you_mean(kind, CONNECTORS)}")
    aliases = []
    for side in ("source", "target"):
        key = f"{side}.cluster.alias"
        if not config.get(key):
            near = did_you_mean(key, [other for other in config if "alias" in other])
            raise ConfigError(f"{name}: {place}: {key} is missing{near}")
        aliases.append(str(config[key]))
    source, target = aliases
    if kind == SOURCE_CONNECTOR:
        enabled = _text(config.get("enabled", True))
        key = f"{source}->{target}.enabled"
        # Several connectors may share a pair's topics; one that runs is enough.
        if key not in found or is_true(enabled):
            found[key] = Written(enabled, place)
    for key, value in config.items():
        # Without the source's connector the others carry nothing, whatever they say of themselves.
        if key in OF_CONNECT or key == "enabled":
            continue
        where = f"{source}->{target}.{key}"
        for side, alias in (("source", source), ("target", target)):
            if key.startswith(f"{side}.cluster."):
                where = f"{alias}.{key.removeprefix(f'{side}.cluster.')}"
        found.setdefault(where, Written(_text(value), place))
    return source, target


def is_true(text: str) -> bool:
    """As Kafka reads a flag."""
    return text.strip().lower() == "true"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
