"""Declares the keys of a section: name, type, default, meaning and limits.

The reader, its errors and docs/settings.md are derived from these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SettingSpec:
    """`live`: may also stand in the store, where processes see it while they run."""

    meaning: str
    low: float | None = None
    high: float | None = None
    live: bool = False


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One key of a section. `default` is None for a required key."""

    name: str
    kind: Any
    default: Any
    required: bool
    rule: SettingSpec


def setting(default: T, meaning: str, *, low: float | None = None, high: float | None = None) -> T:
    return _declared(default, SettingSpec(meaning, low, high))


def live_setting(default: T, meaning: str, *, low: float | None = None, high: float | None = None) -> T:
    """A setting that processes obey without a restart."""
    return _declared(default, SettingSpec(meaning, low, high, live=True))


def _declared(default: T, rule: SettingSpec) -> T:
    spec: Any = field(default=default, metadata={"rule": rule})
    declared: T = spec
    return declared


def required(meaning: str) -> Any:
    return field(metadata={"rule": SettingSpec(meaning)})


def setting_rows(section: type) -> Iterator[SettingRow]:
    hints = get_type_hints(section)
    for spec in fields(section):
        rule = spec.metadata.get("rule")
        if isinstance(rule, SettingSpec):
            bare = spec.default is MISSING
            yield SettingRow(spec.name, hints[spec.name], None if bare else spec.default, bare, rule)


def shared_fields(section: Any, kind: type) -> dict[str, Any]:
    """The section's values for fields of another class, by name."""
    return {spec.name: getattr(section, spec.name) for spec in fields(kind) if hasattr(section, spec.name)}
