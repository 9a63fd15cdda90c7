"""People, their logins and tokens. Passwords are kept as Argon2id hashes, other secrets as digests of random bits."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import replace

from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from twinshore.config.errors import ConfigError, RefusedError
from twinshore.kafka.clock import wall_ms
from twinshore.server.core.access import (
    DEVICE_MS,
    FIRST_ADMIN_MS,
    SESSION_MS,
    TOKEN_DAYS_MAX,
    Caller,
    login_wait_ms,
    password_fault,
    require,
    session_caller,
    token_caller,
)
from twinshore.server.core.catalogue import Role
from twinshore.server.core.oidc import LOGIN_MS, TEXT_MAX, LoginAttempt, ProviderPerson
from twinshore.state.core.platform_values import PersonRow, SessionRow, TokenKind, TokenRow
from twinshore.state.core.values import AuditRow
from twinshore.state.platform import digest_of
from twinshore.state.store import Store

DAY_MS = 86_400_000
# Letters that are not mistaken for others, for a code that a person compares.
CODE_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
CODE_LENGTH = 8


def hash_password(password: str) -> str:
    made = Argon2id(salt=os.urandom(16), length=32, iterations=2, lanes=1, memory_cost=19_456)
    return made.derive_phc_encoded(password.encode())


def _hash_new(password: str, name: str) -> str:
    """Raises ConfigError for a password that cannot be chosen."""
    if fault := password_fault(password, name):
        raise ConfigError("server.password-refused", why=fault)
    return hash_password(password)


def is_password(password: str, hashed: str) -> bool:
    try:
        Argon2id.verify_phc_encoded(password.encode(), hashed)
    except InvalidKey:
        return False
    return True


# Compared where there is no such person: an answer takes as long as for a wrong password.
_NO_PERSON = hash_password(secrets.token_hex(16))


def read_role(text: str) -> Role:
    if text not in set(Role):
        raise ConfigError("server.role-refused", known=", ".join(Role))
    return Role(text)


def _told(kind: str, subject: str, after: str, by: str, before: str = "") -> AuditRow:
    return AuditRow(wall_ms(), "", kind, subject, before, after, "done", by)


def _token(digest: str, kind: TokenKind, name: str, lasts_ms: int, person: str = "", role: str = "") -> TokenRow:
    """`name`: what the kind keeps: a label, a page to go to, or the digest of a command line's secret."""
    made_ms = wall_ms()
    return TokenRow(
        digest=digest, kind=kind, name=name, person=person, role=role, made_ms=made_ms, ends_ms=made_ms + lasts_ms
    )


