"""The coordinator and a pump's line to it, over real sockets: grants, handovers, and what happens when one side is
gone.
"""

from __future__ import annotations

import contextlib
import gc
import json
import socket
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from testkit.errors import mentions
from tests.replication.desk_office import GRANT_S, KEY, LINK, LinePump, Office, Passage, begun, going, heard, until
from twinshore.config.model import Cluster, OffsetRun, SourceOffset, TargetOffset, TopicPartition
from twinshore.kafka.clock import steady_s
from twinshore.replication import coordinator_server
from twinshore.replication.coordinator_server import UNIDENTIFIED_CONNECTIONS_MAX
from twinshore.replication.task.core.messages import (
    Assign,
    EpochOffset,
    Finish,
    Handoff,
    LearntQuota,
    LeaseGranted,
    PartitionConfig,
    PartitionProgress,
    Release,
    Released,
    StartWriting,
    Stop,
    TaskConfig,
    WrittenPosition,
    position_after,
)
from twinshore.replication.task.core.throttle import QuotaSnapshot
from twinshore.replication.task.runner import CoordinatorLost, run_tasks

pytestmark = pytest.mark.claim(
    "topics",
    "one-owner",
    "a partition changes tasks only when no task can write it: it has said so, or its last grant has run out",
)


ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def office() -> Iterator[Office]:
    made = Office()
    yield made
    made.coordinator.close()
    for task in made.tasks:
        task.close()


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
    """The driver counts its grant from when it heard question one; the task must not count it from question two."""
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
    office.coordinator.assign(KEY, [PartitionConfig("orders", 0, "aa", "bb", receipt_to=3)])
    holder = going(office)
    holder.asks(carried(3, 9))
    until(lambda: bool(office.accounts))
    heir = office.task(1)
    assert heard(heir, Assign).configs[0].topic == "orders"
    heir.ready()
    heard(holder, Finish)
    assert office.coordinator.holding(KEY)[0] == 0
    holder.done(Handoff("orders", 0, 12, 4, 5), carried=[replace(carried(9, 12), epoch=4)])
    word = heard(heir, StartWriting)
    assert word.handoffs == (Handoff("orders", 0, 12, 4, 5),)
    assert word.told == {ORDERS: EpochOffset(4, 12)}
    assert [entry.to_offset for account in office.accounts for entry in account.carried] == [9, 12]
    assert not heir.grant.holds(steady_s()), "the word to go is no grant"


@pytest.mark.parametrize("orderly", [True, False], ids=["handed over", "lost"])
def test_an_heir_hears_how_far_a_mapped_twin_is_written_by_then(office: Office, orderly: bool) -> None:
    office.coordinator.assign(
        KEY, [PartitionConfig("orders", 0, "aa", "bb", receipt_to=3, reached=WrittenPosition(3, 100, 0))]
    )
    holder, heir = going(office), office.task(1)
    assert heard(heir, Assign).configs[0].reached == WrittenPosition(3, 100, 0)
    last = OffsetRun(SourceOffset(7), TargetOffset(110), 1, 4)
    holder.asks(replace(carried(3, 9), offset_runs=(OffsetRun(SourceOffset(3), TargetOffset(100), 4, 0), last)))
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
    heir = office.task(1)
    heir.ready()
    heard(holder, Finish)
    holder.close()
    heard(heir, StartWriting, within_s=GRANT_S + 3)
    assert steady_s() - last_s > GRANT_S - 0.1


def test_a_link_that_is_lost_hangs_up_on_its_tasks_at_once(office: Office) -> None:
    holder = going(office)
    office.coordinator.close_link(LINK)
    deadline = time.monotonic() + 1.0
    with pytest.raises(CoordinatorLost):
        while time.monotonic() < deadline:
            holder.words()
            time.sleep(0.01)


def test_an_old_terms_task_is_not_taken_for_the_new_terms(office: Office) -> None:
    old = going(office, run=0)
    office.coordinator.close_link(LINK)
    office.coordinator.open_task(KEY, GRANT_S)
    new = going(office, run=0)
    old.close()
    time.sleep(0.3)
    assert office.coordinator.holding(KEY)[0] == 0
    new.asks()
    heard(new, LeaseGranted)


def test_a_task_that_reads_nothing_does_not_hold_up_the_others(office: Office) -> None:
    office.coordinator.open_task((LINK, 1), GRANT_S)
    deaf = office.task(7)
    for start in range(0, 60_000, 6_000):
        office.coordinator.assign(
            KEY, [PartitionConfig("t" * 200, number, "a" * 32, "b" * 32) for number in range(start, start + 6_000)]
        )
    before_s = time.monotonic()
    office.coordinator.assign((LINK, 1), [PartitionConfig("orders", 0, "aa", "bb")])
    assert office.coordinator.placed(LINK)[ORDERS] == 1
    assert time.monotonic() - before_s < 5.0
    deaf.close()


def topic_order(topic: str = "orders") -> PartitionConfig:
    return PartitionConfig(topic, 0, "aa", "bb")


