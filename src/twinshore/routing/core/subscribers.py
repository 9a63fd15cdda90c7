"""The records of `twinshore.followers`, and what a client must do by home records: write, or pause.

A **subscriber** is a client that writes where home records say. It announces itself before writing, every second, and
at once after reading a switch's new version or pausing. An announcement holds for a lease. A switch waits for a
subscriber until that has paused or the lease expired. The switch counts from reading the announcement, the subscriber
from before writing that, and so stops earlier. Third parties may write to the topic: they can only delay a switch.

A client polls its clusters and keeps the highest version read. It writes to a cluster only within a lease there: since
the last announcement and the last read there, both counted from before the request. No other cluster renews that lease.
After a lapse the client announces first and reads then: either it sees a switch's hold, or that switch sees the client.
A starting client waits one lease for silent clusters.

A topic with a home record of a newer `v` on any cluster has an unknown home. Clients pause it while that record is
there. The record has no version to compare, and is not remembered.

A hold counts for `hold_ms` from when the client read the record. It ends with the first read requested afterwards that
finds no higher version. The record then names the topic's home.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from twinshore.config import frozen
from twinshore.config.frozen import FOLLOWER_LINE
from twinshore.config.model import FIRST_TERM
from twinshore.kafka.protocol.primitives import KEY_BYTES_MAX, encode_json, parse_json_or_none, to_printable
from twinshore.routing.core.home_records import (
    HEX_ID,
    STEP_MAX,
    TOPIC_NAME,
    HomeConflict,
    HomeRecord,
    HomeState,
    HomeVersion,
    KeyValue,
    NewerLine,
    current_home,
    line_value,
    newer_in_words,
    read_line,
)
from twinshore.routing.core.leader_cluster import KnownHome, NoLeader, TopicCopy, describe_decision, leader_cluster

SUBSCRIBER_BYTES_MAX = 1 << 20  # as the topic takes them
SUBSCRIBERS_MAX = 10_000
BUSY_GROUPS_MAX = 5
LEASE_MS_MAX = 60_000
SEQUENCE_MAX = 1 << 62
WILDCARD_SUFFIX = "*"


@dataclass(frozen=True, slots=True)
class HomeSubscriber:
    """One announcement. `topics`: names, or prefixes followed by `*`. `heard`: the version of each topic in a switch.
    `parked`: topics paused without writes in flight, until a later version settles them. `said` grows, and orders
    announcements on two clusters. `name` is for people. `busy` (of a proxy): some groups with members still to rejoin.
    """

    id: str
    name: str
    topics: tuple[str, ...]
    heard: Mapping[str, HomeVersion] = field(default_factory=dict, hash=False)
    parked: frozenset[str] = frozenset()
    lease_ms: int = 5000
    said: int = 0
    busy: tuple[str, ...] = ()

    def writes(self, topic: str) -> bool:
        return any_pattern_matches(topic, self.topics)

    def waits(self, topic: str, word: HomeVersion) -> bool:
        """Whether the subscriber has paused the topic for this version."""
        return topic in self.parked and self.heard.get(topic, (0, 0)) >= word

    def has_gathered(self, topic: str, word: HomeVersion) -> bool:
        """Whether the subscriber has read this version, and no member has still to rejoin."""
        return not self.busy and self.heard.get(topic, (0, 0)) >= word

    def line(self) -> KeyValue:
        told = {name: getattr(self, name) for name in ("name", "topics", "heard", "parked", "lease_ms", "said")}
        busy = {"busy": self.busy} if self.busy else {}
        return encode_json([FOLLOWER_LINE, self.id]), line_value({**told, "parked": sorted(self.parked), **busy})


@dataclass(slots=True)
class SubscriberLog:
    """The subscribers on one or several clusters. `full`: more than `SUBSCRIBERS_MAX`."""

    full: bool = False
    _seen: dict[str, tuple[HomeSubscriber, float]] = field(default_factory=dict)

    def take(self, key: bytes | None, value: bytes | None, seen_s: float) -> None:
        """Takes the log's next record, read at `seen_s`; skips other forms. A tombstone removes the subscriber."""
        match parse_json_or_none(key, KEY_BYTES_MAX):
            case [frozen.FOLLOWER_LINE, str(name)] if HEX_ID.fullmatch(name):
                self._take(name, value, seen_s)

    def _take(self, name: str, value: bytes | None, seen_s: float) -> None:
        if value is None:
            self._seen.pop(name, None)
            return
        found, before = _follower(name, value), self._seen.get(name)
        if isinstance(found, NewerLine):
            found = _unread(name, found.version, before[0].said if before else 0)
        elif found is None or (before and found.said <= before[0].said):
            return
        if before is None and len(self._seen) >= SUBSCRIBERS_MAX:
            self._forget(seen_s)
        if before is None and len(self._seen) >= SUBSCRIBERS_MAX:
            self.full = True
            return
        self._seen[name] = found, seen_s + found.lease_ms / 1000

    def living(self, now_s: float) -> list[HomeSubscriber]:
        """Returns the subscribers with a valid lease."""
        return [follower for follower, until_s in self._seen.values() if now_s < until_s]

    def awaited(self, words: Mapping[str, HomeVersion], now_s: float) -> dict[str, list[HomeSubscriber]]:
        """Returns by topic the living subscribers that write there and have not paused for this version. Leaves out
        topics without any.
        """
        living, found = self.living(now_s), {}
        for topic, word in words.items():
            found[topic] = [one for one in living if one.writes(topic) and not one.waits(topic, word)]
        return {topic: subscribers for topic, subscribers in found.items() if subscribers}

    def gathering(self, topic: str, word: HomeVersion, now_s: float) -> list[HomeSubscriber]:
        """Returns the topic's living subscribers that have not read this version, or have members still to rejoin."""
        return [one for one in self.living(now_s) if one.writes(topic) and not one.has_gathered(topic, word)]

    def _forget(self, now_s: float) -> None:
        self._seen = {name: one for name, one in self._seen.items() if now_s < one[1]}


