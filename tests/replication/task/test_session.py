"""An incremental fetch session and a broker's view of it never drift apart."""

from __future__ import annotations

import random

from twinshore.kafka.protocol.fetch import FetchPartitionById
from twinshore.replication.task.core.fetching import FetchSession

TOPIC = bytes(16)
Key = tuple[bytes, int]


def want(partition: int, position: int) -> FetchPartitionById:
    return FetchPartitionById(TOPIC, partition, position, 1, -1, 100)


def taken(
    held: dict[Key, FetchPartitionById], asked: list[FetchPartitionById], forgotten: list[Key]
) -> dict[Key, FetchPartitionById]:
    """What a broker holds after a request: it adds what is asked, then removes what is forgotten."""
    held = held | {(one.topic_id, one.partition): one for one in asked}
    return {key: one for key, one in held.items() if key not in forgotten}


def test_the_broker_always_holds_what_was_wanted_last() -> None:
    chance = random.Random(1)
    for seed in range(200):
        session, held, wanted = FetchSession(), {}, {}  # type: ignore[var-annotated]
        for _ in range(30):
            fresh = [want(number, chance.randrange(3)) for number in range(5) if chance.random() < 0.3]
            gone = [(TOPIC, number) for number in range(5) if chance.random() < 0.2]
            for key in gone:
                wanted.pop(key, None)
            wanted |= {(one.topic_id, one.partition): one for one in fresh}
            held = taken(held, *session.changes(fresh, gone))
            assert held == wanted, f"seed {seed}"
            assert len(session) == len(held)
            if chance.random() < 0.1:
                session.reset()
                held = {}
                wanted = {}


def test_what_did_not_change_is_not_said_again() -> None:
    session = FetchSession()
    assert session.changes([want(0, 5), want(1, 5)], []) == ([want(0, 5), want(1, 5)], [])
    assert session.changes([want(0, 5), want(1, 6)], []) == ([want(1, 6)], [])
    assert session.changes([], [(TOPIC, 1), (TOPIC, 9)]) == ([], [(TOPIC, 1)])
    assert session.position((TOPIC, 0)) == 5
    assert session.position((TOPIC, 1)) == -1


def test_wanted_and_unwanted_in_one_request_is_wanted() -> None:
    session = FetchSession()
    session.changes([want(0, 5)], [])
    assert session.changes([want(0, 7)], [(TOPIC, 0)]) == ([want(0, 7)], [])
    assert session.position((TOPIC, 0)) == 7


def test_epochs_count_and_wrap_as_brokers_count_them() -> None:
    session = FetchSession()
    assert (session.session_id, session.epoch) == (0, 0)
    session.answered(42)
    assert (session.session_id, session.epoch) == (42, 1)
    session.epoch = 2**31 - 1
    session.answered(42)
    assert session.epoch == 1, "0 would open another session, -1 end this one"


def test_a_broker_without_room_is_asked_for_everything_again() -> None:
    session = FetchSession()
    session.changes([want(0, 5)], [])
    session.answered(0)
    assert (session.session_id, session.epoch, len(session)) == (0, 0, 0)
    assert session.changes([want(0, 5)], []) == ([want(0, 5)], [])
