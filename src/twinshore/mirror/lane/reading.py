"""What the lanes of one broadcast read together: each partition of the source once, its bytes held once. Pure.

Between the source and these lanes, the **members**, stands a window of what was fetched and cut of each partition. One
member at a time, the **reader**, asks the source for a partition; what it gets is a **slice** of the window, from which
the others are fed. Who stands in the window or at its end has **joined**. Nobody is waited for: who falls out of the
window reads by itself until it meets a border of a slice again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from twinshore.mirror.lane.cutting import Blank, Cut, Joining, Parcel
from twinshore.mirror.lane.orders import LaneLimits, TideOrder, is_old
from twinshore.mirror.lane.track import Phase, Track

if TYPE_CHECKING:
    from twinshore.mirror.lane.seat import Seat

# Bytes that wait for the target, partitions that have joined, bytes that own fetches brought since the last word.
QUEUED, JOINED, READ = "queued_bytes", "joined", "read_bytes"
SourceKey = tuple[bytes, int]
# What a slice takes besides its bytes.
SLICE_BYTES = 1024
# Kept though all who joined have it: who changes pumps, or was looked at, finds its place again without a read.
REACH_BYTES_MAX = 8 << 20
# What waits in the queues of one member at most, besides what it has begun to send.
QUEUE_BYTES_MAX = 8 << 20
PARTS_MAX = 10_000
# Queues that had no room to leave are asked again so much later.
MOVE_S = 0.25
# A reader whose line has answered nothing for so long gives way: a broker answers each long poll sooner.
READER_S_MAX = 2.0
# Members begin one after the other: for so long all is kept, and where the source is far ahead they begin together.
YOUNG_S = 3.0
GATHER_S_MAX = 1.0


def summed(said: Iterable[Mapping[str, float]], read_total: float) -> dict[str, float]:
    """Of one link: what its lanes said last. `read_total`: what its fetches brought in all. Empty where it is of no
    broadcast."""
    ours = [speed for speed in said if JOINED in speed]
    sums = {name: sum(speed[name] for speed in ours) for name in (QUEUED, JOINED)}
    return sums | {READ: read_total} if ours else {}


class Slice(NamedTuple):
    """One cut of a partition, from offset `base` on. `before`: the source's leader epoch of the last record below, -1
    where that is not known; `led`: the epoch in which the source was led when it was read. `written_ms`:
    by its latest time stamp, and not after it was read."""

    base: int
    cut: Cut
    size: int
    before: int
    led: int
    written_ms: int

    def young_from(self, since_ms: int) -> int:
        """Where what was written since then begins in it; its own beginning, where that is no border for all."""
        if self.before != self.cut.leader_epoch:
            return self.base
        for piece in self.cut.parcels:
            if isinstance(piece, Parcel) and not is_old(piece.max_timestamp, since_ms):
                return piece.base
        return self.base

    def rest(self, position: int, write_from: int) -> Cut | None:
        """What of it follows `position`, for a twin that ends at `write_from`, where both are borders within."""
        cut = self.cut
        if position == self.base and write_from <= position:
            return cut
        borders = {self.base, cut.end, *(piece.base for piece in cut.parcels)}
        noted_to = max(position, min(write_from, cut.end))
        if position not in borders or noted_to not in borders:
            return None
        if position > self.base and self.before != cut.leader_epoch:
            return None
        return cut._replace(
            parcels=[piece for piece in cut.parcels if piece.base >= noted_to],
            noted_to=noted_to,
            carried=[entry for entry in cut.carried if entry.base >= position],
            blanks=[blank for blank in cut.blanks if blank.base >= position],
        )


@dataclass(slots=True, eq=False)
class Window:
    """Of one partition. `end` is where the next slice begins, -1 before anybody has read; `epoch` is of the last
    record below. `era`: how often it began anew, and `origin` where. `line`, `heard_s`: by which line it is read,
    and when that was last known to answer.
    """

    end: int = -1
    epoch: int = -1
    era: int = 0
    origin: int = -1
    slices: dict[int, Slice] = field(default_factory=dict)
    members: dict[Seat, Track] = field(default_factory=dict)
    reader: Seat | None = None
    line: tuple[int, int] = (-1, -1)
    heard_s: float = 0.0

    @property
    def begin(self) -> int:
        return next(iter(self.slices), self.end)

    def found(self, position: int, write_from: int) -> tuple[Slice, Cut] | None:
        """The slice in which this border lies, and what follows it there for a twin that ends at `write_from`."""
        one = self.slices.get(position)
        if one is None:
            one = next((one for one in self.slices.values() if one.base < position < one.cut.end), None)
        cut = one.rest(position, write_from) if one else None
        return (one, cut) if one and cut else None

    def border(self, position: int) -> int:
        """The first border of a slice beyond at which one may join; -1 where there is none."""
        if position >= self.end:
            return -1
        known = (base for base, one in self.slices.items() if base > position and one.before >= 0)
        return next(known, self.end if self.epoch >= 0 else -1)


class Reading:
    """Of one lane of a broadcast. `high_bytes` and `parts_max` bound what is held of all partitions together."""

    def __init__(self, limits: LaneLimits, high_bytes: int, parts_max: int = PARTS_MAX) -> None:
        self.high_bytes, self.parts_max = high_bytes, parts_max
        self._limits = limits
        self.joining = Joining(replace(limits, joined_bytes_max=high_bytes))
        self.bytes = 0
        self.windows: dict[SourceKey, Window] = {}
        # The oldest first.
        self._ages: deque[tuple[Window, Slice]] = deque()
        self.seats: set[Seat] = set()
        # From which ages on something is dropped by one of the members, the oldest first.
        self.ages_s: list[float] = []
        self.now_s = self._born_s = 0.0
        # When queues were last asked to leave rooms, and how many they left.
        self._moved_s, self._left_rooms = 0.0, 1

    @classmethod
    def of(cls, order: TideOrder) -> Reading | None:
        """That of a lane of a broadcast; a lane that is carried apart reads by itself, and drops what is not fresh."""
        return cls(order.limits, order.queue.high_bytes, order.queue.parts_max) if order.broadcast else None

    def tick(self, now_s: float) -> None:
        """Time passed."""
        self._born_s = self._born_s or now_s
        self.now_s = now_s

    @property
    def age_s(self) -> float:
        return self.now_s - self._born_s

    def window(self, key: SourceKey) -> Window:
        return self.windows.setdefault(key, Window())

    def came(self, seat: Seat) -> None:
        self.seats.add(seat)
        self._allow()

    def hold(self, high_bytes: int, parts_max: int) -> None:
        """A member's queue may hold so much: the most that any of them asks for counts."""
        self.high_bytes, self.parts_max = max(self.high_bytes, high_bytes), max(self.parts_max, parts_max)
        self._allow()

    def left(self, seat: Seat) -> None:
        self.seats.discard(seat)
        self._allow()

    def _allow(self) -> None:
        ages_s = {seat.rules.max_age_s for seat in self.seats if seat.rules.fresh and seat.rules.max_age_s}
        self.ages_s = sorted(ages_s, reverse=True)
        each = QUEUE_BYTES_MAX + self._limits.request_bytes_max + self._limits.partition_bytes_max
        self.joining.allow(self.high_bytes + each * len(self.seats))

    def roomy(self) -> Joining | None:
        """For what is cut next; None where no room is left, and nothing can be joined. No member waits for what lies in
        the queue of another: a thin queue leaves the rooms that it would pin, and then the oldest slices go."""
        if self.joining.full() and (self._left_rooms or self.now_s - self._moved_s >= MOVE_S):
            self._moved_s, rooms = self.now_s, frozenset(self.joining.rooms)
            most = self.joining.holds(QUEUE_BYTES_MAX)
            self._left_rooms = sum([seat.leave_rooms(rooms, most) for seat in self.seats])
        while self.joining.full():
            if not self._ages:
                return None
            self._drop_oldest()
        return self.joining

    def begin(self, window: Window, at: int, epoch: int) -> None:
        """It begins anew there; nothing of before may be fed any more. `epoch`: of the last record below."""
        for one in window.slices.values():
            self._let_go(one)
        if window.slices:
            self._ages = deque(entry for entry in self._ages if entry[0] is not window)
        window.slices = {}
        window.era += 1
        window.end, window.epoch, window.origin = at, epoch, at

    def put(self, window: Window, one: Slice) -> None:
        """The next slice; what is older gives way to it, but not it itself: nobody has had it yet."""
        for piece in one.cut.parcels:
            if isinstance(piece, Parcel) and piece.room:
                piece.room.uses += 1
        window.slices[one.base] = one
        window.end, window.epoch = one.cut.end, one.cut.leader_epoch
        self._ages.append((window, one))
        self.bytes += one.size
        while len(self._ages) > 1 and (self.bytes > REACH_BYTES_MAX or self._over()):
            if not self._over() and (self.age_s < YOUNG_S or wanted(*self._ages[0])):
                break
            self._drop_oldest()

    def _over(self) -> bool:
        return self.bytes > self.high_bytes or len(self._ages) > self.parts_max

    def _drop_oldest(self) -> None:
        window, one = self._ages.popleft()
        del window.slices[one.base]
        self._let_go(one)

    def _let_go(self, one: Slice) -> None:
        self.bytes -= one.size
        for piece in one.cut.parcels:
            if isinstance(piece, Parcel) and piece.room:
                piece.room.uses -= 1


