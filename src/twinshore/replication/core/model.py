"""How a link stands: its word and its sentence, decided here alone from facts that others hand in. Pure.

What a look at both clusters comes to, topic by topic: the steps of a plan as values. Pure.

The driver plans steps and carries them out; what follows, maps, shows or writes down a plan reads them here.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from twinshore.config.incident_policy import IncidentKind, IncidentSide
from twinshore.config.model import TopicPartition
from twinshore.config.sentences import count_phrase

FLOWING, WAITING, PAUSED, STANDBY, STOPPED = "flowing", "waiting", "paused", "standby", "stopped"
# How a mirror was stopped whose lease is not given back: the next one waits until it has run out.
STOPPED_UNCONFIRMED = "the mirror was stopped; not all pumps said so, or what they had sent may still land"
# What a reader says where no mirror's word holds.
UNKNOWN = "unknown"
STATES = (FLOWING, WAITING, STANDBY, PAUSED, STOPPED, UNKNOWN)
# A look that fails for so long holds up topics that an operator waits for.
SCAN_STALLED_S = 60.0


@dataclass(frozen=True, slots=True)
class InactiveLink:
    """This process does not carry the link: it stands by, or it has stopped. The sentence says why."""

    word: str
    sentence: str


@dataclass(frozen=True, slots=True)
class ActiveLink:
    """What a link carries now. `placed`: partitions on lanes; of these, `unmanned` are on lanes that no pump carries
    now, and `away` are carried and have a leader that is. `resting`: partitions that incidents stopped. `refused`:
    topics. `paused`: the whole link, by an operator. `trouble`: what failed at the last look, or as the link began;
    `hindered_s`: for how long no look has ended, each for something that may pass by itself. `elsewhere`: topics at
    home on the target, which the link the other way carries. `homeless`: topics that are empty on both sides yet.
    `apart`: lanes that share a Spark task with no other for now, since such tasks ended in their turns."""

    placed: int
    lanes: int
    unmanned: int = 0
    away: int = 0
    resting: int = 0
    refused: int = 0
    aligning: str = ""
    paused: bool = False
    trouble: str = ""
    hindered_s: float = 0.0
    elsewhere: int = 0
    homeless: int = 0
    apart: int = 0

    @property
    def scan_stalled(self) -> bool:
        """Whether topics that are on no lane have waited for a look for long."""
        return self.hindered_s >= SCAN_STALLED_S

    @property
    def stands(self) -> bool:
        """Whether nothing at all crosses, though there is something that should."""
        wanted = self.placed + self.resting + self.refused + bool(self.trouble)
        return wanted > 0 and self.placed <= self.unmanned + self.away


def count_partitions(
    placed: Set[TopicPartition], unmanned: Set[TopicPartition], away: Set[TopicPartition], of: ActiveLink
) -> ActiveLink:
    """With these partitions in numbers, each once: what was told of one that is on no lane by now says nothing of the
    link. `of`: the rest."""
    alone = unmanned & placed
    return replace(of, placed=len(placed), unmanned=len(alone), away=len((away & placed) - alone))


LinkFacts = InactiveLink | ActiveLink


def describe_link_state(now: LinkFacts, away: Sequence[str] = (), held_back: str = "") -> tuple[str, str]:
    """The word and its sentence. `away`: why nothing can cross by a side now. `held_back`: what quotas let through."""
    if isinstance(now, InactiveLink):
        return now.word, now.sentence
    besides = [*away, *([now.trouble] if now.trouble else [])]
    if now.paused:
        said = f"{count_phrase(now.placed, 'partition')} still on their lanes" if now.placed else "nothing is carried"
        return PAUSED, f"{said}; besides, {'; '.join(besides)}" if besides else said
    parts = _parts(now) if now.placed or now.resting or now.refused or not now.trouble else []
    sentence = "; ".join([*besides, *parts])
    return (WAITING, sentence) if now.stands or now.scan_stalled or away else (FLOWING, sentence + held_back)


def _parts(now: ActiveLink) -> list[str]:
    """What is carried, and what is not."""
    parts = [f"{count_phrase(now.placed, 'partition')} on {count_phrase(now.lanes, 'lane')}"]
    if now.refused:
        parts[0] += f", {count_phrase(now.refused, 'topic')} refused"
    if now.elsewhere:
        parts[0] += f", {count_phrase(now.elsewhere, 'topic')} at home on the target"
    if now.homeless:
        parts[0] += f", {count_phrase(now.homeless, 'topic')} without a home yet"
    if now.resting:
        parts.append(f"{count_phrase(now.resting, 'partition')} stopped by incidents")
    if now.away:
        parts.append(f"{count_phrase(now.away, 'partition')} whose leader is away")
    if now.unmanned:
        parts.append(f"{count_phrase(now.unmanned, 'partition')} without a pump, until one has started")
    if now.apart:
        parts.append(
            f"{count_phrase(now.apart, 'lane')} apart: tasks that it shared with other links ended in its turns"
        )
    if now.scan_stalled:
        parts.append("topics on no lane yet are not carried until a look at both clusters has ended")
    if now.aligning:
        parts.append(now.aligning)
    return parts


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


PlanStep = Create | Grow | Settle | CarryTopic | Refuse | AtHome | Stay | Rest
