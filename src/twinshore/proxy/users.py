"""The users that may log in at the proxy, of a TOML file: a table for each, with where its password is kept."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from twinshore.fleet import ConfigError, SaslMechanism, Secret
from twinshore.fleet.declaring import setting
from twinshore.fleet.settings.edge import Complaints, read_section
from twinshore.fleet.settings.shapes import read_secret
from twinshore.kafka.sasl import ScramKeys, keys_of, read_keys

# As many as Kafka's own tool takes where it is not told.
ITERATIONS: Final = 4096
SALT_BYTES: Final = 24
_DIGEST_BYTES: Final = 64
_MECHANISM: Final = SaslMechanism.SCRAM_SHA_512


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSection:
    """One user."""

    scram_sha_512: str = setting("", "the salted password, as Kafka keeps it: `salt=...,stored_key=...,...`")
    password_env: str = setting("", "environment variable that holds the password")
    password_file: str = setting("", "file that holds the password")


@dataclass(slots=True)
class _User:
    """`proven`: a password that was right, in no form in which it could be read. To try one takes long."""

    keys: ScramKeys | None
    password: Secret
    plain: str = ""
    proven: bytes = b""


class UsersOfFile:
    """A password that stands in a file of its own is read again at each login. Of a salted one nobody can be logged in
    elsewhere. A user that is not in the file has keys as well, which no password fits: a client learns from no answer,
    and from no time that it takes, which users exist. `seal`: from which salts follow, the same in each process."""

    def __init__(self, users: Mapping[str, _User], seal: bytes = b"") -> None:
        self._users = users
        self._seal = seal or secrets.token_bytes(32)
        self._salted = [one.keys for one in users.values() if one.keys is not None]

    def scram_keys(self, user: str) -> ScramKeys:
        found = self._users.get(user)
        if found is None or not found.password:
            return found.keys if found and found.keys else self._of_nobody(user)
        plain = _read(found.password)
        if not plain:
            return self._of_nobody(user)
        if found.keys is None or not hmac.compare_digest(plain.encode(), found.plain.encode()):
            found.keys = keys_of(plain, _MECHANISM, self._drawn(user, SALT_BYTES), ITERATIONS)
            found.plain = plain
        return found.keys

    def _of_nobody(self, user: str) -> ScramKeys:
        """As one of the salted users has them, if there are any; they are the same each time."""
        number = int.from_bytes(self._drawn(user, 4))
        like = self._salted[number % len(self._salted)] if self._salted else None
        size, iterations = (len(like.salt), like.iterations) if like else (SALT_BYTES, ITERATIONS)
        drawn = self._drawn(user, size + 2 * _DIGEST_BYTES)
        return ScramKeys(drawn[:size], iterations, drawn[size:-_DIGEST_BYTES], drawn[-_DIGEST_BYTES:])

    def _drawn(self, user: str, size: int) -> bytes:
        return hashlib.shake_256(self._seal + user.encode()).digest(size)

    def knows(self, user: str, password: str) -> bool:
        found = self._users.get(user)
        if found is not None and found.password:
            plain = _read(found.password)
            return bool(plain) and hmac.compare_digest(plain.encode(), password.encode())
        if found is None and not self._salted:
            return False
        found = found or _User(self._of_nobody(user), Secret())
        assert found.keys is not None
        sealed = hashlib.blake2b(password.encode(), key=self._seal).digest()
        if hmac.compare_digest(sealed, found.proven):
            return True
        tried = keys_of(password, _MECHANISM, found.keys.salt, found.keys.iterations)
        if not hmac.compare_digest(tried.stored_key, found.keys.stored_key):
            return False
        found.proven = sealed
        return True


def _read(password: Secret) -> str:
    """Nothing where it cannot be read now: then nobody logs in with it."""
    try:
        return password.read()
    except ConfigError:
        return ""


def read_users(file: str) -> UsersOfFile:
    """ConfigError with all that is wrong in it."""
    try:
        text = Path(file).read_text(encoding="utf-8")
        raw: dict[str, Any] = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"[proxy] users_file {file} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"[proxy] users_file {file} is not TOML: {error}") from error
    complaints = Complaints()
    users = {name: _user(section, f'["{name}"]', complaints) for name, section in raw.items()}
    if complaints.lines:
        raise ConfigError(f"[proxy] users_file {file}: {'; '.join(complaints.lines)}")
    return UsersOfFile(users, hashlib.sha256(text.encode()).digest())


def _user(raw: object, place: str, complaints: Complaints) -> _User:
    section = read_section(UserSection, raw, place, complaints) or UserSection()
    password = read_secret(section.password_env, section.password_file, "password", place, complaints)
    if bool(section.scram_sha_512) == bool(password):
        complaints.add(place, "needs scram_sha_512, or password_env or password_file")
        return _User(None, password)
    try:
        if password:
            password.read()
        return _User(read_keys(section.scram_sha_512, _MECHANISM) if section.scram_sha_512 else None, password)
    except ConfigError as error:
        complaints.add(place, f"{'scram_sha_512: ' if section.scram_sha_512 else ''}{error}")
        return _User(None, password)
