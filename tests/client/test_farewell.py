"""How a consumer leaves a cluster that does not answer, and what it commits on its way; librdkafka is played."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from testkit.errors import mentions
from testkit.log_lines import LogLines
from tests.client.test_consumer_moves import HANDED_OUT, PLACE, PlayedReader, follow, hears
from tests.client.turning import CLUSTERS, ByHand
from twinshore.client import FailoverConsumer
from twinshore.kafka.clock import steady_s

ORDERS = TopicPartition("orders", 0)


class Mute(PlayedReader):
    """`answers` is set while east answers; `commits` is what it was told."""

    answers = threading.Event()
    commits: list[tuple[str, int]] = []  # noqa: RUF012

    def commit(self, offsets: list[TopicPartition] | None = None, **_: object) -> None:
        self.answered()
        for one in offsets or [TopicPartition("stored", 0, 0)]:
            self.commits.append((self.settings["bootstrap.servers"], one.offset))

    def answered(self) -> None:
        if self.settings["bootstrap.servers"] == CLUSTERS["east"]["bootstrap.servers"]:
            self.answers.wait()

    def close(self) -> None:
        self.answered()
        super().close()


@pytest.fixture
def mute(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Mute]]:
    monkeypatch.setattr("twinshore.client.group_member.Consumer", Mute)
    monkeypatch.setattr("twinshore.client.discovery.routing_topic.HomeTracker", ByHand)
    monkeypatch.setattr("twinshore.client.group_member.LEAVE_TIMEOUT_S", 0.2)
    Mute.answers.set()
    Mute.commits.clear()
    yield Mute
    Mute.answers.set()


def reads(told: dict[str, Any] | None = None, *, commits: bool = True) -> FailoverConsumer:
    """Orders, on east."""
    consumer = FailoverConsumer({"group.id": "billing", "enable.auto.commit": commits}, clusters=CLUSTERS)
    consumer.subscribe(["orders"], **(told or {}))
    follow(consumer)
    consumer._handed.next["orders", 0] = HANDED_OUT
    return consumer


@pytest.mark.parametrize("commits", [True, False])
def test_a_home_that_does_not_answer_keeps_nobody_from_the_new_one(
    mute: type[Mute], commits: bool, log_lines: LogLines
) -> None:
    told: list[tuple[str, int]] = []
    with reads(
        {
            "on_revoke": lambda _, found: told.append(("revoked", len(found))),
            "on_lost": lambda _, found: told.append(("lost", len(found))),
        },
        commits=commits,
    ) as consumer:
        mute.answers.clear()
        began_s = steady_s()
        hears(consumer, "west", 2, HANDED_OUT)
        assert [one.offset for one in follow(consumer).assigned] == [HANDED_OUT]
        assert consumer.where("orders") == "west"
        assert steady_s() < began_s + 5
        assert told == [("lost", 1)]
        assert log_lines == ["billing leaves east, which does not answer"]
        mute.answers.set()
    assert told == [("lost", 1), ("revoked", 1)], "of the old home it hears no more"


def test_it_does_not_say_that_it_has_parked_before_it_has_left(mute: type[Mute]) -> None:
    with reads() as consumer:
        mute.answers.clear()
        hears(consumer, "east", 1, step=1, held=True)

        def parked() -> set[str]:
            consumer._router._looked_s = 0.0
            consumer._router.follow()
            assert isinstance(consumer._router.tracker, ByHand)
            return set(consumer._router.tracker._following.says().parked)

        assert parked() == set()
        mute.answers.set()
        consumer._router._parted["orders"]._thread.join(10)  # type: ignore[union-attr]
        assert parked() == {"orders"}
        assert mute.commits == [("127.0.0.1:1", HANDED_OUT)]


@pytest.mark.parametrize("place", [HANDED_OUT - 1, None])
def test_what_is_committed_between_two_homes_is_committed_where_it_arrives(mute: type[Mute], place: int | None) -> None:
    with reads(commits=False) as consumer:
        hears(consumer, "east", 1, step=1, held=True)
        consumer._router.follow()
        assert mute.commits == []
        consumer.commit(offsets=None if place is None else [TopicPartition("orders", 0, place)], asynchronous=False)
        assert mute.commits == []
        hears(consumer, "west", 2, HANDED_OUT)
        follow(consumer)
        assert mute.commits == [("127.0.0.1:2", place or HANDED_OUT)]


def test_what_stands_at_the_new_home_already_is_not_committed_again(mute: type[Mute]) -> None:
    with reads(commits=False) as consumer:
        hears(consumer, "east", 1, step=1, held=True)
        consumer._router.follow()
        consumer.commit(offsets=[TopicPartition("orders", 0, PLACE)])
        hears(consumer, "west", 2, HANDED_OUT)
        follow(consumer)
        assert mute.commits == []


def test_what_is_committed_in_on_revoke_is_committed_where_it_leaves(mute: type[Mute]) -> None:
    """There the switch finds it."""
    place = TopicPartition("orders", 0, HANDED_OUT - 1)

    def commits(*_: object) -> None:
        assert threading.current_thread() is threading.main_thread(), "as all callbacks are called"
        ours[0].commit(offsets=[place], asynchronous=False)

    ours = [reads({"on_revoke": commits}, commits=False)]
    hears(ours[0], "east", 1, step=1, held=True)
    ours[0]._router.follow()
    assert mute.commits == [("127.0.0.1:1", HANDED_OUT - 1)]
    ours[0].close()
    assert mute.commits[1:] == []


def test_what_was_read_before_a_forced_switch_is_committed_to_the_point_alone(
    mute: type[Mute], log_lines: LogLines
) -> None:
    with reads(commits=False) as consumer:
        hears(consumer, "west", 2, 60)
        follow(consumer)
        consumer.commit(offsets=[TopicPartition("orders", 0, 100)], asynchronous=False)
        assert mute.commits == [("127.0.0.1:2", 60)]
        assert [mentions(one, "billing", "orders-0", 60, 100) for one in log_lines] == [True]


@pytest.mark.usefixtures("mute")
def test_what_a_callback_raises_is_heard_and_the_home_is_left() -> None:
    def revoked(*_: object) -> None:
        raise ValueError("of the application's own")

    consumer = reads({"on_revoke": revoked})
    hears(consumer, "west", 2, HANDED_OUT)
    with pytest.raises(ValueError, match="of the application's own"):
        consumer._router.follow()
    assert [one.offset for one in follow(consumer).assigned] == [HANDED_OUT]
    with pytest.raises(ValueError, match="of the application's own"):
        consumer.close()
    consumer.close()


def test_a_commit_in_on_revoke_at_a_home_that_fell_silent_keeps_nobody_long(mute: type[Mute]) -> None:
    def commits(*_: object) -> None:
        mute.answers.clear()
        ours[0].commit(offsets=[TopicPartition("orders", 0, HANDED_OUT - 1)], asynchronous=False)

    ours = [reads({"on_revoke": commits}, commits=False)]
    hears(ours[0], "west", 2, HANDED_OUT)
    began_s = steady_s()
    ours[0]._router._looked_s = 0.0
    ours[0]._router.follow()
    assert steady_s() < began_s + 5
    assert ours[0].where("orders") == "west"
    mute.answers.set()
    ours[0].close()
    assert ("127.0.0.1:2", HANDED_OUT - 1) in mute.commits, "it is committed where the topic went"


@pytest.mark.usefixtures("mute")
def test_what_a_callback_raises_leaves_no_follower_behind() -> None:
    """Whom a switch would wait for, though nobody serves it any more."""

    def revoked(*_: object) -> None:
        raise ValueError("of the application's own")

    consumer = reads({"on_revoke": revoked})
    centre = consumer._router.tracker
    assert isinstance(centre, ByHand)
    with pytest.raises(ValueError, match="of the application's own"):
        consumer.close()
    assert centre.goodbyes == 1
