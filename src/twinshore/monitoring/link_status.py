"""Link status for `twinshore status`: the mirror's last status while fresh, and lag from fresh log ends.

Old figures are marked as old. If no mirror reads the source any more, this process asks the source briefly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple

from twinshore.config.errors import TwinshoreError
from twinshore.config.frozen import STATUS_CLIENT_ID
from twinshore.config.grouping import grouped
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import Link, LinkControl
from twinshore.config.sentences import count_phrase, format_age, format_time, join_names
from twinshore.config.settings import Settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.log_reader import find_existing_partitions, read_log_ends, read_log_starts
from twinshore.kafka.pool import ConnectionPool
from twinshore.proof.core import compare
from twinshore.proof.core.planning import RereadPass, describe_reread_pass, measure_reread_pass
from twinshore.proof.link_scan import NotCompared
from twinshore.replication.core.filters import admits
from twinshore.replication.core.incident_rules import describe_outage, parse_outage_cause
from twinshore.replication.core.lag import (
    LAG_KIND,
    SHARED_FETCH_KIND,
    STANDBY_KIND,
    LagStatus,
    SharedFetchStatus,
    StandbyStatus,
    TopicLag,
    broadcast_values,
    describe_broadcast,
    end_offsets_ttl_s,
    is_clock_ahead,
    is_fresh,
    parse_lag,
    parse_shared_fetch,
    parse_standby,
    replicated_offsets,
    status_ttl_s,
    summarize_lag,
)
from twinshore.replication.core.model import FLOWING, STANDBY, STOPPED, UNKNOWN
from twinshore.replication.links import effective_links, load_links
from twinshore.replication.metrics import admitted_partitions, recreated_topics, refused_topics
from twinshore.replication.sync.core.lifecycle import KEEP_TWIN
from twinshore.state.core.values import IncidentRow, LinkStatus, ReplicatedPosition
from twinshore.state.store import Store
from twinshore.switch.core.acl_rules import describe_missing_authorizer
from twinshore.switch.drain import read_topics_left_to_link
from twinshore.switch.write_access import WriteBlockKeeper

SOURCE_TIMEOUT_S = 2.0
LAG_FROM_MIRROR, LAG_FROM_SOURCE, LAG_FROM_STORE = "mirror", "source", "store"
CLOCK_AHEAD_MESSAGE = "the mirror's clock is ahead of this one by {}"
PAUSED_TOPICS_NAMED_MAX = 10


@dataclass(frozen=True, slots=True)
class LinkLag:
    """Lag by source ends that were read `age_s` seconds ago. `seen_by`: the mirror, this process, or the store's last
    figures.

    `unseen` partitions are not counted. `oldest_s`: how long the source has had the oldest record missing on a twin;
    None if unknown.
    """

    records: int
    age_s: float
    seen_by: str
    unseen: int = 0
    oldest_s: float | None = None

    @property
    def known(self) -> bool:
        return self.seen_by != LAG_FROM_STORE

    def __str__(self) -> str:
        unseen = f" ({self.unseen} partitions unseen)" if self.unseen else ""
        return f"{self.records:,}{unseen}" if self.known else f"{self.records:,} ({describe_age(self.age_s)})"


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic's partitions together; offsets are sums. None means not known now.

    `excluded`: by the current filters, after earlier replication; no lag. `refused`: replication never began, so there
    is no twin.
    """

    topic: str
    partitions: int
    stopped: int
    twin_end: int | None
    source_end: int | None
    lag_records: int | None
    last_lag_records: int | None
    records: int
    bytes: int
    paused: bool = False
    excluded: bool = False
    refused: bool = False
    recovery_point_s: float | None = None


