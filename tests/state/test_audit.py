"""The audit and what is remembered of what follows, on every database."""

from __future__ import annotations

from dataclasses import replace

import pytest

from twinshore.state import log
from twinshore.state.core.values import AuditRow, LinkStateRow
from twinshore.state.store import Store

ROW = AuditRow(5, "east->west", "topic setting", "orders segment.ms", "", "60000", "done")
ACL = LinkStateRow("east->west", "acl", "topic orders literal User:anna * allow read", "", "written", 7)


def test_the_newest_change_comes_first_and_each_link_has_its_own(store: Store) -> None:
    later, other = replace(ROW, at_ms=6, before="60000", after=""), replace(ROW, link="north->west")
    store.audit.add([ROW, later])
    store.audit.add([other])
    assert store.audit.rows() == (other, later, ROW)
    assert store.audit.rows("east->west") == (later, ROW)
    assert store.audit.rows("east->west", limit=1) == (later,)
    assert store.audit.rows("north->west", "east->west", "x->y", limit=2) == (other, later)
    store.audit.add([])
    assert len(store.audit.rows()) == 3


def test_pages_follow_each_other_by_id_and_hold_what_is_wanted_alone(store: Store) -> None:
    by_anna = replace(ROW, actor="anna", kind="group", topic="orders", group="billing", outcome="done")
    rows = [replace(by_anna if number % 2 else ROW, at_ms=number) for number in range(20)]
    store.audit.add(rows)
    store.audit.add([replace(by_anna, link="north->west", at_ms=99)])
    found: list[AuditRow] = []
    wanted = log.AuditFilter(("east->west",), kind="group", actor="anna", topic="orders", group="billing")
    while page := store.audit.page(wanted, limit=3):
        assert len(page) <= 3
        found += page
        store.audit.add([replace(by_anna, at_ms=1_000)])  # What comes meanwhile moves no page.
        wanted = replace(wanted, before=page[-1].id)
    assert [row.at_ms for row in found] == list(range(19, 0, -2))
    for other in ({"actor": "bert"}, {"kind": "acl"}, {"topic": "bills"}, {"group": "shipping"}):
        assert store.audit.page(log.AuditFilter(("east->west",), **other)) == ()  # type: ignore[arg-type]
    assert {row.actor for row in store.audit.page(log.AuditFilter(actor="the mirror"))} == {"the mirror"}


def test_a_group_longer_than_a_name_is_kept_and_found_by_its_beginning(store: Store) -> None:
    long = replace(ROW, group="\U0001f6a8" * 400, actor="a" * 400)
    store.audit.add([long])
    (row,) = store.audit.page(log.AuditFilter(group=long.group))
    assert long.group.startswith(row.group)
    assert len(row.group) == len(row.actor) == 255


def test_a_link_keeps_a_bounded_number_of_changes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "AUDIT_ROWS_MAX", 3)
    other = replace(ROW, link="north->west")
    store.audit.add([other])
    for number in range(8):
        store.audit.add([replace(ROW, at_ms=number)])
    assert [row.at_ms for row in store.audit.rows("east->west")] == [7, 6, 5]
    assert store.audit.rows("north->west") == (other,)


def test_what_was_refused_pushes_nothing_out_that_was_done(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "AUDIT_ROWS_MAX", 3)
    store.audit.add([ROW])
    for number in range(8):
        store.audit.add([replace(ROW, at_ms=number, outcome=log.refused_outcome("by policy"))])
    assert [row.at_ms for row in store.audit.rows()] == [7, 6, 5, ROW.at_ms]
    store.audit.add([replace(ROW, at_ms=number, outcome="by me") for number in range(20, 23)])
    assert [row.at_ms for row in store.audit.rows()] == [22, 21, 20, 7, 6, 5]


def test_what_a_broken_name_leaves_in_a_sentence_is_kept(store: Store) -> None:
    store.audit.add([replace(ROW, subject="a\0b", outcome="\udcff")])
    assert (store.audit.rows()[0].subject, store.audit.rows()[0].outcome) == ("a\ufffdb", "?")


def test_what_follows_is_remembered_once_per_subject(store: Store) -> None:
    quota = replace(ACL, kind="quota", subject="user anna")
    store.link_states.remember([ACL, quota, replace(ACL, link="north->west")])
    store.link_states.remember([replace(ACL, state="held", since_ms=9)])
    assert store.link_states.of("east->west") == (replace(ACL, state="held", since_ms=9), quota)
    assert store.link_states.of("east->west", "quota") == (quota,)
    store.link_states.forget([ACL])
    store.link_states.forget([ACL])
    assert store.link_states.of("east->west") == (quota,)
    assert len(store.link_states.of("north->west")) == 1
    store.link_states.remember([])


def test_a_subject_may_be_longer_than_a_key(store: Store) -> None:
    long, longer = replace(ACL, subject="x" * 5_000), replace(ACL, subject="x" * 5_001)
    store.link_states.remember([long, longer])
    assert store.link_states.of("east->west") == (long, longer)
    assert store.link_states.of("east->west", "Acl") == ()
