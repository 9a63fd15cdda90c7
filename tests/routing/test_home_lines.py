"""What the lines of homes say, whoever else writes there, and in whatever order."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinshore.config.errors import TooLargeError
from twinshore.kafka.protocol.primitives import encode_json
from twinshore.routing.core.home_records import (
    PARTITIONS_MAX,
    HomeConflict,
    HomeLog,
    HomeRecord,
    HomeState,
    KeyValue,
    SwitchRecordLog,
    TopicClaim,
    claim_record,
    current_home,
    home_key,
    release_record,
)

ONE, TWO = "1" * 32, "2" * 32
EAST = HomeRecord(
    topic="orders",
    home="east",
    cluster_id="id-e",
    term=1,
    step=1,
    state=HomeState.ANNOUNCED,
    switch=ONE,
    since_ms=5,
    set_by="somebody",
)
WEST = HomeRecord(
    topic="orders",
    home="west",
    cluster_id="id-w",
    term=2,
    switch=ONE,
    source="east",
    since_ms=9,
    pair="east<>west",
    link="east->west",
    back="west->east",
    source_topic_id="a" * 32,
    target_topic_id="b" * 32,
    points=(7, 7, 7, 0, 1 << 61),
)


def told(*lines: KeyValue) -> HomeLog:
    found = HomeLog()
    for line in lines:
        found.take(*line)
    return found


def compacted(*lines: KeyValue) -> list[KeyValue]:
    """What a cleaner leaves: of each key its last line, where that was."""
    last = {key: number for number, (key, _) in enumerate(lines)}
    return [line for number, line in enumerate(lines) if last[line[0]] == number]


words = st.text('aß→ "', max_size=6)
ids = st.sampled_from(["", ONE, TWO, "0123456789abcdef" * 2])
home_lines = st.builds(
    HomeRecord,
    topic=st.sampled_from(["orders", "bills.v2"]),
    home=words.filter(bool),
    cluster_id=words.filter(bool),
    term=st.integers(1, 3),
    step=st.integers(0, 2),
    state=st.sampled_from(HomeState),
    switch=ids,
    source=words,
    since_ms=st.integers(0, 1 << 40),
    set_by=words,
    pair=words,
    link=words,
    back=words,
    source_topic_id=ids,
    target_topic_id=ids,
    points=st.lists(st.sampled_from([0, 1, 7, (1 << 62) - 1]), max_size=20).map(tuple),
    hold_ms=st.sampled_from([0, 1, 15_000]),
)


@given(home_lines, st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"])))
def test_a_line_comes_back_as_it_was_written(line: HomeRecord, by: str) -> None:
    line = replace(line, set_by=by[:500])
    assert told(line.line()).homes == {line.topic: line}


@given(st.lists(home_lines, max_size=12))
def test_the_highest_word_stands_and_of_one_word_the_first(lines: list[HomeRecord]) -> None:
    found = told(*(line.line() for line in lines)).homes
    for topic in {line.topic for line in lines}:
        ours = [line for line in lines if line.topic == topic]
        assert found[topic] == max(ours, key=lambda line: line.word), "max takes the first of equals"


@given(st.lists(home_lines, max_size=8, unique_by=lambda line: (line.topic, line.word)), st.randoms())
def test_in_whatever_order_lines_of_different_words_come_the_same_stands(
    lines: list[HomeRecord], chance: object
) -> None:
    mixed = lines.copy()
    chance.shuffle(mixed)  # type: ignore[attr-defined]
    assert told(*(line.line() for line in mixed)).homes == told(*(line.line() for line in lines)).homes


@given(st.lists(home_lines, max_size=12))
def test_what_was_mended_outlives_compaction(lines: list[HomeRecord]) -> None:
    log = [line.line() for line in lines]
    found = told(*log)
    mended = [*log, *found.mending()]
    assert told(*compacted(*mended)).homes == told(*mended).homes == found.homes
    assert told(*mended).mending() == []


def test_who_lost_learns_it_and_what_stands_is_written_again() -> None:
    rival = replace(WEST, switch=TWO)
    found = told(WEST.line(), rival.line(), EAST.line())
    assert (found.is_current(WEST), found.is_current(rival), found.is_current(EAST)) == (True, False, False)
    assert found.is_current(replace(WEST, since_ms=99, set_by="me again")), "the same, said again later"
    assert found.is_superseded(rival)
    assert not found.is_superseded(replace(EAST, term=2, step=1))
    assert found.mending() == [WEST.line()]
    assert told(WEST.line(), EAST.line(), (home_key("orders"), b"garbage")).mending() == [WEST.line()]


def test_a_topic_that_is_forgotten_begins_anew() -> None:
    found = told(WEST.line(), EAST.line(), (home_key("orders"), None))
    assert (found.homes, found.mending()) == ({}, [])
    found.take(*EAST.line())
    assert found.homes == {"orders": EAST}


def test_of_two_clusters_the_higher_word_stands_and_one_word_of_two_sayings_is_a_clash() -> None:
    assert current_home([None, None]) is None
    assert current_home([EAST, None]) == EAST
    assert current_home([EAST, WEST]) == current_home([WEST, EAST]) == WEST
    assert current_home([WEST, replace(WEST, since_ms=77, home="their-west")]) == WEST
    rival = replace(WEST, home="north", cluster_id="id-n")
    assert current_home([WEST, rival]) == HomeConflict(WEST, rival)
    higher = replace(WEST, step=1)
    assert current_home([WEST, rival, higher]) == higher


def test_a_line_without_the_end_of_its_hold_is_read_as_before_there_was_one() -> None:
    key, value = WEST.line()
    assert value is not None and b"hold_ms" not in value
    for odd in (-1, 0, 1 << 40, "9", None, 1.5):
        odder = encode_json({**json.loads(value), "hold_ms": odd})
        assert told((key, odder)).homes == {"orders": WEST}, odd


def test_as_many_partitions_as_a_line_holds_and_no_more() -> None:
    far = tuple((1 << 62) - 1 - number for number in range(PARTITIONS_MAX))
    line = replace(WEST, points=far)
    assert told(line.line()).homes["orders"] == line
    with pytest.raises(TooLargeError, match="topic orders has 20001 partitions: a line holds 20000"):
        replace(WEST, points=(*far, 0)).line()


# -- claims


def claim(switch: str, by: str = "somebody") -> KeyValue:
    return claim_record("orders", TopicClaim(switch, 5, by))


def test_the_first_claim_holds_until_it_is_taken_back() -> None:
    assert told().holder("orders") is None
    assert told(claim(ONE), claim(TWO), claim(ONE, "again")).holder("orders") == TopicClaim(ONE, 5, "somebody")
    given_up = [claim(ONE), claim(TWO), release_record("orders", ONE)]
    for log in (given_up, compacted(*given_up), given_up[1:]):
        assert told(*log).holder("orders") == TopicClaim(TWO, 5, "somebody")
    assert told(*given_up, release_record("orders", TWO)).holder("orders") is None
    found = told(claim(ONE), claim(TWO))
    assert (found.claimed(ONE), found.claimed(TWO), found.claimed("3" * 32)) == (["orders"], ["orders"], [])


# -- strangers

HOSTILE = [
    b"",
    b"\xff\xfe",
    b"[" * 200_000,
    b"[" * 2_000,
    b"9" * 60_000,
    b"{}",
    EAST.line()[1] or b"",
    json.dumps({"x": "y" * 100_000}).encode(),
    *(
        encode_json(json.loads(WEST.line()[1] or b"") | {name: value})
        for name, value in [
            ("home", ""),
            ("home", "\x1b[2J"),
            ("home", "\ud800"),
            ("cluster_id", 7),
            ("source", []),
            ("term", 0),
            ("term", 30_001),
            ("term", 1 << 40),
            ("term", 1.5),
            ("step", -1),
            ("state", "gone"),
            ("switch", "1"),
            ("target_topic_id", "../.."),
            ("since_ms", 1 << 60),
            ("points", {}),
            ("points", [-1]),
            ("points", [[1 << 40, 0]]),
            ("points", [[1, 2, 3]]),
            ("points", [[PARTITIONS_MAX, 0], 1]),
        ]
    ),
]


@given(st.sampled_from(HOSTILE[:6]) | st.binary(max_size=200), st.sampled_from(HOSTILE) | st.binary(max_size=200))
def test_what_strangers_write_there_is_passed_over(key: bytes, value: bytes) -> None:
    found = told(WEST.line(), claim(ONE), *SwitchRecordLog().lines(ONE, {"state": "held"}))
    for one in (key, home_key("orders"), home_key("no topic"), encode_json(["claim", "orders", "1"])):
        found.take(one, value)
        found.take(None, value)
    assert found.homes == {"orders": WEST}
    assert found.holder("orders") == TopicClaim(ONE, 5, "somebody")
    assert found.records.record(ONE) == {"state": "held"}
    assert not found.full


def test_more_than_is_taken_is_not_passed_over_in_silence() -> None:
    found = HomeLog()
    line = replace(WEST, points=(0,) * PARTITIONS_MAX)
    for number in range(201):
        found.take(*replace(line, topic=f"t-{number}").line())
    assert found.full
    assert len(found.homes) == 200


def test_what_strangers_say_cannot_draw_on_a_terminal() -> None:
    found = told(claim(ONE, "\x1b[2J\ud800" + "h" * 9_000)).holder("orders")
    assert found is not None
    assert found.by.isprintable()
    assert len(found.by) == 512
