"""Where topics are at home, and so which link of a pair carries them. Pure.

A **pair** is two links between the same clusters, one each way, that give twins their source's name. A topic that both
admit could go round for ever. So each topic has one **home**, the cluster where it is written: the link whose source
that is carries it, the other link lets it be. The home is a row of the store, and the first row decides. It is born
where only one answer is possible: from a twin, or from records that one cluster alone holds.

Records of switches that were made while the store was dead: what the store takes up of them. Pure.

Such a record stands on the new home of the topics, and is the truth until a process with a store goes on with the
switch: from then on the store's row says that no cluster keeps it.

What clusters say of homes and a store does not know, and what a store knows and they do not say yet. Pure.

A topic has a first word from when a link carries it: before its first switch, too, no push decides where it is written.

A switch may be made while this store is dead. Then it stands in the home lines of both clusters, with all that this
store needs to make the same flip. Where the lines do not say enough, or two clusters say different things in one word,
nobody may carry the topic until somebody decides.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from twinshore.config.frozen import GROUPS_HOME
from twinshore.config.model import FIRST_TERM, Link, TwinNaming, is_heartbeats_topic
from twinshore.replication.core.filters import admits
from twinshore.routing.core.home_records import (
    FORCED_SWITCH,
    HEX_ID,
    YEAR_9999_MS,
    HomeConflict,
    HomeRecord,
    HomeState,
    current_home,
    newer_in_words,
)
from twinshore.state.core.values import HomeChange, HomeRow, SwitchRow

PAIR_SEPARATOR = "<>"


class HomeReason(Enum):
    """What a topic's home was born from, or why it has none."""

    TWIN = "a link of the pair carries it from there"
    RECORDS = "there alone it holds records"
    EMPTY = "it is empty on both sides"
    UNKNOWN = "it cannot be told now whether both sides hold records of it"
    BOTH_WRITTEN = "both sides hold records of it, and neither is the other's twin"
    BOTH_TWINS = "each link of the pair says that its twin is the other's source"


@dataclass(frozen=True, slots=True)
class FirstHome:
    """`home` is empty where the topic has none."""

    home: str
    why: HomeReason

    @property
    def contested(self) -> bool:
        """Whether only an operator can say which side is the home."""
        return self.why in (HomeReason.BOTH_WRITTEN, HomeReason.BOTH_TWINS)


@dataclass(frozen=True, slots=True)
class HomeEvidence:
    """What is known of a topic without a home. `source`, `target`: whether a record was ever written there, None where
    that cannot be told. `ours`, `theirs`: whether the link, or its counterpart, carries the topic to a twin."""

    source: bool | None
    target: bool | None
    ours: bool = False
    theirs: bool = False


def pair_name(link: Link) -> str:
    """What the two clusters of the link are called together, whichever way it goes."""
    return PAIR_SEPARATOR.join(sorted((link.source, link.target)))


def find_home_row(pair: str, rows: Iterable[HomeRow]) -> HomeRow | None:
    """Where a topic is at home by the rows of all pairs that hang together with this one: the latest term stands. A
    topic of this name between other clusters is another one."""
    left, near, found = list(rows), set(pair.split(PAIR_SEPARATOR)), list[HomeRow]()
    while ours := [row for row in left if near.intersection(row.pair.split(PAIR_SEPARATOR))]:
        left = [row for row in left if row not in ours]
        found += ours
        near.update(name for row in ours for name in row.pair.split(PAIR_SEPARATOR))
    return max(found, key=lambda row: (row.term, row.pair == pair), default=None)


def find_reverse_link(link: Link, links: Iterable[Link]) -> Link | None:
    """The link the other way, where the two are a pair."""
    if link.naming is not TwinNaming.SAME:
        return None
    back = (link.target, link.source)
    return next((one for one in links if (one.source, one.target) == back and one.naming is TwinNaming.SAME), None)


def is_shared_topic(topic: str, *counterparts: Link) -> bool:
    """Whether the link the other way admits the topic too. `counterparts`: that link as its settings have it, and as
    its operators do."""
    return not is_heartbeats_topic(topic) and any(admits(one, topic) for one in counterparts)


def decide_first_home(link: Link, held: HomeEvidence) -> FirstHome:
    """The home of a topic that has none yet, as far as only one answer is possible."""
    if held.ours and held.theirs:
        return FirstHome("", HomeReason.BOTH_TWINS)
    if held.ours or held.theirs:
        return FirstHome(link.source if held.ours else link.target, HomeReason.TWIN)
    if held.source and held.target:
        return FirstHome("", HomeReason.BOTH_WRITTEN)
    if held.source is None or held.target is None:
        return FirstHome("", HomeReason.UNKNOWN)
    if held.source or held.target:
        return FirstHome(link.source if held.source else link.target, HomeReason.RECORDS)
    return FirstHome("", HomeReason.EMPTY)


def homes_elsewhere(link: Link, homes: Mapping[str, HomeRow]) -> dict[str, HomeRow]:
    """The topics that the link does not carry because their home is not its source."""
    if link.naming is not TwinNaming.SAME:
        return {}
    return {topic: row for topic, row in homes.items() if row.home != link.source}


