"""A link's state, and the steps of a plan, as values."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from twinshore.config.incident_policy import IncidentKind, IncidentSide
from twinshore.config.model import TopicPartition
from twinshore.config.sentences import count_phrase

FLOWING, WAITING, PAUSED, STANDBY, STOPPED = "flowing", "waiting", "paused", "standby", "stopped"
# The mirror stopped without releasing the lease: the next one waits until the lease has expired.
STOPPED_UNCONFIRMED = "the mirror was stopped; not all tasks said so, or what they had sent may still land"
# The state when no status is fresh.
UNKNOWN = "unknown"
STATES = (FLOWING, WAITING, STANDBY, PAUSED, STOPPED, UNKNOWN)
# After so long, failing turns hold up topics that an operator waits for.
SCAN_STALLED_S = 60.0


@dataclass(frozen=True, slots=True)
class InactiveLink:
    """A standby, or stopped; `sentence` says why."""

    word: str
    sentence: str


@dataclass(frozen=True, slots=True)
class ActiveLink:
    """A running link. `placed`: partitions on tasks; `unmanned`: those on tasks without a holder; `away`: those with a
    holder but no leader. `resting`: partitions stopped by incidents. `refused`: topics. `paused`: the whole link, by an
    operator. `trouble`: the last turn's failure; `hindered_s`: for how long no turn has completed, for reasons that may
    pass. `elsewhere`: topics whose home is the target. `homeless`: topics that are empty on both sides. `apart`: tasks
    in quarantine.
    """

    placed: int
    tasks: int
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
        """Whether new topics have waited long for a survey."""
        return self.hindered_s >= SCAN_STALLED_S

    @property
    def stands(self) -> bool:
        """Whether nothing is replicated, though something should be."""
        wanted = self.placed + self.resting + self.refused + bool(self.trouble)
        return wanted > 0 and self.placed <= self.unmanned + self.away


def count_partitions(
    placed: Set[TopicPartition], unmanned: Set[TopicPartition], away: Set[TopicPartition], of: ActiveLink
) -> ActiveLink:
    """Counts each partition once, without those that are on no task now. `of`: the other figures."""
    alone = unmanned & placed
    return replace(of, placed=len(placed), unmanned=len(alone), away=len((away & placed) - alone))


LinkFacts = InactiveLink | ActiveLink


def describe_link_state(now: LinkFacts, away: Sequence[str] = (), held_back: str = "") -> tuple[str, str]:
    """Returns state and sentence. `away`: why a side lets nothing through now. `held_back`: the quotas' limits."""
    if isinstance(now, InactiveLink):
        return now.word, now.sentence
    besides = [*away, *([now.trouble] if now.trouble else [])]
    if now.paused:
        placed = f"{count_phrase(now.placed, 'partition')} still on their tasks"
        paused = placed if now.placed else "nothing is replicated"
        return PAUSED, f"{paused}; besides, {'; '.join(besides)}" if besides else paused
    parts = _parts(now) if now.placed or now.resting or now.refused or not now.trouble else []
    sentence = "; ".join([*besides, *parts])
    return (WAITING, sentence) if now.stands or now.scan_stalled or away else (FLOWING, sentence + held_back)


def _parts(now: ActiveLink) -> list[str]:
    parts = [f"{count_phrase(now.placed, 'partition')} on {count_phrase(now.tasks, 'task')}"]
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
        parts.append(f"{count_phrase(now.unmanned, 'partition')} without a task, until one has started")
    if now.apart:
        parts.append(
            f"{count_phrase(now.apart, 'task')} apart: tasks that it shared with other links ended in its turns"
        )
    if now.scan_stalled:
        parts.append("topics on no task yet are not replicated until a survey of both clusters has ended")
    if now.aligning:
        parts.append(now.aligning)
    return parts


@dataclass(frozen=True, slots=True)
class Create:
    """`twin`, here and below: the twin's name; empty: the source's."""

    topic: str
    partitions: int
    replication: int
    settings: tuple[tuple[str, str], ...]
    twin: str = ""


@dataclass(frozen=True, slots=True)
class Grow:
    """`target_topic_id`, here and below: identifies the target's topic."""

    topic: str
    partitions: int
    target_topic_id: str
    twin: str = ""


@dataclass(frozen=True, slots=True)
class Settle:
    topic: str
    settings: tuple[tuple[str, str], ...]
    target_topic_id: str
    twin: str = ""


@dataclass(frozen=True, slots=True)
class CarryTopic:
    """`starts`: the source's log starts; empty: all 0. `mapped`: after data of others, with other offsets."""

    topic: str
    partitions: int
    source_topic_id: str
    target_topic_id: str
    twin: str = ""
    starts: tuple[int, ...] = ()
    mapped: bool = False


@dataclass(frozen=True, slots=True)
class Refuse:
    """`kind`: as in the incident log."""

    topic: str
    kind: IncidentKind
    sentence: str
    hint: str
    side: IncidentSide | None = None


@dataclass(frozen=True, slots=True)
class Stay:
    """Leave the topic, such as a twin that is not replicated further."""

    topic: str
    sentence: str


@dataclass(frozen=True, slots=True)
class AtHome:
    """The topic's home is the link's source."""

    topic: str
    home: str


@dataclass(frozen=True, slots=True)
class Rest:
    """A partition that an open incident stops; the rest of the topic is replicated."""

    topic: str
    partition: int
    incident: int
    kind: IncidentKind
    sentence: str
    retries: bool


PlanStep = Create | Grow | Settle | CarryTopic | Refuse | AtHome | Stay | Rest
