"""Where topics are at home, on every database: the first row decides, a later home has a higher term."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

from twinshore.state.core.values import AuditRow, HomeRow, TwinRow
from twinshore.state.store import Store

PAIR = "east<>west"
ROW = HomeRow(PAIR, "orders", "east", 1, 1_700_000_000_000, "link east->west")
TWIN = TwinRow("east->west", "orders", 0, "aa" * 16, "bb" * 16, 0, 0, 1)


def test_the_first_row_stands(store: Store) -> None:
    assert store.homes.of(PAIR) == {}
    assert store.homes.version(PAIR) == 0
    assert store.homes.settle([ROW]) == {"orders": ROW}
    late = replace(ROW, home="west", set_by="link west->east")
    bills = replace(late, topic="bills", term=7)
    assert store.homes.settle([late, bills]) == {"orders": ROW, "bills": replace(bills, term=1)}
    assert store.homes.of(PAIR) == {"bills": replace(bills, term=1), "orders": ROW}
    assert store.homes.of("east<>north") == {}
    assert store.homes.settle([]) == {}
    assert store.homes.now(PAIR, ["orders", "lists"]) == {"orders": ROW}


def test_a_topic_has_a_home_in_each_pair(store: Store) -> None:
    north = replace(ROW, pair="east<>north", home="north")
    others = [replace(ROW, topic=f"other-{number}") for number in range(600)]
    for rows in ([ROW, *others], [north], [replace(north, topic="bills")]):
        store.homes.settle(rows)
    assert store.homes.everywhere(["orders", "lists"]) == (north, ROW)
    assert len(store.homes.everywhere({"orders", *(one.topic for one in others)})) == 602
    assert store.homes.everywhere([]) == ()


def test_two_links_that_decide_at_once_read_one_home(open_another: Callable[[], Store]) -> None:
    stores = [open_another() for _ in range(4)]
    start = Barrier(4)
    names = [f"orders-{number}" for number in range(20)]

    def settle(index: int) -> dict[str, str]:
        home = "east" if index % 2 else "west"
        rows = [replace(ROW, topic=name, home=home, set_by=str(index)) for name in names]
        start.wait()
        # Each in another order, as their clusters list topics.
        found = stores[index].homes.settle(rows if index % 2 else rows[::-1])
        return {name: one.set_by for name, one in found.items()}

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(settle, range(4)))
    assert all(one == found[0] for one in found)
    assert set(found[0]) == set(names)


def test_a_home_moves_only_from_the_term_that_was_seen(store: Store) -> None:
    told = [AuditRow(1, "east->west", "home", "orders", "", "west", "by anna")]
    west = replace(ROW, home="west", set_by="anna")
    assert store.homes.move(west, seen=0, rows=told) == west
    assert store.homes.version(PAIR) == 1
    assert store.homes.move(replace(west, home="east"), seen=0) is None
    east = replace(west, home="east")
    assert store.homes.move(east, seen=1) == replace(east, term=2)
    assert store.homes.move(west, seen=1) is None
    assert store.homes.of(PAIR) == {"orders": replace(east, term=2)}
    assert store.homes.version(PAIR) == 2
    assert store.audit.rows() == tuple(told)
    assert store.homes.settle([ROW]) == {"orders": replace(east, term=2)}


def test_a_home_does_not_move_from_under_a_twin(store: Store) -> None:
    links = ("east->west", "west->east")
    store.homes.settle([ROW])
    store.twins.save([TWIN])
    told = [AuditRow(1, "east->west", "home", "orders", "", "west", "by anna")]
    assert store.homes.move(replace(ROW, home="west"), seen=1, links=links, rows=told) is None
    assert store.homes.move(replace(ROW, topic="bills"), seen=0, links=links) is not None
    store.twins.save([replace(TWIN, topic="lists")])
    assert store.homes.move(replace(ROW, topic="lists"), seen=0, links=links) is None
    assert store.homes.of(PAIR).keys() == {"orders", "bills"}, "what was begun is taken back"
    assert store.homes.of(PAIR)["orders"] == ROW
    assert store.audit.rows() == ()


def test_of_a_twin_and_another_home_at_once_one_gives_way(open_another: Callable[[], Store]) -> None:
    """A link remembers its twin and then asks for the home; whoever moves the home looks for twins behind that."""
    mirror, operator = open_another(), open_another()
    start = Barrier(2)
    for number in range(20):
        topic = f"orders-{number}"
        mirror.homes.settle([replace(ROW, topic=topic)])

        def carry(topic: str = topic) -> bool:
            start.wait()
            mirror.twins.save([replace(TWIN, topic=topic)])
            return mirror.homes.now(PAIR, [topic])[topic].home == "east"

        def move(topic: str = topic) -> bool:
            start.wait()
            row = replace(ROW, topic=topic, home="west")
            return operator.homes.move(row, seen=1, links=["east->west"]) is not None

        with ThreadPoolExecutor(2) as pool:
            carried, moved = pool.submit(carry), pool.submit(move)
            assert carried.result() != moved.result(), topic