class Readings:
    """Those of one process: one for each lane of a broadcast and its source."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str, int], Reading] = {}

    def of(self, order: TideOrder) -> Reading | None:
        """With which others of its broadcast this lane reads together, if it is of one."""
        key = order.broadcast, order.source_id, order.lane
        reading = self._kept.get(key) or Reading.of(order)
        if reading:
            reading.hold(order.queue.high_bytes, order.queue.parts_max)
            self._kept[key] = reading
        return reading


def wanted(window: Window, one: Slice) -> bool:
    """Whether a twin ends within this slice, which is the oldest: what is on its way may have to be sent again, and a
    target that is away may soon be back. A fresh queue whose twin ends before it goes on within what is left."""
    return any(
        not track.leaving
        and track.phase is not Phase.STOPPED
        and track.acked < one.cut.end
        and (one.base <= track.acked or (seat.drops(track) and track.begins > 0))
        for seat, track in window.members.items()
    )


def owned(cut: Cut) -> Cut:
    """The same with bytes of its own: what lies in a fetch's buffer is copied, so that the buffer is free again."""
    parcels = [_owned(piece) for piece in cut.parcels]
    return cut._replace(parcels=parcels)


def _owned(piece: Parcel | Blank) -> Parcel | Blank:
    if isinstance(piece, Blank) or piece.room or not isinstance(piece.body, memoryview):
        return piece
    return piece._replace(body=bytes(piece.body))


def size_of(cut: Cut) -> int:
    """What a slice of it takes."""
    return SLICE_BYTES + sum(piece.size for piece in cut.parcels if isinstance(piece, Parcel))
