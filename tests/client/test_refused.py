"""A refused call says of itself what librdkafka says of a record that it could not write."""

from __future__ import annotations

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, KafkaError, Message

from twinshore.client.pending import PendingSend, refused_message

ERROR = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)


def test_it_says_all_that_is_known_of_the_call() -> None:
    found = refused_message(PendingSend(7, "orders", b"value", b"key", 2, None, 77, (("trace", b"1"),)), ERROR)
    assert (found.topic(), found.partition(), found.key(), found.value(), len(found)) == (
        *("orders", 2, b"key", b"value"),
        len(b"value"),
    )
    assert (found.headers(), found.timestamp()) == ([("trace", b"1")], (TIMESTAMP_CREATE_TIME, 77))
    assert (found.error(), found.offset(), found.latency(), found.leader_epoch()) == (ERROR, None, None, None)


def test_what_nobody_gave_it_does_not_say() -> None:
    found = refused_message(PendingSend(7, "orders", None, None, -1, None, 0, ()), ERROR)
    assert (found.partition(), found.key(), found.value(), found.headers(), len(found)) == (None, None, None, None, 0)
    assert found.timestamp() == (TIMESTAMP_NOT_AVAILABLE, -1)
    assert bool(found), "though its value is empty"


def test_it_can_be_asked_whatever_a_message_of_librdkafka_s_can_be_asked() -> None:
    changes = ("set_", "deserialized_", "delivery_count")
    asked = [name for name in dir(Message) if not name.startswith(("_", *changes))]
    found = refused_message(PendingSend(7, "orders", None, None, -1, None, 0, ()), ERROR)
    assert [name for name in asked if not hasattr(found, name)] == []
