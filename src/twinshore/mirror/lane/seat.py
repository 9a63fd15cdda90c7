"""One lane's place at a shared reading: what it reads for all, what it is fed, what it reads by itself. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator

from twinshore.fleet import QueueRules, is_heartbeats
from twinshore.mirror.lane.cutting import Cut, Hold, Joining, Parcel
from twinshore.mirror.lane.fresh import kept_from, old_end
from twinshore.mirror.lane.reading import (
    GATHER_S_MAX,
    JOINED,
    QUEUE_BYTES_MAX,
    QUEUED,
    READ,
    READER_S_MAX,
    Reading,
    Slice,
    Window,
    owned,
    size_of,
)
from twinshore.mirror.lane.track import Phase, Track, read_again
from twinshore.wire.batch import PREFIX_BYTES, end_at
from twinshore.wire.fetch import FetchedPartition
from twinshore.wire.primitives import I64

Line = tuple[int, int]
STALE_LOOK_S = 0.25
# How often it is looked whether what waits is fresh.
FRESH_LOOK_S = 0.1


class Seat:
    """`wake(track)` has the lane look at a partition again, as something changed for it. `rules`: what its queue keeps
    and drops."""

    def __init__(self, reading: Reading, wake: Callable[[Track], None], rules: QueueRules) -> None:
        self.reading, self.wake, self.rules = reading, wake, rules
        # Partitions for which something may be in the window; those that wait for room in our queues.
        self.called: dict[Track, None] = {}
        self._hungry: dict[Track, None] = {}
        # Whether something is free to be read: the lane's pump is to have a turn.
        self.summoned = False
        self._windows: dict[Track, Window] = {}
        # Since which offset, era and beginning a partition has had nothing but what the window had.
        self._followed: dict[Track, tuple[int, int, int]] = {}
        self._heard: dict[Line, float] = {}
        # Partitions that wait until others can begin to read as well.
        self._gathering: dict[Track, None] = {}
        self._looked_s, self._fresh_at_s, self._brought = 0.0, 0.0, 0
        self._closed = False
        reading.came(self)

    # -- who is here

    def sit(self, track: Track) -> None:
        window = self._windows[track] = self.reading.window(track.source_key)
        window.members[self] = track

    def leave(self, track: Track) -> None:
        window = self._windows.pop(track, None)
        if window is not None and window.members.get(self) is track:
            del window.members[self]
            self._release(window)
        for kept in (self.called, self._hungry, self._followed, self._gathering):
            kept.pop(track, None)

    def close(self) -> None:
        """The lane reads and is fed no more."""
        if not self._closed:
            self._closed = True
            for track in list(self._windows):
                self.leave(track)
            self.reading.left(self)

    def call(self, track: Track) -> None:
        """Something changed for it: perhaps it can be fed."""
        window = self._windows.get(track)
        if window is None or track.fetched >= window.end or track in self._hungry:
            return
        if not track.waiting.choked or track.waiting.bytes < track.partition_bytes_max:
            self.called[track] = None

    # -- who reads

    def reads(self, track: Track, line: Line) -> bool:
        """Whether the lane shall ask the source for this partition now: for all who have joined, or for itself."""
        window = self._windows.get(track)
        if window is None:
            return True
        if track.fetched < track.write_from:
            return self._must_ask(track, window)
        if window.end < 0 and self._gathers(track, window):
            self._gathering[track] = None
            return False
        if track.fetched > window.end:
            # Nobody is as far: from here on it is read for all.
            self.reading.begin(window, track.fetched, track.source.epoch)
            self._claim(window, track, line)
            self._wake_others(window)
            return True
        if track.fetched == window.end and self._agrees(track, window, window.epoch):
            if window.reader in (None, self):
                self._claim(window, track, line)
                return True
            return False
        self.let_go(track)
        return self._must_ask(track, window)

    def _must_ask(self, track: Track, window: Window) -> bool:
        """Whether the window has nothing for it; if it has, it is to be fed."""
        if self._next(track, window) is None:
            return True
        self.call(track)
        return False

    def _gathers(self, track: Track, window: Window) -> bool:
        """Whether it waits for others who begin: who is late where the source is far ahead catches up for long."""
        looking = any(one.phase in (Phase.LOOK, Phase.LOOKING) and not one.leaving for one in window.members.values())
        return track.source.end > track.fetched and looking and self.reading.age_s < GATHER_S_MAX

    def _claim(self, window: Window, track: Track, line: Line) -> None:
        window.reader, window.line, window.heard_s = self, line, self.reading.now_s
        self._follow(track, window)

    def reading_now(self) -> list[Track]:
        """What it reads for others as well."""
        return [track for track, window in self._windows.items() if window.reader is self and len(window.members) > 1]

    def let_go(self, track: Track) -> None:
        """It is not read for the others any more: they look who does."""
        if (window := self._windows.get(track)) is not None:
            self._release(window)

    def _release(self, window: Window) -> None:
        if window.reader is self:
            window.reader = None
            self._wake_others(window)

    def _wake_others(self, window: Window) -> None:
        for seat, track in window.members.items():
            if seat is not self:
                seat.wake(track)
                seat.summoned = True

    def doubt(self, track: Track) -> None:
        """The source did not give what was asked: it may be another history, and what was read before is no one's."""
        if (window := self._windows.get(track)) is not None and window.reader is self:
            self.reading.begin(window, window.end, -1)
            self._release(window)

    def heard(self, line: Line, brought: int) -> None:
        """A fetch of this line was answered, with so many bytes of records."""
        self._heard[line] = self.reading.now_s
        self._brought += brought

    def tick(self, now_s: float) -> None:
        """Time passed. A reader to whose line nothing comes gives way."""
        self.reading.tick(now_s)
        gathering, self._gathering = self._gathering, {}
        for track in gathering:
            self.wake(track)
        if self.rules.fresh and now_s >= self._fresh_at_s:
            self._fresh_at_s = now_s + FRESH_LOOK_S
            for track, window in self._windows.items():
                if track.sent < window.end and self.drops(track):
                    self.called[track] = None
        if now_s - self._looked_s < STALE_LOOK_S:
            return
        self._looked_s = now_s
        for track, window in self._windows.items():
            # Whatever was missed: who stands apart from the others, or where nobody reads, is looked at again.
            if track.phase is Phase.RUNNING and (track.fetched != window.end or window.reader is None):
                self.wake(track)
        for window in self.reading.windows.values():
            reader = window.reader
            if reader and now_s - max(window.heard_s, reader._heard.get(window.line, 0.0)) > READER_S_MAX:
                reader._release(window)

    # -- what is read

    def leads(self, track: Track) -> bool:
        """Whether what comes next of it is for all: somebody else is there, and the lane has been asked to read."""
        window = self._windows.get(track)
        return (
            window is not None
            and window.reader is self
            and len(window.members) > 1
            and track.fetched == window.end
            and track.fetched >= track.write_from
        )

    def begins(self, track: Track, records: memoryview, own: Joining, now_ms: int) -> tuple[memoryview, Joining | None]:
        """What is to be cut of what a fetch brought, and into whose rooms it is joined, if into any; `own`: the
        lane's."""
        records = self._of_one_age(self.trimmed(track, records), now_ms)
        return records, self.reading.roomy() if self.leads(track) else own

    def _of_one_age(self, records: memoryview, now_ms: int) -> memoryview:
        """Up to where what is too old for one of the queues ends: what is younger is fetched next, by itself."""
        for age_s in self.reading.ages_s:
            if end := old_end(records, now_ms - int(age_s * 1000)):
                return records[:end]
        return records

    def read(self, track: Track, done: Cut, part: FetchedPartition, joining: Joining | None, now_ms: int) -> Cut:
        """The lane has read and cut this. Where it leads, that is the next slice, whose bytes are its own, and it goes
        on with the same; `joining` is whose rooms it lies in, if in any."""
        window = self._windows.get(track)
        if window is None or window.reader is not self or track.fetched != window.end:
            return done
        if track.fetched < track.write_from or done.end == track.fetched:
            return done
        if done.halt:
            self.doubt(track)
        elif len(window.members) > 1 and joining in (None, self.reading.joining):
            done = owned(done)
            source, written_ms = track.source, _written_ms(done, now_ms)
            self.reading.put(window, Slice(track.fetched, done, size_of(done), source.epoch, source.led, written_ms))
            self._tell(window, part)
        else:
            # Nobody else was here when this was cut: who is by now asks by itself, until it meets the window again.
            if window.slices:
                self.reading.begin(window, done.end, done.leader_epoch)
            window.end, window.epoch, window.origin = done.end, done.leader_epoch, done.end
            self._wake_others(window)
        return done

    def _tell(self, window: Window, part: FetchedPartition) -> None:
        for seat, other in window.members.items():
            if seat is not self:
                if other.phase is Phase.RUNNING:
                    other.source.end, other.source.start = part.high_watermark, part.log_start
                    if not other.source.heard:
                        read_again(other)
                seat.call(other)

    def heads(self, track: Track, part: FetchedPartition) -> None:
        """The source has told where it begins and ends, and nothing else."""
        window = self._windows.get(track)
        if window is not None and window.reader is self:
            self._tell(window, part)

    def trimmed(self, track: Track, records: memoryview) -> memoryview:
        """What the lane read by itself, up to where it meets the window; of a fresh queue, up to where its twin
        ends."""
        window = self._windows.get(track)
        border = window.border(track.fetched) if window is not None and window.reader is not self else -1
        if self.drops(track) and track.fetched < track.write_from:
            # What the twin has is told by itself: whether what lies behind it is young is seen when it is asked for.
            border = track.write_from if border < 0 else min(border, track.write_from)
        if border < 0:
            return records
        place, size = 0, len(records)
        while place + PREFIX_BYTES <= size and I64.unpack_from(records, place)[0] < border:
            place = end_at(records, place)
        return records[:place] if 0 < place < size else records

    # -- who is fed

    def hungry(self) -> list[Track]:
        """Partitions to be fed now."""
        found = [*self.called, *(track for track in self._hungry if track not in self.called)]
        self.called, self._hungry, self.summoned = {}, {}, False
        return found

    def later(self, track: Track) -> None:
        """There is no room for it now."""
        self._hungry[track] = None

    def room(self) -> int:
        """How many bytes more may wait in the lane's queues."""
        return QUEUE_BYTES_MAX - sum(track.waiting.bytes for track in self._windows)

    def leave_rooms(self, rooms: Container[Hold], most: int) -> int:
        """Has what waits for the target lie in so many of these rooms at most, those of which it has the most bytes;
        the rest is copied. How many rooms it left."""
        sizes: Counter[Hold] = Counter()
        for track in self._windows:
            for piece, hold in track.waiting:
                if hold in rooms and hold:
                    sizes[hold] += piece.size
        left = {hold for hold, _ in sizes.most_common()[most:]}
        for track in self._windows if left else ():
            track.waiting.leave(left)
        return len(left)

    def next(self, track: Track) -> tuple[Slice, Cut] | None:
        """What the window has for it next; None where it must ask the source, or wait for who does."""
        window = self._windows.get(track)
        found = self._next(track, window) if window else None
        if found and window:
            self._follow(track, window)
        return found

    def _next(self, track: Track, window: Window) -> tuple[Slice, Cut] | None:
        asks = track.fetched >= window.end or (self.drops(track) and track.fetched < track.write_from)
        found = None if asks else window.found(track.fetched, track.write_from)
        if found is None:
            return None
        one = found[0]
        if one.led < max(track.source.led, track.route.source_epoch):
            # The source has another leader by now, whose log may be another: that is asked.
            self.reading.begin(window, window.end, window.epoch)
            self._wake_others(window)
            return None
        before = one.before if one.base == track.fetched else one.cut.leader_epoch
        return found if self._agrees(track, window, before) else None

    def _agrees(self, track: Track, window: Window, epoch: int) -> bool:
        """Whether what the twin has is of the window's history: the same epoch wrote its last record, or it had all
        from the window."""
        if track.fetched == 0 or track.source.epoch == epoch >= 0:
            return True
        since, era, begins = self._followed.get(track, (0, -1, -1))
        return (era, begins) == (window.era, track.begins) and track.fetched >= since

    def _follow(self, track: Track, window: Window) -> None:
        since, era, begins = self._followed.get(track, (0, -1, -1))
        if (era, begins) != (window.era, track.begins) or track.fetched < since:
            self._followed[track] = (track.fetched, window.era, track.begins)

    def drops(self, track: Track) -> bool:
        """Whether what is old of it is dropped: not of heartbeats, which nobody drops."""
        return self.rules.fresh and track.mapped and not is_heartbeats(track.order.topic)

    def kept_from(self, track: Track, now_ms: int) -> tuple[int, int, str] | None:
        """From where on what waits for it is kept, as `fresh.kept_from` says; None where all is."""
        window = self._windows.get(track)
        if not self.drops(track) or window is None or track.fetched < track.write_from:
            return None
        led = max(track.source.led, track.route.source_epoch)
        if any(one.led < led for one in window.slices.values()):
            return None  # The source has another leader by now, whose log may be another: that is seen first.
        if any(one.led > track.source.led for one in window.slices.values()) and not self._agrees(track, window, -1):
            return None  # It reads on where it stands, and the source says whether it still has what the twin has.
        return kept_from(window, track.sent, self.rules, now_ms)

    # -- what is told

    def told(self) -> dict[str, float]:
        """For the lane's next word: what waits for its target, how many partitions have joined, and what its own
        fetches brought since the last one."""
        brought, self._brought = self._brought, 0
        return {QUEUED: self.queued(), JOINED: sum(1 for _ in self.joined()), READ: brought}

    def queued(self) -> int:
        """Bytes that were read for this lane and are not sent yet: in its queues, or in the window ahead of it."""
        return sum(self._queued(track, window) for track, window in self._windows.items())

    def _queued(self, track: Track, window: Window) -> int:
        ahead = sum(one.size for base, one in window.slices.items() if base >= track.fetched)
        return track.waiting.bytes + (ahead if self._is_in(track, window) else 0)

    def joined(self) -> Iterator[Track]:
        """The partitions that are fed, or read for all."""
        return (track for track, window in self._windows.items() if self._is_in(track, window))

    def _is_in(self, track: Track, window: Window) -> bool:
        return track.phase is Phase.RUNNING and window.begin <= track.fetched <= window.end


def _written_ms(done: Cut, read_ms: int) -> int:
    """When the latest of it was written. Without a time stamp, or with one from the future: when it was read."""
    stamps = [piece.max_timestamp for piece in done.parcels if isinstance(piece, Parcel)]
    return min(read_ms, max(stamps)) if min(stamps, default=-1) >= 0 else read_ms