def test_a_topic_that_is_withdrawn_is_let_go_of_before_it_may_come_again(office: Office) -> None:
    office.coordinator.assign(KEY, [topic_order(), topic_order("bills")])
    holder = going(office)
    heir = office.task(1)
    heard(heir, Assign)
    assert not office.coordinator.withdraw(LINK, "orders"), "the holder has it still"
    assert not office.coordinator.move(LINK, ORDERS, 1)
    for line in (holder, heir):
        assert heard(line, Release).partition == ORDERS
    holder.say(Released(ORDERS, None, None))
    until(lambda: office.coordinator.withdraw(LINK, "orders"))
    assert list(office.coordinator.placed(LINK)) == [TopicPartition("bills", 0)]
    office.coordinator.assign(KEY, [topic_order()])
    assert heard(holder, Assign).configs[0].topic == "orders"
    assert office.coordinator.withdraw("north->west", "orders"), "another link's topic of that name is another topic"
    assert ORDERS in office.coordinator.placed(LINK)


def test_a_topic_is_withdrawn_once_the_grant_of_its_lost_task_has_run_out(office: Office) -> None:
    office.coordinator.assign(KEY, [topic_order()])
    assert office.coordinator.withdraw(LINK, "orders"), "nobody tasks the task yet"
    assert office.coordinator.placed(LINK) == {}
    office.coordinator.assign(KEY, [topic_order()])
    holder = going(office)
    granted_until_s = holder.grant.until_s
    assert not office.coordinator.withdraw(LINK, "orders")
    holder.close()
    until(lambda: office.coordinator.withdraw(LINK, "orders"), within_s=GRANT_S + 3)
    assert steady_s() > granted_until_s


@pytest.fixture
def half_lost(office: Office) -> Iterator[LinePump]:
    """A task that carries a topic on task 0; the coordinator has lost it, and it has not lost the coordinator."""
    office.coordinator.assign(KEY, [topic_order()])
    passage = Passage(office.coordinator)
    line = LinePump(replace(office.order(0), coordinator_port=passage.port))
    begun(line)
    passage.break_at_the_coordinator()
    until(lambda: office.coordinator.holding(KEY)[0] is None)
    line.words()
    assert line.grant.holds(steady_s()), "the task has not noticed"
    yield line
    line.close()
    passage.close()


def test_a_topic_changes_tasks_only_when_a_task_that_the_coordinator_alone_lost_can_write_no_more(
    office: Office, half_lost: LinePump
) -> None:
    office.coordinator.open_task((LINK, 1), GRANT_S)
    other = LinePump(replace(office.order(0), task=1, coordinator_token=office.coordinator.token_of((LINK, 1))))
    office.tasks.append(other)
    begun(other)
    until_s = steady_s() + GRANT_S + 3
    while not office.coordinator.withdraw(LINK, "orders"):
        office.coordinator.assign((LINK, 1), [topic_order()])
        assert not [word for word in other.words() if isinstance(word, Assign)]
        assert steady_s() < until_s
        time.sleep(0.02)
    assert not half_lost.grant.holds(steady_s())
    office.coordinator.assign((LINK, 1), [topic_order()])
    assert heard(other, Assign).configs[0].topic == "orders"


def test_a_new_term_of_the_link_waits_for_the_grants_of_the_last_one(office: Office, half_lost: LinePump) -> None:
    office.coordinator.close_link(LINK)
    assert not office.coordinator.idle(LINK)
    office.coordinator.open_task(KEY, GRANT_S)
    office.coordinator.assign(KEY, [topic_order()])
    fresh = office.task(0)
    fresh.ready()
    heard(fresh, StartWriting, within_s=GRANT_S + 3)
    assert not half_lost.grant.holds(steady_s())


def test_an_heir_waits_for_what_a_task_that_stopped_in_order_left_unread(office: Office) -> None:
    holder = going(office)
    heir = office.task(1)
    heir.ready()
    heard(holder, Finish)
    before_s = steady_s()
    holder.done(unread_s=2.0)
    until(lambda: office.coordinator.waits_s(KEY) > 0.0)
    heard(heir, StartWriting, within_s=2.0 + 3)
    assert steady_s() - before_s >= 2.0
    assert office.coordinator.waits_s(KEY) == 0.0


@pytest.mark.parametrize(("strays_s", "clean"), [(0.8, True), (30.0, False)])
def test_an_orderly_stop_waits_for_what_may_land_if_not_for_long(
    office: Office, strays_s: float, *, clean: bool
) -> None:
    """Then the lease runs out in place of being given back."""
    line = going(office)
    line.done(Handoff("orders", 0, -1, -1, 0, calm=False, strays_s=strays_s))
    line.close()
    before_s = steady_s()
    assert office.coordinator.finish(LINK, time.monotonic() + 10.0) is clean
    assert steady_s() - before_s > 0.4 if clean else steady_s() - before_s < 9.0


