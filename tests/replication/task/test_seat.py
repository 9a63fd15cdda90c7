"""A lane's place at a shared reading: who reads, who is fed from where, who falls out and meets the window again."""

from __future__ import annotations

from dataclasses import dataclass

from tests.replication.task.test_lane_bounds import NOW_MS, SOURCE_ID, TARGET_ID, see_the_ends
from twinshore.config.model import TopicPartition
from twinshore.kafka.protocol.fetch import FetchedPartitionById, FetchResponseById
from twinshore.kafka.protocol.produce import ProducedPartition
from twinshore.kafka.protocol.record_batch import Record, encode_batch
from twinshore.replication.task.core.batches import BatchParser, BufferPool, PooledBuffer
from twinshore.replication.task.core.messages import Handoff, PartitionConfig, TaskLimits, narrow_limits
from twinshore.replication.task.core.partition import PartitionLeaders, PartitionReplicator
from twinshore.replication.task.core.partitions import TaskPartitions
from twinshore.replication.task.core.shared_read import KEPT_BYTES_MAX, STARTUP_S, SharedFetch

NAMED, LINE, OLD_S = TopicPartition("orders", 0), (1, 0), 0.0
LIMITS = TaskLimits(merge_below_bytes=0, partition_bytes_max=4 << 20)


@dataclass
class Table:
    """So many tasks that read one partition together, some time after they began."""

    reading: SharedFetch
    tasks: list[TaskPartitions]

    @property
    def tracks(self) -> list[PartitionReplicator]:
        return [task.replicators[NAMED] for task in self.tasks]

    def asking(self) -> list[int]:
        """Which tasks ask the source now."""
        return [number for number, task in enumerate(self.tasks) if task.fetch_order(LINE) is not None]

    def brings(self, task: int, base: int, count: int, *, size: int = 100, epoch: int = 5) -> None:
        """What this task asked for comes; then every task has a turn."""
        self.tasks[task].fetched(LINE, answer(base, count, size, epoch), PooledBuffer(bytearray()), OLD_S, NOW_MS)
        self.turn()

    def turn(self) -> None:
        for task in self.tasks:
            task.scheduler.refill(OLD_S)
            task.go_on(OLD_S, NOW_MS)

    def sends(self, task: int) -> None:
        """All that waits is sent by this task, and acknowledged."""
        one = self.tasks[task]
        while sent := one.produce_order(2, OLD_S, NOW_MS):
            key = bytes.fromhex(TARGET_ID)
            parts = [ProducedPartition(key, 0, 0, entry.batch.base, -1, 0, None, None) for entry in sent]
            one.produced(sent, parts, OLD_S)
        self.turn()


def answer(base: int, count: int, size: int = 100, epoch: int = 5) -> FetchResponseById:
    """Batches of ten records."""
    data = b"".join(
        bytes(
            encode_batch(
                [Record(offset, NOW_MS, None, b"x" * size, ()) for offset in range(at, min(at + 10, base + count))],
                base_offset=at,
                leader_epoch=epoch,
            )
        )
        for at in range(base, base + count, 10)
    )
    part = FetchedPartitionById(
        bytes.fromhex(SOURCE_ID), 0, 0, base + count, base + count, 0, None, None, [], memoryview(data).toreadonly()
    )
    return FetchResponseById(0, 0, 5, [part])


def table(*positions: int, high_bytes: int = 64 << 20, epochs: tuple[int, ...] = ()) -> Table:
    """Tasks whose twins end there; what they have was written in these epochs of the source."""
    reading = SharedFetch(LIMITS, high_bytes)
    reading.tick(OLD_S - 2 * STARTUP_S)
    tasks = []
    for number, position in enumerate(positions):
        task = TaskPartitions(7, 0, state_expiry_ms=86_400_000, limits=LIMITS, shared_fetch=reading)
        task.assign([PartitionConfig("orders", 0, SOURCE_ID, TARGET_ID)])
        task.routed(NAMED, PartitionLeaders(1, 0, 2))
        epoch = epochs[number] if epochs else 5
        task.take_over([Handoff("orders", 0, position, epoch, NOW_MS + 1_000_000)], 0.0)
        see_the_ends(task)
        tasks.append(task)
    made = Table(reading, tasks)
    made.turn()
    return made