def is_recreated_away(held: HomeEvidence) -> bool:
    """Whether a topic whose home is said to be the target is written on the source by now: it was made again there, and
    the home has it no more."""
    return held.source is True and held.target is False


def topics_moved_here(link: Link, homes: Mapping[str, HomeRow]) -> frozenset[str]:
    """The topics whose home became the link's source after it had been another, or by somebody's word: what is told of
    where they came from is past. A home in its first term is only what was seen, and a known twin counts for more."""
    if link.naming is not TwinNaming.SAME:
        return frozenset()
    return frozenset(topic for topic, row in homes.items() if row.home == link.source and row.term > 1)


def explain_no_home(link: Link, topic: str, birth: FirstHome) -> str:
    """Why the topic has no home."""
    both = f"{link.source} and {link.target}"
    match birth.why:
        case HomeReason.EMPTY:
            return f"topic {topic} is empty on {both}: it has no home yet, and is carried once either holds a record"
        case HomeReason.BOTH_WRITTEN:
            return f"topic {topic} holds records on {both}, and neither is the other's twin: it has no home"
        case HomeReason.BOTH_TWINS:
            return f"topic {topic} on {both}: each link of the pair says that its twin is the other's source"
        case _:
            return f"topic {topic} has no home yet: {birth.why.value} ({both})"


def explain_recreated_away(topic: str, row: HomeRow, link: Link) -> str:
    """Why nobody carries the topic."""
    return (
        f"topic {topic} holds records on {link.source}, and its home {row.home} holds none: it was made again away "
        "from its home, and nobody carries it"
    )


def home_hint(topic: str, link: Link) -> str:
    """How an operator decides."""
    return (
        f"`twinshore link home {topic} {link.source}`, or `{link.target}`: what the other cluster holds is then in the "
        "twin's way; or exclude the topic from one of the links"
    )


def explain_homed_elsewhere(topic: str, row: HomeRow, link: Link) -> str:
    """Why the link lets the topic be."""
    return f"topic {topic} is at home on {row.home}, where it is written: {link.name} does not carry it"


# A cluster keeps records of forced switches alone, and of what else it says nothing is taken up.
FORCED_KIND = "forced"
ENDED_STATES = ("done", "turned back")
SWITCH_STATES = (*ENDED_STATES, "going on", "turning back")
SwitchRecords = Mapping[str, Mapping[str, Any] | None]


def find_new_switches(records: SwitchRecords, known: Iterable[SwitchRow], now_ms: int) -> list[SwitchRow]:
    """Rows that the store shall have: switches that it does not know, or not as they are by now."""
    rows = {row.id: row for row in known}
    found = (_row(switch, record, now_ms) for switch, record in records.items() if record is not None)
    return [row for row in found if row is not None and _is_news(row, rows.get(row.id))]


def find_obsolete_records(records: SwitchRecords, known: Iterable[SwitchRow]) -> list[str]:
    """Switches whose record on the cluster nobody needs any more: the store knows it as well as it is, or better."""
    rows = {row.id: row for row in known}

    def is_spent(row: SwitchRow | None, record: Mapping[str, Any] | None) -> bool:
        if row is None or record is None:
            return False
        return not is_kept_on_cluster(row) or (_over(record) and row.record == _text(record))

    return [switch for switch, record in records.items() if is_spent(rows.get(switch), record)]


def _row(switch: str, record: Mapping[str, Any], now_ms: int) -> SwitchRow | None:
    """None where it is no record of a switch, as far as that can be told here."""
    match record:
        case {
            "id": str(own),
            "kind": str(kind),
            "old": str(old),
            "new": str(new),
            "state": str(state),
            "by": str(by),
            "begun_ms": int(begun_ms),
            "kept": str(kept),
        } if own == switch and HEX_ID.fullmatch(own) and kept and 0 <= begun_ms < YEAR_9999_MS:
            if kind != FORCED_KIND or state not in SWITCH_STATES:
                return None
            if not all(_fits(text, most) for text, most in ((old, 64), (new, 64), (by, 255))):
                return None
            ended_ms = now_ms if state in ENDED_STATES else None
            return SwitchRow(own, kind, old, new, state, _text(record), by, begun_ms, now_ms, ended_ms)
        case _:
            return None


def _is_news(row: SwitchRow, before: SwitchRow | None) -> bool:
    return before is None or (is_kept_on_cluster(before) and before.record != row.record)


def is_kept_on_cluster(row: SwitchRow) -> bool:
    """Whether a cluster keeps the record."""
    try:
        found = json.loads(row.record)
    except ValueError:
        return False
    return isinstance(found, dict) and bool(found.get("kept"))


def _over(record: Mapping[str, Any]) -> bool:
    """Whether no process without a store has anything left to do."""
    return record.get("state") in ENDED_STATES or record.get("awaits_store") is True


def _fits(text: str, chars_max: int) -> bool:
    return len(text) <= chars_max and text.isprintable()


