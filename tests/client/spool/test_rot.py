"""Bytes that were on the disk for certain and cannot be read now: nobody may take them for a write that never ended."""

from __future__ import annotations

from pathlib import Path

from testkit.errors import raises
from tests.client.spool.spooling import done, numbers, put, record, segments, taken
from twinshore.client.spool import Spool
from twinshore.client.spool_admin import inspect_spool
from twinshore.config.errors import RefusedError


def flip(path: Path, at: int) -> None:
    text = bytearray(path.read_bytes())
    text[at] ^= 1
    path.write_bytes(text)


def is_refused(folder: Path) -> None:
    assert inspect_spool(folder).damage
    with raises(RefusedError, "client.spool-damaged"):
        Spool(folder)


def test_the_last_record_that_a_mark_covers_is_damaged_where_it_cannot_be_read(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for number in range(10):
        put(spool, record(number))
    spool.close()
    (path,) = segments(tmp_path)
    flip(path, path.stat().st_size - 3)
    is_refused(tmp_path)
    spool = Spool(tmp_path, past_damage=True)
    assert spool.topics() == {"orders": 9}
    put(spool, record(10))
    spool.close()
    is_refused(tmp_path)


def test_what_lies_behind_the_mark_may_be_a_write_that_never_ended(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    put(spool, record(0))
    spool.close()
    spool = Spool(tmp_path)
    put(spool, record(1))
    put(spool, record(2))
    spool.close(mark=False)
    path = segments(tmp_path)[-1]
    flip(path, path.stat().st_size - 3)
    spool = Spool(tmp_path)
    assert spool.topics() == {"orders": 2}
    spool.close(mark=False)


def test_half_of_the_last_batch_of_a_file_behind_which_another_one_began_is_damaged(tmp_path: Path) -> None:
    batches = [[record(0)], [record(number) for number in (1, 2, 3)]]
    measured = Spool(tmp_path / "measured")
    for batch in batches:
        put(measured, *batch)
    measured.close(mark=False)
    size = segments(tmp_path / "measured")[0].stat().st_size
    spool = Spool(tmp_path / "spool", segment_bytes=size)
    for batch in [*batches, [record(4)]]:
        put(spool, *batch)
    spool.close(mark=False)
    first, _ = segments(tmp_path / "spool")
    text = first.read_bytes()
    flip(first, text.index(b"value 1"))
    is_refused(tmp_path / "spool")


def test_a_batch_that_may_never_have_ended_stays_so_once_other_files_lie_behind_it(tmp_path: Path) -> None:
    """Its producer was killed in the middle of a write; those that came after were too."""
    spool = Spool(tmp_path)
    put(spool, *(record(number) for number in (0, 1, 2)))
    spool.close(mark=False)
    (path,) = segments(tmp_path)
    flip(path, path.read_bytes().index(b"value 1"))
    for number in (3, 4, 5):
        spool = Spool(tmp_path)
        assert ["may never have ended" in one for one in spool.notes] == [True]
        put(spool, record(number))
        if number == 4:
            done(spool, taken(spool, most=1))
        spool.close(mark=False)
    spool = Spool(tmp_path)
    assert numbers(taken(spool)) == [2, 3, 4, 5]
    spool.close(mark=False)