def test_one_task_asks_and_all_are_fed_the_same_bytes() -> None:
    made = table(0, 0, 0)
    assert made.asking() == [0]
    made.brings(0, 0, 30)
    assert [track.fetched for track in made.tracks] == [30, 30, 30]
    bodies = [[id(piece.body) for piece, _ in track.waiting] for track in made.tracks]  # type: ignore[union-attr]
    assert bodies[0] == bodies[1] == bodies[2], "held once"
    assert all(track.source.end == 30 for track in made.tracks), "all know where the source ends"
    assert made.asking() == [0], "who reads goes on"


def test_a_task_that_reads_alone_keeps_nothing() -> None:
    made = table(0)
    assert made.asking() == [0]
    made.brings(0, 0, 30)
    assert made.reading.bytes == 0
    assert all(isinstance(piece.body, memoryview) for piece, _ in made.tracks[0].waiting), "nor copies anything"  # type: ignore[union-attr]


def test_who_has_no_room_stops_reading_and_another_goes_on() -> None:
    made = table(0, 0)
    made.asking()
    made.brings(0, 0, 100, size=90_000)
    made.sends(1)
    assert made.asking() == [1]
    made.brings(1, 100, 10)
    assert [track.fetched for track in made.tracks] == [100, 110]
    made.sends(0)
    assert [track.fetched for track in made.tracks] == [110, 110], "the first is fed once it has room"
    assert made.asking() == [1]


def test_who_falls_out_of_the_window_reads_by_itself_until_it_meets_it() -> None:
    high = KEPT_BYTES_MAX + (2 << 20)
    made = table(0, 0, high_bytes=high)
    made.asking()
    at = 0
    while made.tracks[1].fetched >= made.reading.window(made.tracks[1].source_key).begin:
        made.brings(0, at, 40, size=50_000)
        at += 40
        made.sends(0)
        assert made.reading.bytes <= high + (3 << 20), "the window is bounded"
        assert made.asking()[0] == 0
        assert at < 10_000, "nobody holds the window"
    behind = made.tracks[1].fetched
    made.sends(1)
    assert made.asking() == [0, 1]
    made.brings(1, behind, 2_000)
    window = made.reading.window(made.tracks[1].source_key)
    assert made.tracks[1].fetched >= window.begin, "it read no further than to a border"
    made.sends(1)
    made.sends(1)
    assert made.tracks[1].fetched == window.end
    assert made.asking() == [0], "and is fed again"


def test_a_task_whose_twin_has_another_history_is_not_fed() -> None:
    made = table(10, 10, epochs=(5, 4))
    assert made.asking() == [0, 1], "it asks by itself, and the source says where the histories part"
    made.brings(0, 10, 10)
    assert [track.fetched for track in made.tracks] == [20, 10]


def test_who_stands_further_ahead_reads_for_all() -> None:
    made = table(0, 500)
    assert made.asking() == [0, 1]
    made.brings(1, 500, 10)
    made.brings(0, 0, 600)
    assert [track.fetched for track in made.tracks] == [510, 510], "who was behind met it, and was fed"
    assert made.asking() == [1]


def test_a_reader_that_leaves_is_followed_by_another() -> None:
    made = table(0, 0)
    assert made.asking() == [0]
    made.tasks[0].finish()
    made.turn()
    assert made.asking() == [1]


