"""The section `links`: what each link replicates, with four subsections.

`control`: what holds until the store says otherwise. `follow`: what is synced besides records. `groups`: how committed
offsets follow. `queue`: memory for a broadcast's slow target.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from twinshore.config.declaration import setting, shared_fields
from twinshore.config.model import (
    PRIORITY_MAX,
    Cluster,
    GroupRules,
    Link,
    LinkControl,
    MappedStart,
    OffsetMode,
    QueuePolicy,
    QueueRules,
    Secret,
    SyncRules,
    TwinNaming,
)
from twinshore.config.schema import (
    SUGGESTION_CUTOFF,
    Complaints,
    RawSection,
    Section,
    check_pattern,
    did_you_mean,
    flatten_table,
    pattern_error,
    read_numbers,
    read_section,
)
from twinshore.config.sections.clusters import CLUSTER_NAME

PRINCIPAL = re.compile(r"[A-Za-z]+:.+")
THROTTLE_BYTES_S_MAX = 1 << 50
# Stands for the group's own name in an expression for topics.
GROUP_PLACEHOLDER = "{group}"
_PLACEHOLDER = re.compile(r"\{[A-Za-z_]\w*\}")
OUTPUTS_EXAMPLE = '{ "billing" = ["invoices"], ".*-app" = ["{group}-.*"] }'
QUEUE_HIGH_KB = 64 << 10
# Kafka's default of `max.message.bytes`, in whole kilobytes.
BATCH_KB_MAX = 1025
DROP_OLDEST_KEYS = ("low_kb", "max_age_s", "transactions")
TWIN_ONLY_SETTINGS = (
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
        ("__.*",), "topics to exclude: regular expressions that match the whole name; `exclude` wins over `topics`"
    )
    replication_factor: int = setting(
        0, "replication factor of twins; 0: the source's, at most the target's number of brokers", low=0, high=32767
    )
    topic_settings: tuple[tuple[str, str], ...] = setting(
        (), "topic configs that each twin gets, by Kafka's names, besides those that a twin needs"
    )
    naming: TwinNaming = setting(
        TwinNaming.SAME,
        "names of twins: `same` as the source topic, or `prefix`: `east.orders` for topic orders of east",
    )
    chain: bool = setting(False, "also replicate twins of the source, except to clusters where they come from")
    mode: OffsetMode = setting(
        OffsetMode.EXACT,
        "`exact`: a topic whose target holds foreign records is refused; `mapped`: replication appends to them"
        " and keeps an offset map. Topics without foreign records are exact in both modes",
    )
    mapped_from: MappedStart = setting(
        MappedStart.MIRRORMAKER,
        "where a mapped topic continues in the source: `mirrormaker`: where MirrorMaker 2 stopped, proven by"
        " records; or `start` or `end` of the source",
    )
    broadcast: str = setting(
        "", "the broadcast of this link: links of one source with the same broadcast share one read of the source"
    )


def read_links(raw_section: RawSection, complaints: Complaints) -> tuple[Link, ...]:
    """Every link with valid name, clusters and expressions."""
    raw, clusters = raw_section.raw, raw_section.before["clusters"]
    if not isinstance(raw, Mapping):
        complaints.add(raw_section.place, 'must hold one section per link, like [links."east->west"]')
        return ()
    links = [_link(name, section, clusters, complaints) for name, section in raw.items()]
    found = tuple(link for link in links if link is not None)
    for link, sentence in find_mixed_broadcasts(found):
        complaints.add(f'[links."{link.name}"]', sentence)
    return found


def find_mixed_broadcasts(links: Sequence[Link]) -> Iterator[tuple[Link, str]]:
    """Links whose broadcast has another source than earlier links of that name, each with a sentence."""
    first: dict[str, Link] = {}
    for link in links:
        other = first.setdefault(link.broadcast, link)
        if link.broadcast and other.source != link.source:
            both = f"reads {other.source!r}, by {other.name}, and this link {link.source!r}"
            yield link, f"broadcast: {link.broadcast!r} {both}; give it another name"


def _link(name: str, raw: object, clusters: Mapping[str, Cluster], complaints: Complaints) -> Link | None:
    place = f'[links."{name}"]'
    before = len(complaints.lines)
    source, arrow, target = name.partition("->")
    if not arrow or not CLUSTER_NAME.fullmatch(source) or not CLUSTER_NAME.fullmatch(target):
        complaints.add(place, f'is not a link\'s name: write [links."source->target"]{_nearest_link(name, clusters)}')
        source = target = ""
    for side in (source, target):
        if side and side not in clusters:
            complaints.add(place, f"no cluster {side!r}{did_you_mean(side, clusters)}")
    if source:
        _check_sides(source, target, clusters, place, complaints)
    rest, inner = RawSection(raw, place).parted(*SUBSECTIONS)
    if isinstance(rest, dict) and isinstance(rest.get("topic_settings"), Mapping):
        rest["topic_settings"] = flatten_table(rest["topic_settings"])
    values = {}
    for key, read in SUBSECTIONS.items():
        values[key] = read(RawSection(inner[key], f"{place[:-1]}.{key}]"), complaints)
    section = read_section(LinkSection, rest, place, complaints, beside=list(inner))
    if section is None:
        return None
    _check_filters(section, place, complaints)
    if not section.broadcast and values["queue"].fresh:
        remedy = 'give the link a broadcast = "NAME", which may be its alone, or leave policy out'
        sentence = f"policy: only a link of a broadcast drops what is not fresh; {remedy}"
        complaints.add(f"{place[:-1]}.queue]", sentence)
    if len(complaints.lines) > before:
        return None
    return Link(source, target, **shared_fields(section, Link), **values)


def _check_sides(source: str, target: str, clusters: Mapping[str, Cluster], place: str, complaints: Complaints) -> None:
    if source == target:
        complaints.add(place, f"source and target are the same cluster {source!r}")
        return
    cluster, other = clusters.get(source), clusters.get(target)
    shared = set(cluster.bootstrap) & set(other.bootstrap) if cluster and other else set()
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
        if key in TWIN_ONLY_SETTINGS:
            complaints.add(place, f"topic_settings: {key} is Twinshore's own while a topic is a twin")


def read_filters(raw: RawSection, complaints: Complaints) -> LinkSection:
    """The link's filters; adds complaints and returns defaults for faults."""
    section = read_section(LinkSection, raw.raw, raw.place, complaints) or LinkSection()
    _check_filters(section, raw.place, complaints)
    return section


