"""Shared fetching for the tasks of one broadcast: each source partition is read once, and its bytes are held once.

Each partition has a **window** of parsed data between the source and these tasks, the **members**. One member at a
time, the **reader**, fetches from the source. Each fetch gives a **slice** of the window, which feeds the other
members. A member within the window or at its end has **joined**. No member waits for another: one that falls out of the
window fetches by itself until the next border of a slice.

A member is fed only if its twin has the window's history: the same leader epoch below, or everything since from the
window. An error or another history at the source empties the window. Slices are copies, so a slow member does not keep
the reader's buffer.

A drop-oldest queue drops the oldest waiting data, over a watermark or over an age. Readers of the twin see the same as
for offsets that the source has lost. Drops need only the borders of slices and read no byte. Only a mapped twin may
have such a queue.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from twinshore.config.model import QueueRules, is_heartbeats_topic
from twinshore.kafka.protocol.fetch import FetchedPartitionById
from twinshore.kafka.protocol.primitives import I64
from twinshore.kafka.protocol.record_batch import PREFIX_BYTES, TRANSACTIONAL_FLAG, BatchHeader, batch_end
from twinshore.replication.task.core.batches import BufferPool, OffsetGap, OutgoingBatch, ParsedFetch, PooledBuffer
from twinshore.replication.task.core.messages import TaskConfig, TaskLimits, dropped_incident, is_too_old
from twinshore.replication.task.core.partition import PartitionReplicator, Phase
from twinshore.replication.task.core.position import TargetState

# Bytes that wait for the target, joined partitions, bytes of own fetches since the last report.
QUEUED_KEY, JOINED_KEY, READ_KEY = "queued_bytes", "joined", "read_bytes"
SourcePartitionKey = tuple[bytes, int]
FetchStream = tuple[int, int]  # source node, stream
# What a slice takes besides its bytes.
SLICE_OVERHEAD_BYTES = 1024
# Kept though all joined members have it: after a new task or an inspection no read is needed.
KEPT_BYTES_MAX = 8 << 20
# Limit of one member's queues, besides what is being sent.
QUEUE_BYTES_MAX = 8 << 20
SLICES_MAX = 10_000
# Pause before queues are asked again to release buffers.
BUFFER_RETRY_S = 0.25
# A reader without a response for so long gives up its role: a broker answers each long poll sooner.
READER_TIMEOUT_S = 2.0
# Members start one after another: all is kept for so long, and far behind the source they begin together.
STARTUP_S = 3.0
GATHER_S_MAX = 1.0


def sum_shared_fetch(speeds: Iterable[Mapping[str, float]], read_total: float) -> dict[str, float]:
    """Sums the last reports of one link's tasks. `read_total`: bytes of all the link's fetches. Empty without a
    broadcast.
    """
    reports = [speed for speed in speeds if JOINED_KEY in speed]
    sums = {name: sum(speed[name] for speed in reports) for name in (QUEUED_KEY, JOINED_KEY)}
    return sums | {READ_KEY: read_total} if reports else {}


class WindowSlice(NamedTuple):
    """One parsed fetch of a partition, from offset `base` on.

    `before`: the source's leader epoch of the last record below, or -1. `led`: the source's leader epoch at the read.
    `written_ms`: the latest time stamp, never later than the read.
    """

    base: int
    cut: ParsedFetch
    size: int
    before: int
    led: int
    written_ms: int

    def young_from(self, since_ms: int) -> int:
        """Returns the offset of the first batch written since `since_ms`, or `base` if no member may join there."""
        if self.before != self.cut.leader_epoch:
            return self.base
        for piece in self.cut.batches:
            if isinstance(piece, OutgoingBatch) and not is_too_old(piece.max_timestamp, since_ms):
                return piece.base
        return self.base

    def rest(self, position: int, write_from: int) -> ParsedFetch | None:
        """Returns what follows `position`, for a twin that ends at `write_from`. None if one of the two is no border of
        this slice.
        """
        cut = self.cut
        if position == self.base and write_from <= position:
            return cut
        borders = {self.base, cut.end, *(piece.base for piece in cut.batches)}
        noted_to = max(position, min(write_from, cut.end))
        if position not in borders or noted_to not in borders:
            return None
        if position > self.base and self.before != cut.leader_epoch:
            return None
        return cut._replace(
            batches=[piece for piece in cut.batches if piece.base >= noted_to],
            noted_to=noted_to,
            carried=[entry for entry in cut.carried if entry.base >= position],
            gaps=[gap for gap in cut.gaps if gap.base >= position],
        )


@dataclass(slots=True, eq=False)
class SharedWindow:
    """The window of one partition. `end`: where the next slice begins, -1 before the first read. `epoch`: the leader
    epoch below `end`. `era`: how often the window began again, and `origin`: where. `line`, `heard_s`: the reading
    connection, and its last sign of life.
    """

    end: int = -1
    epoch: int = -1
    era: int = 0
    origin: int = -1
    slices: dict[int, WindowSlice] = field(default_factory=dict)
    members: dict[SharedFetchMember, PartitionReplicator] = field(default_factory=dict)
    reader: SharedFetchMember | None = None
    line: tuple[int, int] = (-1, -1)
    heard_s: float = 0.0

    @property
    def begin(self) -> int:
        return next(iter(self.slices), self.end)

    def found(self, position: int, write_from: int) -> tuple[WindowSlice, ParsedFetch] | None:
        """Returns the slice with `position`, and its rest for a twin that ends at `write_from`."""
        part = self.slices.get(position)
        if part is None:
            part = next((part for part in self.slices.values() if part.base < position < part.cut.end), None)
        rest = part.rest(position, write_from) if part else None
        return (part, rest) if part and rest else None

    def border(self, position: int) -> int:
        """Returns the first border above `position` where a member may join, or -1."""
        if position >= self.end:
            return -1
        known = (base for base, part in self.slices.items() if base > position and part.before >= 0)
        return next(known, self.end if self.epoch >= 0 else -1)


class SharedFetch:
    """The windows of one broadcast. `high_bytes` and `parts_max` limit what is held for all partitions together."""

    def __init__(self, limits: TaskLimits, high_bytes: int, parts_max: int = SLICES_MAX) -> None:
        self.high_bytes, self.parts_max = high_bytes, parts_max
        self._limits = limits
        self.joining = BufferPool(replace(limits, joined_bytes_max=high_bytes))
        self.bytes = 0
        self.windows: dict[SourcePartitionKey, SharedWindow] = {}
        # The oldest first.
        self._ages: deque[tuple[SharedWindow, WindowSlice]] = deque()
        self.sessions: set[SharedFetchMember] = set()
        # The age limits of all members, the highest first.
        self.ages_s: list[float] = []
        self.now_s = self._born_s = 0.0
        # When queues were last asked to release buffers, and how many they released.
        self._moved_s, self._left_rooms = 0.0, 1

    @classmethod
    def of(cls, config: TaskConfig) -> SharedFetch | None:
        """A new shared fetch for a broadcast's task, else None. A task that runs apart also gets one, to read alone and
        drop old data.
        """
        return cls(config.limits, config.queue.high_bytes, config.queue.parts_max) if config.broadcast else None

    def tick(self, now_s: float) -> None:
        self._born_s = self._born_s or now_s
        self.now_s = now_s

    @property
    def age_s(self) -> float:
        return self.now_s - self._born_s

    def window(self, key: SourcePartitionKey) -> SharedWindow:
        return self.windows.setdefault(key, SharedWindow())

    def came(self, member: SharedFetchMember) -> None:
        self.sessions.add(member)
        self._allow()

    def hold(self, high_bytes: int, parts_max: int) -> None:
        """Raises the limits to those of a further member."""
        self.high_bytes, self.parts_max = max(self.high_bytes, high_bytes), max(self.parts_max, parts_max)
        self._allow()

    def left(self, member: SharedFetchMember) -> None:
        self.sessions.discard(member)
        self._allow()

    def _allow(self) -> None:
        ages_s = {member.rules.max_age_s for member in self.sessions if member.rules.fresh and member.rules.max_age_s}
        self.ages_s = sorted(ages_s, reverse=True)
        each = QUEUE_BYTES_MAX + self._limits.request_bytes_max + self._limits.partition_bytes_max
        self.joining.allow(self.high_bytes + each * len(self.sessions))

    def pool_with_room(self) -> BufferPool | None:
        """Returns the pool for the next parse, or None if all buffers are in use. No member waits for another's queue:
        small queues release the buffers that they pin, then the oldest slices are dropped.
        """
        if self.joining.full() and (self._left_rooms or self.now_s - self._moved_s >= BUFFER_RETRY_S):
            self._moved_s, rooms = self.now_s, frozenset(self.joining.rooms)
            most = self.joining.holds(QUEUE_BYTES_MAX)
            self._left_rooms = sum([member.release_buffers(rooms, most) for member in self.sessions])
        while self.joining.full():
            if not self._ages:
                return None
            self._drop_oldest()
        return self.joining

    def begin(self, window: SharedWindow, at: int, epoch: int) -> None:
        """Restarts the window at offset `at`. `epoch`: the leader epoch below."""
        for part in window.slices.values():
            self._let_go(part)
        if window.slices:
            self._ages = deque(entry for entry in self._ages if entry[0] is not window)
        window.slices = {}
        window.era += 1
        window.end, window.epoch, window.origin = at, epoch, at

    def put(self, window: SharedWindow, part: WindowSlice) -> None:
        """Adds the next slice. Older slices may be dropped for it, never the new one, which no member has had yet."""
        for piece in part.cut.batches:
            if isinstance(piece, OutgoingBatch) and piece.room:
                piece.room.uses += 1
        window.slices[part.base] = part
        window.end, window.epoch = part.cut.end, part.cut.leader_epoch
        self._ages.append((window, part))
        self.bytes += part.size
        while len(self._ages) > 1 and (self.bytes > KEPT_BYTES_MAX or self._over()):
            if not self._over() and (self.age_s < STARTUP_S or is_slice_needed(*self._ages[0])):
                break
            self._drop_oldest()

    def _over(self) -> bool:
        return self.bytes > self.high_bytes or len(self._ages) > self.parts_max

    def _drop_oldest(self) -> None:
        window, part = self._ages.popleft()
        del window.slices[part.base]
        self._let_go(part)

    def _let_go(self, part: WindowSlice) -> None:
        self.bytes -= part.size
        for piece in part.cut.batches:
            if isinstance(piece, OutgoingBatch) and piece.room:
                piece.room.uses -= 1


class SharedFetches:
    """The shared fetches of one process, by broadcast, source and task number."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str, int], SharedFetch] = {}

    def of(self, config: TaskConfig) -> SharedFetch | None:
        """Returns the shared fetch that this task joins, or None without a broadcast."""
        key = config.broadcast, config.source_id, config.task
        shared_fetch = self._kept.get(key) or SharedFetch.of(config)
        if shared_fetch:
            shared_fetch.hold(config.queue.high_bytes, config.queue.parts_max)
            self._kept[key] = shared_fetch
        return shared_fetch


