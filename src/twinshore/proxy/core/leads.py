"""Where the clusters' own words lead a topic's clients, and which writers a switch holds. Pure.

A word stands on the clusters themselves, so it is known at once and without the store. It says whether a topic left
its old home in good order. Of such a topic the old home knows what each producer wrote last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from twinshore.homes.home_lines import PLANNED, Clash, HomeLine, HomeState
from twinshore.proxy.core.producer_ids import STAMPS, stamp_in, stamp_of, unstamped


class Lead(NamedTuple):
    """`cluster`: as the proxy calls it, None where it is none of its own. `held`: writers wait, for a switch, which
    is under way where it `moves`. `came`: where the topic was at home before, if it left in good order and not
    long ago; `sound`: the first of the terms in a row since which it has moved in good order, as far as is known."""

    cluster: str | None
    term: int
    held: bool = False
    came: str = ""
    moves: bool = False
    sound: int = 0


class Wrote(NamedTuple):
    """What a producer wrote last to a partition, where the topic was at home before."""

    epoch: int
    last: int


def leads_of(
    told: Mapping[str, HomeLine | Clash], names: Mapping[str, str], before: Mapping[str, Lead], since_ms: int
) -> dict[str, Lead]:
    """By topic. `names` are the proxy's, by cluster id; `before` is what was said last. Of what came before `since_ms`
    no producer sends anything again that the old home would know."""
    return {topic: _lead(one, names, before.get(topic), since_ms) for topic, one in told.items()}


def _lead(told: HomeLine | Clash, names: Mapping[str, str], before: Lead | None, since_ms: int) -> Lead:
    if isinstance(told, Clash):
        # Nobody knows which one stands, so nobody writes.
        return (before or Lead(None, told.one.term))._replace(held=True)
    came, sound = "", told.term
    if before is not None and before.term == told.term:
        came, sound = before.came, before.sound
    elif told.how == PLANNED and told.since_ms >= since_ms:
        came, sound = told.source, told.term - 1
        if before is not None and before.term == told.term - 1:
            sound = min(sound, before.sound)
    held, moves = told.state is HomeState.HELD, told.state is not HomeState.SETTLED
    return Lead(names.get(told.cluster_id), told.term, held, came, moves, sound)


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
