"""What clusters say of homes and a store does not know, and what a store knows and they do not say yet. Pure.

A topic has a first word from when a link carries it: before its first switch, too, no push decides where it is written.

A switch may be made while this store is dead. Then it stands in the home lines of both clusters, with all that this
store needs to make the same flip. Where the lines do not say enough, or two clusters say different things in one word,
nobody may carry the topic until somebody decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from twinshore.fleet import GROUPS_HOME, Link
from twinshore.fleet.terms import FIRST_TERM
from twinshore.homes.home_lines import FORCED, Clash, HomeLine, HomeState, stands
from twinshore.links.homes import pair_of
from twinshore.store.switch_values import Flip
from twinshore.store.values import HomeRow

Ids = tuple[str, str]
Lines = tuple[HomeLine | None, HomeLine | None]


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
        if isinstance(told, Clash) and told.one.term > FIRST_TERM:
            doubts[topic] = (
                f"topic {topic}: {link.source} and {link.target} say different things in term {told.one.term}: it is "
                f"at home on {told.one.home}, and on {told.other.home}"
            )
        elif isinstance(told, HomeLine) and (home := _home(link, ids, told)):
            term = row.term if row else FIRST_TERM
            if told.term > term:
                lines[topic] = told
            elif row and told.term == term > FIRST_TERM and home != row.home:
                doubts[topic] = (
                    f"topic {topic} is at home on {home}, as the clusters say, and on {row.home}, as the store says, "
                    f"both in term {term}"
                )
    return Behind(lines, doubts)


def first_word(link: Link, topic: str, ids: Ids, logs: Lines, *, is_twin: bool, now_ms: int) -> HomeLine | None:
    """What the target is to hear of a topic that the link carries; None where nothing is new. `logs`: the lines of
    source and target. `is_twin`: another link brought the topic to the source, which may not know its home.

    A line of the first term that names the target, or that another one contradicts, is of an earlier topic of that
    name, or a stranger's: the link carries the topic from its home.
    """
    told, name = stands(logs), f"link {link.name}"
    line = HomeLine(topic=topic, home=link.source, cluster_id=ids[0], term=FIRST_TERM, since_ms=now_ms, set_by=name)
    if told is None:
        return None if is_twin else line
    said = [told.one, told.other] if isinstance(told, Clash) else [told]
    first = said[0]
    if any(one.state is not HomeState.SETTLED for one in said):
        return None
    if first.term == FIRST_TERM and not is_twin and (len(said) > 1 or first.cluster_id == ids[1]):
        return replace(line, step=first.step + 1)
    passes = len(said) == 1 and first.cluster_id != ids[0] and (logs[1] is None or logs[1].word < first.word)
    return first if passes else None


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
