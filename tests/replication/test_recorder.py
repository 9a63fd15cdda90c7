"""What the store hears of links when several mirrors speak of one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from testkit.errors import mentions
from testkit.log_lines import LogLines
from twinshore.config.errors import StoreError
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import OffsetRun, SourceOffset, TargetOffset, TopicPartition
from twinshore.replication import recorder as recording
from twinshore.replication.core.coordinator import TaskReport
from twinshore.replication.core.lag import SHARED_FETCH_KIND, STANDBY_KIND, parse_shared_fetch, parse_standby
from twinshore.replication.core.model import ActiveLink, InactiveLink
from twinshore.replication.recorder import ProgressRecorder
from twinshore.replication.task.core.messages import PartitionIncident, PartitionProgress, dropped_incident
from twinshore.replication.task.core.shared_read import JOINED_KEY, QUEUED_KEY, READ_KEY
from twinshore.state.core.values import LinkStatus, ProgressRecord
from twinshore.state.store import Store, open_store

LINK = "east->west"


def test_who_stands_by_does_not_write_over_the_word_of_who_carries(tmp_path: Path, log_lines: LogLines) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        carrying = ProgressRecorder(store, "first", 60)
        standing = ProgressRecorder(store, "second", 60)
        carrying.say(LINK, ActiveLink(2, 1), 1)
        standing.say(LINK, InactiveLink("standby", "carried by first; standing by"), 0)
        carrying.close()
        standing.close()
        (word,) = store.links.statuses()
        assert (word.owner, word.state, word.sentence) == ("first", "flowing", "2 partitions on 1 task")
        beside = parse_standby(store.link_states.of(LINK, STANDBY_KIND), int(time.time() * 1000), 10.0)
        assert beside is not None and (beside.who, beside.sentence) == ("second", "carried by first; standing by")
    assert log_lines == []


@pytest.mark.parametrize("late_ms", [0, 3_600_000, -3_600_000], ids=["as ours", "late", "ahead"])
def test_whether_who_carries_speaks_is_told_by_its_words_not_by_its_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late_ms: int
) -> None:
    """On another host it says so twice a second: where its clock was late, who stands by wrote over it each time."""
    monkeypatch.setattr(recording, "STATUS_TTL_MS", 2_000)
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        standing = ProgressRecorder(store, "second", 60)
        standing.say(LINK, InactiveLink("standby", "carried by first; standing by"), 0)
        owners = []
        for _ in range(5):
            at_ms = int(time.time() * 1000) - late_ms
            store.links.save_status(LinkStatus(LINK, "first", "flowing", "2 partitions", at_ms))
            standing._flush()
            owners += [word.owner for word in store.links.statuses()]
            time.sleep(0.01)
        assert owners[1:] == ["first"] * 4
        deadline_s = time.monotonic() + 30
        while store.links.statuses()[0].owner == "first":
            assert time.monotonic() < deadline_s, "it has said nothing more"
            time.sleep(0.1)
            standing._flush()
        standing.close()


def test_a_link_that_begins_writes_no_other_link_s_word_and_one_that_ends_its_own(tmp_path: Path) -> None:
    """Each of two hundred that begin would write two hundred, one after the other."""
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        recorder = ProgressRecorder(store, "first", 60)
        for link in (LINK, "north->south"):
            recorder.say(link, ActiveLink(2, 1), 1)
        recorder.settle(LINK)
        assert not store.links.statuses()
        recorder.leave(LINK)
        assert [word.link for word in store.links.statuses()] == [LINK]
        recorder.close()
        assert {word.link for word in store.links.statuses()} == {LINK, "north->south"}


def test_what_other_mirrors_say_is_read_once_for_all_that_stand_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        standing = ProgressRecorder(store, "second", 60)
        for number in range(20):
            standing.say(f"east->west-{number}", InactiveLink("standby", "taking the lease"), 0)
        reads: list[int] = []
        statuses = store.links.statuses

        def counted() -> Sequence[LinkStatus]:
            reads.append(1)
            return statuses()

        monkeypatch.setattr(store.links, "statuses", counted)
        standing._flush()
        assert reads == [1]
        standing.close()
        assert len(statuses()) == 20


def test_who_stands_by_alone_says_so(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        standing = ProgressRecorder(store, "second", 60)
        standing.say(LINK, InactiveLink("standby", "taking the lease"), 0)
        standing.close()
        (word,) = store.links.statuses()
        assert (word.owner, word.state) == ("second", "standby")


def said(recorder: ProgressRecorder) -> tuple[str, str]:
    word = recorder.words()[LINK]
    return word["state"], word["says"]


def test_a_side_that_is_away_is_waited_for_whatever_the_driver_says(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        recorder = ProgressRecorder(store, "first", 60)
        recorder.say(LINK, ActiveLink(2, 1), 1)
        recorder.away(LINK, "target", "west does not answer")
        assert said(recorder) == ("waiting", "west does not answer; 2 partitions on 1 task")
        recorder.away(LINK, "source", "nor does east")
        recorder.say(LINK, ActiveLink(0, 1, paused=True), 1)
        assert said(recorder) == ("paused", "nothing is replicated; besides, west does not answer; nor does east")
        recorder.say(LINK, ActiveLink(0, 1, trouble="offset earliest"), 1)
        assert said(recorder) == ("waiting", "west does not answer; nor does east; offset earliest")
        recorder.away(LINK, "target", "")
        recorder.away(LINK, "source", "")
        recorder.say(LINK, ActiveLink(2, 1), 1)
        assert said(recorder) == ("flowing", "2 partitions on 1 task")
        recorder.close()


def test_that_a_mirror_stopped_is_its_last_word_until_another_one_speaks(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        ends = ProgressRecorder(store, "first", 60)
        ends.say(LINK, InactiveLink("stopped", "the mirror was stopped in good order"), 0)
        ends.say(LINK, ActiveLink(1, 1), 1)
        ends.close()
        assert [word.state for word in store.links.statuses()] == ["stopped"]
        stands_by = ProgressRecorder(store, "second", 60)
        stands_by.say(LINK, InactiveLink("standby", "taking the lease"), 0)
        stands_by.close()
        assert [word.state for word in store.links.statuses()] == ["standby"]


def test_a_status_holds_the_lag_of_fresh_ends_and_else_what_tasks_told(tmp_path: Path) -> None:
    seen: dict[str, int] = {}
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        recorder = ProgressRecorder(store, "first", 60, seen.get)
        recorder.take(account())
        recorder.say(LINK, ActiveLink(1, 1), 1)
        recorder._flush()
        assert [word.lag_records for word in store.links.statuses()] == [4]
        seen[LINK] = 700
        recorder.close()
        assert [word.lag_records for word in store.links.statuses()] == [700]


def account(*incidents: PartitionIncident, topic: str = "orders") -> TaskReport:
    carried = PartitionProgress(topic, 0, 0, 5, 5, 50, 1, 9, 2, 1, 2)
    return TaskReport(LINK, 0, (carried,), incidents, {})


def test_what_a_task_took_for_gone_is_for_the_driver_to_name(tmp_path: Path, log_lines: LogLines) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        recorder = ProgressRecorder(store, "first", 60)
        gone = [
            PartitionIncident("orders", number, IncidentKind.RECREATED_TOPIC, 5, 5, "is there no more")
            for number in range(3)
        ]
        recorder.take(account(*gone, PartitionIncident("orders", 4, IncidentKind.CORRUPT_BATCH, 5, 6, "crc")))
        recorder.close()
        assert [row.incident.kind.value for row in store.incidents.rows()] == ["corrupt batch"]
        assert len(log_lines) == 1
        assert recorder.doubted("north->west") == set()
        assert recorder.doubted(LINK) == {"orders"}
        assert recorder.doubted(LINK) == set(), "each is told once"


def test_a_topic_that_begins_anew_leaves_no_old_receipt_behind(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        recorder = ProgressRecorder(store, "first", 60)
        recorder.take(account())
        recorder.take(account(topic="bills"))
        recorder.forget(LINK, "orders")
        recorder.close()
        assert [at.topic for at in store.progress.positions(LINK)] == ["bills"]
        live = recorder.stats[LINK]
        assert set(live.lag) == set(live.starts) == {TopicPartition("bills", 0)}


def told(from_offset: int, to_offset: int) -> TaskReport:
    """A pump's account of a mapped twin whose records lie 1 000 further on."""
    count = to_offset - from_offset
    offset_run = OffsetRun(SourceOffset(from_offset), TargetOffset(from_offset + 1_000), count, from_offset)
    carried = PartitionProgress(
        "orders", 0, from_offset, to_offset, count, 10, 1, 9_000, 0, 1, 2, offset_runs=(offset_run,)
    )
    return TaskReport(LINK, 0, (carried,), (), {})


