"""The section `links`: which link carries what. What else it says, such as `control`, are sections inside of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from twinshore.fleet.nouns import Cluster, Link, MappedFrom, Mode, Naming
from twinshore.fleet.settings.declaring import setting
from twinshore.fleet.settings.edge import Complaints, did_you_mean, read_section
from twinshore.fleet.settings.section import Section, Written
from twinshore.fleet.settings.sections import declared
from twinshore.fleet.settings.sections.clusters import NAME
from twinshore.fleet.settings.shapes import check_pattern, flat

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSection:
    """One mirror, named `source->target` after two clusters."""

    topics: tuple[str, ...] = setting((".*",), "topics to mirror: regular expressions that match the whole name")
    exclude: tuple[str, ...] = setting(
        ("__.*",), "topics to leave out: the same kind of expressions, stronger than topics"
    )
    replication_factor: int = setting(
        0,
        "copies of each twin partition; 0: the source's, at most as many as the target has brokers",
        low=0,
        high=32767,
    )
    topic_settings: tuple[tuple[str, str], ...] = setting(
        (), "settings given to each twin, as Kafka names them, besides those a twin needs for itself"
    )
    naming: str = setting(
        "same", "what a twin is called: `same` as its source topic, or `prefix`: `east.orders` for orders of east"
    )
    chain: bool = setting(
        False, "also carry topics of the source that are twins themselves; never back to where they have been"
    )
    mode: str = setting(
        "exact",
        "`exact`: a topic that holds foreign data on the target is refused; `mapped`: it is carried on behind them,"
        " with a map of offsets; all other topics are exact in either case",
    )
    mapped_from: str = setting(
        "mirrormaker",
        "where a mapped topic goes on in its source: `mirrormaker`, where MirrorMaker 2 stopped, proven by its records;"
        " `start` or `end` of the source",
    )
    broadcast: str = setting(
        "", "the broadcast that this link belongs to: links of one source that name the same one read it once for all"
    )


def read_links(written: Written, complaints: Complaints) -> tuple[Link, ...]:
    """Every link whose name, clusters and expressions are right."""
    raw, clusters = written.raw, written.before["clusters"]
    if not isinstance(raw, Mapping):
        complaints.add(written.place, 'must hold one section per link, like [links."east->west"]')
        return ()
    links = [_link(name, section, clusters, complaints) for name, section in raw.items()]
    found = tuple(link for link in links if link is not None)
    for link, sentence in of_two_sources(found):
        complaints.add(f'[links."{link.name}"]', sentence)
    return found


def of_two_sources(links: Sequence[Link]) -> Iterator[tuple[Link, str]]:
    """A broadcast has one source: what two name alike is not read once for both. Each link that has another one than
    those before it, and what is wrong."""
    first: dict[str, Link] = {}
    for link in links:
        other = first.setdefault(link.broadcast, link)
        if link.broadcast and other.source != link.source:
            yield (
                link,
                f"broadcast: {link.broadcast!r} reads {other.source!r}, by {other.name}, and this link {link.source!r};"
                " give it another name",
            )


def _link(name: str, raw: object, clusters: Mapping[str, Cluster], complaints: Complaints) -> Link | None:
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
    parts = [one for one in declared() if one.inside == SECTION.name]
    rest, inner = Written(raw, place).parted(*[one.name for one in parts])
    if isinstance(rest, dict) and isinstance(rest.get("topic_settings"), Mapping):
        rest["topic_settings"] = flat(rest["topic_settings"])
    values = {one.name: one.read(Written(inner[one.name], f"{place[:-1]}.{one.name}]"), complaints) for one in parts}
    section = read_section(LinkSection, rest, place, complaints, beside=list(inner))
    if section is None:
        return None
    _check_filters(section, place, complaints)
    if not section.broadcast and getattr(values.get("queue"), "fresh", False):
        complaints.add(
            f"{place[:-1]}.queue]",
            'policy: only a link of a broadcast drops what is not fresh; give the link a broadcast = "NAME", which may '
            "be its alone, or leave policy out",
        )
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
        naming=Naming(section.naming),
        chain=section.chain,
        mode=Mode(section.mode),
        mapped_from=MappedFrom(section.mapped_from),
        broadcast=section.broadcast,
        **values,
    )


def _check_sides(source: str, target: str, clusters: Mapping[str, Cluster], place: str, complaints: Complaints) -> None:
    if source == target:
        complaints.add(place, f"source and target are the same cluster {source!r}")
        return
    one, other = clusters.get(source), clusters.get(target)
    shared = set(one.bootstrap) & set(other.bootstrap) if one and other else set()
    if shared:
        complaints.add(place, f"source and target are the same cluster: both have the address {min(shared)}")


def _nearest_link(name: str, clusters: Mapping[str, Cluster]) -> str:
    known = [f"{one}->{other}" for one in clusters for other in clusters if one != other]
    return did_you_mean(name.replace(" ", ""), known) if known else ""


def _check_filters(section: LinkSection, place: str, complaints: Complaints) -> None:
    if not section.topics:
        complaints.add(place, 'topics: needs at least one expression; ".*" is all')
    for name, patterns in (("topics", section.topics), ("exclude", section.exclude)):
        for pattern in patterns:
            check_pattern(pattern, name, place, complaints)
    for key, _ in section.topic_settings:
        if key in TWINS_OWN:
            complaints.add(place, f"topic_settings: {key} is Twinshore's own while a topic is a twin")


SECTION = Section("links", 30, (('[links."SOURCE->TARGET"]', LinkSection),), read_links)
