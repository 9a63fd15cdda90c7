"""The section `broadcasts`: one source, many targets. Each target gets a normal link that names the broadcast."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twinshore.config.declaration import required
from twinshore.config.schema import Complaints, RawSection, Section, read_section
from twinshore.config.sections.clusters import CLUSTER_NAME

BROADCAST_KEYS = ("source", "targets")


@dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastSection:
    """One source that is read once for many targets. What else stands here holds for the link to each target, as if it
    stood in `[links."SOURCE->TARGET"]`, and its sections too, such as `[broadcasts.NAME.queue]`.
    """

    source: str = required("the source cluster")
    targets: tuple[str, ...] = required("the target clusters; each has its own link")


def read_broadcasts(raw_section: RawSection, complaints: Complaints) -> dict[str, BroadcastSection]:
    """Broadcasts by name. Keys of their links are checked with the links."""
    raw = raw_section.raw
    if not isinstance(raw, Mapping):
        complaints.add(raw_section.place, "must hold one section per broadcast, like [broadcasts.prices]")
        return {}
    found: dict[str, BroadcastSection] = {}
    for name, table in raw.items():
        place = f"[broadcasts.{name}]"
        if not CLUSTER_NAME.fullmatch(name):
            complaints.add(place, "is not a broadcast's name: letters, digits, - and _")
        if isinstance(table, Mapping):
            table = {key: value for key, value in table.items() if key in BROADCAST_KEYS}
        section = read_section(BroadcastSection, table, place, complaints)
        if section is not None:
            _check(section, place, complaints)
            found[name] = section
    _check_apart(found, complaints)
    return found


def _check(section: BroadcastSection, place: str, complaints: Complaints) -> None:
    if not section.targets:
        complaints.add(place, "targets: needs at least one cluster")
    if section.source in section.targets:
        others = [name for name in section.targets if name != section.source]
        complaints.add(place, f"targets: {section.source!r} is the source itself; leave {others}")
    for target in sorted({name for name in section.targets if section.targets.count(name) > 1}):
        complaints.add(place, f"targets: {target!r} stands there twice")


def _check_apart(found: Mapping[str, BroadcastSection], complaints: Complaints) -> None:
    """Two broadcasts between the same clusters would make one link twice."""
    first: dict[tuple[str, str], str] = {}
    for name, section in found.items():
        for target in dict.fromkeys(section.targets):
            other = first.setdefault((section.source, target), name)
            if other != name:
                before = f"targets: {target!r} gets [broadcasts.{other}] from {section.source!r} already"
                remedy = "leave it in one of them, and give that one the topics of both"
                sentence = f"{before}, and would get the same topics twice; {remedy}"
                complaints.add(f"[broadcasts.{name}]", sentence)


def expand_broadcasts(raw: Mapping[str, Any], complaints: Complaints) -> dict[str, Any]:
    broadcasts, links = raw.get("broadcasts"), raw.get("links", {})
    if not isinstance(broadcasts, Mapping) or not isinstance(links, Mapping):
        return dict(raw)
    made: dict[str, Any] = dict(links)
    for name, table in broadcasts.items():
        for link, section in _links_of(name, table):
            if link in links:
                complaints.add(f'[links."{link}"]', f"stands in [broadcasts.{name}] too; leave it in one of them")
            made[link] = section
    return {**raw, "links": made}


def restore_places(lines: Sequence[str], raw: Mapping[str, Any]) -> list[str]:
    """Maps complaints about generated links to the broadcast's place in the file, each once for all targets."""
    broadcasts, links = raw.get("broadcasts"), raw.get("links", {})
    places: dict[str, str] = {}
    if not isinstance(broadcasts, Mapping) or not isinstance(links, Mapping):
        return list(lines)
    for name, table in broadcasts.items():
        places |= {f'[links."{link}"': f"[broadcasts.{name}" for link, _ in _links_of(name, table) if link not in links}
    found = []
    for line in lines:
        place = next((place for place in places if line.startswith(place)), "")
        found.append(places[place] + line.removeprefix(place) if place else line)
    return list(dict.fromkeys(found))


def _links_of(name: str, table: object) -> Iterator[tuple[str, dict[str, Any]]]:
    """Skips invalid sources and targets, whose own reader complains."""
    if not isinstance(table, Mapping):
        return
    source, targets = table.get("source"), table.get("targets")
    if not isinstance(source, str) or not isinstance(targets, list):
        return
    rest = {key: value for key, value in table.items() if key not in BROADCAST_KEYS}
    for target in targets:
        if isinstance(target, str) and target != source:
            yield f"{source}->{target}", {**rest, "broadcast": name}


SECTION = Section("broadcasts", 28, (("[broadcasts.NAME]", BroadcastSection),), read_broadcasts)
