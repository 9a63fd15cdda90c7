"""Topic homes: which link of a pair replicates a topic.

A **pair** is two links between the same clusters, one each way, whose twins have the source's name. A topic that both
admit could loop. So each topic has one **home**, the cluster where clients write: only the link from there replicates
the topic. The home is a row of the store, and the first row wins. A first home is set only when a single answer is
possible: by a twin, or by records that one cluster alone holds.

Clusters keep home records too. After a switch without this store, these have what the store needs for the same change.
When they are incomplete, or two clusters differ in the same term, no link may replicate the topic until an operator
decides.

The new home keeps the record of such a switch. That record counts until a process with a store continues the switch;
from then on the store's row does, without `kept`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from twinshore.config.frozen import GROUPS_HOME
from twinshore.config.model import FIRST_TERM, Link, TwinNaming, is_heartbeats_topic
from twinshore.kafka.protocol.primitives import is_printable
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
    TWIN = "a link of the pair replicates it from there"
    RECORDS = "only there it has records"
    EMPTY = "it is empty on both sides, and is replicated once either has a record"
    UNKNOWN = "whether both sides have records of it is not known now"
    BOTH_WRITTEN = "both sides have records of it, and neither is the other's twin"
    BOTH_TWINS = "each link of the pair claims that its twin is the other's source"


@dataclass(frozen=True, slots=True)
class FirstHome:
    """`home`: empty: undecided."""

    home: str
    why: HomeReason

    @property
    def contested(self) -> bool:
        return self.why in (HomeReason.BOTH_WRITTEN, HomeReason.BOTH_TWINS)


@dataclass(frozen=True, slots=True)
class HomeEvidence:
    """What is known of a topic without a home. `source`, `target`: whether a record was ever written there, None:
    unknown. `ours`, `theirs`: whether the link, or the reverse link, has a twin.
    """

    source: bool | None
    target: bool | None
    ours: bool = False
    theirs: bool = False


def pair_name(link: Link) -> str:
    """Returns the pair's name, the same in either direction."""
    return PAIR_SEPARATOR.join(sorted((link.source, link.target)))


def find_home_row(pair: str, rows: Iterable[HomeRow]) -> HomeRow | None:
    """Returns the row with the highest term of all pairs connected with this one: elsewhere the name is another
    topic's.
    """
    left, near, connected = list(rows), set(pair.split(PAIR_SEPARATOR)), list[HomeRow]()
    while joined := [row for row in left if near.intersection(row.pair.split(PAIR_SEPARATOR))]:
        left = [row for row in left if row not in joined]
        connected += joined
        near.update(name for row in joined for name in row.pair.split(PAIR_SEPARATOR))
    return max(connected, key=lambda row: (row.term, row.pair == pair), default=None)


def find_reverse_link(link: Link, links: Iterable[Link]) -> Link | None:
    """Returns the reverse link; None: the link is in no pair."""
    if link.naming is not TwinNaming.SAME:
        return None
    back = (link.target, link.source, TwinNaming.SAME)
    return next((other for other in links if (other.source, other.target, other.naming) == back), None)


def is_shared_topic(topic: str, *counterparts: Link) -> bool:
    """Whether the reverse link admits the topic. `counterparts`: by settings, and with its overrides."""
    return not is_heartbeats_topic(topic) and any(admits(link, topic) for link in counterparts)


def decide_first_home(link: Link, held: HomeEvidence) -> FirstHome:
    """Decides the first home, if only one answer is possible."""
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
    if link.naming is not TwinNaming.SAME:
        return {}
    return {topic: row for topic, row in homes.items() if row.home != link.source}


def is_recreated_away(held: HomeEvidence) -> bool:
    """Whether a topic whose home should be the target was recreated on the source."""
    return held.source is True and held.target is False


def topics_moved_here(link: Link, homes: Mapping[str, HomeRow]) -> frozenset[str]:
    """Returns topics whose home became the source in a later term than the first: their old lineage no longer counts. A
    home of the first term was only observed; a known twin counts for more.
    """
    if link.naming is not TwinNaming.SAME:
        return frozenset()
    return frozenset(topic for topic, row in homes.items() if row.home == link.source and row.term > 1)


def explain_no_home(link: Link, topic: str, first_home: FirstHome) -> str:
    return f"topic {topic} of {link.source} and {link.target} has no home: {first_home.why.value}"


