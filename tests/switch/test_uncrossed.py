"""What the preview of a forced switch says had not crossed: topic by topic, and never less than is known."""

from __future__ import annotations

import pytest

from testkit.errors import mentions
from twinshore.replication.core.lag import LagStatus, TopicLag
from twinshore.state.core.values import PartitionState, ReplicatedPosition
from twinshore.switch.core.takeover import UnreplicatedOffsets, estimate_unreplicated

SEEN_MS, LATER_MS = 999_000, 1_002_000
LAGS, LEVEL = TopicLag(1, 100, 48_100, 48_000), TopicLag(1, 7, 7, 0)


def at(topic: str, to: int, end: int, last_ms: int = 900_000, partition: int = 0) -> ReplicatedPosition:
    return ReplicatedPosition(
        link="east->west",
        topic=topic,
        partition=partition,
        start_offset=0,
        to_offset=to,
        records=1,
        bytes=1,
        batches=1,
        source_end=end,
        lag_records=end - to,
        state=PartitionState.FLOWING,
        first_ms=1,
        last_ms=last_ms,
    )


def word(**topics: TopicLag) -> LagStatus:
    lag, partitions, unseen = (
        sum(getattr(one, name) for one in topics.values()) for name in ("lag", "partitions", "unseen")
    )
    return LagStatus(SEEN_MS, lag, partitions, unseen, topics)


def test_a_partition_that_was_not_seen_takes_back_nothing_of_the_others() -> None:
    """Receipts count topics that are paused as level."""
    seen = word(orders=LAGS, bills=TopicLag(2, 7, 7, 0, 1))
    level = [at("orders", 100, 100), at("bills", 7, 7)]
    found = estimate_unreplicated({"orders": 1, "bills": 2}, level, seen, every=True)
    assert found == UnreplicatedOffsets(48_000, SEEN_MS, whole=False)
    assert found.sentences("east", 2, LATER_MS) == [
        "how much is lost is not known: 3 s before now, when east was last seen in part, at least 48,000 offsets were "
        "not replicated"
    ]
    assert estimate_unreplicated({"orders": 1}, level, seen, every=False) == UnreplicatedOffsets(48_000, SEEN_MS)
    assert not estimate_unreplicated({"orders": 2}, level, seen, every=False).whole, (
        "a partition is newer than the word"
    )


def test_where_all_was_seen_it_is_said_so() -> None:
    found = estimate_unreplicated(
        {"orders": 1, "bills": 1}, (), word(orders=TopicLag(1, 9, 10, 1), bills=LEVEL), every=True
    )
    (said,) = found.sentences("east", 2, LATER_MS)
    assert mentions(said, "3 s", "east", "1 offset") and "in part" not in said


def test_what_the_word_does_not_name_is_at_least_what_receipts_say() -> None:
    some = [at("bills", 4, 9, 900_000), at("bills", 7, 9, 950_000, partition=1)]
    found = estimate_unreplicated({"orders": 1, "bills": 2, "news": 1}, some, word(orders=LAGS), every=True)
    assert found == UnreplicatedOffsets(48_007, SEEN_MS, whole=False, unknown=("news",))
    assert mentions(found.sentences("east", 3, LATER_MS)[1], "news", "not known")
    assert estimate_unreplicated({"bills": 2}, some, None, every=True) == UnreplicatedOffsets(7, 950_000, whole=False)
    mute = word(bills=TopicLag(2, 11, 0, 0, 2))
    assert estimate_unreplicated({"bills": 2}, some, mute, every=True) == UnreplicatedOffsets(
        7, 950_000, whole=False
    ), "it saw none of them"


def test_level_by_receipts_alone_is_not_known_to_be_level() -> None:
    found = estimate_unreplicated({"bills": 1}, [at("bills", 9, 9)], None, every=True)
    (said,) = found.sentences("east", 1, LATER_MS)
    assert mentions(said, "east", "not known", "102 s ago")


@pytest.mark.parametrize("seen", [None, word(), word(news=LEVEL)])
def test_what_was_never_seen_is_not_known(seen: LagStatus | None) -> None:
    """A store that was recovered, or a twin that was just made."""
    found = estimate_unreplicated({"orders": 1}, (), seen, every=True)
    assert found.unknown == ("orders",)
    (said,) = found.sentences("east", 1, LATER_MS)
    assert mentions(said, "east", "not known")


def test_a_large_link_is_told_of_as_a_whole() -> None:
    """Beyond so many topics the word in the store names none."""
    large = LagStatus(SEEN_MS, 48_000, 3, 0)
    parts = {"orders": 1, "bills": 2}
    assert estimate_unreplicated(parts, (), large, every=True) == UnreplicatedOffsets(48_000, SEEN_MS)
    assert not estimate_unreplicated(parts, (), LagStatus(SEEN_MS, 48_000, 3, 1), every=True).whole
    assert estimate_unreplicated(parts, (), LagStatus(SEEN_MS, 0, 3, 3), every=True).unknown == ("bills", "orders")
    assert estimate_unreplicated({"orders": 1}, (), large, every=False).unknown == ("orders",), (
        "the sum is of others too"
    )
    assert estimate_unreplicated({**parts, "news": 1}, (), large, every=True).unknown == ("bills", "news", "orders")
