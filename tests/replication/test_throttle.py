"""Throttles shared out among tasks and topics, kept by buckets, on a clock of the test's own."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinshore.config.model import LinkControl
from twinshore.kafka.protocol.record_batch import HEADER_STRUCT
from twinshore.replication.core.shares import NO_USE, ThrottleUse, divide_rate, task_rate_limits
from twinshore.replication.task.core.fetching import (
    FETCH_BYTES_MIN,
    UNBOUNDED_WAIT_MS,
    TokenBuckets,
    measure_whole_batches,
)
from twinshore.replication.task.core.messages import TaskRateLimits

MEGABYTE = 1_000_000.0
TURN_S = 0.02


def fetch_for(buckets: TokenBuckets, seconds: float, topic: str, batch: int, slow: Callable[[], float]) -> float:
    """Bytes per second of a topic that always has more, in whole batches; `slow` says how long each answer takes."""
    now_s, fetched = 100.0, 0
    while now_s < 100.0 + seconds:
        now_s += TURN_S
        buckets.refill(now_s)
        if not buckets.shut() and buckets.admits(topic):
            most = buckets.partition_bytes(topic, 4 << 20)
            most = min(most, buckets.bytes_max() or most)
            size = max(1, most // batch) * batch
            buckets.spend(topic, size)
            fetched += size
            now_s += slow()
    return fetched / (now_s - 100.0)


@pytest.mark.parametrize("batch", [300, 16_000, 250_000, 1_000_000])
@pytest.mark.parametrize("whose", ["", "orders"])
def test_a_throttle_is_kept_within_a_tenth_whatever_the_batches_and_turns(whose: str, batch: int) -> None:
    buckets, chance = TokenBuckets(), random.Random(batch)
    buckets.bound(0.0 if whose else MEGABYTE, {whose: MEGABYTE} if whose else {}, {})
    rate = fetch_for(buckets, 60.0, "orders", batch, lambda: chance.uniform(0.0, 0.3))
    assert rate == pytest.approx(MEGABYTE, rel=0.1)


def test_a_topic_without_a_throttle_knows_none() -> None:
    buckets = TokenBuckets()
    buckets.bound(0.0, {"orders": 1000.0}, {})
    buckets.spend("orders", 5000)
    assert not buckets.admits("orders")
    assert buckets.admits("bills")
    assert buckets.bytes_max() == 0


def test_a_fetch_waits_no_longer_than_until_a_shut_topic_opens() -> None:
    buckets = TokenBuckets()
    buckets.bound(0.0, {"orders": 1000.0, "quiet": 1.0}, {})
    assert buckets.wait_ms_max() == UNBOUNDED_WAIT_MS, "nobody wants anything"
    buckets.refill(50.0)
    buckets.refill(60.0)
    buckets.spend("orders", 600)
    assert buckets.wait_ms_max() == pytest.approx((600 - 500 + 62.5), abs=1)
    buckets.refill(61.0)
    assert buckets.wait_ms_max() == UNBOUNDED_WAIT_MS


def test_those_with_less_weight_are_asked_for_less_while_others_are_behind() -> None:
    buckets = TokenBuckets()
    buckets.bound(0.0, {}, {"first": 40})
    assert buckets.partition_bytes("last", 1 << 20) == 1 << 20
    assert buckets.stands(("first", 0), "first", behind=True)
    assert buckets.partition_bytes("last", 1 << 20) == (1 << 20) // 4
    assert buckets.partition_bytes("last", 20_000) == FETCH_BYTES_MIN
    assert buckets.partition_bytes("first", 1 << 20) == 1 << 20
    assert not buckets.stands(("first", 1), "first", behind=True)
    assert not buckets.stands(("first", 0), "first", behind=False), "another one still is"
    assert buckets.stands(("first", 1), "first", behind=False)
    assert buckets.partition_bytes("last", 1 << 20) == 1 << 20


def test_the_report_is_a_rate_and_says_who_was_held_back() -> None:
    buckets = TokenBuckets()
    assert buckets.report(1.0) is None
    buckets.bound(10_000.0, {"orders": 1000.0, "quiet": 1000.0}, {})
    buckets.report(2.0)
    buckets.spend("orders", 900)
    assert buckets.report(4.0) == {"": [450.0, 1.0], "orders": [450.0, 1.0]}
    assert buckets.report(5.0) == {"": [0.0, 1.0], "orders": [0.0, 1.0]}, "in debt"
    buckets.refill(6.0)
    buckets.refill(9.0)
    buckets.report(10.0)
    assert buckets.report(11.0) == {}


def test_only_whole_batches_count() -> None:
    one = HEADER_STRUCT.pack(7, 49 + 39, 0, 2, 0, 0, 4, 0, 0, -1, -1, -1, 5) + bytes(39)
    assert measure_whole_batches(memoryview(one)) == (100, 12)
    assert measure_whole_batches(memoryview(one + one[:80])) == (100, 12)
    assert measure_whole_batches(memoryview(one[:99])) == (0, -1)


TASKS = st.dictionaries(
    st.integers(0, 20), st.builds(ThrottleUse, st.floats(0, 1e9), st.booleans()), min_size=1, max_size=12
)


@given(total=st.floats(1.0, 1e9), uses=TASKS, weight=st.integers(1, 100))
def test_no_more_than_the_throttle_is_shared_out_and_nothing_of_it_is_kept_from_the_hungry(
    total: float, uses: dict[int, ThrottleUse], weight: int
) -> None:
    parts = divide_rate(total, uses, {0: weight})
    assert sum(parts.values()) == pytest.approx(total)
    assert all(part > 0 for part in parts.values())


def test_what_one_does_not_use_the_hungry_ones_get_by_weight() -> None:
    parts = divide_rate(
        1000.0, {0: ThrottleUse(0.0, False), 1: ThrottleUse(300.0, True), 2: ThrottleUse(100.0, True)}, {1: 3.0}
    )
    assert parts[0] == pytest.approx(5.0)
    assert parts[1] == pytest.approx(3 * parts[2])
    assert divide_rate(1000.0, {0: NO_USE, 1: NO_USE})[0] == pytest.approx(500.0)


def test_a_task_is_bounded_by_its_share_of_the_link_and_of_its_own_topics() -> None:
    control = LinkControl(throttle_bytes_s=1000, topic_throttles=(("orders.*", 200),))
    found = task_rate_limits(control, {0: ["orders", "bills"], 1: ["orders"], 2: []}, {0: {"": [700.0, 1.0]}})
    assert found[0].link > 900
    assert sum(one.link for one in found.values()) == pytest.approx(1000, abs=1)
    assert found[0].topics == found[1].topics == {"orders": 100.0}
    assert found[2] == TaskRateLimits(found[1].link, {}, {})


def test_under_a_links_throttle_priorities_become_rates() -> None:
    control = LinkControl(throttle_bytes_s=1000, priorities=(("first", 40),))
    busy = {0: {"first": [10.0, 1.0], "last": [10.0, 1.0]}}
    found = task_rate_limits(control, {0: ["first", "last"]}, busy)[0]
    assert found.weights == {"first": 40}
    assert found.topics == {"first": 800.0, "last": 200.0}
    idle = task_rate_limits(control, {0: ["first", "last"]}, {0: {"last": [10.0, 1.0]}})[0]
    assert idle.topics["last"] > 900, "nothing is kept for one that has nothing"


def test_a_topic_at_its_own_throttle_leaves_the_rest_of_the_links_to_others() -> None:
    control = LinkControl(throttle_bytes_s=1000, topic_throttles=(("first", 100),), priorities=(("first", 40),))
    busy = {0: {"first": [95.0, 1.0], "last": [10.0, 1.0]}}
    found = task_rate_limits(control, {0: ["first", "last"]}, busy)[0].topics
    assert found["first"] == 100.0
    assert found["last"] > 850


def test_without_a_word_of_operators_nothing_is_bounded() -> None:
    assert task_rate_limits(LinkControl(), {0: ["orders"]}, {}) == {0: TaskRateLimits(0.0, {}, {})}


@pytest.mark.parametrize("first", [[0], [0, 1], [0, 1, 2]])
@pytest.mark.parametrize("last", [[2], [1, 2], [0, 1, 2]])
def test_a_weight_is_the_topics_on_however_many_tasks_it_lies(first: list[int], last: list[int]) -> None:
    control = LinkControl(throttle_bytes_s=1000, priorities=(("first", 40),))
    placed = {task: [*["first"] * (task in first), *["last"] * (task in last)] for task in range(3)}
    busy = {task: {topic: [1.0, 1.0] for topic in ours} for task, ours in placed.items()}
    found = task_rate_limits(control, placed, busy)
    rates = {name: sum(bounds.topics.get(name, 0.0) for bounds in found.values()) for name in ("first", "last")}
    assert rates["first"] == pytest.approx(800, abs=0.5)
    assert rates["last"] == pytest.approx(200, abs=0.5)
    assert sum(bounds.link for bounds in found.values()) == pytest.approx(1000, abs=0.5)
