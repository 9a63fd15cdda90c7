"""The demo's account: what was acknowledged is on both sides or saved, and nothing else comes out even."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testkit.errors import raises
from twinshore.kafka.protocol.record_batch import Record
from twinshore.lab.demo_run import DemoAccount, DemoRescuedRecords
from twinshore.lab.processes import LabError
from twinshore.switch.core.unreplicated import (
    RecordCount,
    RescueOrigin,
    TransactionOutcome,
    UnreplicatedRecord,
    count_line,
    header_line,
    record_line,
)

MADE_MS = 1_000_000


def message(key: bytes | None, value: bytes | None, made_ms: int = MADE_MS) -> Any:
    return SimpleNamespace(key=lambda: key, value=lambda: value, timestamp=lambda: (1, made_ms))


def save(folder: Path, topic: str, *records: tuple[bytes | None, bytes | None]) -> None:
    origin = RescueOrigin("ab" * 16, "east", "west", topic, "id", 0, 7, 7 + len(records))
    saved = [
        UnreplicatedRecord(Record(7 + at, MADE_MS, key, value), TransactionOutcome.COMMITTED)
        for at, (key, value) in enumerate(records)
    ]
    lines = [header_line(origin), *map(record_line, saved), count_line(RecordCount(len(saved), len(saved)))]
    folder.mkdir(exist_ok=True)
    (folder / origin.file_name()).write_text("\n".join(lines) + "\n")


def test_what_was_saved_and_sent_again_counts_once(tmp_path: Path) -> None:
    save(tmp_path / "rescued", "orders", (b"a", b"1"), (None, b"2"), (b"c", None))
    save(tmp_path / "rescued", "clicks", (b"a", b"1"))
    rescued = DemoRescuedRecords(tmp_path / "rescued")
    hear = rescued.listener("orders")
    hear(message(b"a", b"1"))
    hear(message(b"a", b"1"))  # written twice to one side it would be one too many
    hear(message(b"z", b"1"))
    hear(message(b"c", None, MADE_MS - 9_000))  # another record, written before
    rescued.listener("payments")(message(b"a", b"1"))
    assert (rescued.count, rescued.again) == (4, 1)
    said = DemoAccount(13, 10, rescued.count, rescued.again).sentence()
    assert said == (
        "acknowledged: 13 records; 10 are on both sides, 4 more were saved from east,"
        " 1 of which their producers sent again"
    )


@pytest.mark.parametrize("acknowledged", [12, 14])
def test_one_too_few_or_too_many_is_an_error(acknowledged: int) -> None:
    with raises(LabError, "lab.records-differ", acknowledged=acknowledged, found=13):
        DemoAccount(acknowledged, 10, 4, 1).sentence()


def test_where_nothing_was_lost_nothing_is_said_of_it(tmp_path: Path) -> None:
    rescued = DemoRescuedRecords(tmp_path / "rescued")
    assert DemoAccount(5, 5, rescued.count, rescued.again).sentence() == "acknowledged: 5 records; 5 are on both sides"