def test_what_was_learnt_of_a_quota_grows_old_while_nobody_tasks(office: Office) -> None:
    """Else the next task would be still anew for the time that the last one was told."""
    line = going(office)
    line.done(paces=[LearntQuota("source", 1, 0, QuotaSnapshot(100, 5.5, 0.75, 0.25, 12.0, [(3.5, 7)]))])
    time.sleep(0.5)
    heir = office.task(1)
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
    until(lambda: office.coordinator.waits_s(KEY) > 0.0)
    office.coordinator.close_link(LINK)
    assert not office.coordinator.idle(LINK)
    office.coordinator.open_task(KEY, GRANT_S)
    assert office.coordinator.waits_s(KEY) > 0.0
    fresh = office.task(0)
    fresh.ready()
    heard(fresh, StartWriting, within_s=2.5 + 3)
    assert steady_s() - before_s >= 2.5


def test_a_link_is_idle_only_when_a_lost_task_can_write_no_more(office: Office, half_lost: LinePump) -> None:
    """What is idle gives up its lease, which somebody else takes at once."""
    office.coordinator.finish_all(LINK)
    until(lambda: office.coordinator.idle(LINK) or not half_lost.grant.holds(steady_s()), within_s=GRANT_S + 3)
    assert not half_lost.grant.holds(steady_s())
    until(lambda: office.coordinator.idle(LINK))


def test_no_task_begins_while_a_link_stops(office: Office) -> None:
    holder = going(office)
    heir = office.task(1)
    heard(heir, Assign)
    heir.ready()
    heard(holder, Finish)
    office.coordinator.finish_all(LINK)
    holder.done()
    assert heard(heir, Stop, StartWriting) == Stop()
    heir.ready()
    holder.close()
    heir.close()
    until(lambda: office.coordinator.idle(LINK), within_s=GRANT_S / 2)


def test_where_a_partition_stood_is_forgotten_when_it_leaves(office: Office) -> None:
    office.coordinator.assign(KEY, [topic_order(), topic_order("bills")])
    holder = going(office)
    holder.done(Handoff("orders", 0, 12, 4, 5), Handoff("bills", 0, 7, 4, 5))
    until(lambda: office.coordinator.holding(KEY)[0] is None)
    assert office.coordinator.withdraw(LINK, "orders")
    office.coordinator.assign(KEY, [topic_order()])
    heir = office.task(1)
    heir.ready()
    assert [entry.topic for entry in heard(heir, StartWriting).handoffs] == ["bills"]


def test_a_partition_that_is_on_a_task_is_not_given_to_another(office: Office) -> None:
    office.coordinator.assign(KEY, [topic_order()])
    office.coordinator.open_task((LINK, 1), GRANT_S)
    office.coordinator.assign((LINK, 1), [topic_order(), topic_order("bills")])
    assert office.coordinator.placed(LINK) == {ORDERS: 0, TopicPartition("bills", 0): 1}


def test_nobody_without_the_token_is_let_in(office: Office) -> None:
    stranger = office.task(0, token="guess")
    deadline = time.monotonic() + 2.0
    with pytest.raises(CoordinatorLost):
        while time.monotonic() < deadline:
            assert stranger.words() == []
            time.sleep(0.01)
    assert office.coordinator.idle(LINK)


@pytest.mark.parametrize(
    "line", [b"\n", b"{}\n", b"[]\n", b'{"token": 1}\n', b"\xff\n", b'{"token": null, "link": 1}\n']
)
def test_damaged_words_at_the_door_end_that_connection_only(office: Office, line: bytes) -> None:
    with socket.create_connection((office.coordinator.host, office.coordinator.port), timeout=30) as stranger:
        stranger.sendall(line)
        assert stranger.recv(10) == b""
    going(office)


def test_strangers_who_say_nothing_keep_no_task_out(office: Office) -> None:
    strangers = [
        socket.create_connection((office.coordinator.host, office.coordinator.port), timeout=30) for _ in range(200)
    ]
    for number, stranger in enumerate(strangers):
        with contextlib.suppress(OSError):
            stranger.sendall(b"{" if number % 2 else b"")
    began_s = steady_s()
    line = going(office)
    assert steady_s() - began_s < 5.0
    until(lambda: len(office.coordinator._door._guests) <= UNIDENTIFIED_CONNECTIONS_MAX + 2)
    assert line.grant.holds(steady_s())
    for stranger in strangers:
        stranger.close()


def test_a_stranger_who_speaks_byte_by_byte_is_sent_away(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_server, "HELLO_TIMEOUT_S", 0.5)
    with socket.create_connection((office.coordinator.host, office.coordinator.port), timeout=30) as stranger:
        began_s = steady_s()
        with pytest.raises(OSError):
            while steady_s() - began_s < 5.0:
                stranger.sendall(b"{")
                time.sleep(0.05)
        assert steady_s() - began_s < 4.0


def test_a_run_that_begins_after_its_driver_has_gone_ends_with_a_sentence(office: Office) -> None:
    """Raised, it would be a page of Spark's in the log of a mirror that was stopped in order."""
    order = office.order(1)
    office.coordinator.close()
    (told,) = run_tasks([order.to_json()])
    gc.unfreeze()
    assert mentions(told, f"127.0.0.1:{order.coordinator_port}")