def is_slice_needed(window: SharedWindow, part: WindowSlice) -> bool:
    """Whether a twin ends within this slice, the oldest: data in flight may have to be sent again, and an absent target
    may return. A drop-oldest queue whose twin ends below continues within what is left.
    """
    return any(
        not replicator.leaving
        and replicator.phase is not Phase.STOPPED
        and replicator.acked < part.cut.end
        and (part.base <= replicator.acked or (member.drops(replicator) and replicator.begins > 0))
        for member, replicator in window.members.items()
    )


def copy_buffers(parsed: ParsedFetch) -> ParsedFetch:
    """Copies bytes out of the fetch buffer, to free that."""
    return parsed._replace(batches=[_owned(piece) for piece in parsed.batches])


def _owned(piece: OutgoingBatch | OffsetGap) -> OutgoingBatch | OffsetGap:
    if isinstance(piece, OffsetGap) or piece.room or not isinstance(piece.body, memoryview):
        return piece
    return piece._replace(body=bytes(piece.body))


NO_BUFFER = PooledBuffer(bytearray())
# Where a batch has its latest time stamp.
TIMESTAMP_OFFSET, TIMESTAMP_END = 35, 43
DROPPED_BY_ENDED_TASK = "by a task that has ended"


def find_kept_offset(
    window: SharedWindow, position: int, rules: QueueRules, now_ms: int
) -> tuple[int, int, str] | None:
    """Returns the first offset beyond `position` that is kept, the leader epoch below it, and why the offsets before
    are dropped. None if all are kept.

    Above the high watermark the queue shrinks to the low one, so that drops are rare. The last slice is kept at any
    size; otherwise a member that keeps up would get nothing.
    """
    if position < window.origin or position >= window.end:
        return None
    ahead = [part for part in window.slices.values() if part.cut.end > position]
    gone, why = 0, ""  # how many of these go
    since_ms = oldest_kept_ms(rules, now_ms)
    if rules.max_age_s:
        gone = next((at for at, part in enumerate(ahead) if part.written_ms >= since_ms), len(ahead))
        why = describe_age_limit(rules) if gone else ""
    size, lost = sum(part.size for part in ahead[gone:]), window.begin > position
    if size > rules.high_bytes or len(ahead) - gone > rules.parts_max or lost:
        while len(ahead) - gone > 1 and (size > rules.low_bytes or len(ahead) - gone > rules.parts_max // 2):
            size -= ahead[gone].size
            gone += 1
        why = why or "over the high watermark"
    first = ahead[gone] if gone < len(ahead) else None
    at, epoch = (first.base, first.before) if first else (window.end, window.epoch)
    if first and rules.max_age_s and (border := first.young_from(since_ms)) > max(at, position):
        at, epoch, why = border, first.cut.leader_epoch, why or describe_age_limit(rules)
    return (at, epoch, why) if at > position and why else None


def oldest_kept_ms(rules: QueueRules, now_ms: int) -> int:
    return now_ms - int(rules.max_age_s * 1000)


def describe_age_limit(rules: QueueRules) -> str:
    return f"older than {rules.max_age_s:g} s"


def with_young_offset(state: TargetState, young_from: int, below: BatchHeader | None) -> TargetState:
    """Adds where young enough records begin. `below`: the source's batch before; without a time stamp nothing is too
    old.
    """
    if below and below.max_timestamp < 0:
        return state
    return replace(state, young_from=young_from, young_epoch=below.leader_epoch if below else -1)


def drop_unsent(replicator: PartitionReplicator, to: int, epoch: int, why: str, now_ms: int) -> None:
    """Drops what is below `to` and not in flight. `epoch`: the source's leader epoch of the last record below `to`, -1
    if unknown.
    """
    if replicator.sent < replicator.fetched:
        replicator.set_back()
    drop_next(replicator, to, epoch, why, now_ms)


def drop_next(replicator: PartitionReplicator, to: int, epoch: int, why: str, now_ms: int) -> None:
    """Drops the offsets from `replicator.fetched` to `to`. What already waits is sent before."""
    begin = replicator.fetched
    gone = OffsetGap(begin, to)
    replicator.dropped.append(dropped_incident(replicator.named, begin, to, why))
    replicator.take(ParsedFetch([gone], to, begin, epoch, None, [], [gone]), NO_BUFFER, now_ms)


def note_missing_ranges(replicator: PartitionReplicator, ranges: Iterable[tuple[int, int]]) -> None:
    """Reports source records that an inspection did not find on the twin, except what is reported already. A task that
    ended too soon had dropped the rest.
    """
    known = [(row.from_offset, row.to_offset) for row in replicator.dropped]
    known.append((0, max(replicator.progress_log.to, replicator.config.inherited)))
    for begin, end in ranges:
        for known_begin, known_end in sorted(known):
            if known_begin <= begin:
                begin = max(begin, known_end)
            elif known_begin < end:
                replicator.dropped.append(dropped_incident(replicator.named, begin, known_begin, DROPPED_BY_ENDED_TASK))
                begin = known_end
        if begin < end:
            replicator.dropped.append(dropped_incident(replicator.named, begin, end, DROPPED_BY_ENDED_TASK))
    replicator.dropped.sort(key=lambda row: row.from_offset)


def drop_old_batches(done: ParsedFetch, begin: int, since_ms: int) -> tuple[ParsedFetch, int]:
    """Returns `done` without the older batches at the beginning, and where those end, or -1."""
    old = 0
    for piece in done.batches:
        if isinstance(piece, OutgoingBatch) and not is_too_old(piece.max_timestamp, since_ms):
            break
        old += 1
    if not any(isinstance(piece, OutgoingBatch) for piece in done.batches[:old]):
        return done, -1
    to = done.batches[old - 1].end
    gone = OffsetGap(begin, to)
    carried = [entry for entry in done.carried if entry.base >= to]
    gaps = [gone, *(gap for gap in done.gaps if gap.base >= to)]
    return done._replace(batches=[gone, *done.batches[old:]], carried=carried, gaps=gaps), to


def old_bytes(records: memoryview, since_ms: int) -> int:
    """Bytes before the first batch that is young enough; 0 if that is the first, or none is. Joined batches must be of
    one age.
    """
    place, size = 0, len(records)
    while place + TIMESTAMP_END <= size:
        if not is_too_old(I64.unpack_from(records, place + TIMESTAMP_OFFSET)[0], since_ms):
            return place
        place = batch_end(records, place)
    return 0


def find_transactional(parsed: ParsedFetch) -> OutgoingBatch | None:
    for piece in parsed.batches:
        if isinstance(piece, OutgoingBatch) and piece.header.attributes & TRANSACTIONAL_FLAG:
            return piece
    return None


STALE_CHECK_INTERVAL_S = 0.25
# How often the age of waiting data is checked.
AGE_CHECK_INTERVAL_S = 0.1


class SharedFetchMember:
    """One task's share of a shared fetch: what it reads for all, is fed, and reads by itself. `wake(replicator)` makes
    the task check a partition. `rules`: of the task's queue.
    """

    def __init__(
        self, shared_fetch: SharedFetch, wake: Callable[[PartitionReplicator], None], rules: QueueRules
    ) -> None:
        self.shared_fetch, self.wake, self.rules = shared_fetch, wake, rules
        # Partitions for which the window may have data; those that wait for room in our queues.
        self.called: dict[PartitionReplicator, None] = {}
        self._hungry: dict[PartitionReplicator, None] = {}
        # Whether the task needs a turn, as a partition may be read.
        self.needs_turn = False
        self._windows: dict[PartitionReplicator, SharedWindow] = {}
        # From which offset, era and beginning a partition was fed by the window alone.
        self._followed: dict[PartitionReplicator, tuple[int, int, int]] = {}
        self._heard: dict[FetchStream, float] = {}
        # Partitions that wait until others can begin to read as well.
        self._gathering: dict[PartitionReplicator, None] = {}
        self._looked_s, self._fresh_at_s, self._brought = 0.0, 0.0, 0
        self._closed = False
        shared_fetch.came(self)

    # -- members

    def join_window(self, replicator: PartitionReplicator) -> None:
        window = self._windows[replicator] = self.shared_fetch.window(replicator.source_key)
        window.members[self] = replicator

    def leave(self, replicator: PartitionReplicator) -> None:
        window = self._windows.pop(replicator, None)
        if window is not None and window.members.get(self) is replicator:
            del window.members[self]
            self._release(window)
        for kept in (self.called, self._hungry, self._followed, self._gathering):
            kept.pop(replicator, None)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            for replicator in list(self._windows):
                self.leave(replicator)
            self.shared_fetch.left(self)

    def call(self, replicator: PartitionReplicator) -> None:
        """Marks a partition that may now be fed."""
        window = self._windows.get(replicator)
        if window is None or replicator.fetched >= window.end or replicator in self._hungry:
            return
        if not replicator.waiting.choked or replicator.waiting.bytes < replicator.partition_bytes_max:
            self.called[replicator] = None

    # -- the reader

    def reads(self, replicator: PartitionReplicator, line: FetchStream) -> bool:
        """Whether the task must fetch this partition now, for all members or for itself."""
        window = self._windows.get(replicator)
        if window is None:
            return True
        if replicator.fetched < replicator.write_from:
            return self._must_ask(replicator, window)
        if window.end < 0 and self._gathers(replicator, window):
            self._gathering[replicator] = None
            return False
        if replicator.fetched > window.end:
            # No other member is as far: from here on this one reads for all.
            self.shared_fetch.begin(window, replicator.fetched, replicator.source.epoch)
            self._claim(window, replicator, line)
            self._wake_others(window)
            return True
        if replicator.fetched == window.end and self._agrees(replicator, window, window.epoch):
            if window.reader in (None, self):
                self._claim(window, replicator, line)
                return True
            return False
        self.let_go(replicator)
        return self._must_ask(replicator, window)

    def _must_ask(self, replicator: PartitionReplicator, window: SharedWindow) -> bool:
        """Whether the window has nothing for this partition; otherwise marks the partition to be fed."""
        if self._next(replicator, window) is None:
            return True
        self.call(replicator)
        return False

    def _gathers(self, replicator: PartitionReplicator, window: SharedWindow) -> bool:
        """Whether to wait for members that are still starting: far behind the source, a late one needs long to catch
        up.
        """
        if replicator.source.end <= replicator.fetched or self.shared_fetch.age_s >= GATHER_S_MAX:
            return False
        early = (Phase.UNVERIFIED, Phase.VERIFYING)
        return any(member.phase in early and not member.leaving for member in window.members.values())

    def _claim(self, window: SharedWindow, replicator: PartitionReplicator, line: FetchStream) -> None:
        window.reader, window.line, window.heard_s = self, line, self.shared_fetch.now_s
        self._follow(replicator, window)

    def partitions_read_for_others(self) -> list[PartitionReplicator]:
        read = [replicator for replicator, window in self._windows.items() if window.reader is self]
        return [replicator for replicator in read if len(self._windows[replicator].members) > 1]

    def let_go(self, replicator: PartitionReplicator) -> None:
        """Stops reading the partition for others, and wakes them to find a new reader."""
        if (window := self._windows.get(replicator)) is not None:
            self._release(window)

    def _release(self, window: SharedWindow) -> None:
        if window.reader is self:
            window.reader = None
            self._wake_others(window)

    def _wake_others(self, window: SharedWindow) -> None:
        for member, replicator in window.members.items():
            if member is not self:
                member.wake(replicator)
                member.needs_turn = True

    def doubt(self, replicator: PartitionReplicator) -> None:
        """Empties the window: the source may have another history."""
        if (window := self._windows.get(replicator)) is not None and window.reader is self:
            self.shared_fetch.begin(window, window.end, -1)
            self._release(window)

    def heard(self, line: FetchStream, brought: int) -> None:
        """Notes a fetch response with `brought` bytes of records."""
        self._heard[line] = self.shared_fetch.now_s
        self._brought += brought

    def tick(self, now_s: float) -> None:
        """Runs periodic checks. A reader without responses gives up its role."""
        self.shared_fetch.tick(now_s)
        gathering, self._gathering = self._gathering, {}
        for replicator in gathering:
            self.wake(replicator)
        if self.rules.fresh and now_s >= self._fresh_at_s:
            self._fresh_at_s = now_s + AGE_CHECK_INTERVAL_S
            for replicator, window in self._windows.items():
                if replicator.sent < window.end and self.drops(replicator):
                    self.called[replicator] = None
        if now_s - self._looked_s < STALE_CHECK_INTERVAL_S:
            return
        self._looked_s = now_s
        for replicator, window in self._windows.items():
            # In case a wake was missed: check partitions away from the window's end, or without a reader.
            if replicator.phase is Phase.RUNNING and (replicator.fetched != window.end or window.reader is None):
                self.wake(replicator)
        for window in self.shared_fetch.windows.values():
            reader = window.reader
            if reader and now_s - max(window.heard_s, reader._heard.get(window.line, 0.0)) > READER_TIMEOUT_S:
                reader._release(window)

    # -- reads

    def leads(self, replicator: PartitionReplicator) -> bool:
        """Whether the next read of this partition is for all members."""
        window = self._windows.get(replicator)
        if window is None or window.reader is not self or len(window.members) <= 1:
            return False
        return replicator.fetched == window.end and replicator.fetched >= replicator.write_from

    def begins(
        self, replicator: PartitionReplicator, records: memoryview, own: BufferPool, now_ms: int
    ) -> tuple[memoryview, BufferPool | None]:
        """Returns the part to parse, and the pool to join batches in, if any. `own`: the task's pool."""
        records = self._of_one_age(self.trim_to_window(replicator, records), now_ms)
        return records, self.shared_fetch.pool_with_room() if self.leads(replicator) else own

    def _of_one_age(self, records: memoryview, now_ms: int) -> memoryview:
        """Cuts after records that are too old for one of the queues; younger ones are fetched next."""
        for age_s in self.shared_fetch.ages_s:
            if end := old_bytes(records, now_ms - int(age_s * 1000)):
                return records[:end]
        return records

    def read(
        self,
        replicator: PartitionReplicator,
        done: ParsedFetch,
        part: FetchedPartitionById,
        joining: BufferPool | None,
        now_ms: int,
    ) -> ParsedFetch:
        """Takes a parsed fetch. The reader adds it as the next slice, and continues with the slice's own copy.
        `joining`: the pool of joined batches, if any.
        """
        window = self._windows.get(replicator)
        if window is None or window.reader is not self or replicator.fetched != window.end:
            return done
        if replicator.fetched < replicator.write_from or done.end == replicator.fetched:
            return done
        if done.stopped:
            self.doubt(replicator)
        elif len(window.members) > 1 and joining in (None, self.shared_fetch.joining):
            done = copy_buffers(done)
            source, written_ms = replicator.source, _written_ms(done, now_ms)
            size = SLICE_OVERHEAD_BYTES + sum(piece.size for piece in done.batches)
            window_slice = WindowSlice(replicator.fetched, done, size, source.epoch, source.led, written_ms)
            self.shared_fetch.put(window, window_slice)
            self._tell(window, part)
        else:
            # No other member was here at the parse: a new one fetches by itself until it reaches the window.
            if window.slices:
                self.shared_fetch.begin(window, done.end, done.leader_epoch)
            window.end, window.epoch, window.origin = done.end, done.leader_epoch, done.end
            self._wake_others(window)
        return done

    def _tell(self, window: SharedWindow, part: FetchedPartitionById) -> None:
        for member, other in window.members.items():
            if member is not self:
                if other.phase is Phase.RUNNING:
                    other.source.end, other.source.start = part.high_watermark, part.log_start
                    if not other.source.heard:
                        other.note_source_readable()
                member.call(other)

    def heads(self, replicator: PartitionReplicator, part: FetchedPartitionById) -> None:
        """Passes on the source's log start and high watermark."""
        window = self._windows.get(replicator)
        if window is not None and window.reader is self:
            self._tell(window, part)

    def trim_to_window(self, replicator: PartitionReplicator, records: memoryview) -> memoryview:
        """Cuts a fetch of the task's own at the window's border; for a drop-oldest queue also at its twin's end."""
        window = self._windows.get(replicator)
        border = window.border(replicator.fetched) if window is not None and window.reader is not self else -1
        if self.drops(replicator) and replicator.fetched < replicator.write_from:
            # What the twin has is reported separately; the age of what follows is checked when fetched.
            border = replicator.write_from if border < 0 else min(border, replicator.write_from)
        if border < 0:
            return records
        place, size = 0, len(records)
        while place + PREFIX_BYTES <= size and I64.unpack_from(records, place)[0] < border:
            place = batch_end(records, place)
        return records[:place] if 0 < place < size else records

    # -- feeding

    def hungry(self) -> list[PartitionReplicator]:
        """Takes the partitions to feed now."""
        hungry = [*self.called, *(replicator for replicator in self._hungry if replicator not in self.called)]
        self.called, self._hungry, self.needs_turn = {}, {}, False
        return hungry

    def later(self, replicator: PartitionReplicator) -> None:
        self._hungry[replicator] = None

    def room(self) -> int:
        """Returns how many more bytes may wait in the task's queues."""
        return QUEUE_BYTES_MAX - sum(replicator.waiting.bytes for replicator in self._windows)

    def release_buffers(self, rooms: Container[PooledBuffer], most: int) -> int:
        """Keeps queued data in at most `most` of these buffers, those with the most queued bytes, and copies the rest.
        Returns the number of buffers freed.
        """
        sizes: Counter[PooledBuffer] = Counter()
        for replicator in self._windows:
            for piece, buffer in replicator.waiting:
                if buffer in rooms and buffer:
                    sizes[buffer] += piece.size
        left = {buffer for buffer, _ in sizes.most_common()[most:]}
        for replicator in self._windows if left else ():
            replicator.waiting.leave(left)
        return len(left)

    def next(self, replicator: PartitionReplicator) -> tuple[WindowSlice, ParsedFetch] | None:
        """Returns what the window has next. None: fetch from the source, or wait for the reader."""
        window = self._windows.get(replicator)
        next_slice = self._next(replicator, window) if window else None
        if next_slice and window:
            self._follow(replicator, window)
        return next_slice

    def _next(self, replicator: PartitionReplicator, window: SharedWindow) -> tuple[WindowSlice, ParsedFetch] | None:
        own = replicator.fetched < replicator.write_from and self.drops(replicator)
        if own or replicator.fetched >= window.end:
            return None
        if (next_slice := window.found(replicator.fetched, replicator.write_from)) is None:
            return None
        part = next_slice[0]
        if part.led < max(replicator.source.led, replicator.leaders.source_epoch):
            # The source has a new leader, whose log may differ: ask that.
            self.shared_fetch.begin(window, window.end, window.epoch)
            self._wake_others(window)
            return None
        before = part.before if part.base == replicator.fetched else part.cut.leader_epoch
        return next_slice if self._agrees(replicator, window, before) else None

    def _agrees(self, replicator: PartitionReplicator, window: SharedWindow, epoch: int) -> bool:
        if replicator.fetched == 0 or replicator.source.epoch == epoch >= 0:
            return True
        since, era, begins = self._followed.get(replicator, (0, -1, -1))
        return (era, begins) == (window.era, replicator.begins) and replicator.fetched >= since

    def _follow(self, replicator: PartitionReplicator, window: SharedWindow) -> None:
        since, era, begins = self._followed.get(replicator, (0, -1, -1))
        if (era, begins) != (window.era, replicator.begins) or replicator.fetched < since:
            self._followed[replicator] = (replicator.fetched, window.era, replicator.begins)

    def drops(self, replicator: PartitionReplicator) -> bool:
        """Whether old data of this partition is dropped. Heartbeats are never dropped."""
        return self.rules.fresh and replicator.mapped and not is_heartbeats_topic(replicator.config.topic)

    def kept_from(self, replicator: PartitionReplicator, now_ms: int) -> tuple[int, int, str] | None:
        """Like `find_kept_offset`. None also if nothing may be dropped now."""
        window = self._windows.get(replicator)
        if not self.drops(replicator) or window is None or replicator.fetched < replicator.write_from:
            return None
        led, epochs = replicator.source.led, [piece.led for piece in window.slices.values()]
        if any(epoch < max(led, replicator.leaders.source_epoch) for epoch in epochs):
            return None  # The source has a new leader, whose log may differ: check that first.
        if any(epoch > led for epoch in epochs) and not self._agrees(replicator, window, -1):
            return None  # Fetch on: the source tells whether it still has what the twin has.
        return find_kept_offset(window, replicator.sent, self.rules, now_ms)

    # -- reports

    def told(self) -> dict[str, float]:
        """Figures for the task's next report; READ_KEY counts since the last one."""
        brought, self._brought = self._brought, 0
        return {QUEUED_KEY: self.queued(), JOINED_KEY: sum(1 for _ in self.joined()), READ_KEY: brought}

    def queued(self) -> int:
        """Bytes read for this task and not sent yet, in its queues or ahead in the window."""
        return sum(self._queued(replicator, window) for replicator, window in self._windows.items())

    def _queued(self, replicator: PartitionReplicator, window: SharedWindow) -> int:
        ahead = sum(part.size for base, part in window.slices.items() if base >= replicator.fetched)
        return replicator.waiting.bytes + (ahead if self._is_in(replicator, window) else 0)

    def joined(self) -> Iterator[PartitionReplicator]:
        return (replicator for replicator, window in self._windows.items() if self._is_in(replicator, window))

    def _is_in(self, replicator: PartitionReplicator, window: SharedWindow) -> bool:
        return replicator.phase is Phase.RUNNING and window.begin <= replicator.fetched <= window.end


def _written_ms(done: ParsedFetch, read_ms: int) -> int:
    """When the latest record was written; when it was read, for a missing or future time stamp."""
    stamps = [piece.max_timestamp for piece in done.batches if isinstance(piece, OutgoingBatch)]
    return min(read_ms, max(stamps)) if min(stamps, default=-1) >= 0 else read_ms
