"""Which groups have members at work, by what their clients ask; and what a member is told that groups left behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.proxy.talks import EAST, LAYOUT, WEST, answer, asked, asked_part, by_kio, said_part, session, view
from tests.proxy.talks import seen as plain
from twinshore.config.frozen import GROUPS_HOME
from twinshore.kafka.protocol.apis import OFFSET_COMMIT
from twinshore.proxy.core.api_versions import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from twinshore.proxy.core.group_requests import ActiveMembers
from twinshore.proxy.core.message_codec import build_message, to_error_code
from twinshore.proxy.core.model import ForwardRequest, HomeRoute, RoutingTable
from twinshore.proxy.core.session import ClientSession

NO_SUCH_GROUP, UNKNOWN_MEMBER, ILLEGAL_GENERATION = 69, 25, 22
GATHER = replace(plain(), leads={GROUPS_HOME: HomeRoute("east", 1, moves=True)})


def client(at_work: ActiveMembers) -> ClientSession:
    return ClientSession(EAST, LAYOUT, lambda: None, at_work=at_work)


def asks(one: ClientSession, key: int, group: str = "g", now: RoutingTable = GATHER, member: str = "m") -> None:
    """In versions in which a member that leaves is one of several."""
    left = (build_message(asked_part(LEAVE_GROUP, 3, "members"), member_id=member),) if key == LEAVE_GROUP else ()
    version = 4 if key == HEARTBEAT else 3
    one.move(asked(key, version, group_id=group, member_id=member, members=left), now)


def test_a_member_is_at_work_until_it_joins_anew_or_leaves() -> None:
    at_work = ActiveMembers()
    one, other = client(at_work), client(at_work)
    asks(one, SYNC_GROUP, now=plain())
    asks(other, HEARTBEAT, member="n")
    asks(other, HEARTBEAT, member="n")
    assert at_work.some(5) == ("g",)
    asks(one, JOIN_GROUP)
    assert at_work.some(5) == ("g",), "the other one is"
    asks(other, LEAVE_GROUP, member="n")
    assert at_work.some(5) == ()
    asks(one, HEARTBEAT)
    assert at_work.some(5) == ("g",), "it did not wait until groups had moved"
    asks(one, HEARTBEAT, now=replace(plain(), leads={GROUPS_HOME: HomeRoute("west", 2)}))
    assert at_work.some(5) == (), "it is told where its group is"


@pytest.mark.claim("proxy", "joins-apart", "groups move where members join by another connection than they beat on")
@pytest.mark.parametrize("key", [JOIN_GROUP, LEAVE_GROUP])
def test_a_member_joins_and_leaves_by_another_connection_than_it_beats_on(key: int) -> None:
    """As those of franz-go do."""
    at_work = ActiveMembers()
    beats, joins = client(at_work), client(at_work)
    asks(beats, HEARTBEAT)
    asks(beats, HEARTBEAT, "h")
    asks(joins, key)
    assert at_work.some(5) == ("h",)


def test_a_client_is_one_member_of_a_group() -> None:
    """One that was sent away begins anew under another id, and as none at first."""
    at_work = ActiveMembers()
    one, other = client(at_work), client(at_work)
    asks(one, HEARTBEAT)
    asks(one, HEARTBEAT, member="n")
    asks(other, JOIN_GROUP, member="n")
    assert at_work.some(5) == ()
    asks(one, HEARTBEAT)
    asks(one, JOIN_GROUP, member="")
    assert at_work.some(5) == ()


def test_one_of_whom_nothing_is_heard_any_more_is_not_waited_for() -> None:
    """It ended without a word, or waits at another process to join."""
    at_work = ActiveMembers()
    one, again = client(at_work), client(at_work)
    asks(one, HEARTBEAT)
    one.close()
    at_work.look(100.0)
    asks(again, HEARTBEAT)
    at_work.look(119.0)
    at_work.look(138.9)
    assert at_work.some(5) == ("g",)
    at_work.look(139.1)
    assert at_work.some(5) == ()


def test_who_says_that_it_is_a_member_of_everything_is_not_believed() -> None:
    at_work = ActiveMembers()
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
            asked(OFFSET_COMMIT, 9, group_id="g"), replace(plain(), leads={GROUPS_HOME: HomeRoute("west", 2)})
        )
        assert isinstance(move, ForwardRequest) and move.rewrite is not None
        said = build_message(
            topic, name="bills", partitions=(build_message(part, partition_index=0, error_code=to_error_code(code)),)
        )
        whole = answer(OFFSET_COMMIT, 9, topics=(said,))
        parts = move.rewrite(whole, 0)
        found = by_kio(OFFSET_COMMIT, 9, whole if parts is None else view(parts))
        return int(found.topics[0].partitions[0].error_code)

    assert [told(code) for code in (0, NO_SUCH_GROUP, ILLEGAL_GENERATION)] == [0, UNKNOWN_MEMBER, ILLEGAL_GENERATION]
