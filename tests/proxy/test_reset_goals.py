"""Where places go, by values: what is asked for, what lies outside of a log, and what readers see of it."""

from __future__ import annotations

from testkit.errors import raises
from twinshore.config.errors import ConfigError
from twinshore.proxy.core.offset_reset import (
    ResetPartition,
    ResetTarget,
    ResetTargetKind,
    compute_goals,
    describe_partition,
    parse_target,
    parse_time_ms,
    parse_topics,
    reverse_goals,
)
from twinshore.state.core.proxy_values import ResetGoal

SPOT = ResetPartition("east", "orders", 0, 40, 10, 100)
NEW = ResetPartition("east", "orders", 1, None, 0, 7)
SINCE = ResetPartition("east", "orders", 2, 40, 10, 100, 55)


def places(target: ResetTarget, *spots: ResetPartition) -> tuple[list[int], list[str]]:
    goals, why = compute_goals(target, spots)
    return [one.to for one in goals], why


def test_each_way_has_its_offset() -> None:
    assert places(ResetTarget(ResetTargetKind.EARLIEST), SPOT, NEW) == ([10, 0], [])
    assert places(ResetTarget(ResetTargetKind.LATEST), SPOT, NEW) == ([100, 7], [])
    assert places(ResetTarget(ResetTargetKind.OFFSET, 10), SPOT) == ([10], [])
    assert places(ResetTarget(ResetTargetKind.TIME, 1), SINCE, SPOT) == ([55, 100], []), (
        "nothing is as late: where it will be"
    )
    assert places(ResetTarget(ResetTargetKind.TIME, 1), ResetPartition("east", "orders", 2, 40, 10, 100, 3)) == (
        [10],
        [],
    )
    assert places(ResetTarget(ResetTargetKind.SHIFT, -30), SPOT) == ([10], [])


def test_what_lies_outside_of_a_log_is_named() -> None:
    assert places(ResetTarget(ResetTargetKind.OFFSET, 9), SPOT, NEW) == (
        [],
        ["orders-0 has 10 to 100, and 9 lies outside", "orders-1 has 0 to 7, and 9 lies outside"],
    )
    assert places(ResetTarget(ResetTargetKind.OFFSET, 100), SPOT) == ([100], []), (
        "the end is the place of what comes next"
    )
    assert places(ResetTarget(ResetTargetKind.SHIFT, 61), SPOT, NEW) == (
        [],
        ["orders-0 has 10 to 100, and 101 lies outside", "orders-1 has no committed offset"],
    )


def test_what_readers_read_again_or_skip_is_said() -> None:
    assert describe_partition(SPOT) == "orders-0: 40, of 10 to 100"
    assert describe_partition(NEW) == "orders-1: none, of 0 to 7"
    assert describe_partition(SPOT, 15) == "orders-0: 40 -> 15, of 10 to 100: 25 are read again"
    assert describe_partition(SPOT, 100) == "orders-0: 40 -> 100, of 10 to 100: 60 are skipped"
    assert describe_partition(SPOT, 40) == "orders-0: 40 -> 40, of 10 to 100: it stays"
    assert describe_partition(NEW, 7) == "orders-1: none -> 7, of 0 to 7"
    overtaken = ResetPartition("east", "orders", 3, 4, 10, 100)
    assert describe_partition(overtaken, 30).endswith("20 are skipped"), "what retention took nobody could read"


def test_a_reset_is_taken_back_where_there_was_a_place() -> None:
    goals = ResetGoal("east", "orders", 0, 40, 10), ResetGoal("west", "bills", 1, None, 0)
    assert reverse_goals(goals) == (ResetGoal("east", "orders", 0, 10, 40),)


def asked(**options: object) -> ResetTarget | None:
    usual: dict[str, object] = {"earliest": False, "latest": False, "offset": None, "time": "", "shift": None}
    return parse_target(**{**usual, "unfinished": 0, **options})  # type: ignore[arg-type]


def test_options_say_one_thing() -> None:
    assert asked() is None
    assert asked(unfinished=1) is None
    assert asked(offset=0) == ResetTarget(ResetTargetKind.OFFSET, 0)
    assert asked(shift=-5) == ResetTarget(ResetTargetKind.SHIFT, -5)
    assert asked(earliest=True) == ResetTarget(ResetTargetKind.EARLIEST)
    assert asked(latest=True) == ResetTarget(ResetTargetKind.LATEST)
    assert asked(time="1970-01-01T00:01:00") == ResetTarget(ResetTargetKind.TIME, 60_000)
    for options in ({"earliest": True, "latest": True}, {"offset": 3, "unfinished": 1}, {"shift": 1, "offset": 1}):
        with raises(ConfigError, "proxy.reset-targets-many"):
            asked(**options)


def test_a_time_has_a_zone_or_is_utc() -> None:
    assert parse_time_ms("1970-01-01T01:00:00+01:00") == 0
    assert parse_time_ms("1970-01-01T00:00:01Z") == 1000
    with raises(ConfigError, "proxy.time-invalid", text="yesterday"):
        parse_time_ms("yesterday")


def test_topics_are_named_whole_or_by_partitions() -> None:
    assert parse_topics([]) == {}
    assert parse_topics(["orders", "bills:0,2", "bills:3"]) == {"orders": None, "bills": frozenset({0, 2, 3})}
    assert parse_topics(["bills:1", "bills"]) == {"bills": None}
    for word in ("bills:", "bills:a", ":1", "bills:1,", "bills:-1"):
        with raises(ConfigError, "proxy.topic-option-invalid"):
            parse_topics([word])
