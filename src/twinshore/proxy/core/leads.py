"""Where the clusters' own words lead a topic's clients, and which writers a switch holds. Pure.

A word stands on the clusters themselves, so it is known at once and without the store. It says whether a topic left
its old home in good order. Of such a topic the old home knows what each producer wrote last. Of one that came by force
the mirror's receipts do, as far as it has told the store.

A producer's id has two more things in it, in bits that brokers do not use. From bit 48 on: the *mark* of the cluster
that gave the id, so that no other producer of any cluster has the same. From bit 40 on, eight bits: the *stamp* of the
term in which a topic is written. Clients know their ids without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from crc32c import crc32c

from twinshore.fleet.errors import ConfigError
from twinshore.homes.home_lines import FORCED, PLANNED, Clash, HomeLine, HomeState
from twinshore.store.switch_values import Crossing
from twinshore.store.values import SourceBatch

_MARK_SHIFT: Final = 48
_MARKS: Final = (1 << 14) - 1
_STAMP_SHIFT: Final = 40
STAMPS: Final = 1 << 8
# Producers are forgotten there: nobody knows how much they wrote.
UNBOUNDED: Final = 1 << 62


def mark_of(cluster_id: str) -> int:
    """What the ids begin with that this cluster gave to producers: above those that brokers give by themselves."""
    return crc32c(cluster_id.encode()) % _MARKS + 1


def check_marks(ids: Mapping[str, str]) -> None:
    """Of clusters by their names. ConfigError where two of them would give producers the same ids."""
    names: dict[int, str] = {}
    for name, cluster_id in ids.items():
        if (first := names.setdefault(mark_of(cluster_id), name)) != name:
            raise ConfigError(
                f"clusters {first} and {name} mark the ids of producers alike: two producers could have the same one",
                hint="leave one of them out of [proxy] clusters",
            )


def mark_in(producer_id: int) -> int:
    """Below 1 where no proxy marked it."""
    return producer_id >> _MARK_SHIFT


def marked(producer_id: int, mark: int) -> int:
    return producer_id | mark << _MARK_SHIFT


def unmarked(producer_id: int) -> int:
    """As the cluster gave it."""
    return producer_id & ((1 << _MARK_SHIFT) - 1)


def stamp_of(term: int) -> int:
    """With what the producers of a topic are told apart in this term. A broker that had the topic before remembers how
    far they had come then, and would refuse them now."""
    return max(0, term - 1) % STAMPS


def stamped(producer_id: int, stamp: int) -> int:
    """The id under which a producer of the proxy's clients writes; another one's stays as it is."""
    if mark_in(producer_id) <= 0 or producer_id >> _STAMP_SHIFT & STAMPS - 1:
        return producer_id
    return producer_id | stamp << _STAMP_SHIFT


def unstamped(producer_id: int) -> int:
    """As its client knows it."""
    return producer_id & ~(STAMPS - 1 << _STAMP_SHIFT)


def stamp_in(producer_id: int) -> int | None:
    """Of an id that a client of a proxy writes under; None for another one's."""
    return producer_id >> _STAMP_SHIFT & STAMPS - 1 if mark_in(producer_id) > 0 else None


class Lead(NamedTuple):
    """`cluster`: as the proxy calls it, None where it is none of its own. `held`: writers wait, for a switch, which
    is under way where it `moves`; `ran_out`: its hold ended by time alone. `came`: where the topic was at home before,
    if it left in good order and not long ago; `torn`: if it came by force, not long ago, by what this link had carried.
    `sound`: the first of the terms in a row since which it has moved in good order, as far as is known. `points`: at
    which offset each partition came: there ends what the link had carried."""

    cluster: str | None
    term: int
    held: bool = False
    came: str = ""
    moves: bool = False
    sound: int = 0
    torn: str | None = None
    points: tuple[int, ...] = ()
    ran_out: bool = False


class Wrote(NamedTuple):
    """What a producer wrote last to a partition, where the topic was at home before; or, where that is gone, what of it
    had crossed. Then something may be `lost` behind it, and of the last `batches` it is known where they are."""

    epoch: int
    last: int
    lost: bool = False
    batches: tuple[SourceBatch, ...] = ()


