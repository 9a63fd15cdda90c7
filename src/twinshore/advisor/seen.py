"""What was seen of a cluster, as values. Pure: rules judge these and nothing else.

What could not be seen is a value as well (`Unseen`), so that nothing passes because nobody could look at it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from twinshore.kafka.rights import Acl

OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARES_TOPIC = "__consumer_offsets", "__transaction_state", "__share_group_state"
NO_LEADER = -1
# The metadata.version from which on brokers take no more replicas for needed than there are: that of Kafka 3.7.
CAPS_MIN_ISR = 15


@dataclass(frozen=True, slots=True)
class Known:
    """A setting's value in force. `own`: set on the topic itself; otherwise brokers or Kafka's default say so."""

    value: str
    own: bool = False


@dataclass(frozen=True, slots=True)
class Broker:
    """`settings` is None where they could not be seen. `supports` is the highest metadata.version that its program
    knows, 0 where it could not be asked."""

    node: int
    rack: str = ""
    settings: Mapping[str, Known] | None = None
    supports: int = 0

    @property
    def caps_min_isr(self) -> bool:
        """Whether it takes min.insync.replicas for no more than there are; older ones take nothing with acks=all then,
        and so may one whose version could not be seen."""
        return self.supports >= CAPS_MIN_ISR

    def number(self, setting: str) -> int | None:
        """The setting as a number; None where it could not be seen."""
        return _number(self.settings, setting)

    def says(self, setting: str) -> str | None:
        """The setting as text; None where it could not be seen."""
        return _text(self.settings, setting)


@dataclass(frozen=True, slots=True)
class Partition:
    """`replicas` are in the order of assignment, the preferred leader first; `leader` is -1 where there is none. Of a
    partition on the move they are those of before: `adding` are copied now, and may be in sync already; `removing` go
    once those are."""

    number: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def moves(self) -> bool:
        return bool(self.adding or self.removing)


@dataclass(frozen=True, slots=True)
class Topic:
    """`settings` is None where they could not be seen."""

    name: str
    partitions: tuple[Partition, ...]
    settings: Mapping[str, Known] | None = None
    internal: bool = False

    @property
    def copies(self) -> int:
        """Of the partition that has the fewest."""
        return min((len(one.replicas) for one in self.partitions), default=0)

    @property
    def settled(self) -> bool:
        """Each partition has a leader and all of its replicas in sync, and none is on the move. Otherwise a change of
        min.insync.replicas may harm: it makes the cluster forget its eligible leader replicas, and the last that could
        lead may be one."""
        return not self.moves and all(
            one.leader != NO_LEADER and set(one.replicas) <= set(one.isr) for one in self.partitions
        )

    @property
    def moves(self) -> bool:
        """A partition of it is given other replicas right now."""
        return any(one.moves for one in self.partitions)

    def number(self, setting: str) -> int | None:
        return _number(self.settings, setting)

    def says(self, setting: str) -> str | None:
        return _text(self.settings, setting)

    def owns(self, setting: str) -> bool:
        """Whether the setting is set on the topic itself."""
        known = (self.settings or {}).get(setting)
        return known is not None and known.own


@dataclass(frozen=True, slots=True)
class Before:
    """The same place at an earlier look, `apart_s` before."""

    offset: int
    log_end: int
    apart_s: float


@dataclass(frozen=True, slots=True)
class GroupPlace:
    """Where a group reads on in a partition. `next_age_ms`: how old the next record is that it will read, None where
    that was not asked or not told. `waits`: that record has waited for so long that a group at work would have read it,
    None where that was not told. `markers`: so many of the offsets that are left, where these are few, are those of
    markers of transactions, which no consumer is given."""

    topic: str
    partition: int
    offset: int
    log_start: int
    log_end: int
    before: Before | None = None
    next_age_ms: int | None = None
    waits: bool | None = None
    markers: int = 0

    @property
    def lag(self) -> int:
        """Records to read."""
        return max(0, self.offsets_left - self.markers)

    @property
    def offsets_left(self) -> int:
        return max(0, self.log_end - max(self.offset, self.log_start))

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Group:
    """`unplaced`: partitions with records where it has no place, of topics in which it has others, or which a member
    of it holds now."""

    name: str
    live: bool
    places: tuple[GroupPlace, ...]
    unplaced: tuple[str, ...] = ()

    def by_topic(self) -> dict[str, list[GroupPlace]]:
        found: dict[str, list[GroupPlace]] = {}
        for place in self.places:
            found.setdefault(place.topic, []).append(place)
        return found


def with_places(groups: Iterable[Group], judged: Callable[[GroupPlace], GroupPlace]) -> tuple[Group, ...]:
    """The same groups, with each place as it is judged."""
    return tuple(replace(group, places=tuple(map(judged, group.places))) for group in groups)


@dataclass(frozen=True, slots=True)
class TwinSeen:
    """The twin of a topic. `lag`: records that it lacks, None where nobody knows. `stopped`: partitions that are not
    carried. `differs`: setting, what the twin has, what it should have; None is Kafka's default."""

    topic: str
    name: str
    lag: int | None
    stopped: int
    differs: tuple[tuple[str, str | None, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class LinkSeen:
    """A link from the cluster. `bootstrap` and `secured` are its target's; `runs`: a mirror says now how it stands.
    `lacks`: ACLs that the target should have, `left`: those that the mirror wrote there and that should be gone.
    `open`: the cluster has an authorizer, and the target has none."""

    name: str
    bootstrap: tuple[str, ...]
    secured: bool
    runs: bool
    says: str
    twins: tuple[TwinSeen, ...] = ()
    incidents: tuple[str, ...] = ()
    lacks: tuple[Acl, ...] = ()
    left: tuple[Acl, ...] = ()
    open: bool = False


@dataclass(frozen=True, slots=True)
class Unseen:
    """Something that nobody could look at from here, why, and what would let it be seen."""

    what: str
    why: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """One look. `finalized` is the metadata.version that the cluster works by, 0 where it was not told. `eligible`: it
    elects eligible leader replicas. `secured`: clients need settings of their own to reach it. `in_part`: there may be
    topics beside these, which nobody wanted looked at."""

    cluster: str
    bootstrap: tuple[str, ...]
    at_ms: int
    cluster_id: str = ""
    secured: bool = False
    finalized: int = 0
    eligible: bool = False
    in_part: bool = False
    brokers: tuple[Broker, ...] = ()
    topics: tuple[Topic, ...] = ()
    groups: tuple[Group, ...] = ()
    links: tuple[LinkSeen, ...] = ()
    unseen: tuple[Unseen, ...] = ()
    racks: Mapping[int, str] = field(init=False, repr=False, compare=False)
    # What `placed` has worked out for so many copies: each rule asks for it, of each topic.
    placed: dict[int, Mapping[str, Mapping[int, Sequence[int]]]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    _by_name: Mapping[str, Topic] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "racks", {one.node: one.rack for one in self.brokers})
        object.__setattr__(self, "_by_name", {one.name: one for one in self.topics})

    def min_isr_that_counts(self, minimum: int, copies: int) -> int:
        """Since Kafka 3.7 a partition with fewer replicas than min.insync.replicas asks for takes records as if it
        asked for as many as there are, both to take them and to acknowledge them."""
        return min(minimum, copies) if self.capped else minimum

    @property
    def capped(self) -> bool:
        """Whether that is so of every broker that may lead."""
        return bool(self.brokers) and all(one.caps_min_isr for one in self.brokers)

    def topic(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def own_topics(self) -> Iterable[Topic]:
        """Those of applications, not Kafka's own."""
        return (one for one in self.topics if not one.internal)


def _number(settings: Mapping[str, Known] | None, setting: str) -> int | None:
    text = _text(settings, setting)
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None


def _text(settings: Mapping[str, Known] | None, setting: str) -> str | None:
    known = (settings or {}).get(setting)
    return known.value if known is not None else None
