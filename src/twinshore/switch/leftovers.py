"""What a switch has left on clusters: who needs it still, and what it may have stood for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from twinshore.fleet import Link
from twinshore.fleet.sentences import are, counted, listed
from twinshore.links.filters import admits
from twinshore.links.homes import pair_of
from twinshore.links.kept_records import is_kept
from twinshore.store.switch_values import SwitchRow
from twinshore.switch.record import Record

NAMED_MAX = 5
ENDS_IT = "`twinshore switch resume` or `switch rollback` ends it"

# Of one cluster: where each partition of a topic ends; of a topic that is not there, none.
Ends = Mapping[str, Mapping[int, int]]


def in_use(rows: Iterable[SwitchRow], kept: Iterable[Record], debts: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The switches that have not ended, or that still owe something, and what ends them: what they left is not to be
    freed. `rows`: all that the store knows; `kept`: the records that stand on clusters; `debts`: a switch, and the
    cluster to which it owes something."""
    known = {row.id: row for row in rows}
    found = {row.id: ENDS_IT for row in known.values() if row.ended_ms is None}
    for record in kept:
        row = known.get(record.id)
        # Where the store has the switch for its own, the cluster's record is of long ago.
        if not record.ended and (row is None or is_kept(row)):
            found[record.id] = ENDS_IT
    for switch, cluster in debts:
        found.setdefault(switch, f"it has ended, and the mirror frees what it left on {cluster} once that answers")
    return found


def half_filled(links: Iterable[Link], topics: Iterable[str], ends: Mapping[str, Ends]) -> Iterator[str]:
    """Topics of these whose log on one cluster is shorter than on the other: whoever freed them, and moved them there
    by force, might move them to a part of them. `ends`: of the clusters that were asked."""
    some, seen = sorted(set(topics)), set()
    pairs = [(link, *both) for link in links for both in ((link.target, link.source), (link.source, link.target))]
    for link, here, there in pairs:
        if here not in ends or there not in ends:
            continue
        ours = [topic for topic in some if admits(link, topic) and (here, there, topic) not in seen]
        seen |= {(here, there, topic) for topic in ours}
        lacks = {topic: _lacks(ends[here].get(topic, {}), ends[there].get(topic, {})) for topic in ours}
        if short := [topic for topic in ours if lacks[topic]]:
            offsets = counted(sum(lacks.values()), "offset")
            yield (
                f"{listed(short, NAMED_MAX)} {are(short)} shorter on {here} than on {there}, by {offsets}: if that "
                f"switch was a fail-back or a rebuild, it may have stopped while it filled {here} again, and its claim "
                "is what keeps a forced switch from moving the topic to a part of it. Wait until the mirror has filled "
                f"{here}; where it does not, rebuild the twins right after this (`twinshore mirror rebuild "
                f"'{there}->{here}'`), and force no switch there before"
            )


def pairs_of(links: Iterable[Link]) -> tuple[str, ...]:
    """Under which names the store may have debts of switches along these links."""
    return tuple(dict.fromkeys(name for link in links for name in (pair_of(link), link.name)))


def _lacks(short: Mapping[int, int], whole: Mapping[int, int]) -> int:
    """How many offsets the one ends before the other."""
    return sum(max(0, end - short.get(number, 0)) for number, end in whole.items())
