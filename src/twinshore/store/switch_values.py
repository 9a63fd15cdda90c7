"""What the store keeps of switches, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from twinshore.store.values import SourceProducer


class Asked(StrEnum):
    """What a switch asks of the mirror that carries its topics."""

    ANNOUNCED = "announced"  # Nothing yet: it goes on.
    LET_GO = "let go"


@dataclass(frozen=True, slots=True)
class TopicInSwitch:
    """A topic that a switch moves just now. `link` carries it, from the old home; `let_go_ms` is when it let the topic
    go as asked, 0 until then."""

    pair: str
    topic: str
    switch_id: str
    link: str
    asked: Asked
    asked_ms: int
    let_go_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """Another home for a topic. `link` carried it until now; `back` carries it from now on, empty where none does, onto
    the log that was its source: that log is the topic's own below `points`, one for each partition.

    `torn`: by force, so that some of the old home's records may never have crossed; what had is kept then.

    Topic ids are those that `back` sees: its source is the new home. `back` writes the topic with `term` added to its
    epoch: the fences of earlier switches, each one more than the epoch of an earlier term, never reach that.
    """

    pair: str
    topic: str
    home: str
    term: int
    link: str
    back: str
    source_topic_id: str
    target_topic_id: str
    points: tuple[int, ...]
    since_ms: int
    set_by: str
    torn: bool = False


@dataclass(frozen=True, slots=True)
class Crossing:
    """What is known of a partition whose topic moved by force: the old home's records below `to_offset` had crossed,
    and `producers` had written them, with the last batches of each. `all_known`: none of those is forgotten that wrote
    not long before."""

    term: int
    to_offset: int
    all_known: bool
    producers: tuple[SourceProducer, ...] = ()


@dataclass(frozen=True, slots=True)
class GuardRow:
    """Which twins on this cluster are kept from other writers than their link, and which of its ACLs were changed for
    that, as JSON."""

    cluster: str
    guard: str
    changed_ms: int


@dataclass(frozen=True, slots=True)
class SwitchRow:
    """A switch of topics that were at home on `source`, to `target`. `record` is JSON; `ended_ms` is None while it is
    open."""

    id: str
    kind: str
    source: str
    target: str
    state: str
    record: str
    set_by: str
    begun_ms: int
    changed_ms: int
    ended_ms: int | None = None
