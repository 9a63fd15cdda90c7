"""The desk and a pump's line to it, over real sockets: grants, handovers, and what happens when one side is gone."""

from __future__ import annotations

import contextlib
import gc
import json
import socket
import time
from collections.abc import Iterator
from dataclasses import astuple, replace

import pytest

from testkit.errors import mentions
from tests.replication.desk_office import GRANT_S, KEY, LINK, LinePump, Office, Passage, begun, going, heard, until
from twinshore.config.model import Cluster, OffsetRun, SourceOffset, TargetOffset, TopicPartition
from twinshore.kafka.clock import steady_s
from twinshore.replication import coordinator_server
from twinshore.replication.coordinator_server import UNIDENTIFIED_CONNECTIONS_MAX
from twinshore.replication.task.core.config import (
    EpochOffset,
    Handoff,
    PartitionConfig,
    PartitionProgress,
    TaskConfig,
    WrittenPosition,
    position_after,
    progress_from_json,
)
from twinshore.replication.task.core.messages import (
    Assign,
    Finish,
    LearntQuota,
    LeaseGranted,
    Release,
    Released,
    StartWriting,
    Stop,
)
from twinshore.replication.task.core.throttle import QuotaSnapshot
from twinshore.replication.task.runner import CoordinatorLost, run_tasks

pytestmark = pytest.mark.claim(
    "topics",
    "one-owner",
    "a partition changes lanes only when no pump can write it: it has said so, or its last grant has run out",
)


ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def office() -> Iterator[Office]:
    made = Office()
    yield made
    made.desk.close()
    for pump in made.pumps:
        pump.close()


def carried(begin: int, end: int) -> PartitionProgress:
    return PartitionProgress("orders", 0, begin, end, end - begin, 10, 1, end, 0, 5, 6)


def test_a_grant_counts_from_the_question_it_answers(office: Office) -> None:
    line = going(office)
    before_s = steady_s()
    line.asks()
    time.sleep(0.2)
    line.words()
    assert before_s + GRANT_S - 0.1 < line.grant.until_s < before_s + GRANT_S + 0.1


