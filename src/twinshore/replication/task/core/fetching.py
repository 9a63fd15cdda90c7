"""What each source connection fetches next: one fetch session per stream, and the partitions that changed since.

Token buckets hold a task to its share of throttles, and give precedence by weight. Bytes count when fetched, not when
sent: a throttled partition is not fetched, keeps no buffer busy and delays no other. A bucket may go into debt by one
response, and then waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from twinshore.config.model import PRIORITY_DEFAULT
from twinshore.kafka.protocol.fetch import FetchedPartitionById, FetchPartitionById, FetchResponseById
from twinshore.replication.task.core.messages import TaskLimits
from twinshore.replication.task.core.partition import PartitionLeaders, PartitionReplicator, Phase
from twinshore.replication.task.core.shared_read import FetchStream, SharedFetchMember, SourcePartitionKey

# A bucket holds half a second's bytes: a slow turn of the loop costs nothing, and a burst is short.
BURST_S = 0.5
FETCH_BYTES_MIN = 16 << 10
# A bucket below this part of its burst is shut: many tiny fetches would cost more than they bring.
OPEN_RATIO = 0.125
UNBOUNDED_WAIT_MS = 1 << 30
# How long a broker may hold a fetch while a full queue keeps a partition of its stream out.
BLOCKED_WAIT_MS = 5
SESSION_LOST_CODES = frozenset({70, 71, 106})  # id not found, wrong epoch, topic id inconsistent with the session


@dataclass(slots=True)
class TokenBucket:
    """Bytes that may be fetched now. `spent`: since the last report. `hungry`: more would have been fetched."""

    bytes_s: float
    level: float = 0.0
    filled_at_s: float = 0.0
    spent: int = 0
    hungry: bool = False

    @property
    def burst(self) -> float:
        return self.bytes_s * BURST_S

    def refill(self, now_s: float) -> None:
        if self.filled_at_s:
            self.level = min(self.burst, self.level + (now_s - self.filled_at_s) * self.bytes_s)
        self.filled_at_s = now_s

    @property
    def open(self) -> bool:
        return self.level >= self.burst * OPEN_RATIO

    def opens_in_s(self) -> float:
        """Seconds from the last refill."""
        return max(0.0, self.burst * OPEN_RATIO - self.level) / self.bytes_s

    def spend(self, size: int) -> None:
        self.level -= size
        self.spent += size
        if not self.open:
            self.hungry = True


@dataclass(slots=True)
class TokenBuckets:
    """The buckets of one task. `link`: None without a throttle. Topics without an entry have neither throttle nor
    weight.
    """

    link: TokenBucket | None = None
    topics: dict[str, TokenBucket] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)
    partitions: dict[str, int] = field(default_factory=dict)
    # Partitions that are behind their source, each with its weight; the count for each weight.
    _behind: dict[Hashable, int] = field(default_factory=dict)
    _contending: Counter[int] = field(default_factory=Counter)
    _reported_at_s: float = 0.0

    @property
    def bounding(self) -> bool:
        return bool(self.link or self.topics or self.weights)

    def bound(self, link_bytes_s: float, topics: Mapping[str, float], weights: Mapping[str, int]) -> None:
        """Sets new limits, 0 for none. Levels and debts stay."""
        self.link = _adjusted(self.link, link_bytes_s) if link_bytes_s else None
        self.topics = {topic: _adjusted(self.topics.get(topic), rate) for topic, rate in topics.items()}
        if weights != self.weights:
            self.weights = dict(weights)
            self._behind.clear()
            self._contending.clear()

    def refill(self, now_s: float) -> list[str]:
        """Returns the topics that may be fetched again."""
        if self.link:
            self.link.refill(now_s)
        opened = []
        for topic, bucket in self.topics.items():
            shut = not bucket.open
            bucket.refill(now_s)
            if shut and bucket.open:
                opened.append(topic)
        return opened

    def shut(self) -> bool:
        return self.link is not None and not self.link.open

    def admits(self, topic: str) -> bool:
        bucket = self.topics.get(topic)
        return bucket is None or bucket.open

    def bytes_max(self) -> int:
        """Bytes for one fetch; 0: no limit."""
        return max(FETCH_BYTES_MIN, int(self.link.level)) if self.link else 0

    def wait_ms_max(self) -> int:
        """How long a broker may hold a fetch: until a throttled topic opens."""
        waits = [bucket.opens_in_s() for bucket in self.topics.values() if bucket.hungry and not bucket.open]
        return max(5, int(1000 * min(waits))) if waits else UNBOUNDED_WAIT_MS

    def partition_bytes(self, topic: str, wanted: int, *, weighed: bool = True) -> int:
        """How much of one partition to fetch: less if throttled, or if others go first."""
        bucket = self.topics.get(topic)
        if bucket:
            wanted = min(wanted, max(FETCH_BYTES_MIN, int(bucket.burst) // max(1, self.partitions.get(topic, 1))))
        if self.weights and weighed:
            weight, first = self.weight(topic), self.first()
            if weight < first:
                wanted = min(wanted, max(FETCH_BYTES_MIN, wanted * weight // first))
        return wanted

    def weight(self, topic: str) -> int:
        return self.weights.get(topic, PRIORITY_DEFAULT)

    def first(self) -> int:
        """The highest weight among partitions that are behind; 0: none is."""
        return max(self._contending, default=0)

    def spend(self, topic: str, size: int) -> bool:
        """Counts fetched bytes. Returns whether that closed the topic's bucket."""
        if self.link:
            self.link.spend(size)
        bucket = self.topics.get(topic)
        if bucket is None:
            return False
        was_open = bucket.open
        bucket.spend(size)
        return was_open and not bucket.open

    def stands(self, key: Hashable, topic: str, *, behind: bool) -> bool:
        """Notes whether a partition is behind. Returns whether that changes the precedence."""
        if not self.weights or behind == (key in self._behind):
            return False
        before = self.first()
        if behind:
            self._behind[key] = self.weight(topic)
            self._contending[self._behind[key]] += 1
        else:
            weight = self._behind.pop(key)
            self._contending[weight] -= 1
            if not self._contending[weight]:
                del self._contending[weight]
        return before != self.first()

    def report(self, now_s: float) -> dict[str, list[float]] | None:
        """By topic, "" for the link: bytes per second since the last report, and 1.0 if more would have been fetched.
        Unused topics are left out. None without a throttle.
        """
        took_s, self._reported_at_s = now_s - self._reported_at_s, now_s
        whole = {"": self.link, **self.topics} if self.link else self.topics
        if not whole:
            return None
        usage = {}
        for name, bucket in whole.items():
            if bucket.spent or bucket.hungry:
                usage[name] = [bucket.spent / took_s, float(bucket.hungry)]
            bucket.spent, bucket.hungry = 0, bucket.hungry and not bucket.open
        return usage


