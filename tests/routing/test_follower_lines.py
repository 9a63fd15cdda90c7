"""Followers as a switch sees them: for whom it must wait, and for how long."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinshore.kafka.protocol.primitives import encode_json
from twinshore.routing.core.home_records import KeyValue
from twinshore.routing.core.subscribers import (
    SUBSCRIBERS_MAX,
    HomeSubscriber,
    SubscriberLog,
    pattern_matches,
    unsubscribe_record,
)

ONE, TWO = "1" * 32, "2" * 32
HELD = (1, 2)


def follower(
    name: str = ONE,
    *topics: str,
    heard: dict[str, tuple[int, int]] | None = None,
    parked: tuple[str, ...] = (),
    said: int = 1,
) -> HomeSubscriber:
    return HomeSubscriber(name, "billing", topics or ("orders",), heard or {}, frozenset(parked), 5000, said)


def seen(*lines: tuple[KeyValue, float]) -> SubscriberLog:
    log = SubscriberLog()
    for (key, value), at_s in lines:
        log.take(key, value, at_s)
    return log


def awaited(log: SubscriberLog, now_s: float, topic: str = "orders") -> list[str]:
    return [one.id for one in log.awaited({topic: HELD}, now_s).get(topic, [])]


followers = st.builds(
    HomeSubscriber,
    id=st.sampled_from([ONE, TWO]),
    name=st.text("aß→ ", max_size=9),
    topics=st.lists(st.sampled_from(["orders", "bills.*", "*"]), max_size=3).map(tuple),
    heard=st.dictionaries(st.sampled_from(["orders", "bills.v2"]), st.tuples(st.integers(1, 9), st.integers(0, 9))),
    parked=st.frozensets(st.sampled_from(["orders", "bills.v2"])),
    lease_ms=st.integers(1, 60_000),
    said=st.integers(0, 1 << 40),
)


@given(followers)
def test_a_line_comes_back_as_it_was_written(one: HomeSubscriber) -> None:
    assert seen((one.line(), 0.0)).living(0.0) == [one]


@given(st.lists(followers, max_size=6, unique_by=lambda one: (one.id, one.said)), st.randoms())
def test_on_however_many_clusters_in_whatever_order_the_last_word_of_each_counts(
    lines: list[HomeSubscriber], chance: object
) -> None:
    mixed = lines * 2
    chance.shuffle(mixed)  # type: ignore[attr-defined]
    last = {one.id: one for one in sorted(lines, key=lambda one: one.said)}
    found = {one.id: one for one in seen(*((one.line(), 0.0) for one in mixed)).living(0.0)}
    assert found == last


def test_who_has_parked_for_the_word_is_waited_for_no_more() -> None:
    heard, parked = (
        follower(heard={"orders": HELD}, said=2),
        follower(heard={"orders": HELD}, parked=("orders",), said=3),
    )
    assert awaited(seen((follower().line(), 0.0)), 1.0) == [ONE]
    assert awaited(seen((heard.line(), 0.0)), 1.0) == [ONE]
    assert awaited(seen((parked.line(), 0.0)), 1.0) == []
    before = follower(heard={"orders": (1, 1)}, parked=("orders",))
    assert awaited(seen((before.line(), 0.0)), 1.0) == [ONE], "it has parked for an earlier switch"
    later = follower(heard={"orders": (1, 4)}, parked=("orders",))
    assert awaited(seen((later.line(), 0.0)), 1.0) == []


def test_a_lease_counts_from_when_its_line_was_seen_and_no_line_is_news_twice() -> None:
    log = seen((follower().line(), 10.0))
    assert [awaited(log, now_s) for now_s in (10.0, 14.9, 15.0)] == [[ONE], [ONE], []]
    log.take(*follower().line(), 14.0)
    assert awaited(log, 15.0) == [], "the same line, on another cluster or read again"
    log.take(*follower(said=2).line(), 14.0)
    assert awaited(log, 18.9) == [ONE]


def test_a_goodbye_and_other_topics_are_waited_for_by_nobody() -> None:
    assert awaited(seen((follower().line(), 0.0), (unsubscribe_record(ONE), 0.1)), 1.0) == []
    assert awaited(seen((follower(ONE, "bills.*").line(), 0.0)), 1.0) == []
    assert awaited(seen((follower(ONE, "bills.*").line(), 0.0)), 1.0, "bills.v2") == [ONE]
    both = seen((follower(ONE).line(), 0.0), (follower(TWO, "*").line(), 0.0))
    assert awaited(both, 1.0) == [ONE, TWO]
    assert both.awaited({"orders": HELD, "else": HELD}, 1.0).keys() == {"orders", "else"}


@pytest.mark.parametrize(
    ("pattern", "topic", "does"),
    [("orders", "orders", True), ("orders", "orders2", False), ("orders*", "orders2", True), ("*", "x", True)],
)
def test_a_pattern_is_a_name_or_the_beginning_of_names(pattern: str, topic: str, does: bool) -> None:
    assert pattern_matches(pattern, topic) is does


HOSTILE = [
    b"",
    b"\xff",
    b"[" * 200_000,
    b"{}",
    json.dumps({"x": "y" * 300_000}).encode(),
    *(
        encode_json(json.loads(follower().line()[1] or b"") | {name: value})
        for name, value in [
            ("name", 7),
            ("topics", ["(a+)+$"]),
            ("topics", [1]),
            ("topics", ["a*b"]),
            ("heard", {"orders": [0, 0]}),
            ("heard", {"orders": [1]}),
            ("heard", {"no topic": [1, 1]}),
            ("parked", [{}]),
            ("lease_ms", 0),
            ("lease_ms", 1 << 40),
            ("said", -1),
        ]
    ),
]


@given(st.sampled_from(HOSTILE[:4]) | st.binary(max_size=100), st.sampled_from(HOSTILE) | st.binary(max_size=100))
def test_what_strangers_write_there_is_passed_over(key: bytes, value: bytes) -> None:
    log = seen((follower().line(), 0.0))
    for one in (key, *(line[0] for line in (follower().line(), follower(TWO).line()))):
        log.take(one, value, 1.0)
        log.take(None, value, 1.0)
    assert log.living(1.0) == [follower()]


def test_followers_without_end_are_not_passed_over_in_silence_and_dead_ones_make_room() -> None:
    log = SubscriberLog()
    for number in range(SUBSCRIBERS_MAX):
        log.take(*follower(f"{number:032x}").line(), 0.0)
    assert not log.full
    log.take(*follower("f" * 32).line(), 6.0)
    assert [one.id for one in log.living(6.0)] == ["f" * 32]
    for number in range(SUBSCRIBERS_MAX):
        log.take(*follower(f"{number:032x}").line(), 6.0)
    assert log.full


def test_what_strangers_say_cannot_draw_on_a_terminal() -> None:
    named = encode_json(json.loads(follower().line()[1] or b"") | {"name": "\x1b[2J\ud800"})
    (found,) = seen(((follower().line()[0], named), 0.0)).living(0.0)
    assert found.name == "?[2J?"


def test_one_gathers_until_it_has_heard_the_word_and_no_member_is_at_work() -> None:
    deaf = follower(ONE, "*")
    heard = follower(TWO, "*", heard={"orders": HELD}, said=2)
    busy = replace(heard, busy=("app",), said=1)
    log = seen((deaf.line(), 0.0), (busy.line(), 0.0))
    assert [(one.id, one.busy) for one in log.gathering("orders", HELD, 1.0)] == [(ONE, ()), (TWO, ("app",))]
    log.take(*heard.line(), 1.0)
    assert [one.id for one in log.gathering("orders", HELD, 1.0)] == [ONE]
    assert log.gathering("orders", HELD, 5.5) == [], "its lease has run out"
