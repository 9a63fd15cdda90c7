"""How a link stands: its word and its sentence, decided here alone from facts that others hand in. Pure."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from twinshore.fleet import NamedPartition
from twinshore.fleet.sentences import counted

FLOWING, WAITING, PAUSED, STANDBY, STOPPED = "flowing", "waiting", "paused", "standby", "stopped"
# How a mirror was stopped whose lease is not given back: the next one waits until it has run out.
STOPPED_SO = "the mirror was stopped; not all pumps said so, or what they had sent may still land"
# What a reader says where no mirror's word holds.
UNKNOWN = "unknown"
STATES = (FLOWING, WAITING, STANDBY, PAUSED, STOPPED, UNKNOWN)
# A look that fails for so long holds up topics that an operator waits for.
LASTING_S = 60.0


@dataclass(frozen=True, slots=True)
class Idle:
    """This process does not carry the link: it stands by, or it has stopped. The sentence says why."""

    word: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Carrying:
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
    def lasting(self) -> bool:
        """Whether topics that are on no lane have waited for a look for long."""
        return self.hindered_s >= LASTING_S

    @property
    def stands(self) -> bool:
        """Whether nothing at all crosses, though there is something that should."""
        wanted = self.placed + self.resting + self.refused + bool(self.trouble)
        return wanted > 0 and self.placed <= self.unmanned + self.away


def carrying(
    placed: Set[NamedPartition], unmanned: Set[NamedPartition], away: Set[NamedPartition], of: Carrying
) -> Carrying:
    """With these partitions in numbers, each once: what was told of one that is on no lane by now says nothing of the
    link. `of`: the rest."""
    alone = unmanned & placed
    return replace(of, placed=len(placed), unmanned=len(alone), away=len((away & placed) - alone))


Facts = Idle | Carrying


def link_state(now: Facts, away: Sequence[str] = (), held_back: str = "") -> tuple[str, str]:
    """The word and its sentence. `away`: why nothing can cross by a side now. `held_back`: what quotas let through."""
    if isinstance(now, Idle):
        return now.word, now.sentence
    besides = [*away, *([now.trouble] if now.trouble else [])]
    if now.paused:
        said = f"{counted(now.placed, 'partition')} still on their lanes" if now.placed else "nothing is carried"
        return PAUSED, f"{said}; besides, {'; '.join(besides)}" if besides else said
    parts = _parts(now) if now.placed or now.resting or now.refused or not now.trouble else []
    sentence = "; ".join([*besides, *parts])
    return (WAITING, sentence) if now.stands or now.lasting or away else (FLOWING, sentence + held_back)


def _parts(now: Carrying) -> list[str]:
    """What is carried, and what is not."""
    parts = [f"{counted(now.placed, 'partition')} on {counted(now.lanes, 'lane')}"]
    if now.refused:
        parts[0] += f", {counted(now.refused, 'topic')} refused"
    if now.elsewhere:
        parts[0] += f", {counted(now.elsewhere, 'topic')} at home on the target"
    if now.homeless:
        parts[0] += f", {counted(now.homeless, 'topic')} without a home yet"
    if now.resting:
        parts.append(f"{counted(now.resting, 'partition')} stopped by incidents")
    if now.away:
        parts.append(f"{counted(now.away, 'partition')} whose leader is away")
    if now.unmanned:
        parts.append(f"{counted(now.unmanned, 'partition')} without a pump, until one has started")
    if now.apart:
        parts.append(f"{counted(now.apart, 'lane')} apart: tasks that it shared with other links ended in its turns")
    if now.lasting:
        parts.append("topics on no lane yet are not carried until a look at both clusters has ended")
    if now.aligning:
        parts.append(now.aligning)
    return parts
