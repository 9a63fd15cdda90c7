"""Live settings of a process, which it reads from the store while it runs; and what operators may ask of them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from twinshore.config.declaration import setting_rows
from twinshore.config.errors import ConfigError, RefusedError
from twinshore.config.live import (
    USERS,
    LiveValues,
    SettingPath,
    check_live,
    decide,
    format_key,
    is_live,
    overlay,
    parse_key,
    parse_value,
)
from twinshore.config.model import Plan
from twinshore.config.schema import all_sections
from twinshore.config.sentences import format_time
from twinshore.config.settings import Settings, environment_variable
from twinshore.kafka.clock import wall_ms
from twinshore.state.core.values import AuditRow, LiveSettingRow
from twinshore.state.store import Store

log = logging.getLogger(__name__)

LiveHeard = tuple[int, tuple[LiveSettingRow, ...]]


class LiveSettings:
    """The settings in force in this process: its file's, until the store is read. While the store is away they stay.

    `values`: what is in force. `revision`: of the rows read last; -1: none. `obeyed`: the last revision of which all
    rows are in force here. `changed` is called when other values are.
    """

    def __init__(self, settings: Settings, changed: Callable[[], None] = lambda: None) -> None:
        self._file, self.changed = settings, changed
        self.values = LiveValues(settings)
        self.revision, self.obeyed = -1, 0

    def read(self, store: Store) -> LiveHeard | None:
        """Reads the rows, in any thread; None if unchanged."""
        return store.settings.newer(self.revision)

    def take(self, heard: LiveHeard | None) -> None:
        if heard is None:
            return
        before, self.revision = self.values, heard[0]
        self.values = decide(self._file, {row.key: row.value for row in heard[1]}, before.accepted)
        for key, why in self.values.refused.items():
            if before.refused.get(key) != why:
                log.warning(f"{key} in the store does not fit here, and is set aside: {why}")
        if self.values != before:
            log.info(f"goes by change {self.revision} of the live settings")
            self.changed()
        if not self.values.refused:
            self.obeyed = self.revision

    def look(self, store: Store) -> None:
        """Reads the store and takes what has changed. Raises StoreError."""
        self.take(self.read(store))


def settings_in_force(settings: Settings, store: Store) -> Settings:
    """The settings with the store's values, for a verb that looks once."""
    return decide(settings, {row.key: row.value for row in store.settings.all()[1]}).settings


AUDIT_KIND: Final = "setting"
HIDDEN: Final = "set"
# What links are stands in the store: `twinshore link list` shows that.
_SHOWN_ELSEWHERE: Final = ("links", "broadcasts")
_URLS: Final = ("url", "webhook_url")
_SECRETS: Final = ("password", "secret", "token")


@dataclass(frozen=True, slots=True)
class SettingStep:
    """A change of one setting. `row`: None to remove it. `seen`: the revision planned on."""

    name: str
    row: LiveSettingRow | None
    before: str
    seen: int

    def sentence(self, *, done: bool) -> str:
        told = "is" if done else "would be"
        was = f"; it was {self.before}" if self.before else ""
        return f"{self.name} {told} {_shown(self.row) if self.row else 'as in the settings file'}{was}"


def _shown(row: LiveSettingRow) -> str:
    return HIDDEN if parse_key(row.key)[:2] == USERS else row.value


def plan_set(key: str, value: str, settings: Settings, store: Store, *, by: str) -> Plan[SettingStep]:
    """Plans a value, as the settings file has it. ConfigError if the key is not live, or the value does not fit."""
    path = parse_key(key)
    if path[:2] == USERS:
        raise ConfigError("runtime.setting-secret", key=key, name=path[-1])
    return plan_rows(path, parse_value(value), settings, store, by=by)


def plan_unset(key: str, settings: Settings, store: Store) -> Plan[SettingStep]:
    """Plans to go by the settings file again. ConfigError if the store has no value, or others need this one."""
    path = parse_key(key)
    seen, rows = store.settings.all()
    known = {row.key: row for row in rows}
    row = known.pop(format_key(path), None)
    if row is None:
        raise ConfigError("runtime.setting-not-set", key=format_key(path))
    _check(path, "unset", settings, rows, list(known.values()))
    return Plan((SettingStep(row.key, None, _shown(row), seen),), remarks=_remarks(path))


def plan_rows(path: SettingPath, value: object, settings: Settings, store: Store, *, by: str) -> Plan[SettingStep]:
    check_live(path)
    seen, rows = store.settings.all()
    known = {row.key: row for row in rows}
    row = LiveSettingRow(format_key(path), json.dumps(value, ensure_ascii=False), by, wall_ms())
    before = known.get(row.key)
    _check(path, _shown(row), settings, rows, list({**known, row.key: row}.values()))
    return Plan((SettingStep(row.key, row, _shown(before) if before else "", seen),), remarks=_remarks(path))


