"""Rules about groups: where each fires, and just beside it does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.advisor.seen_kit import HOUR_MS, NONE, found, group, having, place, topic, with_group
from twinshore.advisor.core.cluster_rules import estimate_hours_left
from twinshore.advisor.core.model import ClusterSnapshot, EarlierPosition

RETENTION_MS = 100 * HOUR_MS


def test_records_that_are_gone_unread() -> None:
    (one,) = found(with_group(group(place(10, 100, start=40), place(5, 5, number=1))), "group-lost")
    assert one.subject == "group billing on orders"
    assert one.evidence == "offsets of 30 records are gone unread (orders-0: at 10, log begins at 40)"
    assert not found(with_group(group(place(40, 100, start=40))), "group-lost")


@pytest.mark.parametrize(
    ("age_h", "read", "expected_h"),
    [
        (90, None, 10.0),  # One look alone: as if it read nothing more.
        (90, 0, 10.0),
        (90, 50, 20.0),  # It reads at half the pace at which those were written.
        (90, 100, None),  # It keeps its distance.
        (90, 200, None),
        (110, 0, 0.0),
        (-1, 0, 101.0),  # A clock ahead of ours.
    ],
)
def test_how_long_until_retention_overtakes(age_h: float, read: int | None, expected_h: float | None) -> None:
    """The lag is 9 000 records of `age_h` hours; `read` of them were read in the last hour."""
    lag = int(100 * max(age_h, 1))
    before = EarlierPosition(1000 - read, 1000 + lag, 3600) if read is not None else None
    ours = replace(place(1000, 1000 + lag), before=before, next_age_ms=int(age_h * HOUR_MS))
    left = estimate_hours_left(ours, RETENTION_MS)
    assert left == (pytest.approx(expected_h) if expected_h is not None else None)


def _aged(age_h: float, also: Mapping[str, str] = NONE) -> ClusterSnapshot:
    ours = replace(place(1000, 10_000), before=EarlierPosition(1000, 9_900, 60), next_age_ms=int(age_h * HOUR_MS))
    return with_group(group(ours), seen=having(topic("orders", also={"retention.ms": str(RETENTION_MS), **also})))


def test_retention_will_overtake_a_group() -> None:
    (one,) = found(_aged(97), "group-retention")
    assert one.evidence == (
        "will lose records from 3.0 h on: orders-0 at 1000 has 9,000 to read, the next one 97.0 h old,"
        " and retention.ms is 100.0 h; its lag changed by +100 in 60 s"
    )
    assert one.commands[0].endswith(f"--topic orders --add-config retention.ms={2 * RETENTION_MS}")
    assert one.safe is None, "it costs disk"
    assert not found(_aged(76), "group-retention"), "24 hours are left"
    assert found(_aged(76.1), "group-retention")
    assert not found(_aged(97, {"cleanup.policy": "compact"}), "group-retention")
    assert not found(_aged(97, {"retention.ms": "-1"}), "group-retention")


def test_a_group_that_keeps_up_is_not_overtaken_however_short_retention_is() -> None:
    short = having(topic("orders", also={"retention.ms": str(24 * HOUR_MS)}))

    def told(before: EarlierPosition | None, age_h: float) -> bool:
        ours = replace(place(100, 200), before=before, next_age_ms=int(age_h * HOUR_MS))
        return bool(found(with_group(group(ours), seen=short), "group-retention"))

    assert not told(EarlierPosition(100, 100, 10), 1 / 3600), "it had read everything ten seconds ago"
    assert not told(EarlierPosition(100, 100, 3600), 12), "so it had, and the record was written late"
    for before in (EarlierPosition(100, 200, 10), None):
        assert not told(before, 5.9), "a quarter of the time is not over"
        assert told(before, 6)


def test_a_group_without_members() -> None:
    (one,) = found(with_group(group(place(10, 100), live=False)), "group-abandoned")
    assert one.evidence == "no members, and 90 records to read"
    assert one.commands[0].endswith("--describe --group billing")
    assert not found(with_group(group(place(100, 100), live=False)), "group-abandoned")
    assert not found(with_group(group(place(10, 100))), "group-abandoned")
    places = (
        replace(place(10, 100), waits=False),  # Its application may be between two commits.
        replace(place(20, 100, number=1), before=EarlierPosition(10, 90, 10)),  # It is at work, without being a member.
        replace(place(90, 100, number=2), before=EarlierPosition(90, 90, 10), waits=True),
    )
    assert not found(with_group(group(*places[:2], live=False)), "group-abandoned")
    (one,) = found(with_group(group(*places, live=False)), "group-abandoned")
    assert one.evidence == "no members, and 10 records to read"


def test_a_group_that_commits_nothing() -> None:
    stands = replace(place(10, 100), before=EarlierPosition(10, 90, 8), waits=True)
    (one,) = found(with_group(group(stands)), "group-stuck")
    assert one.evidence == "it has members, and committed nothing in 8 s: orders-0 at 10 with 90 to read"
    for other in (
        replace(stands, before=EarlierPosition(9, 90, 8)),  # It moves.
        replace(stands, before=EarlierPosition(10, 90, 7.9)),  # Too soon to say.
        replace(stands, before=EarlierPosition(10, 10, 8)),  # It had nothing to read before.
        replace(stands, before=None),
        replace(stands, waits=False),  # It commits each minute, as Connect and Streams do.
        replace(stands, waits=None),  # Nobody could say: that is told as not seen.
        replace(place(100, 100), before=EarlierPosition(100, 100, 8)),
    ):
        assert not found(with_group(group(other)), "group-stuck")
    assert not found(with_group(group(stands, live=False)), "group-stuck")
    assert one.by_hand.endswith("look again with --apart 70")
    (long,) = found(with_group(group(replace(stands, before=EarlierPosition(10, 90, 70)))), "group-stuck")
    assert "Connect" not in long.by_hand


def test_a_group_behind_its_logs_end() -> None:
    (one,) = found(with_group(group(place(101, 100))), "group-beyond-end")
    assert one.evidence == "orders-0: at 101, log ends at 100"
    assert not found(with_group(group(place(100, 100))), "group-beyond-end")


def test_partitions_without_a_place() -> None:
    ours = replace(group(place(1, 1)), unplaced=("orders-1",))
    (one,) = found(with_group(ours), "group-unplaced")
    assert one.evidence == "no committed offset in orders-1, which hold records"
    assert not found(with_group(group(place(1, 1))), "group-unplaced")


def test_a_name_that_a_shell_would_take_apart() -> None:
    (one,) = found(with_group(group(place(10, 100), name="a b; rm x", live=False)), "group-abandoned")
    assert "--group 'a b; rm x'" in one.commands[0]
