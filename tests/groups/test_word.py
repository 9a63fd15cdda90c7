"""What is said of groups once the source is lost: nothing that was not seen."""

from __future__ import annotations

from pathlib import Path

from twinshore.groups.book import Entry
from twinshore.groups.place import State
from twinshore.groups.rounds import Round
from twinshore.groups.word import (
    COMPARED_KIND,
    COMPARED_MAX,
    NAMED_MAX,
    NEVER_SAID,
    NOT_NAMED,
    compared_among,
    compared_in,
    compared_row,
    last_said,
    word_of,
)
from twinshore.store import open_store
from twinshore.wire.group_places import GroupPlaces


def entry(name: str, behind: int = 0) -> Entry:
    made = Entry(GroupPlaces(name, 0, {}, {}, b""), check=False)
    if behind:
        made.standing[("orders", 0)] = (State.BEHIND, behind, 1.0)
    return made


def said(entries: dict[str, Entry], group: str) -> tuple[str, int]:
    word = word_of(entries, Round(groups=len(entries)), now_s=5.0, now_ms=5000)
    return last_said(word, compared_in([compared_row("east->west", compared_among(entries), 5000)]), group)


def test_a_group_stood_the_same_only_where_a_round_has_compared_it() -> None:
    entries = {"same": entry("same"), "behind": entry("behind", 7)}
    assert said(entries, "same") == ("same", 0)
    assert said(entries, "behind") == ("behind", 7)
    assert said(entries, "only-on-the-target") == (NEVER_SAID, 0)
    entries["same"].check = True
    assert said(entries, "same") == (NEVER_SAID, 0), "its coordinator has not answered yet"
    assert last_said({}, (), "same") == (NEVER_SAID, 0)


def test_where_more_differed_than_are_named_no_other_is_called_the_same() -> None:
    entries = {f"g{number}": entry(f"g{number}", 3) for number in range(NAMED_MAX + 1)} | {"same": entry("same")}
    assert said(entries, "g0") == ("behind", 3)
    assert said(entries, f"g{NAMED_MAX}") == (NOT_NAMED, 0)
    assert said(entries, "same") == (NOT_NAMED, 0)


def test_so_many_groups_that_they_are_not_written_down_were_never_compared() -> None:
    assert compared_in([compared_row("l", [str(n) for n in range(COMPARED_MAX + 1)], 0)]) == frozenset()


def test_the_names_come_back_from_the_store_as_they_were(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}")
    names = {"plain", "grüße", 'a "quoted"\nname', ""}
    store.remember([compared_row("east->west", names, 1)])
    assert compared_in(store.followed("east->west", COMPARED_KIND)) == names
    store.close()