def test_a_reader_to_whom_nothing_comes_gives_way() -> None:
    made = table(0, 0)
    assert made.asking() == [0]
    for late_s in (1.0, 2.5):
        made.tasks[1].scheduler.refill(OLD_S + late_s)
    assert made.tasks[1].fetch_order(LINE) is not None


def test_a_history_that_parted_is_fed_to_nobody() -> None:
    made = table(0, 0)
    made.asking()
    made.tasks[0].fetched(LINE, answer(0, 10), PooledBuffer(bytearray()), OLD_S, NOW_MS)
    window = made.reading.window(made.tracks[0].source_key)
    assert window.slices
    parted = answer(10, 10).partitions[0]._replace(diverging_epoch=(4, 5), records=memoryview(b""))
    made.tasks[0].fetch_order(LINE)
    made.tasks[0].fetched(LINE, FetchResponseById(0, 0, 5, [parted]), PooledBuffer(bytearray()), OLD_S, NOW_MS)
    assert not window.slices
    made.turn()
    assert made.tracks[1].fetched == 0


def test_a_window_that_begins_anew_holds_nothing_of_before() -> None:
    made = table(0, 0, 900)
    assert made.asking() == [0, 2]
    made.brings(0, 0, 50, size=10_000)
    assert made.reading.bytes == 0, "the first is behind: what it reads is for itself"
    made.brings(2, 900, 50, size=10_000)
    assert made.reading.bytes > 500_000
    window = made.reading.window(made.tracks[0].source_key)
    made.reading.begin(window, 5_000, 5)
    assert (made.reading.bytes, len(made.reading._ages), window.slices) == (0, 0, {})


def test_a_window_holds_so_many_parts_and_no_more() -> None:
    made = table(0, 0)
    made.reading.parts_max = 5
    made.asking()
    made.tasks[1].scheduler.hold(2, held=True)
    for number in range(20):
        made.brings(0, 10 * number, 10)
        made.sends(0)
        made.asking()
    window = made.reading.window(made.tracks[0].source_key)
    assert len(window.slices) == 5
    assert made.tracks[1].fetched < window.begin, "who lags may lag by parts as well as by bytes"
    made.reading.hold(1, 50)
    assert (made.reading.parts_max, made.reading.high_bytes) == (50, 64 << 20), "the most that anybody asks for"


def test_what_left_the_window_before_a_task_had_its_turn_is_asked_for_by_that_task() -> None:
    made = table(0, 0, high_bytes=1 << 20)
    assert made.asking() == [0]
    for at in (0, 40, 80):
        made.tasks[0].fetched(LINE, answer(at, 40, 20_000), PooledBuffer(bytearray()), OLD_S, NOW_MS)
        made.tasks[0].produce_order(2, OLD_S, NOW_MS)
        made.tasks[0].fetch_order(LINE)
    window = made.reading.window(made.tracks[1].source_key)
    assert made.tracks[1].fetched == 0 < window.begin
    made.turn()
    assert 1 in made.asking()


def test_who_stands_where_a_task_read_for_itself_alone_asks_by_itself() -> None:
    made = table(0, 0)
    assert made.asking() == [0]
    task, track = made.tasks[0], made.tracks[0]
    cut_alone = BatchParser(answer(0, 10).partitions[0].records, 0, 0, LIMITS, None, ()).parse(1 << 30)
    session = task.scheduler.member
    assert session is not None
    session.read(track, cut_alone, answer(0, 10).partitions[0], BufferPool(LIMITS), NOW_MS)
    track.take(cut_alone, PooledBuffer(bytearray()), NOW_MS)
    made.turn()
    assert 1 in made.asking(), "the window has gone on without anything for it"


