"""What a store that was away must take up: homes that topics have on the clusters in a higher term than here. Pure.

A switch may be made while this store is dead. Then it stands in the home lines of both clusters, with all that this
store needs to make the same flip. Where the lines do not say enough, or two clusters say different things in one word,
nobody may carry the topic until somebody decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from twinshore.fleet import GROUPS_HOME, Link
from twinshore.fleet.terms import FIRST_TERM
from twinshore.homes.home_lines import FORCED, Clash, HomeLine, stands
from twinshore.links.homes import pair_of
from twinshore.store.switch_values import Flip
from twinshore.store.values import HomeRow

Ids = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Behind:
    """What the clusters say and the store does not know. `doubts`: topics that nobody may carry, each with why."""

    lines: Mapping[str, HomeLine]
    doubts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class There:
    """What is needed to judge lines. `topic_ids`: by cluster and topic, as they are now. `made_ms`: by link and topic,
    when the store's twin of it was made."""

    topic_ids: Mapping[tuple[str, str], str]
    made_ms: Mapping[tuple[str, str], int]


def behind(link: Link, ids: Ids, logs: Iterable[Mapping[str, HomeLine]], rows: Mapping[str, HomeRow]) -> Behind:
    """`ids`: of the link's source and its target. `logs`: the lines of each of the two. `rows`: the pair's homes."""
    both = list(logs)
    lines: dict[str, HomeLine] = {}
    doubts: dict[str, str] = {}
    for topic in sorted({name for log in both for name in log} - {GROUPS_HOME}):
        told, row = stands(log.get(topic) for log in both), rows.get(topic)
        if isinstance(told, Clash):
            doubts[topic] = (
                f"topic {topic}: {link.source} and {link.target} say different things in term {told.one.term}: it is "
                f"at home on {told.one.home}, and on {told.other.home}"
            )
        elif told is not None and (home := _home(link, ids, told)):
            term = row.term if row else FIRST_TERM
            if told.term > term:
                lines[topic] = told
            elif row and told.term == term and home != row.home:
                doubts[topic] = (
                    f"topic {topic} is at home on {home}, as the clusters say, and on {row.home}, as the store says, "
                    f"both in term {term}"
                )
    return Behind(lines, doubts)


def flips(
    link: Link, ids: Ids, lines: Mapping[str, HomeLine], rows: Mapping[str, HomeRow], there: There
) -> tuple[tuple[Flip, ...], dict[str, str]]:
    """What the store takes up of these lines, and topics that it cannot, each with why."""
    made: list[Flip] = []
    doubts: dict[str, str] = {}
    for topic, line in lines.items():
        home = _home(link, ids, line)
        other = link.target if home == link.source else link.source
        told = line.source_topic_id, line.target_topic_id
        if told == (there.topic_ids.get((home, topic)), there.topic_ids.get((other, topic))):
            made.append(_flip(link, line, home, other, there.made_ms))
        elif topic not in rows or rows[topic].home != home:
            # A switch of other clusters, topics made anew since, or a line that tells too little.
            doubts[topic] = (
                f"topic {topic} is at home on {home} in term {line.term}, as the clusters say, and not by a switch "
                f"between the topics that {link.source} and {link.target} have now"
            )
    return tuple(made), doubts


def _flip(link: Link, line: HomeLine, home: str, other: str, made_ms: Mapping[tuple[str, str], int]) -> Flip:
    back = f"{home}->{other}" if line.back else ""
    # A twin that was made since, as a lost store makes one, is at least as new as the switch: it stays.
    if made_ms.get((back, line.topic), 0) > line.since_ms:
        back = ""
    return Flip(
        pair=pair_of(link),
        topic=line.topic,
        home=home,
        term=line.term,
        link=f"{other}->{home}",
        back=back,
        source_topic_id=line.source_topic_id,
        target_topic_id=line.target_topic_id,
        points=line.points if back else (),
        since_ms=line.since_ms,
        set_by=line.set_by or f"switch {line.switch[:8]}",
        torn=line.how == FORCED,
    )


def _home(link: Link, ids: Ids, line: HomeLine) -> str:
    """What the home is called here; stores may call clusters differently. Empty where it is neither of the two."""
    return dict(zip(ids, (link.source, link.target), strict=True)).get(line.cluster_id, "")