def explain_recreated_away(topic: str, row: HomeRow, link: Link) -> str:
    return (
        f"topic {topic} has records on {link.source}, and its home {row.home} has none: it was created again away from "
        "its home, and no link replicates it"
    )


def home_hint(topic: str, link: Link) -> str:
    return (
        f"`twinshore link home {topic} {link.source}`, or `{link.target}`: records on the other cluster then prevent "
        "the twin; or exclude the topic from one of the links"
    )


def explain_homed_elsewhere(topic: str, row: HomeRow, link: Link) -> str:
    return f"topic {topic} is at home on {row.home}, where it is written: {link.name} does not replicate it"


# A cluster keeps records of forced switches alone; other records are not taken over.
FORCED_KIND = "forced"
ENDED_STATES = ("done", "turned back")
SWITCH_STATES = (*ENDED_STATES, "going on", "turning back")
SwitchRecords = Mapping[str, Mapping[str, Any] | None]


def find_new_switches(records: SwitchRecords, known: Iterable[SwitchRow], now_ms: int) -> list[SwitchRow]:
    """Returns switches that the store lacks, or has in an older state."""
    rows = {row.id: row for row in known}
    parsed = (_row(switch, record, now_ms) for switch, record in records.items() if record is not None)
    return [row for row in parsed if row is not None and _is_news(row, rows.get(row.id))]


def find_obsolete_records(records: SwitchRecords, known: Iterable[SwitchRow]) -> list[str]:
    """Returns switches whose record on the cluster may go: the store knows as much or more."""
    rows = {row.id: row for row in known}

    def is_spent(row: SwitchRow | None, record: Mapping[str, Any] | None) -> bool:
        if row is None or record is None:
            return False
        return not is_kept_on_cluster(row) or (_over(record) and row.switch_state == _text(record))

    return [switch for switch, record in records.items() if is_spent(rows.get(switch), record)]


def _row(switch: str, record: Mapping[str, Any], now_ms: int) -> SwitchRow | None:
    """Parses a record of a switch; None: invalid."""
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
            printable = all(is_printable(text, most) for text, most in ((old, 64), (new, 64), (by, 255)))
            if kind != FORCED_KIND or state not in SWITCH_STATES or not printable:
                return None
            ended_ms = now_ms if state in ENDED_STATES else None
            return SwitchRow(own, kind, old, new, state, _text(record), by, begun_ms, now_ms, ended_ms)
        case _:
            return None


def _is_news(row: SwitchRow, before: SwitchRow | None) -> bool:
    return before is None or (is_kept_on_cluster(before) and before.switch_state != row.switch_state)


def is_kept_on_cluster(row: SwitchRow) -> bool:
    """Whether a cluster still keeps the switch's record."""
    try:
        state = json.loads(row.switch_state)
    except ValueError:
        return False
    return isinstance(state, dict) and bool(state.get("kept"))


def _over(record: Mapping[str, Any]) -> bool:
    """Whether a process without a store has nothing left to do."""
    return record.get("state") in ENDED_STATES or record.get("awaits_store") is True


def _text(record: Mapping[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":"), sort_keys=True)


ClusterIds = tuple[str, str]
HomeRecordPair = tuple[HomeRecord | None, HomeRecord | None]


@dataclass(frozen=True, slots=True)
class NewHomeRecords:
    """What the clusters say and the store does not know. `doubts`: topics that no link may replicate, each with the
    reason; `unread` are those with an unknown home, since a newer record names them.
    """

    records: Mapping[str, HomeRecord]
    doubts: Mapping[str, str]
    unread: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class HomeContext:
    """`topic_ids`: by cluster and topic. `made_ms`: creation of the store's twin, by link and topic."""

    topic_ids: Mapping[tuple[str, str], str]
    made_ms: Mapping[tuple[str, str], int]


def compare_home_records(
    link: Link, ids: ClusterIds, logs: Iterable[Mapping[str, HomeRecord]], rows: Mapping[str, HomeRow]
) -> NewHomeRecords:
    """Returns what the store lacks. `ids`: cluster ids of source and target. `logs`: their records. `rows`: homes in
    the store.
    """
    both = list(logs)
    records: dict[str, HomeRecord] = {}
    doubts: dict[str, str] = {}
    unread: set[str] = set()
    for topic in sorted({name for log in both for name in log} - {GROUPS_HOME}):
        current, row = current_home(log.get(topic) for log in both), rows.get(topic)
        if isinstance(current, HomeRecord) and current.newer:
            unread.add(topic)
            doubts[topic] = newer_in_words(topic, current.newer, clusters_of(link, both, topic))
        elif isinstance(current, HomeConflict) and current.one.term > FIRST_TERM:
            doubts[topic] = (
                f"topic {topic}: {link.source} and {link.target} differ in term {current.one.term}: it is "
                f"at home on {current.one.home}, and on {current.other.home}"
            )
        elif isinstance(current, HomeRecord) and (home := _home(link, ids, current)):
            term = row.term if row else FIRST_TERM
            if current.term > term:
                records[topic] = current
            elif row and current.term == term > FIRST_TERM and home != row.home:
                doubts[topic] = (
                    f"topic {topic} is at home on {home}, as the clusters say, and on {row.home}, as the store says, "
                    f"both in term {term}"
                )
    return NewHomeRecords(records, doubts, frozenset(unread))