@dataclass(frozen=True, slots=True)
class LinkView:
    """`word`: the mirror's last status, None if no mirror ever ran the link. `lag` is None if no end was ever read.
    `why_old`: why the ends cannot be read now. `paused`: patterns that operators paused, with their topics.
    """

    link: str
    state: str
    status: LinkStatus | None
    age_s: float
    lag: LinkLag | None
    topics: tuple[TopicView, ...]
    incidents: tuple[IncidentRow, ...]
    why_old: str = ""
    paused: tuple[tuple[str, tuple[str, ...]], ...] = ()
    # Topics whose twins operators keep from deletion; "" means all of them.
    kept: tuple[str, ...] = ()
    # How long ago all proven records were read, how long that takes, and what the last proof could not compare.
    says_of_proof: tuple[str, ...] = ()
    proof_pass: RereadPass | None = None
    not_compared: tuple[NotCompared, ...] = ()
    # Whether the settings forbid every deletion and truncation.
    never_delete: bool = False
    # A switch has left an old home to the link, and no rule can keep writers from it.
    open_home: str = ""
    # The link's broadcast, and how its source is read there by the mirror's last fresh status.
    broadcast: str = ""
    reading: SharedFetchStatus | None = None
    # The standby mirror, while it reports.
    standby: StandbyStatus | None = None

    @property
    def stale(self) -> bool:
        """Whether a mirror reported this link but no longer does."""
        return self.state == UNKNOWN and self.status is not None

    @property
    def runs(self) -> bool:
        return self.state not in (UNKNOWN, STOPPED)

    @property
    def says(self) -> str:
        """The link's sentence, or why none is current."""
        if self.status is None:
            return "no mirror has run it with this store yet: start `twinshore mirror run`"
        if self.stale:
            last = f"last said: {self.status.state}: {self.status.sentence}"
            if self.age_s < 0:
                return (
                    f"{CLOCK_AHEAD_MESSAGE.format(format_age(-self.age_s))}, so the age of its status is unknown; "
                    f"{last}"
                )
            if self.status.state == STANDBY:
                return (
                    f"no status for {format_age(self.age_s)}, and the last one is of a mirror that replicated nothing"
                    f" ({_who(self.status.owner)}): start `twinshore mirror run`; {last}"
                )
            return (
                f"no status for {format_age(self.age_s)} from its mirror ({_who(self.status.owner)}), which was not "
                "stopped in"
                f" good order: it was killed, or cannot write the store. {self._who_follows}; {last}"
            )
        if self.state == STOPPED:
            since = format_age(max(0.0, self.age_s))
            return f"{self.status.sentence}, {since} ago; nothing is replicated until `twinshore mirror run` is started"
        return self.status.sentence

    @property
    def _who_follows(self) -> str:
        if self.standby is None:
            return "Unless it runs: `twinshore mirror run`"
        return f"{_who(self.standby.who)} stands by, and takes over"

    @property
    def says_of_standby(self) -> str:
        """Names the standby mirror; empty if none reports, or if the shown status is the standby's own."""
        if self.standby is None or self.state == STANDBY:
            return ""
        return f"{_who(self.standby.who)} stands by: {self.standby.sentence}"

    @property
    def says_of_lag(self) -> str:
        """Why the lag is not current; empty if it is."""
        if self.lag is None or self.lag.known:
            return ""
        ahead = self.lag.age_s < 0
        when = CLOCK_AHEAD_MESSAGE.format(format_age(-self.lag.age_s)) if ahead else f"{format_age(self.lag.age_s)} ago"
        return f"lag unknown: {self.why_old}; last seen {self.lag.records:,}, {when}"

    @property
    def says_of_recovery_point(self) -> str:
        """What would be lost with the source; empty if no end was ever read."""
        if self.lag is None:
            return ""
        source, _, target = self.link.partition("->")
        oldest = f", the oldest for {format_age(self.lag.oldest_s)}" if self.lag.records and self.lag.oldest_s else ""
        return f"recovery point: of {source}'s records {target} lacks {self.lag}{oldest}"

    @property
    def says_of_broadcast(self) -> str:
        """The link's broadcast, and how its source is read there; empty without a broadcast."""
        return describe_broadcast(self.broadcast, self.reading)

    @property
    def says_of_operators(self) -> tuple[str, ...]:
        """Paused topics, twins that nothing may delete, and tasks for operators."""
        pauses = [
            f"paused by operators: topics {pattern!r} "
            f"({join_names(topics, PAUSED_TOPICS_NAMED_MAX) or 'none that has a twin'})"
            for pattern, topics in self.paused
        ]
        some = join_names([topic for topic in self.kept if topic], PAUSED_TOPICS_NAMED_MAX)
        keeps = "any of its twins" if "" in self.kept else f"the twins of {some}"
        never = ["[safety] never_delete is set: no twin is deleted, no record cut off"] if self.never_delete else []
        kept = [f"kept by operators: nothing deletes {keeps}"] if self.kept else []
        return (*pauses, *never, *kept, *([self.open_home] if self.open_home else []))

    @property
    def says_of_incidents(self) -> tuple[str, ...]:
        """A sentence for each open incident. An incident of the whole link names no topic."""
        return tuple(_of_incident(row) for row in self.incidents)