def measure_whole_batches(records: memoryview) -> tuple[int, int]:
    """Bytes of complete batches, and the offset after them; -1 if there is none. An incomplete batch is fetched again
    and counts then.
    """
    size, at, following = len(records), 0, -1
    while at + 61 <= size:
        end = at + 12 + int.from_bytes(records[at + 8 : at + 12], "big")
        if not at + 61 <= end <= size:
            break
        following = int.from_bytes(records[at : at + 8], "big") + int.from_bytes(records[at + 23 : at + 27], "big") + 1
        at = end
    return at, following


def _adjusted(bucket: TokenBucket | None, bytes_s: float) -> TokenBucket:
    if bucket is None:
        return TokenBucket(bytes_s)
    bucket.bytes_s = bytes_s
    bucket.level = min(bucket.level, bucket.burst)
    return bucket


class FetchSession:
    """One incremental fetch session (KIP-227): only changes are requested, so quiet partitions cost nothing. Remembers
    what the broker believes we want.
    """

    def __init__(self) -> None:
        self.session_id = self.epoch = 0
        self._told: dict[SourcePartitionKey, FetchPartitionById] = {}

    def changes(
        self, wanted: Iterable[FetchPartitionById], unwanted: Iterable[SourcePartitionKey]
    ) -> tuple[list[FetchPartitionById], list[SourcePartitionKey]]:
        """The next request: partitions new or changed, and those to forget."""
        known = self._told
        # A broker adds requested partitions before it removes forgotten ones: forgetting must not undo a request.
        forgotten = [key for key in unwanted if known.pop(key, None) is not None]
        changed = []
        for want in wanted:
            key = (want.topic_id, want.partition)
            if known.get(key) != want:
                known[key] = want
                changed.append(want)
        return changed, [key for key in forgotten if key not in known]

    def __len__(self) -> int:
        return len(self._told)

    def position(self, key: SourcePartitionKey) -> int:
        """The offset that the broker knows; -1 if not fetched."""
        want = self._told.get(key)
        return want.position if want else -1

    def epoch_asked(self, key: SourcePartitionKey) -> int:
        """The leader epoch that the fetch named, or -1."""
        want = self._told.get(key)
        return want.leader_epoch if want else -1

    def answered(self, session_id: int) -> None:
        """The broker accepted the request; the session continues."""
        if session_id == 0:
            self.reset()
            return
        self.session_id = session_id
        self.epoch = self.epoch + 1 if self.epoch < 2**31 - 1 else 1

    def reset(self) -> None:
        """The next request opens a new session."""
        self.session_id = self.epoch = 0
        self._told.clear()


