"""The spool on a real disk: what was kept is read back in order after any end, and what is done is not."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import threading
from pathlib import Path

import pytest

from testkit.errors import mentions, raises
from tests.client.spool.spooling import done, numbers, put, record, segments, taken
from twinshore.client.core.spool_format import HEADER_BYTES, OPEN_NUMBERS_MAX
from twinshore.client.spool import READ_BYTES, SPOOL_BYTES_MIN, Spool
from twinshore.config.errors import ConfigError, RefusedError


def test_what_is_kept_is_read_back_by_another_process_and_once_done_no_more(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for number in range(5):
        put(spool, record(number), record(10 + number, "bills"))
    spool.close(mark=False)
    again = Spool(tmp_path)
    assert again.topics() == {"orders": 5, "bills": 5}
    assert again.next_number == 15
    orders = taken(again)
    assert orders == [record(number) for number in range(5)]
    done(again, [*orders[:2], orders[3]])
    again.close(mark=False)
    third = Spool(tmp_path)
    assert numbers(taken(third)) == [2, 4], "each is marked by itself"
    assert numbers(taken(third, "bills")) == [10, 11, 12, 13, 14]
    third.close()


@pytest.mark.claim(
    "client", "spool-cut", "spool: the log cut at every byte: all before is read, nothing torn is believed"
)
def test_what_was_cut_at_every_byte_behind_the_last_sync_loses_nothing_that_was_kept(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "whole")
    put(spool, record(0), record(1))
    (path,) = segments(tmp_path / "whole")
    synced = path.stat().st_size
    put(spool, record(2), record(3))
    spool.close(mark=False)
    text = path.read_bytes()
    for cut in range(synced, len(text) + 1):
        folder = tmp_path / str(cut)
        folder.mkdir()
        (folder / path.name).write_bytes(text[:cut])
        torn = Spool(folder)
        found = numbers(taken(torn))
        assert found in ([0, 1], [0, 1, 2], [0, 1, 2, 3]), cut
        assert found[2:] == [number for number in (2, 3) if text[:cut].count(b"value %d" % number)][: len(found) - 2]
        put(torn, record(4))
        torn.close(mark=False)
        after = Spool(folder)
        assert all(mentions(one, "never ended") for one in torn.notes + after.notes)
        assert numbers(taken(after)) == [*found, 4], "what was torn is gone, and nothing lies behind it"
        after.close(mark=False)
    assert len(text) - synced > 100


def test_a_damaged_record_is_never_passed_over_in_silence(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for number in range(3):
        put(spool, record(number))
    spool.close(mark=False)
    (path,) = segments(tmp_path)
    text = bytearray(path.read_bytes())
    text[HEADER_BYTES + (len(text) - HEADER_BYTES) // 2] ^= 1  # in the middle one
    path.write_bytes(text)
    with raises(RefusedError, "client.spool-damaged", count=1) as refused:
        Spool(tmp_path)
    assert "--past-damage" in refused.value.hint
    past = Spool(tmp_path, past_damage=True)
    assert numbers(taken(past)) == [0, 2]
    assert ["are lost" in one for one in past.notes] == [True]
    past.close()


def test_the_end_of_a_segment_that_another_follows_was_whole(tmp_path: Path) -> None:
    for number in range(2):  # each process begins a segment of its own
        spool = Spool(tmp_path)
        put(spool, record(number))
        spool.close(mark=False)
    first, _ = segments(tmp_path)
    first.write_bytes(first.read_bytes()[:-1])
    with raises(RefusedError, "client.spool-damaged"):
        Spool(tmp_path)


def test_a_header_that_is_damaged_costs_no_record(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    put(spool, record(0), record(1))
    spool.close(mark=False)
    (path,) = segments(tmp_path)
    text = path.read_bytes()
    path.write_bytes(b"\0" * HEADER_BYTES + text[HEADER_BYTES:])
    with raises(RefusedError, "client.spool-damaged"):
        Spool(tmp_path)
    past = Spool(tmp_path, past_damage=True)
    assert numbers(taken(past)) == [0, 1]
    past.close()


@pytest.mark.parametrize("size", [0, 7, HEADER_BYTES])
def test_a_segment_that_had_only_begun_holds_nothing(tmp_path: Path, size: int) -> None:
    spool = Spool(tmp_path)
    put(spool, record(0))
    spool.close(mark=False)
    (tmp_path / f"{2:016d}-{9:08x}.spool").write_bytes(b"\0" * size)
    again = Spool(tmp_path)
    put(again, record(1))
    assert numbers(taken(again)) == [0, 1]
    again.close()


def test_a_segment_that_had_only_begun_is_gone_before_another_begins(tmp_path: Path) -> None:
    """A process was killed as it made one; the next one was killed, too, before it had tidied up."""
    for turn in range(3):
        spool = Spool(tmp_path)
        put(spool, record(turn))
        spool.close(mark=False)
        last = max(segments(tmp_path))
        last.with_name(f"{int(last.name[:16]) + 1:016d}-0badcafe.spool").write_bytes(b"")
    again = Spool(tmp_path)
    assert numbers(taken(again)) == [0, 1, 2]
    again.close()


def test_a_call_that_is_kept_while_the_head_is_sent_changes_nothing_of_it(tmp_path: Path) -> None:
    """What was given back is told as the head; before it is marked as sent another thread keeps calls."""
    spool = Spool(tmp_path)
    put(spool, record(5))
    assert numbers(taken(spool)) == [5]
    spool.given_back("orders", 5)
    spool.prepare("orders")
    head = spool.head("orders")
    assert head is not None
    put(spool, record(6), record(2))
    spool.handed_out("orders", head.number)
    assert numbers(taken(spool)) == [2, 6]
    spool.close()


def test_marks_that_cannot_be_read_mean_that_all_is_sent_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    put(spool, record(0), record(1))
    done(spool, taken(spool, most=1))
    spool.close()
    (tmp_path / "done").write_bytes(b"what is this")
    again = Spool(tmp_path)
    assert numbers(taken(again)) == [0, 1]
    assert len(again.notes) == 1
    again.close()


def test_segments_that_are_done_are_deleted_and_their_numbers_never_given_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path, segment_bytes=600)
    for number in range(20):
        put(spool, record(number))
    assert len(segments(tmp_path)) > 3
    first = taken(spool, most=12)
    done(spool, first)
    left = segments(tmp_path)
    assert 0 < len(left) < 5
    done(spool, taken(spool))
    assert segments(tmp_path) == []
    assert (spool.topics(), spool.bytes()) == ({}, 0)
    spool.close()
    again = Spool(tmp_path)
    assert again.next_number == 20
    put(again, record(20))
    assert numbers(taken(again)) == [20]
    again.close()


def test_it_holds_no_more_than_it_may_and_has_room_again_once_sent(tmp_path: Path) -> None:
    spool = Spool(tmp_path, bytes_max=SPOOL_BYTES_MIN)
    kept = 0
    while (batch := spool.keep([record(kept, value=b"x" * 1000)])) is not None:
        spool.commit(batch)
        kept += 1
    assert 55 < kept < 65
    assert sum(path.stat().st_size for path in segments(tmp_path)) <= SPOOL_BYTES_MIN
    done(spool, taken(spool, most=20))
    put(spool, record(kept, value=b"x" * 1000))
    late = spool.keep([record(kept + number, value=b"x" * 1000) for number in range(1, 60)], beyond=True)
    assert late is not None, "what was accepted is written in any case"
    spool.commit(late)
    assert len(taken(spool)) == kept - 20 + 60
    spool.close()
    with raises(ConfigError, "client.argument-too-low", value=10):
        Spool(tmp_path, bytes_max=10)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with raises(ConfigError, "client.spool-unreadable", cause="Not a directory"):
        Spool(tmp_path / "file" / "spool")


def test_one_process_at_a_time(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    with raises(RefusedError, "client.spool-in-use", process=str(os.getpid())):
        Spool(tmp_path)
    spool.close()
    Spool(tmp_path).close()


class Failing:
    """A disk whose sync fails, now and then."""

    def __init__(self) -> None:
        self.fails = 0
        self.synced = 0

    def __call__(self, handle: int) -> None:
        if self.fails:
            self.fails -= 1
            raise OSError(errno.EIO, "Input/output error")
        os.fsync(handle)
        self.synced += 1


@pytest.mark.parametrize("fails", [1, 2, 3])
def test_a_sync_that_fails_is_told_and_nothing_of_it_is_believed(tmp_path: Path, fails: int) -> None:
    """With one failure the bytes are taken away at once, with more of them before anything else is written."""
    disk, folder = Failing(), tmp_path / "spool"
    spool = Spool(folder, sync=disk)
    put(spool, record(0))
    disk.fails = fails
    for number in range(1, 1 + fails):
        with pytest.raises(BufferError, match=r"spool .*: Input/output error"):
            put(spool, record(number))
        if not disk.fails:
            break
    if fails == 1:
        killed = tmp_path / "as it was killed then"
        killed.mkdir()
        for path in segments(folder):
            shutil.copy(path, killed)
        after = Spool(killed)
        assert numbers(taken(after)) == [0], "nothing of a call that failed is there"
        after.close()
    put(spool, record(9))
    assert numbers(taken(spool)) == [0, 9]
    spool.close(mark=False)
    again = Spool(folder)
    assert numbers(taken(again)) == [0, 9]
    again.close()


def test_a_disk_that_is_full_is_told_and_what_was_kept_before_stays(tmp_path: Path) -> None:
    """A file may not grow beyond 40,000 bytes, which ends a write in its middle."""
    spool = Spool(tmp_path)
    kept, refused = [], []
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, before[1]))
    try:
        for number in range(20):
            try:
                put(spool, record(number, value=b"%d" % number * 4_500))
                kept.append(number)
            except BufferError as error:
                assert "File too large" in str(error)
                refused.append(number)
        spool.close(mark=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(refused) >= 2
    again = Spool(tmp_path)
    assert (numbers(taken(again)), again.notes) == (kept, [])
    again.close()


def test_threads_share_a_sync_and_each_is_answered_for_itself(tmp_path: Path) -> None:
    disk = Failing()
    spool = Spool(tmp_path, sync=disk)
    gate, counter, each = threading.Lock(), iter(range(10_000)), 40
    kept: list[int] = []

    def keeps() -> None:
        for _ in range(each):
            with gate:
                number = next(counter)
                batch = spool.keep([record(number)])
            assert batch is not None
            spool.commit(batch)
            kept.append(number)

    threads = [threading.Thread(target=keeps) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(kept) == list(range(16 * each))
    assert disk.synced < 16 * each / 2, "several calls share one"
    assert numbers(taken(spool)) == list(range(16 * each))
    spool.close()


def test_what_is_given_back_or_comes_late_goes_by_its_number(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for number in (10, 11, 12, 20, 21):
        put(spool, record(number))
    assert numbers(taken(spool, most=3)) == [10, 11, 12]
    spool.done("orders", 11)
    spool.given_back("orders", 12)
    spool.given_back("orders", 10)
    put(spool, record(5), record(15), record(25))
    assert spool.unsent("orders") == 7
    spool.close(mark=False)
    once_more = Spool(tmp_path)
    assert numbers(taken(once_more)) == [5, 10, 11, 12, 15, 20, 21, 25], "no mark was written"
    for number in (5, 10, 12, 15, 20, 21, 25):
        once_more.given_back("orders", number)
    done(once_more, [record(11)])
    put(once_more, record(13), record(30))
    assert numbers(taken(once_more, most=5)) == [5, 10, 12, 13, 15]
    once_more.tend(at_once=True)
    once_more.close(mark=False)
    third = Spool(tmp_path)
    assert numbers(taken(third)) == [5, 10, 12, 13, 15, 20, 21, 25, 30]
    third.close()


def test_what_came_late_behind_a_mark_is_not_taken_for_done(tmp_path: Path) -> None:
    """Its number is lower than those that are done, and the process is killed before the next mark."""
    spool = Spool(tmp_path)
    put(spool, record(100), record(101))
    done(spool, taken(spool, most=1))
    put(spool, record(50))
    spool.close(mark=False)
    again = Spool(tmp_path)
    assert numbers(taken(again)) == [50, 101]
    again.close()


@pytest.mark.long
def test_with_more_open_numbers_than_a_mark_holds_more_is_sent_again_and_nothing_less(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    count = OPEN_NUMBERS_MAX + 500
    put(spool, *(record(number) for number in range(2 * count)))
    out = taken(spool)
    done(spool, out[1::2])
    spool.close(mark=False)
    again = Spool(tmp_path)
    found = numbers(taken(again))
    assert found == [*range(0, 2 * OPEN_NUMBERS_MAX, 2), *range(2 * OPEN_NUMBERS_MAX, 2 * count)]
    again.close()


def test_memory_holds_a_portion_at_a_time(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    value = b"x" * 10_000
    for number in range(200):
        put(spool, record(2 * number, value=value), record(2 * number + 1, "bills", value))
    spool.prepare("orders")
    ready = spool._ready["orders"]
    assert READ_BYTES <= sum(place.size for _, place in ready) < READ_BYTES + 11_000
    assert len(taken(spool)) == len(taken(spool, "bills")) == 200
    spool.close()
