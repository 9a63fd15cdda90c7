"""The audit and what is remembered of what follows, on every database."""

from __future__ import annotations

from dataclasses import replace

import pytest

from twinshore.store import AuditRow, Followed, Store, audit

ROW = AuditRow(5, "east->west", "topic setting", "orders segment.ms", "", "60000", "done")
ACL = Followed("east->west", "acl", "topic orders literal User:anna * allow read", "", "written", 7)


def test_the_newest_change_comes_first_and_each_link_has_its_own(store: Store) -> None:
    later, other = replace(ROW, at_ms=6, before="60000", after=""), replace(ROW, link="north->west")
    store.add_audit([ROW, later])
    store.add_audit([other])
    assert store.audit() == (other, later, ROW)
    assert store.audit("east->west") == (later, ROW)
    assert store.audit("east->west", limit=1) == (later,)
    assert store.audit("north->west", "east->west", "x->y", limit=2) == (other, later)
    store.add_audit([])
    assert len(store.audit()) == 3


def test_a_link_keeps_a_bounded_number_of_changes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "AUDIT_KEPT", 3)
    other = replace(ROW, link="north->west")
    store.add_audit([other])
    for number in range(8):
        store.add_audit([replace(ROW, at_ms=number)])
    assert [row.at_ms for row in store.audit("east->west")] == [7, 6, 5]
    assert store.audit("north->west") == (other,)


def test_what_was_refused_pushes_nothing_out_that_was_done(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "AUDIT_KEPT", 3)
    store.add_audit([ROW])
    for number in range(8):
        store.add_audit([replace(ROW, at_ms=number, outcome="refused: by policy")])
    assert [row.at_ms for row in store.audit()] == [7, 6, 5, ROW.at_ms]
    store.add_audit([replace(ROW, at_ms=number, outcome="by me") for number in range(20, 23)])
    assert [row.at_ms for row in store.audit()] == [22, 21, 20, 7, 6, 5]


def test_what_a_broken_name_leaves_in_a_sentence_is_kept(store: Store) -> None:
    store.add_audit([replace(ROW, subject="a\0b", outcome="\udcff")])
    assert (store.audit()[0].subject, store.audit()[0].outcome) == ("a\ufffdb", "?")


def test_what_follows_is_remembered_once_per_subject(store: Store) -> None:
    quota = replace(ACL, kind="quota", subject="user anna")
    store.remember([ACL, quota, replace(ACL, link="north->west")])
    store.remember([replace(ACL, state="held", since_ms=9)])
    assert store.followed("east->west") == (replace(ACL, state="held", since_ms=9), quota)
    assert store.followed("east->west", "quota") == (quota,)
    store.forget([ACL])
    store.forget([ACL])
    assert store.followed("east->west") == (quota,)
    assert len(store.followed("north->west")) == 1
    store.remember([])


def test_a_subject_may_be_longer_than_a_key(store: Store) -> None:
    long, longer = replace(ACL, subject="x" * 5_000), replace(ACL, subject="x" * 5_001)
    store.remember([long, longer])
    assert store.followed("east->west") == (long, longer)
    assert store.followed("east->west", "Acl") == ()
