"""Which groups have members at work, by what their clients ask; and what a member is told that groups left behind."""

from __future__ import annotations

from dataclasses import replace

from tests.proxy.talks import EAST, LAYOUT, WEST, answer, asked, by_kio, said_part, session, view
from tests.proxy.talks import seen as plain
from twinshore.fleet import GROUPS_HOME
from twinshore.proxy.core.groups import AtWork
from twinshore.proxy.core.leads import Lead
from twinshore.proxy.core.messages import error, filled
from twinshore.proxy.core.moves import Pass
from twinshore.proxy.core.offers import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from twinshore.proxy.core.seen import Seen
from twinshore.proxy.core.session import Session
from twinshore.wire.apis import OFFSET_COMMIT

NO_SUCH_GROUP, UNKNOWN_MEMBER, ILLEGAL_GENERATION = 69, 25, 22
GATHER = replace(plain(), leads={GROUPS_HOME: Lead("east", 1, moves=True)})


def client(at_work: AtWork) -> Session:
    return Session(EAST, LAYOUT, lambda: None, at_work=at_work)


def asks(one: Session, key: int, group: str = "g", now: Seen = GATHER) -> None:
    one.move(asked(key, 4 if key == HEARTBEAT else 3, group_id=group), now)


def test_a_member_is_at_work_until_it_joins_anew_or_leaves() -> None:
    at_work = AtWork()
    one, other = client(at_work), client(at_work)
    asks(one, SYNC_GROUP, now=plain())
    asks(other, HEARTBEAT)
    asks(other, HEARTBEAT)
    assert at_work.some(5) == ("g",)
    asks(one, JOIN_GROUP)
    assert at_work.some(5) == ("g",), "the other one is"
    asks(other, LEAVE_GROUP)
    assert at_work.some(5) == ()
    asks(one, HEARTBEAT)
    assert at_work.some(5) == ("g",), "it did not wait until groups had moved"
    asks(one, HEARTBEAT, now=replace(plain(), leads={GROUPS_HOME: Lead("west", 2)}))
    assert at_work.some(5) == (), "it is told where its group is"


def test_one_whose_connection_ends_may_come_again_by_another() -> None:
    at_work = AtWork()
    one = client(at_work)
    asks(one, HEARTBEAT)
    one.close()
    at_work.look(100.0)
    again = client(at_work)
    asks(again, HEARTBEAT)
    at_work.look(106.0)
    assert at_work.some(5) == ("g",)
    again.close()
    at_work.look(107.0)
    at_work.look(111.9)
    assert at_work.some(5) == ("g",)
    at_work.look(112.1)
    assert at_work.some(5) == ()


def test_who_says_that_it_is_a_member_of_everything_is_not_believed() -> None:
    at_work = AtWork()
    one = client(at_work)
    for number in range(100):
        asks(one, HEARTBEAT, f"g{number}")
    assert len(at_work.some(100)) == 16


def test_a_member_of_a_group_that_moved_without_it_is_told_that_it_is_none() -> None:
    """That there is no such group would be told to its application, and the commit not tried again."""
    topic = said_part(OFFSET_COMMIT, 9, "topics")
    part = said_part(OFFSET_COMMIT, 9, "topics", "partitions")

    def told(code: int) -> int:
        move = session(WEST).move(
            asked(OFFSET_COMMIT, 9, group_id="g"), replace(plain(), leads={GROUPS_HOME: Lead("west", 2)})
        )
        assert isinstance(move, Pass) and move.rewrite is not None
        said = filled(topic, name="bills", partitions=(filled(part, partition_index=0, error_code=error(code)),))
        whole = answer(OFFSET_COMMIT, 9, topics=(said,))
        parts = move.rewrite(whole, 0)
        found = by_kio(OFFSET_COMMIT, 9, whole if parts is None else view(parts))
        return int(found.topics[0].partitions[0].error_code)

    assert [told(code) for code in (0, NO_SUCH_GROUP, ILLEGAL_GENERATION)] == [0, UNKNOWN_MEMBER, ILLEGAL_GENERATION]