def test_what_was_read_of_an_earlier_leader_is_fed_to_nobody_who_knows_of_a_later_one() -> None:
    for by_route in (True, False):
        made = table(0, 0)
        made.asking()
        made.brings(0, 0, 20)
        one, track = made.tasks[1], made.tracks[1]
        if by_route:
            one.routed(NAMED, PartitionLeaders(1, 6, 2))
        else:
            track.source.led = 6  # As a look saw it.
        made.asking()
        made.brings(0, 20, 40)
        assert [entry.fetched for entry in made.tracks] == [60, 20]
        assert not made.reading.window(track.source_key).slices
        order = one.fetch_order(LINE)
        assert order is not None, "it asks the leader itself"
        assert order.partitions[0].position == 20


def test_whose_throttle_is_shut_leaves_what_it_reads_to_another() -> None:
    made = table(0, 0)
    assert made.asking() == [0]
    made.tasks[0].scheduler.bound(100_000, {}, {})
    made.tasks[0].scheduler.refill(OLD_S + 1)
    made.brings(0, 0, 40, size=50_000)
    assert made.asking() == [1]
    for task in (0, 1):
        made.sends(task)
    made.brings(1, 40, 40)
    assert [track.fetched for track in made.tracks] == [40, 80], "who is bounded is fed at its own rate"


def test_weights_of_a_link_bound_nothing_that_it_reads_for_others() -> None:
    for members in (1, 2):
        made = table(*[0] * members)
        buckets = made.tasks[0].scheduler.buckets
        made.tasks[0].scheduler.bound(0, {}, {"orders": 1, "other": 10})
        buckets.stands("another partition", "other", behind=True)
        order = made.tasks[0].fetch_order(LINE)
        assert order is not None
        whole = LIMITS.partition_bytes_max
        assert order.partitions[0].max_bytes == (whole if members > 1 else whole // 10)


def test_all_have_heard_what_one_hears_of_a_quiet_source() -> None:
    made = table(0, 0)
    made.asking()
    made.brings(0, 0, 10)
    for task, track in enumerate(made.tracks):
        made.sends(task)
        assert track.account(0.0)
        track.source.unread = 3
        track.report_source_silent("is away", "why", 0.0)
        assert track.report_source_silent("is away", "why", 500.0), "a row of the ledger is open"
        assert track.account(0.0) is None
    made.asking()
    quiet = answer(0, 10).partitions[0]._replace(records=memoryview(b""))
    made.tasks[0].fetched(LINE, FetchResponseById(0, 0, 5, [quiet]), PooledBuffer(bytearray()), OLD_S, NOW_MS)
    for track in made.tracks:
        assert (track.source.heard, track.source.unread) == (True, 0)
        assert track.account(0.0), "which an account closes"


def test_what_is_fed_counts_for_a_throttle_as_what_is_fetched_does() -> None:
    made = table(0, 0)
    made.asking()
    buckets = made.tasks[1].scheduler.buckets
    made.tasks[1].scheduler.bound(100_000, {}, {})
    assert buckets.link is not None
    for at in range(0, 100, 10):
        made.tasks[0].fetched(LINE, answer(at, 10, size=1), PooledBuffer(bytearray()), OLD_S, NOW_MS)
        made.tasks[0].fetch_order(LINE)
    made.tasks[1].scheduler.refill(OLD_S + 1)
    made.tasks[1].scheduler.refill(OLD_S + 2)
    made.tasks[1].go_on(OLD_S + 2, NOW_MS)
    assert made.tracks[1].fetched == 100
    assert buckets.link.spent == 10 * len(answer(0, 10, size=1).partitions[0].records)


def test_a_window_smaller_than_what_is_read_at_a_time_is_shared_all_the_same() -> None:
    made = table(0, 0, high_bytes=1 << 20)
    for number in range(20):
        assert made.asking() == [0]
        made.brings(0, 20 * number, 20, size=100_000)
        for task in (0, 1):
            made.sends(task)
    assert [track.acked for track in made.tracks] == [400, 400]
    fetch = narrow_limits(TaskLimits(), 1 << 20).fetch_bytes_max
    assert fetch == 512 << 10, "and what one fetch brings of many partitions is held until all have had a turn"
