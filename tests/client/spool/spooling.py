"""What tests of the spool do again and again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from twinshore.client.core.spool_format import SpoolRecord
from twinshore.client.spool import Spool


def record(number: int, topic: str = "orders", value: bytes | None = None) -> SpoolRecord:
    said = b"value %d" % number if value is None else value
    return SpoolRecord(
        number, topic, said, b"key", -1, 1_000 + number, (("who", b"me"), ("none", None)), 5_000 + number
    )


def put(spool: Spool, *records: SpoolRecord) -> None:
    """In one batch."""
    batch = spool.keep(records)
    assert batch is not None, "there is room"
    spool.commit(batch)


def taken(spool: Spool, topic: str = "orders", most: int = 1_000_000) -> list[SpoolRecord]:
    """Handed out in order, and not yet acknowledged."""
    found: list[SpoolRecord] = []
    while len(found) < most:
        spool.prepare(topic)
        head = spool.head(topic)
        if head is None:
            break
        spool.handed_out(topic, head.number)
        found.append(head)
    return found


def done(spool: Spool, records: Iterable[SpoolRecord]) -> None:
    for one in records:
        spool.done(one.topic, one.number)
    spool.tend(at_once=True)


def numbers(records: Iterable[SpoolRecord]) -> list[int]:
    return [one.number for one in records]


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.spool"))