def leads_of(
    told: Mapping[str, HomeLine | Clash], names: Mapping[str, str], before: Mapping[str, Lead], since_ms: int
) -> dict[str, Lead]:
    """By topic. `names` are the proxy's, by cluster id; `before` is what was said last. Of what came before `since_ms`
    no producer sends anything again that the old home would know. A topic that no switch has had is led by its copies.
    """
    return {
        topic: _lead(one, names, before.get(topic), since_ms)
        for topic, one in told.items()
        if isinstance(one, Clash) or not one.is_first
    }


def _lead(told: HomeLine | Clash, names: Mapping[str, str], before: Lead | None, since_ms: int) -> Lead:
    if isinstance(told, Clash):
        # Nobody knows which one stands, so nobody writes. Whichever will is news.
        return (before or Lead(None, told.one.term - 1, sound=told.one.term - 1))._replace(held=True)
    came, sound, torn = "", told.term, None
    # Clocks differ: what was heard to move moved just now.
    is_news = told.since_ms >= since_ms or (before is not None and before.term < told.term)
    if before is not None and before.term == told.term:
        came, sound, torn = before.came, before.sound, before.torn
    elif told.how == FORCED and is_news:
        torn = told.link
    elif told.how == PLANNED and is_news:
        came, sound = told.source, told.term - 1
        if before is not None and before.term == told.term - 1:
            sound = min(sound, before.sound)
    held, moves = told.state is HomeState.HELD, told.state is not HomeState.SETTLED
    return Lead(names.get(told.cluster_id), told.term, held, came, moves, sound, torn, told.points, told.ran_out)


def wrote_of(states: Iterable[tuple[int, int, int]], lead: Lead) -> dict[int, Wrote]:
    """By producers' ids as their clients know them: of ids, epochs and last sequences as brokers tell them of earlier
    terms. What each did in the latest of them counts."""
    found: dict[int, tuple[int, Wrote]] = {}
    now = stamp_of(lead.term)
    for producer_id, epoch, last in states:
        stamp = stamp_in(producer_id)
        age = (now - stamp) % STAMPS if stamp is not None else 0
        if not 0 < age <= lead.term - lead.sound or last < 0:
            continue
        known = unstamped(producer_id)
        if known not in found or age < found[known][0]:
            found[known] = age, Wrote(epoch, last)
    return {known: wrote for known, (_, wrote) in found.items()}


class Crossed(NamedTuple):
    """Of a topic that came by force, by partition: what its producers had written that crossed, by their ids as clients
    know them. `unsure`: where more had crossed than is known of, and how much more, at most."""

    wrote: Mapping[tuple[str, int], Mapping[int, Wrote]]
    unsure: Mapping[tuple[str, int], int]


def crossed_of(topic: str, lead: Lead, known: Mapping[tuple[str, int], Crossing]) -> Crossed:
    """By what the store has of it. What had crossed is known by the ids of the term before alone: of earlier terms
    nobody sends anything again."""
    wrote: dict[tuple[str, int], Mapping[int, Wrote]] = {}
    unsure: dict[tuple[str, int], int] = {}
    for number, point in enumerate(lead.points):
        crossing = known.get((topic, number), Crossing(lead.term, 0, True))
        lacking = max(0, point - crossing.to_offset) if crossing.all_known else UNBOUNDED
        # A new home that lost its own end has less than was told of it: what of a producer is left is not known then.
        lost_all = any(one.batches and not _below(one.batches, point) for one in crossing.producers)
        if lacking or lost_all:
            unsure[topic, number] = UNBOUNDED if lost_all else lacking
        if found := dict(_crossed(crossing, lead.term, point)):
            wrote[topic, number] = found
    return Crossed(wrote, unsure)


def _crossed(crossing: Crossing, term: int, point: int) -> Iterator[tuple[int, Wrote]]:
    for one in crossing.producers:
        there = _below(one.batches, point)
        if there and stamp_in(one.producer_id) == stamp_of(term - 1):
            yield unstamped(one.producer_id), Wrote(one.epoch, there[-1].last_sequence, True, there)


def _below(batches: Iterable[SourceBatch], point: int) -> tuple[SourceBatch, ...]:
    """Those that lie below the point as a whole."""
    return tuple(one for one in batches if one.last_offset < point)


def doubtful(topic: str, lead: Lead) -> Crossed:
    """Of a topic of which nothing is known: whatever is sent again may have crossed."""
    return Crossed({}, {(topic, number): point for number, point in enumerate(lead.points) if point})
