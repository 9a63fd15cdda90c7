"""What runs, as shown by heartbeats that arrived: links, paths and a drawing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from twinshore.config.frozen import HEARTBEATS
from twinshore.config.grouping import grouped
from twinshore.config.model import Link
from twinshore.config.sentences import count_phrase
from twinshore.routing.core.home_records import line_value, read_line

HEARTBEAT_FRESH_S = 10.0


def beat_line(link: Link, now_ms: int) -> tuple[bytes, bytes]:
    """Encodes a link's heartbeat, as written on its source."""
    beat = {"link": link.name, "source": link.source, "target": link.target, "at_ms": now_ms}
    return link.name.encode(), line_value(beat)


def beat_ms(value: bytes | None) -> int | None:
    """When a heartbeat was written, as its value says; None if the value has no time that this version can read."""
    match read_line(value):
        case {"at_ms": int(at_ms)}:
            return at_ms
        case _:
            return None


@dataclass(frozen=True, slots=True)
class NewestHeartbeat:
    """`path`: the clusters passed, last the one where the heartbeat was read."""

    path: tuple[str, ...]
    age_s: float


@dataclass(frozen=True, slots=True)
class ObservedLink:
    """`state`: runs, silent (the last heartbeat is old), unseen (none ever arrived), unknown (the target does not
    answer).
    """

    link: str
    state: str
    age_s: float | None
    naming: str
    chain: bool
    settings: bool
    # The link's broadcast; empty: none.
    broadcast: str = ""


@dataclass(frozen=True, slots=True)
class Topology:
    """`away`: clusters that do not answer, and why. `homes`: pair, home, and number of the pair's topics with that
    home.
    """

    links: tuple[ObservedLink, ...]
    paths: tuple[NewestHeartbeat, ...]
    away: tuple[tuple[str, str], ...]
    homes: tuple[tuple[str, str, int], ...] = ()

    def as_values(self) -> dict[str, object]:
        """For JSON."""
        paths = [{"path": list(heartbeat.path), "age_s": round(heartbeat.age_s, 3)} for heartbeat in self.paths]
        away = [{"cluster": name, "error": why} for name, why in self.away]
        homes = [{"pair": pair, "home": home, "topics": count} for pair, home, count in self.homes]
        return {"links": [asdict(link) for link in self.links], "paths": paths, "unreachable": away, "homes": homes}

    def describe_broadcasts(self) -> list[str]:
        targets: dict[tuple[str, str], list[str]] = {}
        for link in self.links:
            source, _, target = link.link.partition("->")
            if link.broadcast:
                targets.setdefault((link.broadcast, source), []).append(target)
        return [f"broadcast {name}: {source} -> {', '.join(names)}" for (name, source), names in targets.items()]

    def describe_homes(self) -> list[str]:
        by_pair = grouped((pair, f"{count_phrase(n, 'topic')} at home on {home}") for pair, home, n in self.homes)
        return [f"{pair}: {', '.join(parts)}" for pair, parts in by_pair.items()]


def parse_heartbeat_path(topic: str, seen_on: str, clusters: Iterable[str]) -> tuple[str, ...]:
    """The clusters that a heartbeats topic came by, oldest first: each put its name before. A name that no settings
    know ends where the next known one begins, or at its first dot."""
    before = topic.removesuffix(HEARTBEATS)
    known = sorted(clusters, key=len, reverse=True)
    hops = [seen_on]
    while before:
        hop = next((name for name in known if before.startswith(f"{name}.")), before.partition(".")[0])
        hops.append(hop)
        before = before[len(hop) + 1 :]
    return tuple(reversed(hops))


def build_topology(links: Sequence[Link], beats: Iterable[NewestHeartbeat], away: Mapping[str, str]) -> Topology:
    """Joins the settings' links with all others seen."""
    arrived = [heartbeat for heartbeat in beats if len(heartbeat.path) > 1]
    ordered = sorted(arrived, key=lambda heartbeat: (len(heartbeat.path), heartbeat.path))
    ages = {"->".join(heartbeat.path): heartbeat.age_s for heartbeat in ordered if len(heartbeat.path) == 2}
    observed = [_seen(link, ages.pop(link.name, None), away) for link in links]
    others = [ObservedLink(name, _state(age_s), age_s, "", chain=False, settings=False) for name, age_s in ages.items()]
    return Topology((*observed, *others), tuple(ordered), tuple(sorted(away.items())))


def _seen(link: Link, age_s: float | None, away: Mapping[str, str]) -> ObservedLink:
    state = "unknown" if link.target in away else _state(age_s)
    return ObservedLink(
        link.name, state, age_s, link.naming.value, chain=link.chain, settings=True, broadcast=link.broadcast
    )


def _state(age_s: float | None) -> str:
    if age_s is None:
        return "unseen"
    return "runs" if age_s <= HEARTBEAT_FRESH_S else "silent"


def draw_topology(topology: Topology) -> list[str]:
    """Draws a tree for each cluster of origin, with ages of the last heartbeats."""
    ages = {heartbeat.path: heartbeat.age_s for heartbeat in topology.paths}
    lines: list[str] = []
    for origin in sorted({path[0] for path in ages}):
        lines.append(origin)
        lines += _branches((origin,), ages, "")
    return lines


def _branches(path: tuple[str, ...], ages: Mapping[tuple[str, ...], float], indent: str) -> list[str]:
    onward = sorted({other[: len(path) + 1] for other in ages if other[: len(path)] == path and len(other) > len(path)})
    lines = []
    for number, branch in enumerate(onward):
        last = number == len(onward) - 1
        age_s = ages.get(branch)
        age = "no heartbeat" if age_s is None else f"{age_s:.0f} s ago"
        lines.append(f"{indent}{'└─' if last else '├─'} {branch[-1]}  {age}")
        lines += _branches(branch, ages, indent + ("   " if last else "│  "))
    return lines
