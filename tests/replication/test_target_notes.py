"""What a target's notes say of a link, whoever else writes there."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from twinshore.replication.core.claim_records import (
    PARTITIONS_PER_RECORD,
    LinkClaimState,
    LinkWriter,
    StoreClaim,
    iter_anchors,
)
from twinshore.state.core.values import TwinRow

ONE, TWO = "1" * 32, "2" * 32
WRITER = LinkWriter(ONE, 4711, 0, "west's id", "a host process 7")


def told(*lines: tuple[bytes, bytes | None]) -> LinkClaimState:
    found = LinkClaimState("east->west", "east's id")
    for line in lines:
        found.take(*line)
    return found


def claim(store: str, since_ms: int = 5) -> tuple[bytes, bytes | None]:
    return told().claim_line(StoreClaim(store, "a host", since_ms))


def rows(topic: str, count: int, offset: int = 0) -> list[TwinRow]:
    return [TwinRow("east->west", topic, n, "a" * 32, "b" * 32, offset, offset, 1) for n in range(count)]


def test_the_first_claim_in_the_log_holds_until_it_is_given_up() -> None:
    holder = told(claim(ONE), claim(TWO)).holder()
    assert holder == StoreClaim(ONE, "a host", 5)
    assert told(claim(ONE), claim(TWO), claim(ONE, 9)).holder() == holder, "a claim written twice is the first"
    given_up = told(claim(ONE), claim(TWO), told().release_line(ONE))
    assert given_up.holder() == StoreClaim(TWO, "a host", 5)
    assert told(claim(ONE), told().release_line(ONE)).holder() is None


def test_a_take_over_is_whole_whatever_compaction_leaves_of_it() -> None:
    log = [claim(ONE), claim(TWO), told().release_line(ONE)]
    assert told(*log[1:]).holder() == told(*log).holder()


def test_links_of_other_names_and_other_sources_are_others() -> None:
    for other in (LinkClaimState("west->east", "east's id"), LinkClaimState("east->west", "another's id")):
        found = told(
            other.claim_line(StoreClaim(TWO, "h", 1)), other.writer_line(WRITER), *other.twin_lines(rows("t", 1), ())
        )
        assert (found.claims, found.writer, found.twins) == ({}, None, {})


def test_twins_come_back_as_they_were_told() -> None:
    mixed = rows("orders", 3) + [replace(row, partition=3 + row.partition) for row in rows("orders", 2, 70)]
    wide = rows("wide", PARTITIONS_PER_RECORD + 2)
    lines = told().twin_lines(mixed + wide, {"wide"})
    found = told(*lines, told().writer_line(WRITER))
    assert found.writer == WRITER
    begun = [(n, run.offset, run.sequence) for n, run in iter_anchors(found.of_topic("orders"))]
    assert begun == [(0, 0, 0), (1, 0, 0), (2, 0, 0), (3, 70, 70), (4, 70, 70)]
    assert [note.mapped for note in found.of_topic("wide")] == [True, True]
    assert len(list(iter_anchors(found.of_topic("wide")))) == PARTITIONS_PER_RECORD + 2
    assert found.twin_lines(mixed + wide, {"wide"}) == [], "what stands there is not told again"
    assert len(found.twin_lines(rows("orders", 3), ())) == 1


def test_no_line_of_twins_is_larger_than_what_is_read() -> None:
    far = (1 << 61) + 12345
    each_its_own = [replace(row, base_offset=far - row.partition) for row in rows("orders", PARTITIONS_PER_RECORD, 9)]
    lines = told().twin_lines(each_its_own, ())
    begun = [(n, run.offset, run.sequence) for n, run in iter_anchors(told(*lines).of_topic("orders"))]
    assert begun == [(n, far - n, 9) for n in range(PARTITIONS_PER_RECORD)]


HOSTILE = [
    b"",
    b"\xff\xfe",
    b"[" * 200_000,
    b"[" * 2_000,
    b"9" * 60_000,
    b'{"store":"' + b"1" * 32 + b'","host":"\\ud800\\u001b[2J","since_ms":' + b"9" * 30 + b"}",
    b'{"store":1,"host":[],"since_ms":{}}',
    b'{"source":"' + b"a" * 32 + b'","target":"' + b"b" * 32 + b'","mapped":false,"runs":[[0,1099511627776,0,0]]}',
    b'{"source":"' + b"a" * 32 + b'","target":"' + b"b" * 32 + b'","mapped":false,"runs":[[0,1,-1,0]]}',
    b'{"store":"' + b"1" * 32 + b'","producer_id":-1,"producer_epoch":99999,"target_cluster_id":"","process":""}',
    json.dumps({"x": "y" * 100_000}).encode(),
]


@given(st.sampled_from(HOSTILE) | st.binary(max_size=200), st.sampled_from(HOSTILE) | st.binary(max_size=200))
def test_what_strangers_write_there_is_passed_over(key: bytes, value: bytes) -> None:
    found = told(claim(ONE))
    ours = [claim(TWO)[0], told().writer_line(WRITER)[0], *(line[0] for line in told().twin_lines(rows("t", 1), ()))]
    for one in (key, *ours):
        found.take(one, value)
        found.take(None, value)
    assert found.holder() == StoreClaim(ONE, "a host", 5)
    assert found.writer is None
    assert found.twins == {}


def test_what_strangers_say_cannot_draw_on_a_terminal() -> None:
    named = json.dumps({"store": ONE, "host": "\x1b[2J\ud800" + "h" * 9_000, "since_ms": 1}).encode()
    found = told((claim(ONE)[0], named)).holder()
    assert found is not None
    assert found.host.isprintable()
    assert len(found.host) == 512


def test_what_a_switch_left_comes_back_and_a_line_of_before_has_none() -> None:
    turned = [replace(row, inherited_end=70, epoch=2) for row in rows("orders", 3, 70)]
    (line,) = told().twin_lines(turned, ())
    begun = [run for _, run in iter_anchors(told(line).of_topic("orders"))]
    assert {(run.offset, run.inherited, run.epoch) for run in begun} == {(70, 70, 2)}
    (plain,) = told().twin_lines(rows("orders", 3, 70), ())
    key, value = plain
    assert json.loads(value or b"")["runs"] == [[0, 3, 70, 70]]
    assert {(run.inherited, run.epoch) for _, run in iter_anchors(told(plain).of_topic("orders"))} == {(0, 0)}
    for wrong in ([0, 1, 0, 0, 5], [0, 1, 0, 0, -1, 0], [0, 1, 0, 0, 0, 1 << 15], [0, 1, 0, 0, 1, 1, 1]):
        spoilt = json.dumps({**json.loads(value or b""), "runs": [wrong]}).encode()
        assert told((key, spoilt)).of_topic("orders") == []


def test_what_is_told_of_a_topic_that_is_at_home_elsewhere_is_taken_back() -> None:
    lines = told().twin_lines(rows("orders", PARTITIONS_PER_RECORD + 1) + rows("bills", 2), ())
    before = told(*lines)
    after = told(*lines, *before.lines_against({"orders", "lists"}))
    assert {topic for topic, _ in after.twins} == {"bills"}
    assert after.lines_against({"orders"}) == []