def clusters_of(link: Link, logs: Iterable[Mapping[str, HomeRecord]], topic: str) -> str:
    """Which of the link's two clusters has an unreadable record of the topic."""
    named = zip((link.source, link.target), logs, strict=False)
    return " and ".join(name for name, log in named if topic in log and log[topic].newer)


def first_home_record(
    link: Link, topic: str, ids: ClusterIds, logs: HomeRecordPair, *, is_twin: bool, now_ms: int
) -> HomeRecord | None:
    """Returns the record that the target should get; None: nothing new. `logs`: the records of source and target.
    `is_twin`: another link brought the topic to the source, which may not know the home.

    A first-term record that names the target, or that another contradicts, is an earlier topic's or a stranger's, since
    the link replicates the topic from the home.
    """
    current, name = current_home(logs), f"link {link.name}"
    record = HomeRecord(topic=topic, home=link.source, cluster_id=ids[0], term=FIRST_TERM, since_ms=now_ms, set_by=name)
    if current is None:
        return None if is_twin else record
    records = [current.one, current.other] if isinstance(current, HomeConflict) else [current]
    if records[0].newer:
        return None
    first = records[0]
    if any(home_record.state is not HomeState.SETTLED for home_record in records):
        return None
    if first.term == FIRST_TERM and not is_twin and (len(records) > 1 or first.cluster_id == ids[1]):
        return replace(record, step=first.step + 1)
    passes = len(records) == 1 and first.cluster_id != ids[0] and (logs[1] is None or logs[1].word < first.word)
    return first if passes else None


def derive_home_changes(
    link: Link, ids: ClusterIds, records: Mapping[str, HomeRecord], rows: Mapping[str, HomeRow], there: HomeContext
) -> tuple[tuple[HomeChange, ...], dict[str, str]]:
    """Returns the store's changes for these records, and topics where that is impossible, with reasons."""
    made: list[HomeChange] = []
    doubts: dict[str, str] = {}
    for topic, record in records.items():
        home = _home(link, ids, record)
        other = link.target if home == link.source else link.source
        ids_then = record.source_topic_id, record.target_topic_id
        if ids_then == (there.topic_ids.get((home, topic)), there.topic_ids.get((other, topic))):
            made.append(_flip(link, record, home, other, there.made_ms))
        elif topic not in rows or rows[topic].home != home:
            # A switch of other clusters, topics recreated since, or an incomplete record.
            doubts[topic] = (
                f"topic {topic} is at home on {home} in term {record.term}, as the clusters say, and not by a switch "
                f"between the topics that {link.source} and {link.target} have now"
            )
    return tuple(made), doubts


def _flip(link: Link, record: HomeRecord, home: str, other: str, made_ms: Mapping[tuple[str, str], int]) -> HomeChange:
    back = f"{home}->{other}" if record.back else ""
    # A twin created since, as by a mirror with a lost store, is at least as new as the switch: it stays.
    if made_ms.get((back, record.topic), 0) > record.since_ms:
        back = ""
    return HomeChange(
        pair=pair_name(link),
        topic=record.topic,
        home=home,
        term=record.term,
        link=f"{other}->{home}",
        back=back,
        source_topic_id=record.source_topic_id,
        target_topic_id=record.target_topic_id,
        points=record.points if back else (),
        since_ms=record.since_ms,
        set_by=record.set_by or f"switch {record.switch[:8]}",
        torn=record.how == FORCED_SWITCH,
    )


def _home(link: Link, ids: ClusterIds, record: HomeRecord) -> str:
    """Returns the home's name here (names differ between stores); empty: neither source nor target."""
    return dict(zip(ids, (link.source, link.target), strict=True)).get(record.cluster_id, "")