def pattern_matches(pattern: str, topic: str) -> bool:
    """Whether the pattern, a name or a prefix with `*`, matches. Third parties write patterns, so no regular
    expressions.
    """
    return topic.startswith(pattern[:-1]) if pattern.endswith(WILDCARD_SUFFIX) else topic == pattern


def any_pattern_matches(topic: str, patterns: Iterable[str]) -> bool:
    return any(pattern_matches(one, topic) for one in patterns)


def unsubscribe_record(follower_id: str) -> KeyValue:
    return encode_json([FOLLOWER_LINE, follower_id]), None


def _unread(follower_id: str, version: int, said: int) -> HomeSubscriber:
    """The client of a record that this version cannot read: a switch waits for the client as for one that writes every
    topic.
    """
    name = f"a client of a newer version (v {version})"
    return HomeSubscriber(follower_id, name, (WILDCARD_SUFFIX,), lease_ms=LEASE_MS_MAX, said=said)


def _follower(follower_id: str, value: bytes) -> HomeSubscriber | NewerLine | None:
    match line := read_line(value, SUBSCRIBER_BYTES_MAX):
        case NewerLine():
            return line
        case {
            "name": str(name),
            "topics": list(topics),
            "heard": dict(heard),
            "parked": list(parked),
            "lease_ms": int(lease_ms),
            "said": int(said),
            **more,
        } if 0 < lease_ms <= LEASE_MS_MAX and 0 <= said < SEQUENCE_MAX:
            words = {topic: found for topic, raw in heard.items() if (found := _word(raw))}
            if len(words) < len(heard) or not _names([*heard, *parked]) or not _patterns(topics):
                return None
            what = tuple(topics), words, frozenset(parked), lease_ms, said, _groups(more.get("busy"))
            return HomeSubscriber(follower_id, to_printable(name), *what)
        case _:
            return None


def _word(raw: object) -> HomeVersion | None:
    match raw:
        case [int(term), int(step)] if 0 < term < STEP_MAX and 0 <= step < STEP_MAX:
            return term, step
        case _:
            return None


def _groups(raw: object) -> tuple[str, ...]:
    some = raw if isinstance(raw, list) else []
    return tuple(to_printable(one) for one in some[:BUSY_GROUPS_MAX] if isinstance(one, str))


