"""Live settings: values in the store that count before those of the settings file, without a restart.

Only settings that are declared `live` may stand there, and users of the proxy. Never commands, paths, names of
environment variables, addresses, ports, TLS or logins at clusters: a row names a secret or a webhook by a label, and
each process looks that up in its own settings.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from twinshore.config.declaration import setting_rows
from twinshore.config.errors import ConfigError
from twinshore.config.schema import Complaints, RawSection, Section, all_sections, did_you_mean
from twinshore.config.settings import Settings

KEY_LENGTH_MAX: Final = 255
# Users of the proxy by name, with what a server keeps of a password. Their file is another than the settings.
USERS: Final = ("proxy", "users")
_BARE = re.compile(r"[A-Za-z0-9_-]+")

SettingPath = tuple[str, ...]


def parse_key(text: str) -> SettingPath:
    """Parses a key as in `proxy.new_topics_by_name."billing-*"`. Raises ConfigError if it is none."""
    try:
        found: Any = tomllib.loads(f"{text} = 0")
    except ValueError:
        found = None
    path: list[str] = []
    while isinstance(found, dict) and len(found) == 1:
        ((name, found),) = found.items()
        path.append(name)
    if found != 0 or len(text) > KEY_LENGTH_MAX:
        raise ConfigError("config.setting-key-invalid", key=text)
    return tuple(path)


def format_key(path: SettingPath) -> str:
    return ".".join(name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False) for name in path)


def parse_value(text: str) -> object:
    """Parses a value as in the settings file; what is none is text."""
    try:
        found = tomllib.loads(f"value = {text}")
        json.dumps(found)  # not a time
    except (ValueError, TypeError):
        return text
    return found["value"] if found.keys() == {"value"} else text


def live_keys() -> Iterator[str]:
    """Yields each key that may be live; NAME stands for any name, FIELD for a key of a table."""
    for section in all_sections():
        yield from (f"{section.name}.{row.name}" for row in setting_rows(section.keys) if row.rule.live)
        for table in section.live_tables:
            yield from (f"{section.name}.{table}", f"{section.name}.{table}.NAME")
            if _declared(section, table):
                yield f"{section.name}.{table}.NAME.FIELD"
    yield f"{format_key(USERS)}.NAME"


def _declared(section: Section[Any], table: str) -> type | None:
    """Returns what declares the tables in this table, if any does."""
    return dict(section.tables).get(f"[{section.name}.{table}.NAME]")


def is_live(path: SettingPath) -> bool:
    names = {format_key(path)}
    if len(path) > 2:
        names = {format_key((*path[:2], "NAME", *path[3:]))}
    if len(path) == 4:
        section = next((one for one in all_sections() if one.name == path[0]), None)
        declared = _declared(section, path[1]) if section else None
        fields = {row.name for row in setting_rows(declared)} if declared else set()
        names = {format_key((*path[:2], "NAME", "FIELD"))} if path[3] in fields else set()
    return not names.isdisjoint(live_keys())


def check_live(path: SettingPath) -> None:
    """Raises ConfigError for a key that must not stand in the store."""
    if not is_live(path):
        key = format_key(path)
        raise ConfigError("config.setting-not-live", key=key, near=did_you_mean(key, live_keys()))


@dataclass(frozen=True, slots=True)
class LiveValues:
    """What a process goes by. `accepted`: values of the store that are in force. `refused`: why others are not.
    `users`: of the proxy.
    """

    settings: Settings
    accepted: Mapping[SettingPath, object] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    users: Mapping[str, str] = field(default_factory=dict, repr=False)


def overlay(raw: Mapping[str, Any], values: Mapping[SettingPath, object]) -> Mapping[str, Any]:
    """Returns the sections as written, with these values instead.

    A table comes before its entries. An entry stands before those of the file, the longest name first, since the first
    that fits a topic counts.
    """
    for path in sorted(values, key=lambda path: (len(path), len(path[-1]), path)):
        raw = _with(raw, path, values[path])
    return raw


def _with(raw: object, path: SettingPath, value: object) -> dict[str, Any]:
    table = raw if isinstance(raw, Mapping) else {}
    name, rest = path[0], path[1:]
    return {
        name: _with(table.get(name), rest, value) if rest else value,
        **{k: v for k, v in table.items() if k != name},
    }


def read_overlaid(settings: Settings, values: Mapping[SettingPath, object]) -> tuple[Settings, list[str]]:
    """Reads the settings of the file with these values, by the readers of the file. Also returns what is wrong."""
    raw, complaints = overlay(settings.raw, values), Complaints()
    changed = {path[0] for path in values}
    for section in all_sections():
        if section.name in changed:
            place = f"[{section.name}]"
            try:
                found = section.read(RawSection(raw[section.name], place, settings.values), complaints)
                settings = settings.having(section, found)
            except (TypeError, ValueError) as error:  # of another kind than any file has
                complaints.add(place, str(error))
    return settings, complaints.lines


def decide(
    settings: Settings, rows: Mapping[str, str], before: Mapping[SettingPath, object] | None = None
) -> LiveValues:
    """Decides what is in force. `settings`: of the file. `rows`: of the store, JSON by key. `before`: what was accepted
    last; of a value that does not fit these settings the last good one stays.
    """
    refused, wanted, users = dict[str, str](), dict[SettingPath, object](), dict[str, str]()
    for key, text in rows.items():
        try:
            path, value = parse_key(key), json.loads(text)
            check_live(path)
        except (ConfigError, ValueError, RecursionError) as error:
            refused[key] = error.message if isinstance(error, ConfigError) else "is no JSON"
            continue
        if path[:2] == USERS:
            users[path[2]] = str(value)
        else:
            wanted[path] = value
    accepted, wrong = _fitting(settings, {}, wanted)
    if wrong:
        good = {path: value for path, value in (before or {}).items() if path in wrong}
        accepted, _ = _fitting(settings, accepted, good)
    refused |= {format_key(path): why for path, why in wrong.items()}
    return LiveValues(read_overlaid(settings, accepted)[0], accepted, refused, users)


def _fitting(
    settings: Settings, accepted: Mapping[SettingPath, object], wanted: Mapping[SettingPath, object]
) -> tuple[Mapping[SettingPath, object], Mapping[SettingPath, str]]:
    """Returns what can be in force together, and why the rest cannot. A value may need another one."""
    if not read_overlaid(settings, whole := {**accepted, **wanted})[1]:
        return whole, {}
    wrong: dict[SettingPath, str] = {}
    count, waiting = -1, dict(wanted)
    while len(waiting) != count:
        count = len(waiting)
        for path, value in list(waiting.items()):
            if lines := read_overlaid(settings, {**accepted, path: value})[1]:
                wrong[path] = "; ".join(lines)
            else:
                accepted = {**accepted, path: waiting.pop(path)}
                wrong.pop(path, None)
    return accepted, wrong
