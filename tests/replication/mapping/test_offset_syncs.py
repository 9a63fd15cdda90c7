"""Where MirrorMaker stopped is proven by records, or not believed."""

from __future__ import annotations

import random
import struct

from twinshore.config.model import TopicPartition
from twinshore.kafka.protocol.record_batch import DatedContent, Record, RecordContent
from twinshore.replication.core.mapping import (
    OFFSET_SYNCS_KEPT,
    OffsetSync,
    collect_offset_syncs,
    find_offset_syncs_topic,
    find_tail_offsets,
    follow_copied_records,
    parse_offset_sync,
    usable_offset_syncs,
)

NAMED = TopicPartition("orders", 3)


def note(topic: str, partition: int, source: int, target: int) -> Record:
    key = struct.pack(">h", len(topic)) + topic.encode() + struct.pack(">i", partition)
    return Record(0, 0, key, struct.pack(">qq", source, target))


def dated(value: str, timestamp_ms: int | None = 5) -> DatedContent:
    return DatedContent(RecordContent(None, value.encode(), ()), timestamp_ms)


def numbered(first: int, values: str, timestamp_ms: int | None = 5) -> list[tuple[int, DatedContent]]:
    return [(first + index, dated(value, timestamp_ms)) for index, value in enumerate(values)]


def test_notes_are_read_and_the_last_are_kept() -> None:
    assert parse_offset_sync(note("orders", 3, 70, 55)) == (NAMED, OffsetSync(70, 55))
    assert parse_offset_sync(Record(0, 0, b"x", b"y")) is None
    assert parse_offset_sync(Record(0, 0, b"\0\5ab\0\0\0\0", struct.pack(">qq", 1, 2))) is None
    found = collect_offset_syncs([note("orders", 3, at, at) for at in range(100)] + [note("bills", 0, 1, 1)])
    assert found[NAMED] == [OffsetSync(at, at) for at in range(100 - OFFSET_SYNCS_KEPT, 100)]
    assert usable_offset_syncs(found, NAMED, 98)[0] == OffsetSync(97, 97), (
        "a note beyond the copy's end is not of this copy"
    )
    assert usable_offset_syncs(found, TopicPartition("orders", 4), 98) == []


def test_the_notes_lie_in_the_topic_of_that_link() -> None:
    names = ["mm2-offset-syncs.west.internal", "mm2-offset-syncs.north.internal", "orders"]
    assert find_offset_syncs_topic(names, "west") == "mm2-offset-syncs.west.internal"
    assert find_offset_syncs_topic(names, "south") == "", "of two others none is ours"
    assert find_offset_syncs_topic(names[1:], "west") == "mm2-offset-syncs.north.internal", (
        "the only one, by another alias"
    )
    assert find_offset_syncs_topic(["orders"], "west") == ""


def test_a_walk_ends_behind_the_last_record_that_both_have() -> None:
    source = [(at, dated(value)) for at, value in ((10, "a"), (11, "b"), (15, "c"), (16, "d"))]
    assert follow_copied_records(iter(source), iter(numbered(5, "abc"))) == 16
    assert follow_copied_records(iter(source), iter(numbered(7, "c")), passed=2) == 16
    assert follow_copied_records(iter(source), iter(numbered(5, "abd"))) is None
    assert follow_copied_records(iter(source[:2]), iter(numbered(5, "abc"))) is None, "the source has fewer"
    assert follow_copied_records(iter(source), iter([])) is None
    assert follow_copied_records(iter(source), iter([]), passed=2) is None, "what was passed is proven by what follows"


def test_a_copy_bears_the_time_stamps_of_its_source_where_its_broker_lets_it() -> None:
    source = numbered(10, "abc")
    assert follow_copied_records(iter(source), iter(numbered(5, "abc", 6))) is None, "the same contents of another time"
    assert follow_copied_records(iter(source), iter(numbered(5, "abc", None))) == 13
    assert follow_copied_records(iter(source), iter(numbered(7, "c", None)), passed=2) is None, "it may be any c"
    assert find_tail_offsets(source, [dated("b", 6)]) == []
    assert find_tail_offsets(source, [dated("b", None)]) == [12]


def test_a_tail_is_found_at_each_place_where_it_is() -> None:
    tail = [dated(value) for value in "abca"]
    assert find_tail_offsets(numbered(100, "xabcaby"), tail) == [105]
    assert find_tail_offsets(numbered(100, "xabcaby"), tail[:2]) == [103, 106]
    assert find_tail_offsets(numbered(100, "xabcaby"), [dated("z")] * 2) == []


def test_random_copies_with_records_twice_are_continued_at_the_next_record() -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(200):
        source = [(index * 2, dated(f"{index}")) for index in range(chance.randint(5, 60))]
        copy: list[tuple[int, DatedContent]] = []
        notes, at = [], 0
        # Lives of MirrorMaker: each begins a little before where the last ended, and notes its first record.
        for _ in range(chance.randint(1, 4)):
            at = min(len(source) - 1, max(0, at - chance.randint(0, 4)))
            notes.append(OffsetSync(source[at][0], len(copy)))
            for _, value in source[at : at + chance.randint(1, 12)]:
                copy.append((len(copy), value))
                at += 1
        last = notes[-1]
        found = follow_copied_records((one for one in source if one[0] >= last.source), iter(copy[last.target :]))
        assert found == source[at - 1][0] + 1
