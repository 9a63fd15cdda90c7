"""The proposal as a settings file in TOML, with what is left to do at its head."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

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
        lines += [*_link(link), ""]
    return "\n".join(lines)


def _link(link: ProposedLink) -> Iterator[str]:
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
