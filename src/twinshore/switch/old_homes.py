"""Which topics a switch has left to a link, whose target was their home before, and what must be said there. Pure.

After a planned switch the old home has heard it all when the switch ends. After a forced one it was not there, and
whoever still talks to it when it is back would write where nobody reads. A guard is put only where the store's row says
that the topic is at home elsewhere, and while no switch has the topic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping

from twinshore.fleet import Link
from twinshore.fleet.sentences import are, listed
from twinshore.fleet.terms import FIRST_TERM
from twinshore.homes.home_lines import HomeLine
from twinshore.links.homes import pair_of
from twinshore.store.values import HomeRow, TwinRow
from twinshore.switch.guards import Guard

NAMED_MAX = 5


def left_to(
    link: Link, homes: Mapping[str, HomeRow], twins: Iterable[TwinRow], in_switch: Collection[str]
) -> tuple[str, ...]:
    """The topics that came to be at home at the link's source by a switch, and are twins of the link since. A twin that
    was made anew, after a fail-back or a rebuild, bears no term: the home's row does."""
    carried = {row.topic for row in twins}
    switched = {topic for topic, row in homes.items() if row.home == link.source and row.term > FIRST_TERM}
    ours = switched & carried
    return tuple(sorted(ours.difference(in_switch)))


def guarded_at_home(
    link: Link, homes: Mapping[str, HomeRow], guarded: Collection[str], in_switch: Collection[str]
) -> tuple[str, ...]:
    """Topics of the guard on the link's target that are at home there by now: a switch without the store could not take
    the guard away, and one that runs does it itself. Those of `left_to_others` are guarded on."""
    ours = {topic for topic, row in homes.items() if row.home == link.target and row.term > FIRST_TERM}
    return tuple(sorted((ours & set(guarded)).difference(in_switch)))


def left_to_others(
    link: Link, rows: Iterable[HomeRow], begun: Callable[[str, Iterable[str]], Collection[str]]
) -> frozenset[str]:
    """Topics that a switch has left to another link to the same target, by the rule of `left_to`: they are guarded
    there, whatever this pair says. A topic has a home in each pair, and a cluster one guard for all its pairs; terms
    of two pairs cannot be compared. `rows`: of all pairs; `begun`: which of these topics a link has a twin of."""
    carried = defaultdict[str, list[str]](list)
    for row in rows:
        other = Link(row.home, link.target)
        if row.pair == pair_of(other) != pair_of(link) and row.home != link.target and row.term > FIRST_TERM:
            carried[other.name].append(row.topic)
    return frozenset(topic for name, topics in carried.items() for topic in begun(name, topics))


def untold(
    topics: Iterable[str],
    homes: Mapping[str, HomeRow],
    home_id: str,
    new: Mapping[str, HomeLine],
    old: Mapping[str, HomeLine],
) -> tuple[HomeLine, ...]:
    """Lines of the new home, the cluster of this id, that the old one lacks. A line counts where it says what the
    store's row does: of others somebody else must decide."""
    found = [new[topic] for topic in topics if topic in new and topic in homes]
    true = [line for line in found if (line.cluster_id, line.term) == (home_id, homes[line.topic].term)]
    return tuple(line for line in true if line.topic not in old or old[line.topic].word < line.word)


def of_old_home(old: str, topics: Collection[str], *, ruled: bool | None) -> str:
    """What a plan says of writers that stay on the old home, or come back with it. `ruled`: whether an authorizer runs
    there, None where nobody can ask."""
    names = listed(sorted(topics), NAMED_MAX)
    if ruled:
        return f"{old}: the mirror keeps writers from {names} there from then on"
    nobody = f"nobody can be kept from writing to {names} there, and what is written there never crosses"
    if ruled is None:
        return (
            f"{old} does not say whether it has an authorizer. If it has, the mirror keeps writers out once {old} is "
            f"back; if not, {nobody}: stop its producers"
        )
    return f"{old} has no authorizer: {nobody}: stop its producers"


def nobody_kept_out(link: Link, guard: Guard, left: Collection[str]) -> str:
    """Said for as long as it is so, where no rule can help; empty where rules are asked, or will be. `left`: topics
    that a switch has left to the link; `guard`: of its target."""
    names = () if guard.plan.ruled else sorted(set(left).intersection(guard.plan.open_to_all))
    return f"a switch has left it the old home: {of_old_home(link.target, names, ruled=False)}" if names else ""


def open_still(link: Link, topics: Collection[str], why: str) -> str:
    """What whoever is on call must know; `why` the old home could not be shut."""
    names = listed(sorted(topics), NAMED_MAX)
    return (
        f"{names} {are(topics)} at home on {link.source}, and nothing keeps writers from {link.target}, the old home: "
        f"what they write there never crosses: {why}"
    )
