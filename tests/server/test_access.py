"""Who may do what: pure decisions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from twinshore.server.core.access import (
    Caller,
    approval_fault,
    is_csrf_right,
    login_wait_ms,
    may_cancel,
    needs_approval,
    password_fault,
    session_caller,
    token_caller,
)
from twinshore.server.core.catalogue import Effect, Role, lower_role
from twinshore.state.core.platform_values import JobRow, JobState, PersonRow, SessionRow, TokenKind, TokenRow

ADA = PersonRow(name="ada", role="operator", password="", made_by="", made_ms=0)
JOB = JobRow(
    id="j", operation="link pause", arguments="{}", state=JobState.ASKED, requested_by="ada", created_ms=0, updated_ms=0
)


def test_each_role_covers_those_before() -> None:
    for number, role in enumerate(Role):
        for other_number, other in enumerate(Role):
            assert role.covers(other) == (number >= other_number)
            assert lower_role(role, other) == min(role, other, key=list(Role).index)


def token(role: str) -> TokenRow:
    return TokenRow(digest="d", kind=TokenKind.BEARER, name="t", person="ada", role=role, made_ms=0, ends_ms=1)


def test_a_token_never_has_more_than_its_person_has_now() -> None:
    caller = token_caller(token("admin"), ADA)
    assert caller and caller.role is Role.OPERATOR
    caller = token_caller(token("viewer"), replace(ADA, role="admin"))
    assert caller and caller.role is Role.VIEWER
    assert token_caller(token("viewer"), replace(ADA, disabled_ms=5)) is None
    assert token_caller(token("viewer"), None) is None


def test_a_session_ends_with_its_person() -> None:
    row = SessionRow(digest="d", person="ada", role="admin", csrf="c", made_ms=0, ends_ms=9)
    caller = session_caller(row, ADA)
    assert caller and caller.role is Role.OPERATOR
    assert session_caller(row, replace(ADA, disabled_ms=5)) is None
    assert session_caller(None, ADA) is None


def test_a_form_needs_the_token_of_its_session() -> None:
    assert is_csrf_right(Caller("ada", Role.VIEWER, "console", "c"), "c")
    assert not is_csrf_right(Caller("ada", Role.VIEWER, "console", "c"), "d")
    assert not is_csrf_right(Caller("ada", Role.VIEWER, "token t"), "")


@pytest.mark.parametrize(("failures", "wait_ms"), [(0, 0), (4, 0), (5, 1_000), (8, 8_000), (40, 300_000)])
def test_wrong_passwords_make_the_next_one_wait(failures: int, wait_ms: int) -> None:
    person = replace(ADA, failures=failures, failed_ms=1_000_000)
    assert login_wait_ms(person, 1_000_000) == wait_ms
    assert login_wait_ms(person, 1_000_000 + wait_ms) == 0


@pytest.mark.parametrize("password", ["short", "x" * 201, "aaaaaaaaaaaa", "my name is ada lovelace"])
def test_weak_passwords_are_refused(password: str) -> None:
    assert password_fault(password, "ada")


def test_a_good_password_is_taken() -> None:
    assert password_fault("correct horse 9 staple", "ada") == ""


def test_four_eyes() -> None:
    assert needs_approval(Effect.DESTROYS, four_eyes=True)
    assert not needs_approval(Effect.CHANGES, four_eyes=True)
    assert not needs_approval(Effect.DESTROYS, four_eyes=False)
    assert approval_fault(Caller("ada", Role.ADMIN, "token t"), JOB), "the requester, whichever token is used"
    assert approval_fault(Caller("bob", Role.OPERATOR, "console"), JOB)
    assert not approval_fault(Caller("bob", Role.APPROVER, "console"), JOB)
    assert approval_fault(Caller("bob", Role.APPROVER, "console"), replace(JOB, state=JobState.PLANNED))


def test_a_job_is_cancelled_by_its_requester_or_an_approver() -> None:
    assert may_cancel(Caller("ada", Role.VIEWER, "console"), JOB)
    assert may_cancel(Caller("bob", Role.APPROVER, "console"), JOB)
    assert not may_cancel(Caller("bob", Role.OPERATOR, "console"), JOB)
