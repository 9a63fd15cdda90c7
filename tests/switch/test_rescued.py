"""The file of a rescued tail: what went in comes out, and one that is damaged or cut off is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testkit.errors import has_code, mentions
from twinshore.config.errors import ConfigError, WireError
from twinshore.config.settings import Settings, parse_settings
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.protocol.record_batch import Record
from twinshore.state.core.values import LinkStateRow
from twinshore.state.store import open_store
from twinshore.switch.core.unreplicated import (
    END_UNKNOWN,
    RecordCount,
    ReplayedBatch,
    RescueOrigin,
    TransactionOutcome,
    TransactionOutcomes,
    UnreplicatedRecord,
    count_line,
    header_line,
    read_lines,
    record_line,
)
from twinshore.switch.operations.rescued import (
    REPLAYED_KIND,
    ReplayRequest,
    add_replayed_records,
    inspect_rescued_file,
    list_rescued_files,
    plan,
)
from twinshore.switch.rescue_steps import read_origin, read_rescued_file

ORIGIN = RescueOrigin("f" * 32, "east", "west", "orders", "a" * 32, 3, 10, 15)
BYTES = st.none() | st.binary(max_size=20)
HEADERS = st.lists(st.tuples(st.binary(max_size=5), BYTES), max_size=3).map(tuple)
RECORDS = st.builds(Record, st.integers(0, 1 << 60), st.integers(-1, 1 << 40), BYTES, BYTES, HEADERS)
SAVED = st.lists(st.builds(UnreplicatedRecord, RECORDS, st.sampled_from(TransactionOutcome)), max_size=5)


def count(saved: list[UnreplicatedRecord]) -> RecordCount:
    return RecordCount(len(saved), sum(one.ending is TransactionOutcome.COMMITTED for one in saved))


def lines(saved: list[UnreplicatedRecord]) -> list[str]:
    return [*map(record_line, saved), count_line(count(saved))]


def written(folder: Path, saved: list[UnreplicatedRecord]) -> Path:
    path = folder / ORIGIN.file_name()
    path.write_text("".join(line + "\n" for line in [header_line(ORIGIN), *lines(saved)]))
    return path


@given(SAVED)
def test_what_went_in_comes_out(saved: list[UnreplicatedRecord]) -> None:
    assert list(read_lines(lines(saved), "a file")) == saved


@given(SAVED.filter(bool), st.data())
def test_a_file_that_lacks_something_is_told(saved: list[UnreplicatedRecord], data: st.DataObject) -> None:
    whole = lines(saved)
    del whole[data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(WireError):
        list(read_lines(whole, "a file"))


def test_what_ended_a_transaction_lies_behind_its_records() -> None:
    endings = TransactionOutcomes()
    endings.note(7, 13, b"\0\0\0\0")
    endings.note(7, 18, b"\0\0\0\1")
    assert [endings.of(7, at) for at in (10, 15, 20)] == [
        TransactionOutcome.ABORTED,
        TransactionOutcome.COMMITTED,
        TransactionOutcome.OPEN,
    ]
    assert endings.of(8, 10) is TransactionOutcome.OPEN


def test_a_folder_says_which_files_are_whole(tmp_path: Path) -> None:
    saved = [
        UnreplicatedRecord(Record(10, 5, b"k", None, ((b"h", None),)), TransactionOutcome.ABORTED),
        UnreplicatedRecord(Record(12, 6, None, b"v"), TransactionOutcome.OPEN),
    ]
    path = written(tmp_path, saved)
    assert (read_origin(path), list(read_rescued_file(path))) == (ORIGIN, saved)
    assert (
        inspect_rescued_file(path)
        .sentence()
        .endswith("orders-3 of east, offsets 10 to 14: 2 records, 0 of them committed")
    )
    (tmp_path / "cut.jsonl").write_text("\n".join(path.read_text().splitlines()[:-1]))
    (tmp_path / "other.jsonl").write_text("{}\n")
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe\n")
    found, odd = list_rescued_files(tmp_path)
    assert [one.path for one in found] == [path]
    assert len(odd) == 3
    assert list_rescued_files(tmp_path / "nowhere") == ([], [])
    with pytest.raises(ConfigError):
        inspect_rescued_file(tmp_path / "nothing.jsonl")


@pytest.mark.claim(
    "switch", "reinjected", "a rescued record is written once, and once more where a switch left it behind"
)
@pytest.mark.parametrize(("to", "told_ms"), [("east", wall_ms()), ("west", 1)], ids=["moved", "a day old"])
def test_what_may_be_there_already_is_not_written_again(tmp_path: Path, to: str, told_ms: int) -> None:
    """The process was killed before it heard whether the batch is there."""
    path = written(
        tmp_path,
        [
            UnreplicatedRecord(Record(10 + number, 5, None, b"v", ()), TransactionOutcome.COMMITTED)
            for number in range(3)
        ],
    )
    settings = settings_of(f"sqlite:///{tmp_path / 'store.db'}")
    with open_store(settings.store.url) as store:
        batch = ReplayedBatch("orders", to, 2, 7, 0, 0, ((10, 12),), told_ms=told_ms)
        store.link_states.remember([LinkStateRow("east", REPLAYED_KIND, batch.subject(ORIGIN), batch.to_json(), "", 1)])
        planned = plan(ReplayRequest([path]), settings, store)
    assert has_code(planned.refusal, "switch.replay-in-doubt", topic="orders", first=10, last=12, cluster=to)


def settings_of(url: str) -> Settings:
    clusters = "".join(f'[clusters.{name}]\nbootstrap = ["{name}:9092"]\n' for name in ("east", "west"))
    return parse_settings(f'[store]\nurl = "{url}"\n{clusters}', name="settings", env={})


def test_a_list_of_files_says_what_was_written_again(tmp_path: Path) -> None:
    written(
        tmp_path,
        [
            UnreplicatedRecord(Record(10 + number, 5, None, b"v", ()), TransactionOutcome.COMMITTED)
            for number in range(3)
        ],
    )
    found, _ = list_rescued_files(tmp_path)
    assert found[0].as_values()["written_again"] is None, "nobody has asked"
    url = f"sqlite:///{tmp_path / 'store.db'}"
    settings = settings_of(url)
    assert add_replayed_records(found, settings)[0][0].again == (), "there is no store, so nothing was"
    with open_store(url) as store:
        done = ReplayedBatch("orders", "west", 2, 7, 0, 0, ((10, 12),), 90)
        others = replace(done, topic="bills", runs=((11, 12),)), replace(done, topic="none", end=END_UNKNOWN)
        rows = [
            LinkStateRow("east", REPLAYED_KIND, one.subject(ORIGIN), one.to_json(), "", 1) for one in (done, *others)
        ]
        elsewhere = LinkStateRow("east", REPLAYED_KIND, done.subject(replace(ORIGIN, partition=2)), "{}", "", 1)
        store.link_states.remember([*rows, elsewhere])
    (now,), unknown = add_replayed_records(found, settings)
    ends = ("; 2 committed records written again to bills, the rest not yet", "; 3 committed records written again to")
    assert all(one in now.sentence() for one in ends) and not unknown, now.sentence()
    away = settings_of("postgresql://nobody@127.0.0.1:1/none")
    (silent,), (why,) = add_replayed_records(found, away)
    assert silent.again is None and mentions(why, "not known")
    assert add_replayed_records([], away) == ([], []), "no store is asked about nothing"