def _of_incident(row: IncidentRow) -> str:
    incident = row.incident
    topic = f", {incident.topic}" if incident.topic else ""
    place = f"{topic}-{incident.partition}" if topic and incident.partition >= 0 else topic
    return f"{incident.link}: open incident {row.id}, {incident.kind}{place}: {incident.sentence}"


def read_link_views(
    store: Store,
    settings: Settings,
    names: Sequence[str],
    *,
    clock: Callable[[], int],
    topics: bool = False,
    pool: ConnectionPool | None = None,
) -> list[LinkView]:
    """Reads the status of these links, or all; with `topics` also of their topics.

    A silent source is waited for once. `pool`: pass one to read repeatedly. `clock` returns milliseconds and is read
    after the data, which may take seconds while mirrors write.
    """
    holds_s = status_ttl_s(settings.mirror.progress_s)
    settings = settings.with_links(load_links(settings, store).links)
    words = {status.link: status for status in store.links.statuses()}
    read_ms = clock()
    views = []
    pool = pool or ConnectionPool(once=True)
    holds = effective_links(settings.links, store)
    for begins in settings.chosen(names):
        link, name = holds[begins.name].link, begins.name
        status = words.get(name)
        age_s = _age_s(status.updated_ms, read_ms) if status else 0.0
        state = _state(status, age_s, holds_s)
        seen = _lag(store, settings, link, clock, state, pool, topics=topics)
        found: tuple[TopicView, ...] = ()
        if topics:
            positions, refused = store.progress.positions(name), refused_topics(store, name)
            found = tuple(_by_topic(positions, seen.word, seen.lag, link, refused, clock()))
        incidents = store.incidents.rows(name, open_only=True)
        proven = _proven(store, settings, name, clock())
        paused = _paused(store, name, link.control)
        kept = tuple(row.subject for row in store.link_states.of(name, KEEP_TWIN))
        given = (name, state, status, age_s, seen.lag, found, incidents, seen.why, paused, kept, *proven)
        left = read_topics_left_to_link(link, store)
        open_home = (
            describe_missing_authorizer(link, WriteBlockKeeper(store, name).known(link.target), left) if left else ""
        )
        told = (
            store.link_states.of(name, SHARED_FETCH_KIND) if link.broadcast and state not in (UNKNOWN, STOPPED) else ()
        )
        reading, never = parse_shared_fetch(told, read_ms, holds_s), settings.safety.never_delete
        heir = parse_standby(store.link_states.of(name, STANDBY_KIND), read_ms, holds_s)
        heir = None if heir and status and heir.who == status.owner else heir  # the standby has taken over by now
        views.append(
            LinkView(
                *given, never_delete=never, open_home=open_home, broadcast=link.broadcast, reading=reading, standby=heir
            )
        )
    return views


