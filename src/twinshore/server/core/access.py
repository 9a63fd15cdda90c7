"""Who may do what: pure decisions about people, sessions, tokens and jobs."""

from __future__ import annotations

import hmac
from dataclasses import dataclass

from twinshore.config.errors import RefusedError
from twinshore.server.core.catalogue import Effect, Role, lower_role
from twinshore.state.core.platform_values import JobRow, JobState, PersonRow, SessionRow, TokenRow

SESSION_MS = 8 * 3_600_000
FIRST_ADMIN_MS = 15 * 60_000
DEVICE_MS = 10 * 60_000
TOKEN_DAYS_MAX = 365
PASSWORD_CHARS_MIN, PASSWORD_CHARS_MAX = 12, 200
# After so many wrong passwords each further one must wait, twice as long as the one before.
FREE_FAILURES = 5
FAILURE_PAUSE_MS_MAX = 5 * 60_000


@dataclass(frozen=True, slots=True)
class Caller:
    """A person who is logged in, with what may be done now. `csrf`: of a browser's session; empty for a token. `by`:
    how, for the audit.
    """

    name: str
    role: Role
    by: str
    csrf: str = ""
    digest: str = ""

    def may(self, role: Role) -> bool:
        return self.role.covers(role)


def require(caller: Caller, role: Role) -> None:
    """Raises RefusedError for a caller who has not the rights of this role."""
    if not caller.may(role):
        raise RefusedError("server.not-allowed", name=caller.name, role=caller.role, needed=role)


def session_caller(row: SessionRow | None, person: PersonRow | None) -> Caller | None:
    if row is None or person is None or person.disabled_ms:
        return None
    role = lower_role(Role(row.role), Role(person.role))
    return Caller(person.name, role, "console", row.csrf, row.digest)


def token_caller(row: TokenRow | None, person: PersonRow | None) -> Caller | None:
    """A token never has more rights than its person has now."""
    if row is None or person is None or person.disabled_ms:
        return None
    return Caller(person.name, lower_role(Role(row.role), Role(person.role)), f"token {row.name}", digest=row.digest)


def is_csrf_right(caller: Caller, given: str) -> bool:
    return bool(caller.csrf) and hmac.compare_digest(caller.csrf.encode(), given.encode())


def login_wait_ms(person: PersonRow, now_ms: int) -> int:
    """Returns how long the next password must wait, because of wrong ones."""
    beyond = person.failures - FREE_FAILURES
    if beyond < 0:
        return 0
    pause_ms = min(FAILURE_PAUSE_MS_MAX, 1000 << min(beyond, 20))
    return max(0, person.failed_ms + pause_ms - now_ms)


def password_fault(password: str, name: str) -> str:
    """Returns why a password cannot be chosen; empty: it can."""
    if not PASSWORD_CHARS_MIN <= len(password) <= PASSWORD_CHARS_MAX:
        return f"must have {PASSWORD_CHARS_MIN} to {PASSWORD_CHARS_MAX} characters"
    if name and name.lower() in password.lower():
        return "must not contain the name"
    if len(set(password)) < 5:
        return "must have at least 5 different characters"
    return ""


def needs_approval(effect: Effect, *, four_eyes: bool) -> bool:
    return four_eyes and effect is Effect.DESTROYS


def approval_fault(caller: Caller, job: JobRow) -> str:
    """Returns why the caller cannot approve the job; empty: it can. The person counts, whichever token is used."""
    if job.state is not JobState.ASKED:
        return "waits for no approval"
    if caller.name == job.requested_by:
        return "must be approved by another person than its requester"
    return "" if caller.may(Role.APPROVER) else "must be approved by an approver"


def may_cancel(caller: Caller, job: JobRow) -> bool:
    return caller.name == job.requested_by or caller.may(Role.APPROVER)