def _names(raw: Iterable[object]) -> bool:
    return all(isinstance(one, str) and TOPIC_NAME.fullmatch(one) for one in raw)


def _patterns(raw: Iterable[object]) -> bool:
    return all(
        isinstance(one, str) and (one == WILDCARD_SUFFIX or TOPIC_NAME.fullmatch(one.removesuffix(WILDCARD_SUFFIX)))
        for one in raw
    )


SUBSCRIPTION_LEASE_S = 5.0
RENEW_INTERVAL_S = 1.0
POLL_INTERVAL_S = 1.0
SWITCH_POLL_INTERVAL_S = 0.05
BEFORE = ""


@dataclass(frozen=True, slots=True)
class WriteTo:
    """Write on this cluster, the topic's home in this term; 0: no home record."""

    cluster: str
    term: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Stop writing, and announce when no write is in flight. `switch`: the one that asks, or empty."""

    switch: str
    why: str


WriteOrder = WriteTo | Pause
HomeReport = HomeRecord | HomeConflict | None


def decide_write(told: HomeReport, clusters: Mapping[str, str], begin: str) -> WriteOrder:
    """Returns what a home record orders. `clusters`: the client's names by id. `begin`: where topics without a record
    are written.
    """
    match told:
        case None:
            return WriteTo(begin, 0)
        case HomeConflict():
            homes = f"{told.one.home} and {told.other.home}"
            return Pause("", f"topic {told.one.topic}: clusters have different homes of one version: {homes}")
        case HomeRecord(state=HomeState.HELD):
            return Pause(told.switch, f"topic {told.topic} is held by a switch")
    name = clusters.get(told.cluster_id)
    if name is None:
        return Pause(told.switch, f"topic {told.topic} is at home on {told.home}, which this client has not met")
    return WriteTo(name, told.term)


def poll_interval_s(told: Iterable[HomeReport]) -> float:
    """Returns the time until the next read: short during a switch."""
    quiet = all(one is None or (isinstance(one, HomeRecord) and one.state is HomeState.SETTLED) for one in told)
    return POLL_INTERVAL_S if quiet else SWITCH_POLL_INTERVAL_S


@dataclass(slots=True)
class _Lease:
    """One cluster's lease: times of the last announcement and read, both from before the request. A read counts only
    after `visible_s`, the first answer since the last lapse. `lines`: all records read.
    """

    read_s: float = -math.inf
    said_s: float = -math.inf
    visible_s: float = -math.inf
    records: dict[str, HomeRecord] = field(default_factory=dict)

    @property
    def was_read(self) -> bool:
        return self.read_s > -math.inf

    def until_s(self, lease_s: float) -> float:
        return min(self.read_s, self.said_s) + lease_s if self.read_s > self.visible_s else -math.inf


class HomeSubscription:
    """One client of `topics` (names, or prefixes with a `*`) on clusters of these names. Times are read from the
    client's own monotonic clock. `told`: records read earlier, as if on other clusters; lower versions no longer count.
    `unread`: newer records read earlier; they count until every cluster was read.
    """

    def __init__(
        self,
        follower_id: str,
        name: str,
        topics: Iterable[str],
        clusters: Iterable[str],
        begin: str,
        lease_s: float = SUBSCRIPTION_LEASE_S,
        told: Mapping[str, HomeRecord | HomeConflict] | None = None,
        unread: Mapping[str, HomeRecord] | None = None,
    ) -> None:
        self._id, self._name, self._topics = follower_id, name, tuple(topics)
        self._begin, self._lease_s = begin, lease_s
        self._clusters: dict[str, str] = {}
        self._told: dict[str, HomeRecord | HomeConflict] = {}
        self._unsettled: set[str] = set()
        for topic, one in (told or {}).items():
            if any_pattern_matches(topic, self._topics):
                self._take(topic, one)
        # A first home record tells of no switch: wait for the clusters that may know of one.
        self._remembered = frozenset(topic for topic in self._told if self.term(topic) > FIRST_TERM)
        self._leases = {name: _Lease() for name in clusters}
        # Lines of a newer version, by cluster; those of before are of no cluster.
        self._unread: dict[str, Mapping[str, HomeRecord]] = {BEFORE: dict(unread or {})}
        self._first_s = math.inf  # when a cluster was first read
        self._parked: dict[str, HomeVersion] = {}
        self._holds: dict[str, tuple[HomeVersion, float]] = {}  # the last held version, and until when it counts
        self._busy: tuple[str, ...] = ()
        self._last: dict[str, tuple[tuple[dict[str, HomeVersion], frozenset[str]], float]] = {}
        self._number = 0

    def met(self, cluster: str, cluster_id: str) -> None:
        """Sets the cluster's id, replacing an earlier one."""
        if self.cluster_id(cluster) not in ("", cluster_id):
            self._leases[cluster] = _Lease()
            self._last.pop(cluster, None)
            self._unread.pop(cluster, None)
        self._clusters = {known: name for known, name in self._clusters.items() if name != cluster}
        self._clusters[cluster_id] = cluster

    def told(self) -> Mapping[str, HomeRecord | HomeConflict]:
        return dict(self._told)

    def unread(self) -> Mapping[str, HomeRecord]:
        """The newer records of some cluster: the homes of these topics are unknown."""
        return {topic: record for records in self._unread.values() for topic, record in records.items()}

    def cluster_id(self, cluster: str) -> str:
        """Returns the cluster's id; empty before `met`."""
        return next((known for known, name in self._clusters.items() if name == cluster), "")

    def read(
        self, cluster: str, records: Mapping[str, HomeRecord], asked_s: float, heard_s: float | None = None
    ) -> None:
        """Takes the cluster's current records, requested at `asked_s`, received by `heard_s`."""
        lease = self._leases[cluster]
        newer = {topic: record for topic, record in records.items() if record.newer}
        self._unread[cluster] = {
            topic: record for topic, record in newer.items() if any_pattern_matches(topic, self._topics)
        }
        for topic, record in records.items():
            if lease.records.get(topic) is record:
                continue
            lease.records[topic] = record
            if record.newer or not any_pattern_matches(topic, self._topics):
                continue
            higher = current_home([self._in_force(record), *_lines(self._told.get(topic))])
            assert higher is not None
            self._take(topic, higher)
            held = self._holds.get(topic, ((0, 0), 0.0))[0]
            if isinstance(higher, HomeRecord) and higher.hold_ms and held < higher.word:
                self._holds[topic] = higher.word, (asked_s if heard_s is None else heard_s) + higher.hold_ms / 1000
        for topic, (word, until_s) in self._holds.items():
            if until_s <= asked_s:
                self._holds[topic] = word, -math.inf
                told = self._told[topic]
                self._take(topic, self._in_force(told) if isinstance(told, HomeRecord) else told)
        lease.read_s = max(lease.read_s, asked_s)
        self._first_s = min(self._first_s, asked_s)
        if not self._is_any_unread():
            self._unread.pop(BEFORE, None)

    def _take(self, topic: str, told: HomeRecord | HomeConflict) -> None:
        self._told[topic] = told
        settled = isinstance(told, HomeRecord) and told.state is HomeState.SETTLED
        (self._unsettled.discard if settled else self._unsettled.add)(topic)

    def _in_force(self, record: HomeRecord) -> HomeRecord:
        """Returns the record, settled if its hold has expired here."""
        is_over = self._holds.get(record.topic) == (record.word, -math.inf)
        return replace(record, state=HomeState.SETTLED) if is_over else record

    def parked(self, topic: str) -> None:
        """Call when the topic has no write in flight after the order to pause."""
        told = self._told.get(topic)
        if isinstance(told, HomeRecord) and told.state is HomeState.HELD:
            self._parked[topic] = told.word

    def busy(self, groups: Iterable[str]) -> None:
        """Sets the groups with members still to rejoin."""
        self._busy = tuple(groups)

    def held(self) -> frozenset[str]:
        """Returns held topics that `parked` has not confirmed yet."""
        records = [one for topic in self._unsettled if isinstance(one := self._told[topic], HomeRecord)]
        return frozenset(record.topic for record in records if record.state is HomeState.HELD) - self._state()[1]

    def says(self) -> HomeSubscriber:
        """Returns the next announcement."""
        self._number += 1
        heard, parked = self._state()
        lease_ms = int(self._lease_s * 1000)
        return HomeSubscriber(self._id, self._name, self._topics, heard, parked, lease_ms, self._number, self._busy)

    def _state(self) -> tuple[dict[str, HomeVersion], frozenset[str]]:
        told = {topic: self._told[topic] for topic in self._unsettled}
        open_words = {topic: one.word for topic, one in told.items() if isinstance(one, HomeRecord)}
        self._parked = {topic: word for topic, word in self._parked.items() if open_words.get(topic) == word}
        return open_words, frozenset(self._parked)

    def must_announce(self, cluster: str, now_s: float) -> bool:
        """Whether an announcement is due: the state changed, or a second has passed."""
        last, said_s = self._last.get(cluster, (({}, frozenset()), -math.inf))
        return self._state() != last or now_s >= said_s + RENEW_INTERVAL_S

    def said(self, cluster: str, what: HomeSubscriber, asked_s: float, done_s: float) -> None:
        """Call when the cluster has acknowledged the announcement."""
        lease = self._leases[cluster]
        if done_s >= lease.said_s + self._lease_s:
            lease.visible_s = done_s
        self._last[cluster] = (dict(what.heard), what.parked), asked_s
        lease.said_s = max(lease.said_s, asked_s)

    def order(self, topic: str, now_s: float) -> WriteOrder:
        """Returns what the client must do with the topic now."""
        found = self.heard(topic, now_s)
        if isinstance(found, WriteTo) and now_s >= self.until_s(found.cluster):
            told = self._told.get(topic)
            switch = told.switch if isinstance(told, HomeRecord) else ""
            return Pause(switch, f"{found.cluster} was not read, or told that this client follows, within its lease")
        return found

    def heard(self, topic: str, now_s: float) -> WriteOrder:
        """The topic's home as last read, however long ago. For readers, which do no harm at a former home."""
        for cluster, records in self._unread.items():
            if topic in records:
                return Pause("", newer_in_words(topic, records[topic].newer, cluster))
        told = self._told.get(topic)
        found = decide_write(told, self._clusters, self._begin)
        if isinstance(found, WriteTo) and self._is_any_unread():
            home = KnownHome(found.cluster, told.word) if isinstance(told, HomeRecord) else None
            copies = []
            for name, lease in self._leases.items():
                known = home if lease.was_read else None
                copies.append(TopicCopy(name, lease.was_read, has_topic=name == self._begin, home=known))
            remembered = home if topic in self._remembered else None
            decision = leader_cluster(remembered, copies, self._waited_s(now_s), self._lease_s)
            if isinstance(decision, NoLeader):
                return Pause("", describe_decision(topic, decision))
        return found

    def skipped_clusters(self, now_s: float) -> list[str]:
        """Returns clusters never read, once the wait for them is over."""
        is_over = self._waited_s(now_s) >= self._lease_s
        return sorted(name for name, one in self._leases.items() if is_over and not one.was_read)

    def _is_any_unread(self) -> bool:
        return not all(one.was_read for one in self._leases.values())

    def _waited_s(self, now_s: float) -> float:
        return max(0.0, now_s - self._first_s)

    def line(self, topic: str) -> HomeRecord | None:
        """Returns the current record; None without one, or where clusters disagree."""
        told = self._told.get(topic)
        return told if isinstance(told, HomeRecord) else None

    def term(self, topic: str) -> int:
        """Returns the topic's highest known term; 0 without a record."""
        return max((record.term for record in _lines(self._told.get(topic))), default=0)

    def until_s(self, cluster: str) -> float:
        """Returns when writes on the cluster must stop; -inf before a read that followed the announcement."""
        return self._leases[cluster].until_s(self._lease_s)

    def read_since(self, cluster: str, then_s: float) -> bool:
        return self._leases[cluster].read_s > then_s

    def poll_s(self) -> float:
        return poll_interval_s(self._told[topic] for topic in self._unsettled)


def _lines(told: HomeReport) -> tuple[HomeRecord, ...]:
    match told:
        case None:
            return ()
        case HomeConflict():
            return told.one, told.other
        case _:
            return (told,)