def _paused(store: Store, link: str, control: LinkControl) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The paused patterns, each with the topics that match now."""
    topics = sorted({row.topic for row in store.twins.of(link)}) if control.paused_topics else []
    return tuple(
        (pattern, tuple(topic for topic in topics if re.fullmatch(pattern, topic))) for pattern in control.paused_topics
    )


def _who(owner: str) -> str:
    """The host and process without the suffix that distinguishes equal process ids."""
    return owner.rpartition(" ")[0] or owner


def _proven(
    store: Store, settings: Settings, link: str, now_ms: int
) -> tuple[tuple[str, ...], RereadPass | None, tuple[NotCompared, ...]]:
    rows, bytes_s = store.proofs.of(link), settings.proof.reread_mb_s * 1e6
    lacks = compare.read_not_compared(store.link_states.of(link, compare.NOT_COMPARED_KIND))
    proof = settings.proof
    says = [*describe_reread_pass(rows, bytes_s, proof.read_again_h, now_ms, going=proof.beside_mirror)]
    if lacks is not None:
        says.append(lacks.in_words(format_age(max(0.0, (now_ms - lacks.at_ms) / 1000))))
    return tuple(says), measure_reread_pass(rows, bytes_s), lacks.lacks if lacks is not None else ()


def _age_s(at_ms: int, now_ms: int) -> float:
    """Age in seconds; negative if the writer's clock is ahead by more than the allowed skew."""
    age_s = (now_ms - at_ms) / 1000
    return age_s if is_clock_ahead(age_s) else max(0.0, age_s)


def _state(status: LinkStatus | None, age_s: float, holds_s: float) -> str:
    """The last reported state while fresh. STOPPED stays true: a mirror writes it once, as it stops in good order."""
    if status is None or not (is_fresh(age_s, holds_s) or status.state == STOPPED):
        return UNKNOWN
    return status.state


class _Seen(NamedTuple):
    lag: LinkLag | None
    word: LagStatus | None
    why: str = ""


def _lag(
    store: Store,
    settings: Settings,
    link: Link,
    clock: Callable[[], int],
    state: str,
    pool: ConnectionPool,
    *,
    topics: bool,
) -> _Seen:
    """The mirror's lag if fresh, else the source's own ends, else the last known lag."""
    asks, flows = state in (UNKNOWN, STOPPED), state == FLOWING
    lag_status = parse_lag(store.link_states.of(link.name, LAG_KIND))
    lag_status = lag_status and lag_status.only(partial(admits, link))  # the filters may be younger than the figures
    age_s = _age_s(lag_status.seen_ms, clock()) if lag_status else 0.0
    # For very many topics the store has only the mirror's sum, and the mirror has not read the newest twins yet.
    asks = asks or (lag_status is not None and (not lag_status.partitions or (topics and not lag_status.topics)))
    if lag_status and not asks and is_fresh(age_s, end_offsets_ttl_s(settings.mirror.ends_s)):
        return _Seen(_lag_of(lag_status, age_s, LAG_FROM_MIRROR, lag_status, clock()), lag_status)
    asked = _ask(store, settings, link, clock(), pool, before=bool(lag_status and lag_status.partitions))
    if isinstance(asked, str):
        return _Seen(
            _lag_of(lag_status, age_s, LAG_FROM_STORE, lag_status, clock()) if lag_status else None, lag_status, asked
        )
    if not asked.partitions and (lag_status is None or not flows):
        # No topic of the source has a twin, so no lag was read.
        return _Seen(None, None)
    return _Seen(_lag_of(asked, 0.0, LAG_FROM_SOURCE, lag_status, clock()), asked)


def _lag_of(lag_status: LagStatus, age_s: float, seen_by: str, told: LagStatus | None, now_ms: int) -> LinkLag:
    """`told`: the mirror's last figures. Records unknown to the mirror came after them."""
    since_ms = told.since_ms or told.seen_ms if told and (lag_status.lag or seen_by == LAG_FROM_STORE) else 0
    return LinkLag(lag_status.lag, age_s, seen_by, lag_status.unseen, _missing_s(lag_status, since_ms, now_ms))