def test_a_late_answer_is_not_taken_for_that_to_a_later_question() -> None:
    """The driver counts its grant from when it heard question one; the pump must not count it from question two."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        cluster = Cluster("east", ("127.0.0.1:1",))
        line = LinePump(
            TaskConfig(LINK, 0, 0, cluster, cluster, 1, 0, 1, "127.0.0.1", server.getsockname()[1], "token")
        )
        driver, _ = server.accept()
        with driver, driver.makefile("rwb") as stream:
            for pause_s in (0.0, 0.0, 0.6):
                time.sleep(pause_s)
                line.asks()
            stream.readline()
            asked = [json.loads(stream.readline())["asked_s"] for _ in range(3)]
            for answered in asked[:2]:
                stream.write(json.dumps({"what": "leasegranted", "grant_s": 4.0, "asked_s": answered}).encode() + b"\n")
            stream.flush()
            heard(line, LeaseGranted)
            line.words()
            assert line.grant.until_s <= asked[1] + 4.0
        line.close()


def test_an_heir_gets_the_word_the_positions_and_the_accounts_end(office: Office) -> None:
    office.desk.assign(KEY, [PartitionConfig("orders", 0, "aa", "bb", receipt_to=3)])
    holder = going(office)
    holder.asks(carried(3, 9))
    until(lambda: bool(office.accounts))
    heir = office.pump(1)
    assert heard(heir, Assign).tracks[0].topic == "orders"
    heir.ready()
    heard(holder, Finish)
    assert office.desk.holding(KEY)[0] == 0
    holder.done(Handoff("orders", 0, 12, 4, 5), carried=[replace(carried(9, 12), epoch=4)])
    word = heard(heir, StartWriting)
    assert word.handovers == (Handoff("orders", 0, 12, 4, 5),)
    assert word.told == {ORDERS: EpochOffset(4, 12)}
    assert [entry.to_offset for account in office.accounts for entry in account.carried] == [9, 12]
    assert not heir.grant.holds(steady_s()), "the word to go is no grant"


@pytest.mark.parametrize("orderly", [True, False], ids=["handed over", "lost"])
def test_an_heir_hears_how_far_a_mapped_twin_is_written_by_then(office: Office, orderly: bool) -> None:
    office.desk.assign(
        KEY, [PartitionConfig("orders", 0, "aa", "bb", receipt_to=3, reached=WrittenPosition(3, 100, 0))]
    )
    holder, heir = going(office), office.pump(1)
    assert heard(heir, Assign).tracks[0].reached == WrittenPosition(3, 100, 0)
    last = OffsetRun(SourceOffset(7), TargetOffset(110), 1, 4)
    holder.asks(replace(carried(3, 9), extents=(OffsetRun(SourceOffset(3), TargetOffset(100), 4, 0), last)))
    until(lambda: bool(office.accounts))
    heir.ready()
    heard(holder, Finish)
    if orderly:
        holder.done(Handoff("orders", 0, 9, 4, 5))
    else:
        holder.close()
    word = heard(heir, StartWriting, within_s=3 * GRANT_S)
    assert word.reached == {ORDERS: position_after(last)}


def test_a_holder_that_vanishes_is_waited_out(office: Office) -> None:
    holder = going(office)
    last_s = steady_s()
    heir = office.pump(1)
    heir.ready()
    heard(holder, Finish)
    holder.close()
    heard(heir, StartWriting, within_s=GRANT_S + 3)
    assert steady_s() - last_s > GRANT_S - 0.1


def test_a_link_that_is_lost_hangs_up_on_its_pumps_at_once(office: Office) -> None:
    holder = going(office)
    office.desk.close_link(LINK)
    deadline = time.monotonic() + 1.0
    with pytest.raises(CoordinatorLost):
        while time.monotonic() < deadline:
            holder.words()
            time.sleep(0.01)


def test_an_old_terms_pump_is_not_taken_for_the_new_terms(office: Office) -> None:
    old = going(office, tide=0)
    office.desk.close_link(LINK)
    office.desk.open_task(KEY, GRANT_S)
    new = going(office, tide=0)
    old.close()
    time.sleep(0.3)
    assert office.desk.holding(KEY)[0] == 0
    new.asks()
    heard(new, LeaseGranted)


def test_a_pump_that_reads_nothing_does_not_hold_up_the_others(office: Office) -> None:
    office.desk.open_task((LINK, 1), GRANT_S)
    deaf = office.pump(7)
    for start in range(0, 60_000, 6_000):
        office.desk.assign(
            KEY, [PartitionConfig("t" * 200, number, "a" * 32, "b" * 32) for number in range(start, start + 6_000)]
        )
    before_s = time.monotonic()
    office.desk.assign((LINK, 1), [PartitionConfig("orders", 0, "aa", "bb")])
    assert office.desk.placed(LINK)[ORDERS] == 1
    assert time.monotonic() - before_s < 5.0
    deaf.close()


def topic_order(topic: str = "orders") -> PartitionConfig:
    return PartitionConfig(topic, 0, "aa", "bb")


def test_a_topic_that_is_withdrawn_is_let_go_of_before_it_may_come_again(office: Office) -> None:
    office.desk.assign(KEY, [topic_order(), topic_order("bills")])
    holder = going(office)
    heir = office.pump(1)
    heard(heir, Assign)
    assert not office.desk.withdraw(LINK, "orders"), "the holder has it still"
    assert not office.desk.move(LINK, ORDERS, 1)
    for line in (holder, heir):
        assert heard(line, Release).named == ORDERS
    holder.say(Released(ORDERS, None, None))
    until(lambda: office.desk.withdraw(LINK, "orders"))
    assert list(office.desk.placed(LINK)) == [TopicPartition("bills", 0)]
    office.desk.assign(KEY, [topic_order()])
    assert heard(holder, Assign).tracks[0].topic == "orders"
    assert office.desk.withdraw("north->west", "orders"), "another link's topic of that name is another topic"
    assert ORDERS in office.desk.placed(LINK)


def test_a_topic_is_withdrawn_once_the_grant_of_its_lost_pump_has_run_out(office: Office) -> None:
    office.desk.assign(KEY, [topic_order()])
    assert office.desk.withdraw(LINK, "orders"), "nobody pumps the lane yet"
    assert office.desk.placed(LINK) == {}
    office.desk.assign(KEY, [topic_order()])
    holder = going(office)
    granted_until_s = holder.grant.until_s
    assert not office.desk.withdraw(LINK, "orders")
    holder.close()
    until(lambda: office.desk.withdraw(LINK, "orders"), within_s=GRANT_S + 3)
    assert steady_s() > granted_until_s


@pytest.fixture
def half_lost(office: Office) -> Iterator[LinePump]:
    """A pump that carries a topic on lane 0; the desk has lost it, and it has not lost the desk."""
    office.desk.assign(KEY, [topic_order()])
    passage = Passage(office.desk)
    line = LinePump(replace(office.order(0), desk_port=passage.port))
    begun(line)
    passage.break_at_the_desk()
    until(lambda: office.desk.holding(KEY)[0] is None)
    line.words()
    assert line.grant.holds(steady_s()), "the pump has not noticed"
    yield line
    line.close()
    passage.close()


def test_a_topic_changes_lanes_only_when_a_pump_that_the_desk_alone_lost_can_write_no_more(
    office: Office, half_lost: LinePump
) -> None:
    office.desk.open_task((LINK, 1), GRANT_S)
    other = LinePump(replace(office.order(0), lane=1, desk_token=office.desk.token_of((LINK, 1))))
    office.pumps.append(other)
    begun(other)
    until_s = steady_s() + GRANT_S + 3
    while not office.desk.withdraw(LINK, "orders"):
        office.desk.assign((LINK, 1), [topic_order()])
        assert not [word for word in other.words() if isinstance(word, Assign)]
        assert steady_s() < until_s
        time.sleep(0.02)
    assert not half_lost.grant.holds(steady_s())
    office.desk.assign((LINK, 1), [topic_order()])
    assert heard(other, Assign).tracks[0].topic == "orders"


def test_a_new_term_of_the_link_waits_for_the_grants_of_the_last_one(office: Office, half_lost: LinePump) -> None:
    office.desk.close_link(LINK)
    assert not office.desk.idle(LINK)
    office.desk.open_task(KEY, GRANT_S)
    office.desk.assign(KEY, [topic_order()])
    fresh = office.pump(0)
    fresh.ready()
    heard(fresh, StartWriting, within_s=GRANT_S + 3)
    assert not half_lost.grant.holds(steady_s())


def test_an_heir_waits_for_what_a_pump_that_stopped_in_order_left_unread(office: Office) -> None:
    holder = going(office)
    heir = office.pump(1)
    heir.ready()
    heard(holder, Finish)
    before_s = steady_s()
    holder.done(unread_s=2.0)
    until(lambda: office.desk.waits_s(KEY) > 0.0)
    heard(heir, StartWriting, within_s=2.0 + 3)
    assert steady_s() - before_s >= 2.0
    assert office.desk.waits_s(KEY) == 0.0


@pytest.mark.parametrize(("strays_s", "clean"), [(0.8, True), (30.0, False)])
def test_an_orderly_stop_waits_for_what_may_land_if_not_for_long(
    office: Office, strays_s: float, *, clean: bool
) -> None:
    """Then the lease runs out in place of being given back."""
    line = going(office)
    line.done(Handoff("orders", 0, -1, -1, 0, calm=False, strays_s=strays_s))
    line.close()
    before_s = steady_s()
    assert office.desk.finish(LINK, time.monotonic() + 10.0) is clean
    assert steady_s() - before_s > 0.4 if clean else steady_s() - before_s < 9.0


def test_what_was_learnt_of_a_quota_grows_old_while_nobody_pumps(office: Office) -> None:
    """Else the next pump would be still anew for the time that the last one was told."""
    line = going(office)
    line.done(paces=[LearntQuota("source", 1, 0, QuotaSnapshot(100, 5.5, 0.75, 0.25, 12.0, [(3.5, 7)]))])
    time.sleep(0.5)
    heir = office.pump(1)
    heir.ready()
    portion, passing, still_s, next_s, seen_s, ((ago_s, size),), *_ = heard(heir, StartWriting).paces[0].learnt
    assert (portion, passing, size) == (100, 5.5, 7)
    # Each side reads its clock in whole milliseconds.
    assert still_s <= 0.25 + 0.01, still_s
    assert next_s == pytest.approx(still_s - 0.5)
    assert seen_s - 12.0 == pytest.approx(0.75 - still_s) == pytest.approx(ago_s - 3.5)


def test_a_new_term_of_the_link_waits_for_what_the_last_one_left_unread(office: Office) -> None:
    holder = going(office)
    before_s = steady_s()
    holder.done(unread_s=2.5)
    until(lambda: office.desk.waits_s(KEY) > 0.0)
    office.desk.close_link(LINK)
    assert not office.desk.idle(LINK)
    office.desk.open_task(KEY, GRANT_S)
    assert office.desk.waits_s(KEY) > 0.0
    fresh = office.pump(0)
    fresh.ready()
    heard(fresh, StartWriting, within_s=2.5 + 3)
    assert steady_s() - before_s >= 2.5


def test_a_link_is_idle_only_when_a_lost_pump_can_write_no_more(office: Office, half_lost: LinePump) -> None:
    """What is idle gives up its lease, which somebody else takes at once."""
    office.desk.finish_all(LINK)
    until(lambda: office.desk.idle(LINK) or not half_lost.grant.holds(steady_s()), within_s=GRANT_S + 3)
    assert not half_lost.grant.holds(steady_s())
    until(lambda: office.desk.idle(LINK))


def test_no_pump_begins_while_a_link_stops(office: Office) -> None:
    holder = going(office)
    heir = office.pump(1)
    heard(heir, Assign)
    heir.ready()
    heard(holder, Finish)
    office.desk.finish_all(LINK)
    holder.done()
    assert heard(heir, Stop, StartWriting) == Stop()
    heir.ready()
    holder.close()
    heir.close()
    until(lambda: office.desk.idle(LINK), within_s=GRANT_S / 2)


def test_where_a_partition_stood_is_forgotten_when_it_leaves(office: Office) -> None:
    office.desk.assign(KEY, [topic_order(), topic_order("bills")])
    holder = going(office)
    holder.done(Handoff("orders", 0, 12, 4, 5), Handoff("bills", 0, 7, 4, 5))
    until(lambda: office.desk.holding(KEY)[0] is None)
    assert office.desk.withdraw(LINK, "orders")
    office.desk.assign(KEY, [topic_order()])
    heir = office.pump(1)
    heir.ready()
    assert [entry.topic for entry in heard(heir, StartWriting).handovers] == ["bills"]


def test_a_partition_that_is_on_a_lane_is_not_given_to_another(office: Office) -> None:
    office.desk.assign(KEY, [topic_order()])
    office.desk.open_task((LINK, 1), GRANT_S)
    office.desk.assign((LINK, 1), [topic_order(), topic_order("bills")])
    assert office.desk.placed(LINK) == {ORDERS: 0, TopicPartition("bills", 0): 1}


def test_nobody_without_the_token_is_let_in(office: Office) -> None:
    stranger = office.pump(0, token="guess")
    deadline = time.monotonic() + 2.0
    with pytest.raises(CoordinatorLost):
        while time.monotonic() < deadline:
            assert stranger.words() == []
            time.sleep(0.01)
    assert office.desk.idle(LINK)


@pytest.mark.parametrize(
    "line", [b"\n", b"{}\n", b"[]\n", b'{"token": 1}\n', b"\xff\n", b'{"token": null, "link": 1}\n']
)
def test_damaged_words_at_the_door_end_that_connection_only(office: Office, line: bytes) -> None:
    with socket.create_connection((office.desk.host, office.desk.port), timeout=30) as stranger:
        stranger.sendall(line)
        assert stranger.recv(10) == b""
    going(office)


def test_strangers_who_say_nothing_keep_no_pump_out(office: Office) -> None:
    strangers = [socket.create_connection((office.desk.host, office.desk.port), timeout=30) for _ in range(200)]
    for number, stranger in enumerate(strangers):
        with contextlib.suppress(OSError):
            stranger.sendall(b"{" if number % 2 else b"")
    began_s = steady_s()
    line = going(office)
    assert steady_s() - began_s < 5.0
    until(lambda: len(office.desk._door._guests) <= UNIDENTIFIED_CONNECTIONS_MAX + 2)
    assert line.grant.holds(steady_s())
    for stranger in strangers:
        stranger.close()


def test_a_stranger_who_speaks_byte_by_byte_is_sent_away(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_server, "HELLO_TIMEOUT_S", 0.5)
    with socket.create_connection((office.desk.host, office.desk.port), timeout=30) as stranger:
        began_s = steady_s()
        with pytest.raises(OSError):
            while steady_s() - began_s < 5.0:
                stranger.sendall(b"{")
                time.sleep(0.05)
        assert steady_s() - began_s < 4.0


def test_an_account_survives_its_way_as_json() -> None:
    entry = PartitionProgress("orders", 1, 3, 9, 6, 100, 2, 12, 0, 5, 6, ((1, 0, 0, 5, 3, 77),), epoch=4)
    assert progress_from_json(json.loads(json.dumps(astuple(entry)))) == entry


def test_a_tide_that_begins_after_its_driver_has_gone_ends_with_a_sentence(office: Office) -> None:
    """Raised, it would be a page of Spark's in the log of a mirror that was stopped in order."""
    order = office.order(1)
    office.desk.close()
    (told,) = run_tasks([order.to_json()])
    gc.unfreeze()
    assert mentions(told, f"127.0.0.1:{order.desk_port}")
