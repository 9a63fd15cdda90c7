"""What clients are told has one writer at a time, and a token counts until it is revoked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from twinshore.state.core.values import AuditRow
from twinshore.state.proxies import PushRow, PushTokenRow
from twinshore.state.store import Store

FIRST = PushRow("shop", 1, "a" * 64, '{"home": "east"}', "anna", 1_000)
SECOND = replace(FIRST, revision=2, digest="b" * 64, text='{"home": "west"}', set_by="bob", changed_ms=2_000)
TOLD = AuditRow(1_000, "", "push", "shop", "", "revision 1", "set", "anna")


def test_of_two_who_saw_the_same_only_the_first_pushes(store: Store, open_another: Callable[[], Store]) -> None:
    other = open_another().pushes
    assert store.pushes.save(FIRST, TOLD)
    assert not other.save(replace(FIRST, set_by="bob", text="{}"), TOLD), "there is one already"
    assert other.save(SECOND, TOLD)
    assert not store.pushes.save(replace(SECOND, set_by="anna", text="{}"), TOLD)
    assert store.pushes.of() == other.of(["shop"]) == {"shop": SECOND}
    assert store.pushes.revisions() == {"shop": 2}
    assert [row.subject for row in store.audit.rows("")] == ["shop", "shop"], "what was not done is not told"
    gone = replace(SECOND, revision=3, text="")
    assert other.save(gone, TOLD)
    assert store.pushes.of() == {"shop": gone}, "it stays, so that a revision is never used again"


def test_of_a_token_its_digest_is_kept_until_it_is_revoked(store: Store, open_another: Callable[[], Store]) -> None:
    other = open_another().pushes
    row = PushTokenRow("c" * 64, "shop", True, "anna", 1_000)
    later = replace(row, digest="d" * 64, may_push=False, made_ms=2_000)
    for one in (later, row):
        store.pushes.add_token(one, TOLD)
    assert other.tokens() == (row, later)
    assert other.revoke(row.digest, TOLD)
    assert not store.pushes.revoke(row.digest, TOLD)
    assert store.pushes.tokens() == (later,)