def _missing_s(word: LagStatus | TopicLag, else_ms: int, now_ms: int) -> float | None:
    """Seconds since the oldest missing record is missing; since `else_ms` if the figures have no time."""
    if since_ms := word.since_ms or else_ms:
        return max(0, now_ms - since_ms) / 1000
    return None if word.lag or word.unseen else 0.0


def _ask(
    store: Store, settings: Settings, link: Link, now_ms: int, pool: ConnectionPool, *, before: bool
) -> LagStatus | str:
    """Lag by the source's own ends and the progress reports, or why the source cannot be read from here.

    `before`: twins were known earlier.
    """
    reached = replicated_offsets(store.twins.of(link.name), store.progress.positions(link.name))
    refused = refused_topics(store, link.name)
    if not reached and not refused:
        return "none of its twins is in this store any more" if before else summarize_lag((), now_ms)
    reached, refused = admitted_partitions(link, reached), frozenset(topic for topic in refused if admits(link, topic))
    identity = store.links.identity(link.name)
    try:
        source = KafkaCluster(
            settings.cluster(link.source),
            client_id=STATUS_CLIENT_ID,
            cluster_id=identity.source_cluster_id if identity else "",
            patience_s=SOURCE_TIMEOUT_S,
            call_s=SOURCE_TIMEOUT_S,
            pool=pool,
        )
        with closing(source):
            reached |= read_log_starts(source, refused)
            there = find_existing_partitions(source, tuple(reached))
            ends = read_log_ends(source, there).without(recreated_topics(store, link.name))
    except TwinshoreError as error:
        return f"{link.source} cannot be asked from here: {error.message}"
    places = [
        (partition, reached[partition], ends.of.get(partition, -1))
        for partition in there
        if partition.topic not in ends.gone
    ]
    return summarize_lag(places, now_ms)


def _by_topic(
    positions: Iterable[ReplicatedPosition],
    lag_status: LagStatus | None,
    lag: LinkLag | None,
    link: Link,
    refused: Container[str] = (),
    now_ms: int = 0,
) -> Iterator[TopicView]:
    by_topic = grouped((position.topic, position) for position in positions)
    known = lag_status.topics if lag_status else {}
    seen_ms = lag_status.seen_ms if lag_status and lag and not lag.known else 0
    for topic in sorted({*by_topic, *known}):
        ours = by_topic.get(topic, [])
        told, last_end = known.get(topic, TopicLag(unseen=1)), sum(position.to_offset for position in ours)
        last_lag = sum(position.lag_records for position in ours)
        fresh, excluded = lag is not None and lag.known and not told.unseen, not admits(link, topic)
        yield TopicView(
            topic,
            partitions=max(len(ours), told.partitions),
            stopped=sum(position.state == "stopped" for position in ours),
            # As old as the source's end: progress is younger, and would be beyond that end.
            twin_end=None if topic in refused else told.reached if fresh else max(last_end, told.reached),
            source_end=told.source_end if fresh else None,
            lag_records=told.lag if fresh else None,
            last_lag_records=None if excluded else told.lag if topic in known else last_lag,
            records=sum(position.records for position in ours),
            bytes=sum(position.bytes for position in ours),
            paused=link.control.pauses(topic),
            excluded=excluded,
            refused=topic in refused,
            recovery_point_s=_missing_s(told, seen_ms, now_ms) if topic in known else None,
        )


def describe_age(age_s: float) -> str:
    return f"{format_age(age_s)} old" if age_s >= 0 else f"clock {format_age(-age_s)} ahead"


LIVE_FIELDS = ("records_per_s", "bytes_per_s", "p50_ms", "p99_ms")


