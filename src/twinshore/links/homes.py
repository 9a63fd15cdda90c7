"""Where topics are at home, and so which link of a pair carries them. Pure.

A **pair** is two links between the same clusters, one each way, that give twins their source's name. A topic that both
admit could go round for ever. So each topic has one **home**, the cluster where it is written: the link whose source
that is carries it, the other link lets it be. The home is a row of the store, and the first row decides. It is born
where only one answer is possible: from a twin, or from records that one cluster alone holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from twinshore.fleet import Link, Naming, is_heartbeats
from twinshore.links.filters import admits
from twinshore.store.values import HomeRow

BETWEEN = "<>"


class Why(Enum):
    """What a topic's home was born from, or why it has none."""

    TWIN = "a link of the pair carries it from there"
    RECORDS = "there alone it holds records"
    EMPTY = "it is empty on both sides"
    UNTOLD = "it cannot be told now whether both sides hold records of it"
    BOTH_WRITTEN = "both sides hold records of it, and neither is the other's twin"
    BOTH_TWINS = "each link of the pair says that its twin is the other's source"


@dataclass(frozen=True, slots=True)
class Birth:
    """`home` is empty where the topic has none."""

    home: str
    why: Why

    @property
    def contested(self) -> bool:
        """Whether only an operator can say which side is the home."""
        return self.why in (Why.BOTH_WRITTEN, Why.BOTH_TWINS)


@dataclass(frozen=True, slots=True)
class Held:
    """What is known of a topic without a home. `source`, `target`: whether a record was ever written there, None where
    that cannot be told. `ours`, `theirs`: whether the link, or its counterpart, carries the topic to a twin."""

    source: bool | None
    target: bool | None
    ours: bool = False
    theirs: bool = False


def pair_of(link: Link) -> str:
    """What the two clusters of the link are called together, whichever way it goes."""
    return BETWEEN.join(sorted((link.source, link.target)))


def of_topic(pair: str, rows: Iterable[HomeRow]) -> HomeRow | None:
    """Where a topic is at home by the rows of all pairs that hang together with this one: the latest term stands. A
    topic of this name between other clusters is another one."""
    left, near, found = list(rows), set(pair.split(BETWEEN)), list[HomeRow]()
    while ours := [row for row in left if near.intersection(row.pair.split(BETWEEN))]:
        left = [row for row in left if row not in ours]
        found += ours
        near.update(name for row in ours for name in row.pair.split(BETWEEN))
    return max(found, key=lambda row: (row.term, row.pair == pair), default=None)


def counterpart(link: Link, links: Iterable[Link]) -> Link | None:
    """The link the other way, where the two are a pair."""
    if link.naming is not Naming.SAME:
        return None
    back = (link.target, link.source)
    return next((one for one in links if (one.source, one.target) == back and one.naming is Naming.SAME), None)


def shares(topic: str, *counterparts: Link) -> bool:
    """Whether the link the other way admits the topic too. `counterparts`: that link as its settings have it, and as
    its operators do."""
    return not is_heartbeats(topic) and any(admits(one, topic) for one in counterparts)


def born(link: Link, held: Held) -> Birth:
    """The home of a topic that has none yet, as far as only one answer is possible."""
    if held.ours and held.theirs:
        return Birth("", Why.BOTH_TWINS)
    if held.ours or held.theirs:
        return Birth(link.source if held.ours else link.target, Why.TWIN)
    if held.source and held.target:
        return Birth("", Why.BOTH_WRITTEN)
    if held.source is None or held.target is None:
        return Birth("", Why.UNTOLD)
    if held.source or held.target:
        return Birth(link.source if held.source else link.target, Why.RECORDS)
    return Birth("", Why.EMPTY)


def elsewhere(link: Link, homes: Mapping[str, HomeRow]) -> dict[str, HomeRow]:
    """The topics that the link does not carry because their home is not its source."""
    if link.naming is not Naming.SAME:
        return {}
    return {topic: row for topic, row in homes.items() if row.home != link.source}


def strayed(held: Held) -> bool:
    """Whether a topic whose home is said to be the target is written on the source by now: it was made again there, and
    the home has it no more."""
    return held.source is True and held.target is False


def brought(link: Link, homes: Mapping[str, HomeRow]) -> frozenset[str]:
    """The topics whose home became the link's source after it had been another, or by somebody's word: what is told of
    where they came from is past. A home in its first term is only what was seen, and a known twin counts for more."""
    if link.naming is not Naming.SAME:
        return frozenset()
    return frozenset(topic for topic, row in homes.items() if row.home == link.source and row.term > 1)


def in_words(link: Link, topic: str, birth: Birth) -> str:
    """Why the topic has no home."""
    both = f"{link.source} and {link.target}"
    match birth.why:
        case Why.EMPTY:
            return f"topic {topic} is empty on {both}: it has no home yet, and is carried once either holds a record"
        case Why.BOTH_WRITTEN:
            return f"topic {topic} holds records on {both}, and neither is the other's twin: it has no home"
        case Why.BOTH_TWINS:
            return f"topic {topic} on {both}: each link of the pair says that its twin is the other's source"
        case _:
            return f"topic {topic} has no home yet: {birth.why.value} ({both})"


def strayed_in_words(topic: str, row: HomeRow, link: Link) -> str:
    """Why nobody carries the topic."""
    return (
        f"topic {topic} holds records on {link.source}, and its home {row.home} holds none: it was made again away "
        "from its home, and nobody carries it"
    )


def hint_for(topic: str, link: Link) -> str:
    """How an operator decides."""
    return (
        f"`twinshore link home {topic} {link.source}`, or `{link.target}`: what the other cluster holds is then in the "
        "twin's way; or exclude the topic from one of the links"
    )


def at_home_in_words(topic: str, row: HomeRow, link: Link) -> str:
    """Why the link lets the topic be."""
    return f"topic {topic} is at home on {row.home}, where it is written: {link.name} does not carry it"