def read_control(raw: RawSection, complaints: Complaints) -> LinkControl:
    """As `read_filters`, for the link's control."""
    place = raw.place
    rest, tables = raw.parted("topic_throttles", "priorities")
    throttles = read_numbers(tables["topic_throttles"], "topic_throttles", 1, THROTTLE_BYTES_S_MAX, place, complaints)
    priorities = read_numbers(tables["priorities"], "priorities", 1, PRIORITY_MAX, place, complaints)
    found = read_section(LinkControl, rest, place, complaints) or LinkControl()
    for name in ("groups", "exclude_groups", "paused_topics"):
        for pattern in getattr(found, name):
            check_pattern(pattern, name, place, complaints)
    return replace(found, topic_throttles=throttles, priorities=priorities)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramUserSection:
    """A SCRAM user of the source that the target shall have too: its password cannot be read from a cluster."""

    password_env: str = setting("", "environment variable that holds the user's password")
    password_file: str = setting("", "file that holds the user's password")


def read_sync_rules(raw: RawSection, complaints: Complaints) -> SyncRules:
    """As `read_filters`, for what the link syncs."""
    place = raw.place
    rest, inner = raw.parted("users")
    found = read_section(SyncRules, rest, place, complaints) or SyncRules()
    users = _users(inner["users"], f"{place[:-1]}.users", complaints)
    for pattern in found.settings_exclude:
        check_pattern(pattern, "settings_exclude", place, complaints)
    if found.principal and not PRINCIPAL.fullmatch(found.principal):
        complaints.add(place, f"principal: {found.principal!r} is not one; did you mean User:{found.principal}?")
    return replace(found, scram_users=found.scram_users or bool(users), users=users)


def _users(raw: object, place: str, complaints: Complaints) -> tuple[tuple[str, Secret], ...]:
    if not isinstance(raw, Mapping):
        complaints.add(f"{place}]", "must hold one section per user")
        return ()
    found: list[tuple[str, Secret]] = []
    for name, user in raw.items():
        here = f"{place}.{name}]"
        section = read_section(ScramUserSection, user, here, complaints)
        if section is None:
            continue
        if bool(section.password_env) == bool(section.password_file):
            complaints.add(here, "needs either password_env or password_file")
        found.append((name, Secret(env=section.password_env, file=section.password_file)))
    return tuple(sorted(found, key=lambda pair: pair[0]))


def read_groups(raw: RawSection, complaints: Complaints) -> GroupRules:
    """As `read_filters`, for consumer groups."""
    rest, inner = raw.parted("outputs")
    outputs = read_outputs(inner["outputs"], raw.place, complaints)
    found = read_section(GroupRules, rest, raw.place, complaints, beside=["outputs"]) or GroupRules()
    return replace(found, outputs=outputs)


