"""Who holds a twin, since when, and from when on the ledger names it."""

from __future__ import annotations

from twinshore.config.model import TopicPartition
from twinshore.kafka.leader_queries import ProducerState
from twinshore.replication.core.incident_rules import (
    HANGING_KIND,
    OldestTransaction,
    TransactionTimer,
    find_oldest_transaction,
)

ONE, OTHER = TopicPartition("orders", 1), TopicPartition("orders", 2)


def state(producer_id: int, start: int) -> ProducerState:
    return ProducerState(producer_id, 0, 5, 1_000, 0, start)


def test_the_oldest_open_transaction_holds() -> None:
    assert find_oldest_transaction(40, 90, [state(1, -1), state(2, 60), state(3, 40)]) == OldestTransaction(3, 40, 90)


def test_nobody_holds_what_is_stable_to_its_end_or_where_none_is_open() -> None:
    assert find_oldest_transaction(90, 90, [state(2, 60)]) is None
    assert find_oldest_transaction(40, 90, [state(1, -1)]) is None


def test_a_transaction_is_named_once_it_has_held_for_too_long() -> None:
    patience = TransactionTimer(10.0)
    assert patience.seen({ONE: OldestTransaction(3, 40, 90)}, 100.0) == []
    assert patience.seen({ONE: OldestTransaction(3, 40, 95), OTHER: OldestTransaction(4, 7, 8)}, 109.0) == []
    (found,) = patience.seen({ONE: OldestTransaction(3, 40, 120), OTHER: OldestTransaction(4, 7, 8)}, 111.0)
    assert (found.partition, found.age_s) == (ONE, 11.0)
    told = found.stoppage()
    assert (told.topic, told.partition, told.kind, told.from_offset, told.to_offset) == (
        "orders",
        1,
        HANGING_KIND,
        40,
        120,
    )
    for words in ("producer id 3", "offset 40", "11 s", "80 offsets behind", "--start-offset 40"):
        assert words in told.sentence


def test_another_transaction_begins_its_own_time() -> None:
    patience = TransactionTimer(10.0)
    patience.seen({ONE: OldestTransaction(3, 40, 90)}, 0.0)
    assert patience.seen({ONE: OldestTransaction(3, 60, 90)}, 11.0) == [], "the same producer's next one"
    assert patience.seen({ONE: OldestTransaction(4, 60, 90)}, 22.0) == [], "another producer's"
    patience.seen({}, 23.0)
    assert patience.seen({ONE: OldestTransaction(4, 60, 90)}, 40.0) == [], "it had let go meanwhile"
