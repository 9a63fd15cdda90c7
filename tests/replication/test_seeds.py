"""Settings are the seed of links: what is taken from them, what stays as an operator said, and what is shown."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from testkit.errors import mentions
from twinshore.replication.core.link_config import (
    ReconciledLinks,
    changed_link_row,
    dump_section,
    new_link_row,
    reconcile,
    removed_link_row,
    settings_link_row,
)
from twinshore.state.core.values import LinkPresence, LinkRow

LINK = "east->west"
ORDERS: Mapping[str, Any] = {"topics": ["orders"]}
BILLS: Mapping[str, Any] = {"topics": ["bills"], "naming": "prefix"}


def sown(section: Mapping[str, Any] | None, *rows: LinkRow, at: int = 9) -> ReconciledLinks:
    return reconcile({} if section is None else {LINK: section}, rows, at, "settings of one")


def row(section: Mapping[str, Any], seed: Mapping[str, Any] | None, state: LinkPresence = LinkPresence.KEPT) -> LinkRow:
    return LinkRow(LINK, state, dump_section(section), "" if seed is None else dump_section(seed), 3, 5, "anna")


def test_a_link_that_nobody_knew_becomes_a_row() -> None:
    found = sown(ORDERS)
    said = dump_section(ORDERS)
    assert found.rows == (LinkRow(LINK, LinkPresence.KEPT, said, said, 0, 9, "settings of one"),)
    assert (found.links, found.differences) == ({LINK: ORDERS}, ())


def test_what_stands_already_is_not_written_again() -> None:
    assert sown(ORDERS, row(ORDERS, ORDERS)).rows == ()
    assert sown(dict(sorted(BILLS.items(), reverse=True)), row(BILLS, BILLS)).rows == ()


def test_edited_settings_are_taken_where_no_operator_said_otherwise() -> None:
    found = sown(BILLS, row(ORDERS, ORDERS))
    assert [(one.section, one.seed) for one in found.rows] == [(dump_section(BILLS), dump_section(BILLS))]
    assert (found.links, found.differences) == ({LINK: BILLS}, ())


def test_what_an_operator_said_stays_and_the_difference_is_shown() -> None:
    found = sown(BILLS, row({"topics": ["orders", "more"]}, ORDERS))
    assert (found.rows, found.links) == ((), {LINK: {"topics": ["orders", "more"]}})
    (told,) = found.differences
    assert told.sentence == (
        'naming is not set, and "prefix" in the settings; '
        'topics is ["orders", "more"], and ["bills"] in the settings (by anna)'
    )


def test_settings_that_come_round_to_what_the_operator_said_show_nothing() -> None:
    assert sown(BILLS, row(BILLS, ORDERS)) == ReconciledLinks((), {LINK: BILLS}, ())


def test_a_link_that_was_removed_stays_so_whatever_settings_name() -> None:
    for section in (ORDERS, BILLS):
        found = sown(section, row(ORDERS, ORDERS, LinkPresence.REMOVED))
        assert (found.rows, found.links) == ((), {})
        assert mentions(found.differences[0].sentence, "removed by anna")


def test_a_link_of_the_store_alone_is_carried_and_one_that_these_settings_dropped_is_not() -> None:
    assert sown(None, row(ORDERS, None)).links == {LINK: ORDERS}
    found = sown(None, row(ORDERS, ORDERS))
    assert (found.links, found.rows) == ({}, ())
    assert [one.link for one in found.differences] == [LINK]


def test_an_operators_words() -> None:
    begun = new_link_row(LINK, ORDERS, 7, "anna")
    assert begun == LinkRow(LINK, LinkPresence.KEPT, dump_section(ORDERS), "", 0, 7, "anna")
    assert sown(None, begun).links == {LINK: ORDERS}, "no settings need to name it"
    set_since = changed_link_row(settings_link_row(LINK, ORDERS, 6, "settings"), BILLS, 8, "bert")
    assert (set_since.section, set_since.seed) == (dump_section(BILLS), dump_section(ORDERS))
    gone = removed_link_row(begun, 8, "bert")
    assert (gone.state, gone.changed_ms, gone.changed_by) == (LinkPresence.REMOVED, 8, "bert")
    agreed = settings_link_row(LINK, BILLS, 9, "anna")
    assert sown(BILLS, agreed) == ReconciledLinks((), {LINK: BILLS}, ())


def test_a_link_that_settings_dropped_is_carried_again_once_an_operator_adds_it() -> None:
    assert sown(None, row(ORDERS, ORDERS)).links == {}
    assert sown(None, new_link_row(LINK, ORDERS, 9, "anna")) == ReconciledLinks((), {LINK: ORDERS}, ())


@pytest.mark.parametrize("seed", range(200))
def test_no_history_of_edits_and_words_loses_a_word_or_writes_twice(seed: int) -> None:
    """Of each history: what an operator said last holds until it is agreed, and who starts twice writes once."""
    chance = random.Random(seed)
    settings: Mapping[str, Any] = ORDERS
    rows: dict[str, LinkRow] = {}
    said: Mapping[str, Any] | None = None
    for at in range(30):
        what = chance.choice(["edit", "start", "start", "word", "remove", "agree"])
        if what == "edit":
            settings = {"topics": [chance.choice("abc")]}
        elif what == "word":
            said = {"topics": [chance.choice("abcd")]}
            kept = rows.get(LINK)
            fresh = kept is None or kept.state is LinkPresence.REMOVED
            rows[LINK] = (
                new_link_row(LINK, said, at, "anna") if fresh or not kept else changed_link_row(kept, said, at, "anna")
            )
            if rows[LINK].section == rows[LINK].seed:
                said = None  # who says what the settings said, says nothing of his own
        elif what == "remove" and LINK in rows:
            rows[LINK], said = removed_link_row(rows[LINK], at, "anna"), {}
        elif what == "agree" and LINK in rows:
            rows[LINK], said = settings_link_row(LINK, settings, at, "anna"), None
        else:
            found = reconcile({LINK: settings}, rows.values(), at, "settings")
            rows |= {one.link: one for one in found.rows}
            assert reconcile({LINK: settings}, rows.values(), at, "settings").rows == ()
            if said is None:
                assert found.links == {LINK: settings}, seed
            elif said:
                assert found.links == {LINK: said}, seed
            else:
                assert found.links == {}, seed
