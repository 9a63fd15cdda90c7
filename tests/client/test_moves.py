"""What a producer does at a move, turn by turn: which calls go where, in which order, and what is said of it."""

from __future__ import annotations

from tests.client.turning import Stage, stage

__all__ = ["stage"]


def test_a_forced_switch_of_two_topics_sends_again_what_a_dead_home_did_not_acknowledge(stage: Stage) -> None:
    producer = stage.opens("orders", "payments")
    stage.at("east").lives = False
    for topic in ("orders", "payments"):
        producer.produce(topic, b"never acknowledged")
    stage.hears("west", 2, "orders", "payments")
    stage.turn(2)
    for topic in ("orders", "payments"):
        producer.produce(topic, b"later")
    assert sorted(stage.at("west").log) == [
        *(("orders", b"later"), ("orders", b"never acknowledged")),
        *(("payments", b"later"), ("payments", b"never acknowledged")),
    ]
    stage.at("west").answers()
    assert len(producer) == 0


def test_a_topic_that_waits_on_a_client_which_was_given_up_is_parked(stage: Stage) -> None:
    producer = stage.opens("orders", "payments")
    stage.at("east").lives = False
    producer.produce("orders", b"never acknowledged")
    stage.hears("west", 2, "orders")
    stage.hears("east", 1, "payments", step=1, held=True)
    stage.turn(2)
    assert "payments" not in stage.centre.held()
    assert stage.at("west").log == [("orders", b"never acknowledged")]