def read_outputs(table: object, place: str, complaints: Complaints) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Pairs of an expression for groups and expressions for topics; adds complaints."""
    if not isinstance(table, Mapping):
        complaints.add(place, f"outputs: must be a table like {OUTPUTS_EXAMPLE}, not {table!r}")
        return ()
    found = []
    for groups, topics in table.items():
        texts = topics if isinstance(topics, list) and all(isinstance(one, str) for one in topics) else None
        if not texts:
            sentence = f"must be a list of expressions like {OUTPUTS_EXAMPLE}, not {topics!r}"
            complaints.add(place, f"outputs: {groups!r}: {sentence}")
            continue
        wrong = [why for why in (_wrong(groups), *map(_wrong_topics, texts)) if why]
        for why in wrong:
            complaints.add(place, f"outputs: {why}")
        if not wrong:
            found.append((groups, tuple(texts)))
    return tuple(found)


def unmatched_outputs(
    outputs: tuple[tuple[str, tuple[str, ...]], ...], topics: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Each topic expression that matches none of `topics` for any group name, with a sentence."""
    for expression in dict.fromkeys(text for _, texts in outputs for text in texts):
        pattern = re.compile(expression.replace(GROUP_PLACEHOLDER, ".*"))
        if not any(pattern.fullmatch(topic) for topic in topics):
            near = get_close_matches(expression, topics, n=1, cutoff=SUGGESTION_CUTOFF)
            mean = f"; did you mean {near[0]}?" if near else ""
            yield expression, f"matches no topic that the link replicates now, so no group waits for it{mean}"


def _wrong_topics(text: str) -> str:
    """Replaces the placeholder for the check: a group's name counts literally."""
    return _wrong(text.replace(GROUP_PLACEHOLDER, "g"))


def _wrong(text: str) -> str:
    unknown = _PLACEHOLDER.search(text)
    if unknown:
        known = f"only {GROUP_PLACEHOLDER} does, in an expression for topics"
        return f"{text!r}: {unknown.group()} stands for nothing; {known}"
    return pattern_error(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSection:
    """What is held in memory for a target of a broadcast that is behind the others, and what is dropped."""

    policy: QueuePolicy = setting(
        QueuePolicy.KEEP,
        "`keep`: nothing is dropped, a target that is further behind reads the source by itself; `fresh`: the"
        " oldest records are dropped, each gap with a row in the incident log",
    )
    high_kb: int = setting(
        QUEUE_HIGH_KB,
        "high watermark: maximum size of the queue, for all partitions of a task together",
        low=0,
        high=64 << 20,
    )
    low_kb: int = setting(
        0,
        "low watermark: with `fresh`, the queue is dropped down to this size; 0: half of `high_kb`",
        low=0,
        high=64 << 20,
    )
    parts_max: int = setting(
        10_000,
        "maximum number of fetched parts in the queue; a part is what one fetch brought of one partition",
        low=1,
        high=10_000_000,
    )
    max_age_s: float = setting(0.0, "with `fresh`, older records are dropped; 0: no limit", low=0, high=31536000)
    transactions: bool = setting(
        False,
        "with `fresh`, accept transactional records, though a part of a transaction may be dropped; false:"
        " refuse such topics",
    )


def read_queue(raw: RawSection, complaints: Complaints) -> QueueRules:
    """As `read_filters`, for the queue."""
    section = read_section(QueueSection, raw.raw, raw.place, complaints)
    if section is None:
        return QueueRules()
    _check_queue(section, raw.place, complaints)
    low_kb = section.low_kb or section.high_kb // 2
    sizes = {"high_bytes": section.high_kb << 10, "low_bytes": low_kb << 10}
    return QueueRules(**shared_fields(section, QueueRules) | sizes)


def _check_queue(section: QueueSection, place: str, complaints: Complaints) -> None:
    if section.policy is QueuePolicy.KEEP:
        for name in DROP_OLDEST_KEYS:
            if getattr(section, name):
                sentence = f'{name}: a queue that keeps drops nothing; give it policy = "fresh", or leave {name} out'
                complaints.add(place, sentence)
    for name in ("high_kb", "low_kb"):
        size = getattr(section, name)
        if size < BATCH_KB_MAX and (size or name == "high_kb"):
            batch = f"one batch, which may have {BATCH_KB_MAX} KB where a topic sets no max.message.bytes"
            complaints.add(place, f"{name}: {size} is below {batch}; give it {BATCH_KB_MAX} or more")
    if section.low_kb > section.high_kb:
        complaints.add(place, f"low_kb: {section.low_kb} is above high_kb, {section.high_kb}; give it less")


# In the order of complaints.
SUBSECTIONS: dict[str, Callable[[RawSection, Complaints], Any]] = {
    "control": read_control,
    "follow": read_sync_rules,
    "groups": read_groups,
    "queue": read_queue,
}
_PLACE = 'links."SOURCE->TARGET"'
SECTION = Section(
    "links",
    30,
    (
        (f"[{_PLACE}]", LinkSection),
        (f"[{_PLACE}.control]", LinkControl),
        (f"[{_PLACE}.follow]", SyncRules),
        (f"[{_PLACE}.follow.users.NAME]", ScramUserSection),
        (f"[{_PLACE}.groups]", GroupRules),
        (f"[{_PLACE}.queue]", QueueSection),
    ),
    read_links,
)
