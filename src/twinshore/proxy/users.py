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
from twinshore.fleet.settings.declaring import setting
from twinshore.fleet.settings.edge import Complaints, read_section
from twinshore.fleet.settings.shapes import read_secret
from twinshore.kafka.scram_server import ScramKeys, keys_of, read_keys

# As many as Kafka's own tool takes where it is not told.
ITERATIONS: Final = 4096
SALT_BYTES: Final = 24
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
    elsewhere."""

    def __init__(self, users: Mapping[str, _User]) -> None:
        self._users = users
        self._seal = secrets.token_bytes(32)

    def scram_keys(self, user: str) -> ScramKeys | None:
        found = self._users.get(user)
        if found is None or not found.password:
            return found.keys if found else None
        plain = _read(found.password)
        if found.keys is None or not hmac.compare_digest(plain.encode(), found.plain.encode()):
            found.keys = keys_of(plain, _MECHANISM, secrets.token_bytes(SALT_BYTES), ITERATIONS) if plain else None
            found.plain = plain
        return found.keys

    def knows(self, user: str, password: str) -> bool:
        found = self._users.get(user)
        if found is None:
            return False
        if found.password:
            plain = _read(found.password)
            return bool(plain) and hmac.compare_digest(plain.encode(), password.encode())
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
        raw: dict[str, Any] = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"[proxy] users_file {file} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"[proxy] users_file {file} is not TOML: {error}") from error
    complaints = Complaints()
    users = {name: _user(section, f'["{name}"]', complaints) for name, section in raw.items()}
    if complaints.lines:
        raise ConfigError(f"[proxy] users_file {file}: {'; '.join(complaints.lines)}")
    return UsersOfFile(users)


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
