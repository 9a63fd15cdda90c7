"""What the coordinator decides, event by event: values in, values out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from twinshore.config.model import TopicPartition
from twinshore.replication.core.coordinator import (
    LEASE_SLACK_S,
    Coordinator,
    DisconnectTask,
    RecordReport,
    SendToTask,
    TaskReport,
    TaskSession,
)
from twinshore.replication.task.core.messages import (
    Assign,
    CoordinatorMessage,
    EpochOffset,
    Finish,
    Handoff,
    LeaseGranted,
    PartitionConfig,
    PartitionProgress,
    Release,
    Released,
    StartWriting,
    Stop,
    TakeOver,
    TaskFinished,
    TaskMessage,
    TaskProgress,
    TaskRateLimits,
    TaskReady,
)

LINK, TOKEN, GRANT_S, LEFT_S = "east->west", "token", 4.0, 60.0
ONE, TWO = (LINK, 0), (LINK, 1)
ORDERS = TopicPartition("orders", 0)
ORDER = PartitionConfig("orders", 0, "aa", "bb", receipt_to=3, receipt_epoch=1)


class Hall:
    """A coordinator with two tasks at a time that a test moves on, and what was wanted since it was last asked."""

    def __init__(self) -> None:
        self.core, self.now_s = Coordinator(), 100.0
        self.open()

    def open(self, token: str = TOKEN) -> None:
        for key in (ONE, TWO):
            self.core.open_task(key, GRANT_S, token)

    def says(self, session: TaskSession, word: TaskMessage) -> None:
        self.core.hear(session, word, self.now_s, LEFT_S)

    def begun(self, key: tuple[str, int], run: int = 0, token: str = TOKEN) -> TaskSession:
        """A task that goes."""
        session = self.core.arrive(key, run, token)
        assert session
        self.says(session, TaskReady())
        assert isinstance(self.told(session)[-1], StartWriting)
        return session

    def told(self, session: TaskSession) -> list[CoordinatorMessage]:
        return [one.word for one in self.core.wanted() if isinstance(one, SendToTask) and one.session == session]

    def tick(self) -> None:
        self.core.tick(self.now_s, dict.fromkeys(self.core.awaited(), LEFT_S))


@pytest.fixture
def hall() -> Iterator[Hall]:
    made = Hall()
    yield made
    for post in made.core._assignments.values():
        assert post.ownership.holder in (None, *post.sessions), "who may write is not there"


def carried(begin: int, end: int, epoch: int) -> PartitionProgress:
    return PartitionProgress("orders", 0, begin, end, end - begin, 10, 1, end, 0, 5, 6, (), epoch=epoch)


def test_a_new_twin_is_untouched_once_whatever_task_it_comes_to_again(hall: Hall) -> None:
    new, later = replace(ORDER, untouched=True), replace(ORDER, partition=1, untouched=True)
    hall.core.assign(ONE, [new], 0.0)
    session = hall.core.arrive(ONE, 0, TOKEN)
    assert session
    assert hall.told(session) == [Assign((new,))]
    hall.says(session, TaskReady())
    (go,) = hall.told(session)
    assert isinstance(go, StartWriting)
    assert go.untouched == (ORDERS,)
    hall.core.assign(ONE, [later], 0.0)
    assert hall.told(session) == [Assign((later,))]
    assert not hall.core.withdraw(LINK, "orders", -1, hall.now_s)
    for partition in (0, 1):
        hall.says(session, Released(TopicPartition("orders", partition), None, None))
    hall.core.withdraw(LINK, "orders", -1, hall.now_s)
    hall.core.wanted()
    hall.core.assign(ONE, [new, later], 0.0)
    assert hall.told(session) == [Assign((ORDER, replace(ORDER, partition=1)))]
    hall.core.assign(TWO, [replace(new, topic="bills")], 0.0)
    assert hall.core._assignments[TWO].untouched == set(), "by its id it is the same twin"
    hall.core.assign(TWO, [replace(new, topic="bills", target_topic_id="cc", partition=2)], 0.0)
    assert hall.core._assignments[TWO].untouched == {TopicPartition("bills", 2)}


def test_a_task_is_told_what_is_on_its_task_and_how_much_it_may_fetch(hall: Hall) -> None:
    bounds = TaskRateLimits(1000.0, {}, {"orders": 2})
    hall.core.assign(ONE, [ORDER], 0.0)
    hall.core.bound(ONE, bounds)
    assert hall.core.wanted() == [], "nobody is there to be told"
    session = hall.core.arrive(ONE, 0, TOKEN)
    assert hall.core.wanted() == [SendToTask(session, Assign((ORDER,))), SendToTask(session, bounds)]  # type: ignore[arg-type]


@pytest.mark.parametrize(("run", "token"), [(0, TOKEN), (1, "guess"), (1, "")])
def test_a_namesake_and_a_stranger_are_not_let_in(hall: Hall, run: int, token: str) -> None:
    hall.begun(ONE)
    assert hall.core.arrive(ONE, run, token) is None
    assert hall.core.arrive((LINK, 2), 0, token) is None
    assert hall.core.wanted() == []


def test_a_grant_answers_a_question_and_ends_with_the_lease(hall: Hall) -> None:
    session = hall.begun(ONE)
    hall.core.hear(session, TaskProgress([], [], {}, 7.0), hall.now_s, 1.5)
    assert hall.told(session) == [LeaseGranted(7.0, 1.5)]
    hall.core.hear(session, TaskProgress([], [], {}, 8.0), hall.now_s, 0.0)
    assert hall.told(session) == [Stop()]


def test_what_an_heir_says_of_offsets_counts_for_nothing(hall: Hall) -> None:
    hall.core.assign(ONE, [ORDER], 0.0)
    hall.begun(ONE)
    heir = hall.core.arrive(ONE, 1, TOKEN)
    assert heir
    hall.core.wanted()
    hall.says(heir, TaskProgress([carried(3, 90, 1)], [], {}, 0.0))
    assert hall.core.wanted() == [SendToTask(heir, Stop())]


def test_an_heir_begins_where_the_holder_stood(hall: Hall) -> None:
    hall.core.assign(ONE, [ORDER], 0.0)
    holder = hall.begun(ONE)
    heir = hall.core.arrive(ONE, 1, TOKEN)
    assert heir
    hall.says(heir, TaskReady())
    assert hall.told(holder) == [Finish()]
    stands = Handoff("orders", 0, 9, 4, 5)
    hall.says(holder, TaskFinished([carried(3, 9, 2)], [], [stands], {}, 0.0, []))
    kept, went = hall.core.wanted()
    assert kept == RecordReport(TaskReport(LINK, 0, (carried(3, 9, 2),), (), {}))
    assert went == SendToTask(heir, StartWriting((stands,), {ORDERS: EpochOffset(2, 9)}, {}, ()))


def test_an_heir_waits_out_the_grant_of_a_holder_that_is_lost(hall: Hall) -> None:
    holder = hall.begun(ONE)
    hall.now_s += 1.0
    hall.says(holder, TaskProgress([], [], {}, 0.0))
    heir = hall.core.arrive(ONE, 1, TOKEN)
    assert heir
    hall.says(heir, TaskReady())
    hall.core.depart(holder, hall.now_s, LEFT_S)
    hall.core.wanted()
    hall.now_s += GRANT_S
    hall.tick()
    assert hall.told(heir) == []
    hall.now_s += LEASE_SLACK_S
    hall.tick()
    (went,) = hall.told(heir)
    assert isinstance(went, StartWriting)


def test_a_partition_changes_tasks_when_its_task_has_let_go_of_it(hall: Hall) -> None:
    hall.core.assign(ONE, [ORDER], 0.0)
    giver, taker = hall.begun(ONE), hall.begun(TWO)
    assert hall.core.move(LINK, ORDERS, 1)
    assert not hall.core.move(LINK, ORDERS, 1), "it is on its way"
    assert hall.core.wanted() == [SendToTask(giver, Release(ORDERS))]
    assert hall.core.placed(LINK) == {ORDERS: 0}
    stands = Handoff("orders", 0, 9, 4, 5)
    hall.says(giver, Released(ORDERS, stands, carried(3, 9, 2)))
    moved = PartitionConfig("orders", 0, "aa", "bb", receipt_to=9, receipt_epoch=2)
    account, *told = hall.core.wanted()
    assert isinstance(account, RecordReport)
    assert told == [SendToTask(taker, Assign((moved,))), SendToTask(taker, TakeOver((stands,)))]
    assert hall.core.placed(LINK) == {ORDERS: 1}


def test_what_was_asked_for_stays_where_it_is_when_its_task_is_lost(hall: Hall) -> None:
    hall.core.assign(ONE, [ORDER], 0.0)
    giver = hall.begun(ONE)
    hall.begun(TWO)
    assert hall.core.move(LINK, ORDERS, 1)
    hall.core.depart(giver, hall.now_s, LEFT_S)
    hall.core.wanted()
    hall.says(giver, Released(ORDERS, None, None))
    assert hall.core.wanted() == []
    assert hall.core.placed(LINK) == {ORDERS: 0}


def test_a_partition_that_is_withdrawn_is_gone_when_nobody_can_write_it(hall: Hall) -> None:
    hall.core.assign(ONE, [ORDER], 0.0)
    holder = hall.begun(ONE)
    assert not hall.core.withdraw(LINK, "orders", 0, hall.now_s)
    assert hall.told(holder) == [Release(ORDERS)]
    hall.core.depart(holder, hall.now_s, LEFT_S)
    assert not hall.core.withdraw(LINK, "orders", 0, hall.now_s), "lost, it has a grant still"
    assert hall.core.withdraw(LINK, "orders", 0, hall.now_s + GRANT_S + LEASE_SLACK_S)
    assert hall.core.placed(LINK) == {}


def test_a_word_of_an_earlier_term_is_not_its_namesakes(hall: Hall) -> None:
    old = hall.begun(ONE)
    hall.core.close_link(LINK)
    assert hall.core.wanted() == [DisconnectTask(old)]
    hall.open("another")
    hall.now_s += GRANT_S + LEASE_SLACK_S
    new = hall.begun(ONE, token="another")
    hall.says(old, TaskProgress([carried(3, 9, 1)], [], {}, 0.0))
    hall.core.depart(old, hall.now_s, LEFT_S)
    assert hall.core.wanted() == []
    assert hall.core.holding(ONE, hall.now_s)[0] == new.run


def test_a_new_term_waits_for_the_grants_of_the_last_one(hall: Hall) -> None:
    hall.begun(ONE)
    hall.core.close_link(LINK)
    assert not hall.core.idle(LINK, hall.now_s)
    hall.open("another")
    session = hall.core.arrive(ONE, 0, "another")
    assert session
    hall.says(session, TaskReady())
    assert hall.told(session) == [Assign(())]
    hall.now_s += GRANT_S + LEASE_SLACK_S
    hall.tick()
    assert [type(word) for word in hall.told(session)] == [StartWriting]


def test_a_link_that_stops_begins_no_task(hall: Hall) -> None:
    holder = hall.begun(ONE)
    heir = hall.core.arrive(ONE, 1, TOKEN)
    assert heir
    hall.says(heir, TaskReady())
    hall.core.wanted()
    hall.core.finish_all(LINK)
    assert hall.core.wanted() == [SendToTask(holder, Finish()), SendToTask(heir, Stop())]
    hall.says(heir, TaskReady())
    hall.says(holder, TaskFinished([], [], [], {}, 0.0, []))
    assert not [one for one in hall.core.wanted() if isinstance(one, SendToTask)]
    assert hall.core.arrive(ONE, 2, TOKEN) is None
    for session in (holder, heir):
        hall.core.depart(session, hall.now_s, LEFT_S)
    assert hall.core.idle(LINK, hall.now_s)


def lost(for_s: float) -> Handoff:
    """It stands at an end, and lost requests may land there for so long."""
    return Handoff("orders", 0, 9, 4, 5, calm=False, strays_s=for_s, stray_epoch=4)


def waits(words: Iterable[CoordinatorMessage]) -> dict[tuple[int, bool], float]:
    """For how long a task that was told this must wait, by where it begins and by whether it knows what may land."""
    found = [one for word in words if isinstance(word, StartWriting | TakeOver) for one in word.handoffs]
    return {(one.position, one.strays_moved): one.strays_s for one in found if not one.calm}


def test_what_may_land_is_known_when_a_partition_comes_back_to_a_task(hall: Hall) -> None:
    """A withdrawal forgot it, and the next task waited for less."""
    hall.core.assign(ONE, [ORDER], hall.now_s)
    giver, taker = hall.begun(ONE), hall.begun(TWO)
    assert not hall.core.withdraw(LINK, "orders", 0, hall.now_s)
    hall.says(giver, Released(ORDERS, lost(30.0), None))
    assert hall.core.withdraw(LINK, "orders", 0, hall.now_s)
    assert hall.core.lands_s(LINK, hall.now_s) == 30.0
    hall.now_s += 10.0
    hall.core.wanted()
    hall.core.assign(TWO, [ORDER], hall.now_s)
    assert waits(hall.told(taker)) == {(-1, True): 20.0}


def test_what_may_land_is_known_where_a_partition_comes_to_a_task_between_two_tasks(hall: Hall) -> None:
    hall.core.assign(ONE, [ORDER], hall.now_s)
    giver = hall.begun(ONE)
    assert hall.core.move(LINK, ORDERS, 1)
    hall.says(giver, Released(ORDERS, lost(30.0), None))
    hall.now_s += 5.0
    session = hall.core.arrive(TWO, 0, TOKEN)
    assert session
    hall.says(session, TaskReady())
    assert waits(hall.told(session)) == {(-1, True): 25.0}


@pytest.mark.parametrize(
    ("later_s", "calm", "wait"), [(4.3, False, {(-1, True): 25.7}), (31.0, False, {}), (4.3, True, {})]
)
def test_what_may_land_is_known_behind_an_heir_that_is_killed(
    hall: Hall, later_s: float, calm: bool, wait: dict[tuple[int, bool], float]
) -> None:
    """It says nothing, also of what it was told."""
    hall.core.assign(ONE, [ORDER], hall.now_s)
    first, began_s = hall.begun(ONE), hall.now_s
    heir = hall.core.arrive(ONE, 1, TOKEN)
    assert heir
    hall.says(heir, TaskReady())
    hall.says(first, TaskFinished([], [], [lost(30.0)], {}, 0.0, []))
    assert waits(hall.told(heir)) == {(9, False): 30.0}
    if calm:
        third = hall.core.arrive(ONE, 2, TOKEN)
        assert third
        hall.says(third, TaskReady())
        hall.says(heir, TaskFinished([], [], [Handoff("orders", 0, 9, 4, 5)], {}, 0.0, []))
        heir = third
    hall.core.depart(heir, hall.now_s, LEFT_S)
    hall.now_s = began_s + later_s
    last = hall.core.arrive(ONE, 3, TOKEN)
    assert last
    hall.says(last, TaskReady())
    assert waits(hall.told(last)) == pytest.approx(wait)