def _text(record: Mapping[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":"), sort_keys=True)


ClusterIds = tuple[str, str]
HomeRecordPair = tuple[HomeRecord | None, HomeRecord | None]


@dataclass(frozen=True, slots=True)
class NewHomeRecords:
    """What the clusters say and the store does not know. `doubts`: topics that nobody may carry, each with why; of
    these the home of `unread` is unknown, as lines of a newer version name it."""

    lines: Mapping[str, HomeRecord]
    doubts: Mapping[str, str]
    unread: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class HomeContext:
    """What is needed to judge lines. `topic_ids`: by cluster and topic, as they are now. `made_ms`: by link and topic,
    when the store's twin of it was made."""

    topic_ids: Mapping[tuple[str, str], str]
    made_ms: Mapping[tuple[str, str], int]


def compare_home_records(
    link: Link, ids: ClusterIds, logs: Iterable[Mapping[str, HomeRecord]], rows: Mapping[str, HomeRow]
) -> NewHomeRecords:
    """`ids`: of the link's source and its target. `logs`: the lines of each of the two. `rows`: the pair's homes."""
    both = list(logs)
    lines: dict[str, HomeRecord] = {}
    doubts: dict[str, str] = {}
    unread: set[str] = set()
    for topic in sorted({name for log in both for name in log} - {GROUPS_HOME}):
        told, row = current_home(log.get(topic) for log in both), rows.get(topic)
        if isinstance(told, HomeRecord) and told.newer:
            unread.add(topic)
            doubts[topic] = newer_in_words(topic, told.newer, clusters_of(link, both, topic))
        elif isinstance(told, HomeConflict) and told.one.term > FIRST_TERM:
            doubts[topic] = (
                f"topic {topic}: {link.source} and {link.target} say different things in term {told.one.term}: it is "
                f"at home on {told.one.home}, and on {told.other.home}"
            )
        elif isinstance(told, HomeRecord) and (home := _home(link, ids, told)):
            term = row.term if row else FIRST_TERM
            if told.term > term:
                lines[topic] = told
            elif row and told.term == term > FIRST_TERM and home != row.home:
                doubts[topic] = (
                    f"topic {topic} is at home on {home}, as the clusters say, and on {row.home}, as the store says, "
                    f"both in term {term}"
                )
    return NewHomeRecords(lines, doubts, frozenset(unread))


def clusters_of(link: Link, logs: Iterable[Mapping[str, HomeRecord]], topic: str) -> str:
    """Which of the link's two clusters has a line of the topic that cannot be read."""
    named = zip((link.source, link.target), logs, strict=False)
    return " and ".join(name for name, log in named if topic in log and log[topic].newer)


def first_home_record(
    link: Link, topic: str, ids: ClusterIds, logs: HomeRecordPair, *, is_twin: bool, now_ms: int
) -> HomeRecord | None:
    """What the target is to hear of a topic that the link carries; None where nothing is new. `logs`: the lines of
    source and target. `is_twin`: another link brought the topic to the source, which may not know its home.

    A line of the first term that names the target, or that another one contradicts, is of an earlier topic of that
    name, or a stranger's: the link carries the topic from its home.
    """
    told, name = current_home(logs), f"link {link.name}"
    line = HomeRecord(topic=topic, home=link.source, cluster_id=ids[0], term=FIRST_TERM, since_ms=now_ms, set_by=name)
    if told is None:
        return None if is_twin else line
    said = [told.one, told.other] if isinstance(told, HomeConflict) else [told]
    if said[0].newer:
        return None
    first = said[0]
    if any(one.state is not HomeState.SETTLED for one in said):
        return None
    if first.term == FIRST_TERM and not is_twin and (len(said) > 1 or first.cluster_id == ids[1]):
        return replace(line, step=first.step + 1)
    passes = len(said) == 1 and first.cluster_id != ids[0] and (logs[1] is None or logs[1].word < first.word)
    return first if passes else None


def derive_home_changes(
    link: Link, ids: ClusterIds, lines: Mapping[str, HomeRecord], rows: Mapping[str, HomeRow], there: HomeContext
) -> tuple[tuple[HomeChange, ...], dict[str, str]]:
    """What the store takes up of these lines, and topics that it cannot, each with why."""
    made: list[HomeChange] = []
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


def _flip(link: Link, line: HomeRecord, home: str, other: str, made_ms: Mapping[tuple[str, str], int]) -> HomeChange:
    back = f"{home}->{other}" if line.back else ""
    # A twin that was made since, as a lost store makes one, is at least as new as the switch: it stays.
    if made_ms.get((back, line.topic), 0) > line.since_ms:
        back = ""
    return HomeChange(
        pair=pair_name(link),
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
        torn=line.how == FORCED_SWITCH,
    )


def _home(link: Link, ids: ClusterIds, line: HomeRecord) -> str:
    """What the home is called here; stores may call clusters differently. Empty where it is neither of the two."""
    return dict(zip(ids, (link.source, link.target), strict=True)).get(line.cluster_id, "")
