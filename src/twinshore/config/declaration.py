"""How the keys of a section are declared: name, type, default, meaning, limits.

The reader, its errors and docs/settings.md all come from that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SettingSpec:
    """What a setting means and what it may be."""

    meaning: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One key of a section. `default` is None where the setting is required."""

    name: str
    kind: Any
    default: Any
    required: bool
    rule: SettingSpec


def setting(default: T, meaning: str, *, low: float | None = None, high: float | None = None) -> T:
    """Declares a setting with a default inside a section."""
    spec: Any = field(default=default, metadata={"rule": SettingSpec(meaning, low, high)})
    declared: T = spec
    return declared


def required(meaning: str) -> Any:
    """Declares a setting that has no default."""
    return field(metadata={"rule": SettingSpec(meaning)})


def setting_rows(section: type) -> Iterator[SettingRow]:
    """The keys of one section, in the order they are written."""
    hints = get_type_hints(section)
    for spec in fields(section):
        rule = spec.metadata.get("rule")
        if isinstance(rule, SettingSpec):
            bare = spec.default is MISSING
            yield SettingRow(spec.name, hints[spec.name], None if bare else spec.default, bare, rule)


def shared_fields(section: Any, kind: type) -> dict[str, Any]:
    """What the section says of the fields of another class, by name."""
    return {spec.name: getattr(section, spec.name) for spec in fields(kind) if hasattr(section, spec.name)}
