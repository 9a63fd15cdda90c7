"""What a look at both clusters comes to, topic by topic: the steps of a plan as values. Pure.

The driver plans steps and carries them out; what follows, maps, shows or writes down a plan reads them here.
"""

from __future__ import annotations

from dataclasses import dataclass

from twinshore.fleet.incidents import IncidentKind, IncidentSide


@dataclass(frozen=True, slots=True)
class Create:
    """`twin`, here and below: what the twin is called, empty where it has the source's name."""

    topic: str
    partitions: int
    replication: int
    settings: tuple[tuple[str, str], ...]
    twin: str = ""


@dataclass(frozen=True, slots=True)
class Grow:
    """`target_topic_id`, here and below: which topic on the target is meant."""

    topic: str
    partitions: int
    target_topic_id: str
    twin: str = ""


@dataclass(frozen=True, slots=True)
class Settle:
    """Give the twin these settings; it has others."""

    topic: str
    settings: tuple[tuple[str, str], ...]
    target_topic_id: str
    twin: str = ""


@dataclass(frozen=True, slots=True)
class CarryTopic:
    """`starts`: the source's log starts; empty where all are 0. `mapped`: behind data of others, at other offsets."""

    topic: str
    partitions: int
    source_topic_id: str
    target_topic_id: str
    twin: str = ""
    starts: tuple[int, ...] = ()
    mapped: bool = False


@dataclass(frozen=True, slots=True)
class Refuse:
    """`kind` is the ledger's."""

    topic: str
    kind: IncidentKind
    sentence: str
    hint: str
    side: IncidentSide | None = None


@dataclass(frozen=True, slots=True)
class Stay:
    """Nothing is wrong with it; it is a twin that does not go on."""

    topic: str
    sentence: str


@dataclass(frozen=True, slots=True)
class AtHome:
    """The link carries it because it is written on the link's source."""

    topic: str
    home: str


@dataclass(frozen=True, slots=True)
class Rest:
    """A partition that an open incident has stopped: the rest of its topic is carried without it."""

    topic: str
    partition: int
    incident: int
    kind: IncidentKind
    sentence: str
    retries: bool


Step = Create | Grow | Settle | CarryTopic | Refuse | AtHome | Stay | Rest