def _check(
    path: SettingPath,
    becomes: str,
    settings: Settings,
    before: Sequence[LiveSettingRow],
    after: Sequence[LiveSettingRow],
) -> None:
    """Refuses rows that are wrong after the change and were not before."""
    was, now = (decide(settings, {row.key: row.value for row in rows}).refused for rows in (before, after))
    key = format_key(path)
    if faults := [why for name, why in now.items() if name == key or name not in was]:
        raise ConfigError("runtime.setting-refused", key=key, value=becomes, cause="; ".join(faults))


def _remarks(path: SettingPath) -> tuple[str, ...]:
    return ("monitors go by it from their next period",) if path[0] == "delay" else ()


def act(plan: Plan[SettingStep], store: Store, *, by: str) -> Iterator[SettingStep]:
    """Changes all at once. RefusedError if settings have changed since the plan."""
    if not plan.steps:
        return
    rows = [step.row for step in plan.steps if step.row is not None]
    removed = [step.name for step in plan.steps if step.row is None]
    told = [_told(step, by) for step in plan.steps]
    if not store.settings.change(rows, removed, seen=plan.steps[0].seen, told=told):
        raise RefusedError("runtime.settings-changed")
    yield from plan.steps


def _told(step: SettingStep, by: str) -> AuditRow:
    after = _shown(step.row) if step.row else ""
    return AuditRow(wall_ms(), "", AUDIT_KIND, step.name, step.before, after, "done", by)


@dataclass(frozen=True, slots=True)
class SettingInForce:
    """A setting and where its value is from: default, file, environment or store. `refused`: why the store's value is
    not in force here.
    """

    key: str
    value: Any
    source: str
    is_live: bool
    set_by: str = ""
    changed_ms: int = 0
    refused: str = ""

    def sentence(self) -> str:
        who = f" by {self.set_by} at {format_time(self.changed_ms)}" if self.set_by else ""
        why = f"; not in force: {self.refused}" if self.refused else ""
        return f"{self.key} = {json.dumps(self.value, ensure_ascii=False)} ({self.source}{who}{why})"


def list_settings(settings: Settings, store: Store, env: Mapping[str, str], prefix: str = "") -> list[SettingInForce]:
    """Returns each setting in force by this settings file, and the store's values that are not; but not what links are.

    Secrets are hidden.
    """
    rows = {row.key: row for row in store.settings.all()[1]}
    live = decide(settings, {row.key: row.value for row in rows.values()})
    found, users = dict[str, SettingInForce](), f"{format_key(USERS)}."
    for path, value in _leaves(overlay(settings.raw, live.accepted), live.accepted):
        key = format_key(path)
        of_store = next((row for at in range(len(path), 0, -1) if (row := rows.get(format_key(path[:at])))), None)
        if of_store is not None and parse_key(of_store.key) in live.accepted:
            origin = "store", is_live(path), of_store.set_by, of_store.changed_ms
        else:
            origin = ("environment" if environment_variable(*path[:2]) in env else "file"), is_live(path), "", 0
        found[key] = SettingInForce(key, _open(path, value), *origin)
    for section in all_sections():
        if section.tables[0][0] == f"[{section.name}]":
            for one in setting_rows(section.keys):
                path = (section.name, one.name)
                found.setdefault(
                    format_key(path), SettingInForce(format_key(path), one.default, "default", is_live(path))
                )
    for key, row in rows.items():
        if key in live.refused or key.startswith(users):
            why, value = live.refused.get(key, ""), HIDDEN if key.startswith(users) else json.loads(row.value)
            found[key] = SettingInForce(key, value, "store", True, row.set_by, row.changed_ms, why)
    return [found[key] for key in sorted(found) if key.startswith(prefix) and key.split(".")[0] not in _SHOWN_ELSEWHERE]


def _leaves(
    table: Mapping[str, Any], ends: Mapping[SettingPath, object], path: SettingPath = ()
) -> Iterator[tuple[SettingPath, object]]:
    for name, value in table.items():
        here = (*path, name)
        if isinstance(value, Mapping) and (value or here not in ends):
            yield from _leaves(value, ends, here)
        else:
            yield here, value


def _open(path: SettingPath, value: object) -> object:
    """Returns the value as it may be shown: of a URL the host, since the rest may be a secret."""
    name = path[-1]
    if name in _URLS and value and path[0] == "delay":
        parts = urlsplit(str(value))
        return f"{parts.scheme}://{parts.hostname}/..."
    is_secret = any(word in name.lower() for word in _SECRETS) and not name.endswith(
        ("_env", "_file", "_url", "_scope")
    )
    return HIDDEN if is_secret and value else value
