"""The section `store`: the store's URL, and where its password is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, urlsplit

from twinshore.config.declaration import setting
from twinshore.config.model import Secret
from twinshore.config.schema import Complaints, RawSection, Section, did_you_mean, read_secret, read_section

SECRET_PARAMETERS = ("password", "passwd", "passphrase", "secret")  # in the names of a URL's parameters
SQLITE_PREFIXES = ("sqlite:///", "sqlite+pysqlite:///")
STORE_KINDS = ("sqlite", "postgresql", "mysql", "mariadb")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSection:
    """Where Twinshore keeps its state: leases, positions, the incident log."""

    url: str = setting(
        "sqlite:///twinshore.db",
        "`sqlite:///file`, `postgresql://user@host/database`, `mysql://user@host/database` or `mariadb://...`;"
        " a password never stands in it. A relative file is relative to the folder of the settings file",
    )
    password_env: str = setting("", "environment variable that holds the database password")
    password_file: str = setting("", "file that holds the database password")


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The URL never holds a password."""

    url: str = "sqlite:///twinshore.db"
    password: Secret = field(default_factory=Secret)


def read_store(raw: RawSection, complaints: Complaints) -> StoreSettings:
    place = raw.place
    section = read_section(StoreSection, raw.raw, place, complaints)
    if section is None:
        return StoreSettings()
    kind = section.url.split(":", 1)[0].split("+", 1)[0]
    if kind not in STORE_KINDS or "://" not in section.url:
        complaints.add(place, f"url: no such kind of store {kind!r}{did_you_mean(kind, STORE_KINDS)}")
    else:
        _check_url(section.url, place, complaints)
    password = read_secret(section.password_env, section.password_file, "password", place, complaints)
    return StoreSettings(section.url, password)


def _check_url(url: str, place: str, complaints: Complaints) -> None:
    # The wrong part may be the password, so the URL itself is never repeated.
    parts = _split(url)
    if parts is None:
        complaints.add(place, "url: is none; write sqlite:///file or a kind://user@host:port/database")
    elif parts.password or any(one in name.lower() for name, _ in parse_qsl(parts.query) for one in SECRET_PARAMETERS):
        complaints.add(place, "url: a secret never stands in the settings; use password_env or password_file")


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        no_port = parts.port is None and parts.netloc.endswith(":")
    except ValueError:
        return None
    return None if no_port or (parts.netloc and parts.fragment) else parts


def absolute_store_url(url: str, settings_file: Path) -> str:
    """The store's URL with an absolute path. Symbolic links are not resolved, so a settings file may be one."""
    head = next((head for head in SQLITE_PREFIXES if url.startswith(head)), "")
    path, mark, query = url.removeprefix(head).partition("?")
    if not head or not path or path == ":memory:" or path.startswith("file:") or Path(path).is_absolute():
        return url
    return f"{head}{settings_file.absolute().parent / path}{mark}{query}"


SECTION = Section("store", 10, (("[store]", StoreSection),), read_store, overridden=True)
