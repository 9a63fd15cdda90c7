"""How far a member has handed out each partition, and what of it counts at a topic's new home."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_BEGINNING

from twinshore.client.core.delivered import DeliveredOffsets
from twinshore.routing.core.home_records import HomeRecord

ORDERS = "orders", 0


def line(term: int, *points: int) -> HomeRecord:
    return HomeRecord(topic="orders", home="west", cluster_id="w" * 22, term=term, points=points)


def moved(handed_out: int, term: int, *points: int) -> DeliveredOffsets:
    """From the home of term 1 to that of this one."""
    handed = DeliveredOffsets()
    handed.next[ORDERS] = handed_out
    handed.leave("orders")
    handed.left([ORDERS])
    handed.arrive("orders", 1, term, line(term, *points))
    return handed


@pytest.mark.parametrize(
    ("term", "points", "carried"),
    [
        (1, (), {("orders", 0): 25, ("orders", 1): 7}),  # where it was
        (2, (10, 20), {("orders", 0): 10, ("orders", 1): 7}),  # by force: what lay behind the point is gone
        (2, (), {}),  # nobody says where
        (3, (10, 20), {}),  # it has moved twice meanwhile: the group's own place counts
    ],
)
def test_how_far_it_has_read_as_the_new_home_counts(
    term: int, points: tuple[int, ...], carried: dict[tuple[str, int], int]
) -> None:
    handed = DeliveredOffsets()
    handed.next = {("orders", 0): 25, ("orders", 1): 7, ("bills", 0): 3}
    handed.leave("orders")
    handed.left([("orders", 0), ("orders", 1)])
    handed.arrive("orders", 1, term, line(term, *points))
    everything = [("orders", 0), ("orders", 1), ("bills", 0)]
    assert handed.take_carried_offsets(["orders"], everything) == carried
    assert handed.take_carried_offsets(["orders"], everything) == {}, "it counts once"
    assert handed.next == {("bills", 0): 3}


def test_a_place_is_committed_as_it_is_while_its_topic_stays() -> None:
    handed = DeliveredOffsets()
    assert handed.known(ORDERS, 100) == 100
    handed.next[ORDERS] = 7
    assert handed.known(ORDERS, 100) == 100, "an application may pass over what it likes"


def test_what_was_read_at_the_old_home_beyond_the_point_is_not_committed_at_the_new_one() -> None:
    handed = moved(100, 2, 60)
    assert [handed.known(ORDERS, at) for at in (59, 60, 61, 100)] == [59, 60, 60, 60]
    handed.next[ORDERS] = 62
    assert [handed.known(ORDERS, at) for at in (62, 63)] == [62, 60], "that much has been read here"


def test_where_nobody_knows_of_any_record_that_is_the_same_nothing_old_is_committed() -> None:
    handed = moved(100, 3, 60)
    assert handed.known(ORDERS, 100) is None
    handed.next[ORDERS] = 5
    assert [handed.known(ORDERS, at) for at in (5, 6)] == [5, None]
    handed = moved(100, 1)
    handed.leave("orders")
    handed.arrive_anywhere("orders")
    assert handed.known(ORDERS, 100) is None


def test_what_was_read_at_the_new_home_is_committed_there_also_when_it_was_dealt_out_anew() -> None:
    handed = moved(100, 2, 60)
    handed.next[ORDERS] = 180
    assert handed.forget(ORDERS) == 180
    assert [handed.known(ORDERS, at) for at in (180, 181)] == [180, 180]


@pytest.mark.parametrize(("term", "owed"), [(2, {ORDERS: 60}), (1, {ORDERS: 90}), (3, {})])
def test_what_is_committed_between_two_homes_is_owed_to_the_new_one(term: int, owed: dict[object, int]) -> None:
    handed = DeliveredOffsets()
    handed.next[ORDERS] = 100
    handed.leave("orders")
    handed.left([ORDERS])
    handed.defer_commit(ORDERS, 90)
    handed.defer_commit(("bills", 0), 5)
    handed.arrive("orders", 1, term, line(term, 60))
    assert handed.take_deferred_commits(["orders"]) == owed
    assert handed.take_deferred_commits(["orders", "bills"]) == {("bills", 0): 5}, "it is said once"


def test_to_commit_all_between_two_homes_is_to_commit_what_was_handed_out() -> None:
    handed = DeliveredOffsets()
    handed.next[ORDERS] = 100
    handed.leave("orders")
    handed.left([ORDERS])
    handed.defer_commits_of_left_topics()
    handed.arrive("orders", 1, 2, line(2, 200))
    assert handed.take_deferred_commits(["orders"]) == {ORDERS: 100}


@pytest.mark.parametrize(
    ("term", "points", "sought", "lost"),
    [
        (1, (), {("orders", 0): 70, ("orders", 1): 7, ("orders", 2): OFFSET_BEGINNING}, []),
        (2, (60, 20, 5), {("orders", 0): 60, ("orders", 1): 7, ("orders", 2): OFFSET_BEGINNING}, []),
        (2, (60,), {("orders", 0): 60, ("orders", 2): OFFSET_BEGINNING}, [("orders", 1)]),
        (3, (60, 20, 5), {("orders", 2): OFFSET_BEGINNING}, [("orders", 0), ("orders", 1)]),
    ],
)
def test_where_an_application_wants_to_read_on_counts_at_the_new_home_as_places_do(
    term: int, points: tuple[int, ...], sought: dict[tuple[str, int], int], lost: list[tuple[str, int]]
) -> None:
    """The beginning is the beginning everywhere."""
    handed = DeliveredOffsets()
    handed.leave("orders")
    for number, at in ((0, 70), (1, 7), (2, OFFSET_BEGINNING)):
        handed.seek_later(("orders", number), at)
    handed.seek_later(("bills", 0), 3)
    assert handed.arrive("orders", 1, term, line(term, *points)) == lost
    dealt = [("orders", number) for number in range(3)]
    assert handed.take_sought(dealt) == sought
    assert handed.take_sought(dealt) == {}
    assert handed.position(("bills", 0)) == 3


def test_who_has_sought_reads_on_behind_that_at_the_new_home_wherever_the_group_stands() -> None:
    handed = DeliveredOffsets()
    handed.next[ORDERS] = 100
    handed.seek(ORDERS, 10)
    handed.next[ORDERS] = 12
    handed.leave("orders")
    handed.left([ORDERS, ("orders", 1)])
    assert handed.position(ORDERS) == 12
    assert handed.arrive("orders", 1, 2, line(2, 200)) == []
    assert handed.take_carried_offsets(["orders"], [ORDERS]) == {}
    assert handed.take_sought([ORDERS]) == {ORDERS: 12}


def test_what_another_member_reads_is_sought_no_more() -> None:
    handed = DeliveredOffsets()
    handed.seek(ORDERS, 10)
    handed.forget(ORDERS)
    handed.leave("orders")
    handed.left([ORDERS])
    assert (handed.position(ORDERS), handed.take_sought([ORDERS])) == (None, {})
    handed.seek_later(ORDERS, 10)
    assert handed.drop_sought(["orders"]) == [ORDERS]


def test_a_position_is_known_at_each_step_of_a_move() -> None:
    handed = DeliveredOffsets()
    handed.next[ORDERS] = 100
    found = [handed.position(ORDERS)]
    handed.leave("orders")
    handed.left([ORDERS])
    found.append(handed.position(ORDERS))
    handed.arrive("orders", 1, 2, line(2, 60))
    found.append(handed.position(ORDERS))
    assert found == [100, 100, 60]


def test_of_a_topic_between_two_homes_it_is_known_what_was_committed_and_what_will_be() -> None:
    handed = DeliveredOffsets()
    handed.next |= {ORDERS: 100, ("bills", 0): 5}
    handed.note_committed(handed.next.items())
    handed.leave("orders")
    handed.note_committed([(ORDERS, 90)])
    assert handed.committed_offset(ORDERS) == 90
    handed.defer_commit(ORDERS, 95)
    assert handed.committed_offset(ORDERS) == 95
    handed.arrive("orders", 1, 2, line(2, 60))
    assert (handed.committed_offset(ORDERS), handed.committed_offset(("bills", 0))) == (60, 5)
    handed.arrive_anywhere("orders")
    assert handed.committed_offset(ORDERS) is None