class Accounts:
    """Logs people in and out, and knows who calls."""

    def __init__(self, store: Store) -> None:
        self._store = store

    # -- who calls

    def by_session(self, secret: str) -> Caller | None:
        return session_caller(*self._store.people.session(digest_of(secret), wall_ms()))

    def by_token(self, secret: str) -> Caller | None:
        return token_caller(*self._store.people.token(digest_of(secret), TokenKind.BEARER, wall_ms()))

    # -- logins

    def log_in(self, name: str, password: str) -> str:
        """Returns the session's secret. Raises RefusedError, the same for every reason: names must not be found out."""
        person, now_ms = self._store.people.of(name), wall_ms()
        hashed = person.password if person is not None and person.password else _NO_PERSON
        is_right = is_password(password, hashed)
        if person is not None and login_wait_ms(person, now_ms):
            raise RefusedError("server.login-refused")
        if person is None or not person.password or person.disabled_ms or not is_right:
            self._store.people.fails(name, now_ms)
            raise RefusedError("server.login-refused")
        return self._open_session(person, now_ms)

    # -- logins by a provider

    def begin_provider_login(self, next_: str) -> LoginAttempt:
        attempt = LoginAttempt(secrets.token_urlsafe(32))
        next_ = next_ if len(next_) <= TEXT_MAX else "/"
        self._store.people.add_token(_token(digest_of(attempt.secret), TokenKind.PROVIDER, next_, LOGIN_MS))
        return attempt

    def end_provider_login(self, attempt: LoginAttempt) -> str | None:
        """Uses the attempt up. Returns where it leads; None for one that has ended or was used."""
        found, _ = self._store.people.token(digest_of(attempt.secret), TokenKind.PROVIDER, wall_ms())
        return found.name if found and self._store.people.end_token(found.digest) else None

    def log_in_by_provider(self, given: ProviderPerson, provider: str) -> str:
        """Returns the session's secret. The role is that of the groups now. Raises RefusedError."""
        people, now_ms = self._store.people, wall_ms()
        known = people.by_identity(given.identity)
        if given.role is None:
            if known is not None:
                people.end_logins(
                    known.name, [_told("person", known.name, "no group with a role", provider, known.role)]
                )
            raise RefusedError("server.provider-refused", name=provider, why="no group of this person has a role here")
        person = known or self._add_by_identity(given, given.role, provider)
        if person is None or person.disabled_ms:
            raise RefusedError("server.provider-refused", name=provider, why="the person is disabled")
        if person.role != given.role:
            told = [_told("person", person.name, given.role, provider, person.role)]
            people.change(person, {"role": given.role}, told, keeps_admin=False)  # the provider's groups decide
        return self._open_session(replace(person, role=given.role), now_ms)

    def _add_by_identity(self, given: ProviderPerson, role: Role, provider: str) -> PersonRow | None:
        """Adds the person; under a longer name where another person has the name."""
        for name in (given.name, f"{given.name} {given.identity[:12]}"):
            row = PersonRow(
                name=name, role=role, password="", made_by=provider, made_ms=wall_ms(), identity=given.identity
            )
            if found := self._store.people.add_by_identity(row, [_told("person", name, role, provider)]):
                return found
        return None

    def _open_session(self, person: PersonRow, now_ms: int) -> str:
        secret = secrets.token_urlsafe(32)
        row = SessionRow(
            digest=digest_of(secret),
            person=person.name,
            role=person.role,
            csrf=secrets.token_urlsafe(24),
            made_ms=now_ms,
            ends_ms=now_ms + SESSION_MS,
        )
        self._store.people.log_in(row, now_ms)
        return secret

    def log_out(self, caller: Caller) -> None:
        self._store.people.log_out(caller.digest)

    # -- the first admin

    def first_admin_secret(self, *, again: bool = False) -> str | None:
        """Returns the secret of a link that makes an admin, once; None where there is one, but for `again`."""
        if self._store.people.has_admin() and not again:
            return None
        secret, role = secrets.token_urlsafe(32), Role.ADMIN if again else ""
        name = "the first admin's link"
        self._store.people.add_token(_token(digest_of(secret), TokenKind.FIRST_ADMIN, name, FIRST_ADMIN_MS, role=role))
        return secret

    def is_first_admin_link(self, secret: str) -> bool:
        found, _ = self._store.people.token(digest_of(secret), TokenKind.FIRST_ADMIN, wall_ms())
        return found is not None and (bool(found.role) or not self._store.people.has_admin())

    def make_first_admin(self, secret: str, name: str, password: str) -> str:
        """Returns the new admin's session. Raises RefusedError where the link has ended or was used."""
        person = self._new_person(name, password, Role.ADMIN, "the first admin's link")
        told = _told("person", name, Role.ADMIN, "the first admin's link")
        if not self._store.people.first_admin(digest_of(secret), person, told):
            raise RefusedError("server.login-refused")
        return self._open_session(person, wall_ms())

    # -- people

    def _new_person(self, name: str, password: str, role: Role, by: str) -> PersonRow:
        if not name or len(name) > 100 or not name.isprintable() or name != name.strip():
            raise ConfigError("server.wrong-value", name="name", why="must have 1 to 100 printable characters")
        return PersonRow(name=name, role=role, password=_hash_new(password, name), made_by=by, made_ms=wall_ms())

    def add_person(self, name: str, password: str, role: Role, caller: Caller) -> None:
        if self._store.people.of(name) is not None:
            raise ConfigError("server.wrong-value", name="name", why=f"{name} is there already")
        person = self._new_person(name, password, role, caller.name)
        self._store.people.save(person, [_told("person", name, role, caller.name)])

    def change_password(self, caller: Caller, old: str, new: str) -> None:
        """Gives the caller another password. The sessions stay."""
        person = self._store.people.of(caller.name)
        if person is None or not person.password or not is_password(old, person.password):
            raise ConfigError("server.password-refused", why="is not the one that you have now")
        told = _told("person", caller.name, "another password", caller.name)
        self._change(person, {"password": _hash_new(new, caller.name)}, told)

    def _change(
        self, person: PersonRow, values: Mapping[str, object], told: AuditRow, *, ends_logins: bool = False
    ) -> None:
        if not self._store.people.change(person, values, [told], ends_logins=ends_logins):
            raise RefusedError("server.person-changed", name=person.name)

    def change_person(
        self,
        name: str,
        caller: Caller,
        *,
        role: Role | None = None,
        enabled: bool | None = None,
        password: str | None = None,
    ) -> None:
        """Gives a person another role or password, or disables or enables one. Sessions and tokens end at once of who
        is disabled or gets a password.
        """
        person = self._store.people.of(name)
        if person is None:
            raise ConfigError("server.no-person", name=name)
        if name == caller.name:
            raise RefusedError("server.wrong-value", name="name", why="must be another person than you")
        if person.identity and (role or password is not None):
            raise RefusedError("server.wrong-value", name="login", why=f"comes from {person.made_by}")
        disabled_ms = person.disabled_ms if enabled is None else 0 if enabled else wall_ms()
        before = "disabled" if person.disabled_ms else person.role
        after = "disabled" if disabled_ms else role or person.role
        values: dict[str, object] = {"role": role or person.role, "disabled_ms": disabled_ms}
        if password is not None:
            values |= {"password": _hash_new(password, name), "failures": 0}
            after = "another password"
        told = _told("person", name, after, caller.name, before)
        self._change(person, values, told, ends_logins=password is not None)

    # -- tokens

    def add_token(self, caller: Caller, name: str, role: Role, days: int) -> str:
        """Returns the token, which is shown once."""
        require(caller, role)
        if not name or len(name) > 100 or not 1 <= days <= TOKEN_DAYS_MAX:
            why = f"needs a name, and 1 to {TOKEN_DAYS_MAX} days"
            raise ConfigError("server.wrong-value", name="token", why=why)
        secret = secrets.token_urlsafe(32)
        row = _token(digest_of(secret), TokenKind.BEARER, name, days * DAY_MS, caller.name, role)
        self._store.people.add_token(row, [_told("token", name, f"{role}, {days} days", caller.name)])
        return secret

    def end_token(self, caller: Caller, digest: str) -> None:
        mine = {row.digest: row for row in self._store.people.tokens_of(caller.name, wall_ms())}
        if digest in mine:
            self._store.people.end_token(digest, [_told("token", mine[digest].name, "ended", caller.name)])

    # -- a command line's login

    def begin_device(self) -> tuple[str, str]:
        """Returns the secret that the command line keeps, and the code that a person confirms."""
        secret = secrets.token_urlsafe(32)
        code = "".join(secrets.choice(CODE_LETTERS) for _ in range(CODE_LENGTH))
        self._store.people.add_token(_token(digest_of(code), TokenKind.DEVICE, digest_of(secret), DEVICE_MS))
        return secret, code

    def confirm_device(self, code: str, caller: Caller) -> bool:
        """Lets the command line that shows this code act for the caller."""
        found, _ = self._store.people.token(digest_of(code), TokenKind.DEVICE, wall_ms())
        if found is None:
            return False
        confirmed = _token(found.name, TokenKind.BEARER, "command line", 30 * DAY_MS, caller.name, caller.role)
        told = [_told("token", "command line", f"{caller.role}, 30 days", caller.name)]
        return self._store.people.confirm_device(found.digest, confirmed, told)