class PlannedFetch(NamedTuple):
    session_id: int
    session_epoch: int
    partitions: list[FetchPartitionById]
    forgotten: list[tuple[bytes, int]]
    bytes_max: int = 0
    wait_ms_max: int = UNBOUNDED_WAIT_MS


class FetchScheduler:
    """Fetches only running partitions whose target accepts data."""

    def __init__(self, limits: TaskLimits) -> None:
        self._partition_bytes_widest = limits.partition_bytes_widest
        self._streams, self._far_streams = 1, limits.far_streams
        self._replicators: dict[tuple[bytes, int], PartitionReplicator] = {}
        self._sessions: dict[FetchStream, FetchSession] = {}
        self._dirty: dict[FetchStream, dict[PartitionReplicator, None]] = {}
        self._gone: dict[FetchStream, dict[tuple[bytes, int], None]] = {}
        self._choked: dict[FetchStream, dict[PartitionReplicator, None]] = {}
        self._held: set[int] = set()
        self.buckets = TokenBuckets()
        # This task's share of its broadcast's shared fetch.
        self.member: SharedFetchMember | None = None

    def add(self, replicator: PartitionReplicator) -> None:
        self._replicators[replicator.source_key] = replicator
        if self.member:
            self.member.join_window(replicator)
        self._count()

    def remove(self, replicator: PartitionReplicator) -> None:
        self.forget(replicator, replicator.leaders)
        self._replicators.pop(replicator.source_key, None)
        for choked in self._choked.values():
            choked.pop(replicator, None)
        if self.member:
            self.member.leave(replicator)
        self._count()

    def line_of(self, replicator: PartitionReplicator, leaders: PartitionLeaders) -> FetchStream:
        return leaders.source, replicator.config.partition % self._streams

    def wake(self, replicator: PartitionReplicator) -> None:
        """Checks a partition with the next request of its stream."""
        self.ask_again(replicator)
        if self.member:
            self.member.call(replicator)

    def ask_again(self, replicator: PartitionReplicator) -> None:
        """Like `wake`, without a check of the shared window."""
        if replicator.leaders.source >= 0:
            self._dirty.setdefault(self.line_of(replicator, replicator.leaders), {})[replicator] = None

    def forget(self, replicator: PartitionReplicator, leaders: PartitionLeaders) -> None:
        """Stops fetching the partition under `leaders`."""
        if leaders.source >= 0:
            self._gone.setdefault(self.line_of(replicator, leaders), {})[replicator.source_key] = None
        if self.member:
            self.member.let_go(replicator)
        self.buckets.stands(replicator.source_key, replicator.config.topic, behind=False)

    def hold(self, node: int, *, held: bool) -> None:
        """Suspends or resumes fetches for a target that accepts nothing."""
        (self._held.add if held else self._held.discard)(node)
        for replicator in self._replicators.values():
            if replicator.leaders.target == node:
                self.wake(replicator)

    def bound(self, link_bytes_s: float, topics: Mapping[str, float], weights: Mapping[str, int]) -> None:
        """Sets new throttles and weights."""
        self.buckets.bound(link_bytes_s, topics, weights)
        self._count()
        for replicator in self._replicators.values():
            self.wake(replicator)

    def refill(self, now_s: float) -> None:
        if self.member:
            self.member.tick(now_s)
        topics = self.buckets.refill(now_s)
        for replicator in self._replicators.values() if topics else ():
            if replicator.config.topic in topics:
                self.wake(replicator)

    def _count(self) -> None:
        counted = self._replicators.values() if self.buckets.topics else ()
        self.buckets.partitions = Counter(replicator.config.topic for replicator in counted)

    def order(self, line: FetchStream) -> PlannedFetch | None:
        if self.buckets.shut():
            self._leave_to_others()
            return None
        session = self._sessions.setdefault(line, FetchSession())
        choked = self._choked.setdefault(line, {})
        wanted, unwanted = [], list(self._gone.pop(line, ()))
        for replicator in self._dirty.pop(line, ()):
            asks = self.asks(replicator, line)
            choked.pop(replicator, None)
            if asks and replicator.full():
                choked[replicator] = None
            if self._is_ours(replicator, line, asks=asks and not replicator.waiting.choked):
                topic_id, partition = replicator.source_key
                epochs = replicator.leaders.source_epoch, replicator.source.epoch
                size = self._bytes_asked(replicator)
                wanted.append(FetchPartitionById(topic_id, partition, replicator.fetched, *epochs, size))
            else:
                unwanted.append(replicator.source_key)
                self.buckets.stands(replicator.source_key, replicator.config.topic, behind=False)
        changed, forgotten = session.changes(wanted, unwanted)
        if not len(session):
            # Nothing left to fetch or to forget: the next request begins a new session.
            session.reset()
            return None
        wait_ms = self.buckets.wait_ms_max()
        if any(self.asks(replicator, line) for replicator in choked):
            # Fetched partitions may be quiet: their long poll must not delay one that soon has room again.
            wait_ms = min(wait_ms, BLOCKED_WAIT_MS)
        return PlannedFetch(session.session_id, session.epoch, changed, forgotten, self.buckets.bytes_max(), wait_ms)

    def _leave_to_others(self) -> None:
        if member := self.member:
            for replicator in member.partitions_read_for_others():
                member.let_go(replicator)
                self.ask_again(replicator)

    def _is_ours(self, replicator: PartitionReplicator, line: FetchStream, *, asks: bool) -> bool:
        if self.member is None:
            return asks
        if not asks:
            self.member.let_go(replicator)
        return asks and self.member.reads(replicator, line)

    def _bytes_asked(self, replicator: PartitionReplicator) -> int:
        """Reads for all ignore this link's weights."""
        leads = self.member is not None and self.member.leads(replicator)
        return self.buckets.partition_bytes(replicator.config.topic, replicator.partition_bytes_max, weighed=not leads)

    def asks(self, replicator: PartitionReplicator, line: FetchStream) -> bool:
        """Whether the stream may fetch this partition, however much waits to be sent."""
        return (
            replicator.phase is Phase.RUNNING
            and replicator.stop_after is None
            and replicator.refusal is None
            and replicator.leaders.target not in self._held
            and self.line_of(replicator, replicator.leaders) == line
            and self._replicators.get(replicator.source_key) is replicator
            and self.buckets.admits(replicator.config.topic)
        )

    def answered(
        self, line: FetchStream, answer: FetchResponseById
    ) -> list[tuple[PartitionReplicator, FetchedPartitionById]]:
        """Returns the partitions still at the fetched offset. A fetch that failed as a whole gives all of the stream,
        with its error.
        """
        session = self._sessions[line]
        if self.member:
            self.member.heard(line, sum(len(part.records) for part in answer.partitions))
        if answer.error:
            self.reset(line)
            return [] if answer.error in SESSION_LOST_CODES else self._failed(line, answer.error)
        answered = [
            (replicator, part)
            for part in answer.partitions
            if (replicator := self._replicators.get((part.topic_id, part.partition))) is not None
            and session.position(replicator.source_key) == replicator.fetched
        ]
        for replicator, part in answered:
            if replicator.phase is not Phase.RUNNING:
                self.wake(replicator)  # Until it runs, the broker would answer the same again, and at once.
            elif not part.error:
                # Not `route.source_epoch`, which may have changed since.
                replicator.source.led = session.epoch_asked(replicator.source_key)
        session.answered(answer.session_id)
        if answer.session_id == 0:
            self.reset(line)
        if self.buckets.bounding:
            self._spend(answered)
        return answered

    def _failed(self, line: FetchStream, error: int) -> list[tuple[PartitionReplicator, FetchedPartitionById]]:
        failed = []
        for replicator in self._replicators.values():
            if self.asks(replicator, line):
                key = replicator.source_key
                part = FetchedPartitionById(*key, error, -1, -1, -1, None, None, [], memoryview(b""))
                failed.append((replicator, part))
        return failed

    def _spend(self, answered: list[tuple[PartitionReplicator, FetchedPartitionById]]) -> None:
        shut: set[str] = set()
        others_first = False
        for replicator, part in answered:
            size, following = measure_whole_batches(part.records)
            topic = replicator.config.topic
            if size:
                if self.buckets.spend(topic, size):
                    shut.add(topic)
                behind = following < part.last_stable_offset
                others_first |= self.buckets.stands(replicator.source_key, topic, behind=behind)
        for replicator in self._replicators.values() if shut or others_first else ():
            if others_first or replicator.config.topic in shut:
                self.wake(replicator)

    def widen(self, answer: FetchResponseById) -> None:
        """For a far source: several streams per leader, to read one while another is in flight. Partitions that filled
        their limit may bring more.
        """
        if self._streams < self._far_streams:
            self._part()
        for part in answer.partitions:
            replicator = self._replicators.get((part.topic_id, part.partition))
            limit = replicator.partition_bytes_max if replicator else 0
            if replicator and 4 * len(part.records) >= 3 * limit < self._partition_bytes_widest:
                replicator.partition_bytes_max *= 2
                self.wake(replicator)

    def _part(self) -> None:
        """Splits the streams. Responses of an old stream count until the new one has asked."""
        led = [replicator for replicator in self._replicators.values() if replicator.leaders.source >= 0]
        before = [self.line_of(replicator, replicator.leaders) for replicator in led]
        self._streams = self._far_streams
        for replicator, line in zip(led, before, strict=True):
            if self.line_of(replicator, replicator.leaders) != line:
                self._gone.setdefault(line, {})[replicator.source_key] = None
                self.wake(replicator)

    def reset(self, line: FetchStream) -> None:
        """Ends the stream's session."""
        self._sessions.setdefault(line, FetchSession()).reset()
        for replicator in self._replicators.values():
            if replicator.phase is Phase.RUNNING and self.line_of(replicator, replicator.leaders) == line:
                if self.member:
                    self.member.let_go(replicator)
                self.wake(replicator)


PARTITION_BYTES_LIMIT = 1 << 30


def needed_fetch_bytes(records: memoryview, limit: int) -> int:
    """The partition limit with which a larger batch arrives whole."""
    if len(records) >= 12:
        return min(PARTITION_BYTES_LIMIT, max(limit, int.from_bytes(records[8:12], "big") + 12))
    return min(PARTITION_BYTES_LIMIT, limit * 2)
