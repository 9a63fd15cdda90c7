"""What operators say of running links: on three databases."""

from __future__ import annotations

from collections.abc import Callable

from twinshore.state.core.values import AuditRow, ControlRow, LinkStateRow
from twinshore.state.store import Store

LINK = "east->west"


def row(name: str, value: str, link: str = LINK) -> ControlRow:
    return ControlRow(link, name, value, 5, "an operator")


def test_a_change_counts_and_stands_until_it_is_dropped(store: Store) -> None:
    assert (store.controls.version(LINK), store.controls.of(LINK)) == (0, ())
    told = [AuditRow(5, LINK, "control", "paused", "false", "true", "by an operator")]
    paused, rate = row("paused", "true"), row("throttle_bytes_s", "9")
    assert store.controls.change(LINK, {"paused": paused, "throttle_bytes_s": rate}, seen=0, told=told)
    assert (store.controls.version(LINK), store.controls.of(LINK)) == (1, (paused, rate))
    assert store.audit.rows(LINK) == (told[0],)
    assert store.controls.change(
        LINK, {"paused": None, "throttle_bytes_s": row("throttle_bytes_s", "10")}, seen=1, told=()
    )
    assert store.controls.of(LINK) == (row("throttle_bytes_s", "10"),)
    assert store.controls.version("west->east") == 0, "links do not share a version"
    assert [store.controls.version_lately(link) for link in (LINK, "west->east")] == [2, 0]


def test_of_two_who_change_at_once_one_is_told_to_look_again(store: Store, open_another: Callable[[], Store]) -> None:
    other = open_another()
    told = [AuditRow(5, LINK, "control", "paused", "", "true", "by another")]
    assert other.controls.change(LINK, {"paused": row("paused", "true")}, seen=0, told=told)
    assert not store.controls.change(LINK, {"paused": row("paused", "false")}, seen=0, told=told)
    assert store.controls.of(LINK) == (row("paused", "true"),)
    assert len(store.audit.rows(LINK)) == 1, "what was not done is not told"
    assert not store.controls.change(LINK, {"paused": None}, seen=7, told=())


def test_what_is_said_and_remembered_of_many_links_is_read_at_once(store: Store) -> None:
    names = ["east->west", "west->north", "north->east"]
    for name in names[:2]:
        row = ControlRow(name, "paused", "1", 5, "anna")
        assert store.controls.change(name, {"paused": row}, seen=0, told=[])
        store.link_states.remember(
            [LinkStateRow(name, "kind", "", name, "who", 5), LinkStateRow(name, "other", "", "", "", 5)]
        )
    assert store.controls.of_each(names) == {name: store.controls.of(name) for name in names}
    assert [row.link for row in store.link_states.of_each(names, "kind")] == sorted(names[:2])
    assert store.controls.of_each([]) == {}
    assert store.link_states.of_each([], "kind") == ()