class Away:
    """Makes a store fail so many times when it is given receipts."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
        self.times = times
        record = store.progress.record

        def refusing(given: Sequence[ProgressRecord]) -> None:
            if self.times:
                self.times -= 1
                raise StoreError("the store does not answer")
            record(given)

        monkeypatch.setattr(store.progress, "record", refusing)


def test_what_a_new_term_tells_over_what_the_last_one_left_is_neither_refused_nor_lost(
    tmp_path: Path, log_lines: LogLines
) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        before = ProgressRecorder(store, "first", 60)
        before.take(told(0, 100))
        before.close()
        late = ProgressRecorder(store, "first", 60)
        late.take(told(100, 5_000))
        late.close()
        again = ProgressRecorder(store, "second", 60)
        for begin, end in ((100, 2_000), (2_000, 5_600), (5_600, 7_000)):
            again.take(told(begin, end))
        again.close()
        (position,) = store.progress.positions(LINK)
        assert (position.to_offset, position.records) == (7_000, 7_000)
        assert store.offset_runs.of(LINK, "orders", 0) == (OffsetRun(SourceOffset(0), TargetOffset(1_000), 7_000, 0),)
    assert log_lines == []


def test_where_records_lie_is_kept_of_a_receipt_that_is_refused(tmp_path: Path, log_lines: LogLines) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        recorder = ProgressRecorder(store, "first", 60)
        for begin, end in ((0, 100), (150, 200), (200, 300)):
            recorder.take(told(begin, end))
        recorder.close()
        assert [(at.to_offset, at.source_end) for at in store.progress.positions(LINK)] == [(100, 9_000)]
        assert [(one.source, one.length) for one in store.offset_runs.of(LINK, "orders", 0)] == [(0, 100), (150, 150)]
    assert len(log_lines) == 1
    assert "[150, 200) leaves a gap from 100" in log_lines[0]


def test_a_new_term_reads_the_store_when_the_last_one_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        Away(store, monkeypatch, times=3)
        recorder = ProgressRecorder(store, "first", 0.01)
        recorder.take(told(0, 100))
        recorder.settle(LINK)
        assert [at.to_offset for at in store.progress.positions(LINK)] == [100]
        recorder.close()


def test_a_new_term_knows_nothing_that_a_task_of_the_last_one_told(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        recorder = ProgressRecorder(store, "first", 60)
        recorder.take(account())
        recorder.settle(LINK)
        assert [at.to_offset for at in store.progress.positions(LINK)] == [5]
        live = recorder.stats[LINK]
        assert (live.lag, live.starts, live.heard, live.cuts()) == ({}, {}, {}, {})
        assert live.records == 5, "what was counted stays counted"
        recorder.close()


def test_what_cannot_be_written_holds_up_no_term_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines
) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        away = Away(store, monkeypatch, times=1 << 30)
        monkeypatch.setattr(recording, "SETTLE_TIMEOUT_S", 0.05)
        recorder = ProgressRecorder(store, "first", 0.01)
        recorder.take(told(0, 100))
        recorder.settle(LINK)
        away.times = 0
        recorder.take(told(0, 60))
        recorder.close()
        assert [at.to_offset for at in store.progress.positions(LINK)] == [60], "the new term's word alone"
    assert log_lines[0] == "the store does not answer"
    assert [mentions(one, LINK, "1 progress records") for one in log_lines[1:]] == [True]


@pytest.mark.claim(
    "topics",
    "refused-row",
    "one incident that the store refuses keeps no other, and no link's status, from it",
)
def test_an_incident_that_is_refused_keeps_no_other_and_no_status_from_the_store(
    tmp_path: Path, log_lines: LogLines
) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        recorder = ProgressRecorder(store, "first", 0.05)
        recorder.say(LINK, ActiveLink(2, 1), 1)
        refused = PartitionIncident("orders", 0, IncidentKind.REFUSED, 1 << 80, 2, "no database has such a number")
        good = PartitionIncident("orders", 1, IncidentKind.CORRUPT_BATCH, 5, 6, "its checksum is wrong")
        recorder.take(TaskReport(LINK, 0, (), (refused, good), {}))
        recorder.take(TaskReport(LINK, 0, (), (refused,), {}))
        deadline_s = time.monotonic() + 20
        while not (store.incidents.rows(LINK) and store.links.statuses()) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        assert [row.incident.partition for row in store.incidents.rows(LINK)] == [1]
        assert [word.state for word in store.links.statuses()] == ["flowing"]
        recorder.close()
    assert [said.partition(":")[0] for said in log_lines if "too large" in said] == ["OverflowError"]


def test_no_receipt_stands_in_the_store_before_the_row_of_what_was_lost_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mirror may die in between: then the next one takes all below the receipt for told."""
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        recorder = ProgressRecorder(store, "first", 60)
        with monkeypatch.context() as locked:
            for way in ("add", "add_all"):
                locked.setattr(store.incidents, way, locked_store)
            recorder.take(account(dropped_incident(TopicPartition("orders", 0), 0, 3, "older than 1 s")))
            recorder.take(account(topic="bills"))
            assert not recorder.written()
            assert [at.topic for at in store.progress.positions(LINK)] == ["bills"]
        assert recorder.written()
        assert [row.incident.to_offset for row in store.incidents.rows(LINK)] == [3]
        assert {at.topic for at in store.progress.positions(LINK)} == {"bills", "orders"}
        recorder.close()


def locked_store(*_: object, **__: object) -> None:
    raise StoreError("the lock on table incidents was not had within 10 s")


def test_how_a_link_of_a_broadcast_is_read_is_left_in_the_store_beside_its_word(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        recorder = ProgressRecorder(store, "first", 60)
        for link in (LINK, "north->south"):
            recorder.say(link, ActiveLink(2, 2), 2)
        recorder.take(TaskReport("north->south", 0, (), (), {}))
        recorder._flush()
        for task in range(2):
            recorder.take(TaskReport(LINK, task, (), (), {JOINED_KEY: 2.0, QUEUED_KEY: 500.0, READ_KEY: 1e9}))
        time.sleep(0.1)
        recorder._flush()
        now_ms = int(time.time() * 1000)
        told = parse_shared_fetch(store.link_states.of(LINK, SHARED_FETCH_KIND), now_ms, 5.0)
        assert told is not None
        assert (told.joined, told.queue_bytes, told.reads) == (4, 1000, True)
        assert store.link_states.of("north->south", SHARED_FETCH_KIND) == ()
        recorder.close()