def as_values(view: LinkView, *, topics: bool) -> dict[str, Any]:
    """The view as JSON values; null means not known now."""
    values: dict[str, Any] = {} if view.status is None else asdict(view.status)
    if not view.runs:
        values |= dict.fromkeys(LIVE_FIELDS) | {"last_state": view.status.state if view.status else None}
    lag = view.lag
    values |= {
        "link": view.link,
        "state": view.state,
        "age_s": round(view.age_s, 3),
        "stale": view.stale,
        "says": view.says,
        "lag_records": lag.records if lag and lag.known else None,
        "last_lag_records": lag.records if lag else None,
        "lag_age_s": round(lag.age_s, 3) if lag else None,
        "lag_seen_by": lag.seen_by if lag else None,
        "unseen_partitions": lag.unseen if lag else None,
        "recovery_point_s": lag.oldest_s if lag else None,
        "paused_topics": {pattern: list(topics) for pattern, topics in view.paused},
        "never_delete": view.never_delete,
        "open_home": view.open_home,
        "broadcast": broadcast_values(view.broadcast, view.reading),
        "standby": asdict(view.standby) if view.standby else None,
        "keeps_all": "" in view.kept,
        "kept_topics": [topic for topic in view.kept if topic],
    }
    if topics:
        values["topics"] = [asdict(topic) for topic in view.topics]
    values["proof_pass"] = view.proof_pass._asdict() if view.proof_pass else None
    values["not_compared"] = [asdict(lack) for lack in view.not_compared]
    values["incidents"] = [_as_values(row) for row in view.incidents]
    return values


def _as_values(row: IncidentRow) -> dict[str, Any]:
    policy = row.incident.policy
    told = {**asdict(row.incident), "policy": policy.words, "effect": policy.effect}
    return {"id": row.id, "opened_ms": row.opened_ms, **told}


NAMED_MAX = 5
CLUSTER_AWAY_KINDS = (IncidentKind.SOURCE_AWAY, IncidentKind.TARGET_AWAY)


@dataclass(frozen=True, slots=True)
class SilentCluster:
    """`rows`: the open incidents of its links that report it."""

    name: str
    rows: tuple[IncidentRow, ...]

    def __str__(self) -> str:
        links = sorted({row.incident.link for row in self.rows})
        ids = join_names([str(row.id) for row in self.rows], NAMED_MAX)
        since = format_time(min(row.opened_ms for row in self.rows))
        return (
            f"{self.name} does not answer: {_cause(self.rows[-1])}; since {since}, {count_phrase(len(links), 'link')}"
            f" ({join_names(links, NAMED_MAX)}), open incident{'' if len(self.rows) == 1 else 's'} {ids}"
        )


def find_silent_clusters(views: Iterable[LinkView]) -> list[SilentCluster]:
    """Clusters that links wait for, by their open incidents."""
    wide = (row for view in views for row in view.incidents if not row.incident.topic)
    rows = grouped((_cluster(row), row) for row in wide if row.incident.kind in CLUSTER_AWAY_KINDS and _cause(row))
    return [SilentCluster(name, tuple(found)) for name, found in rows.items()]


def describe_link(view: LinkView, silent: Iterable[SilentCluster]) -> str:
    """The link's sentence, without causes already shown for a whole cluster."""
    said = view.says
    for cluster in silent:
        for row in cluster.rows:
            if row.incident.link == view.link:
                said = said.replace(row.incident.sentence, describe_outage(row.incident.kind.side, cluster.name))
    return said


def describe_open_incidents(view: LinkView, silent: Iterable[SilentCluster]) -> list[str]:
    """The open incidents, without those already shown for a whole cluster."""
    told = {row.id for cluster in silent for row in cluster.rows}
    return [said for row, said in zip(view.incidents, view.says_of_incidents, strict=True) if row.id not in told]


def _cluster(row: IncidentRow) -> str:
    source, _, target = row.incident.link.partition("->")
    return source if row.incident.kind is IncidentKind.SOURCE_AWAY else target


def _cause(row: IncidentRow) -> str:
    return parse_outage_cause(row.incident.sentence, row.incident.kind.side, _cluster(row))
