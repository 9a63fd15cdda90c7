"""Reads settings sections with pydantic. Each complaint names the key and the nearest valid choice.

Also here: key shapes of several sections, such as expressions and secrets.
"""

from __future__ import annotations

import importlib
import ipaddress
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from typing import Any, Generic, Literal, TypeVar, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from twinshore.config import sections
from twinshore.config.declaration import SettingRow, setting_rows
from twinshore.config.errors import ConfigError
from twinshore.config.model import Secret

S = TypeVar("S")
T = TypeVar("T")
Member = TypeVar("Member", bound=StrEnum)

_CHOICE = re.compile(r"'([^']*)'")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOTHING: dict[Any, Any] = {str: "", int: 0, float: 0.0, bool: False}
SUGGESTION_CUTOFF = 0.6
SECRET_KEYS = ("password", "key_password", "token", "secret", "client_secret")

_SENTENCES = {
    "missing": "is required",
    "string_type": "must be text in quotes, not {input}",
    "enum": "must be text in quotes, not {input}",
    "literal_error": "must be text in quotes, not {input}",
    "int_type": "must be a whole number, not {input}",
    "int_from_float": "must be a whole number, not {input}",
    "float_type": "must be a number, not {input}",
    "finite_number": "must be a finite number, not {input}",
    "bool_type": "must be true or false, not {input}",
    "dict_type": "must be a section with keys, not {input}",
    "list_type": "must be a list of tables, not {input}",
    "date_type": "must be a day such as 2027-01-31, not {input}",
    "tuple_type": 'must be a list like ["..."], not {input}',
    "greater_than_equal": "is {input}, the least is {ge:g}",
    "less_than_equal": "is {input}, the most is {le:g}",
}


@dataclass(slots=True)
class Complaints:
    """Collects all faults, so that the operator can fix them at once."""

    lines: list[str] = field(default_factory=list)
    # Unreadable keys by place, so that their effect on others is unknown.
    unread: dict[str, set[str]] = field(default_factory=dict)

    def add(self, place: str, sentence: str) -> None:
        """Adds a sentence, unless it concerns an unreadable key, whose fault is already listed."""
        unread = self.unread.get(place)
        if not unread or unread.isdisjoint(_WORD.findall(sentence)):
            self.lines.append(f"{place} {sentence}" if place else sentence)

    def unreadable(self, place: str, sentences: Iterable[str], keys: Iterable[str]) -> None:
        """Adds faults of unreadable keys; the other keys are still checked."""
        for sentence in sentences:
            self.add(place, sentence)
        self.unread.setdefault(place, set()).update(keys)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A clause with the nearest known word, or with all if none is near."""
    choices = list(known)
    near = get_close_matches(word, choices, n=1, cutoff=SUGGESTION_CUTOFF)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; known: {', '.join(choices)}" if choices else ""


def parse_member(kind: type[Member], option: str, word: str) -> Member:
    """The member with this value. Raises ConfigError with the nearest one."""
    try:
        return kind(word)
    except ValueError:
        near = did_you_mean(word, [one.value for one in kind])
        raise ConfigError("config.unknown-choice", option=option, value=word, near=near) from None


@cache
def pydantic_model(section: type) -> type[BaseModel]:
    """The cached pydantic model of a section. Building costs a hundred times its use, and each link has a section."""
    spec: dict[str, Any] = {row.name: (row.kind, _pydantic_field(row)) for row in setting_rows(section)}
    config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    return create_model(section.__name__, __config__=config, **spec)


def _pydantic_field(row: SettingRow) -> Any:
    limits: dict[str, Any] = {"ge": row.rule.low, "le": row.rule.high}
    if row.kind not in (int, float, str, bool) and get_origin(row.kind) is not Literal:
        limits["strict"] = False
    default = ... if row.required else row.default
    return Field(default, **{key: value for key, value in limits.items() if value is not None})


def read_section(
    section: type[S], raw: object, place: str, complaints: Complaints, *, beside: Sequence[str] = ()
) -> S | None:
    """Reads the section and adds every complaint. Unreadable keys keep their defaults, so the others are checked too.

    None if `raw` is no section. `place` is like `[clusters.east]`. `beside`: keys known there but read elsewhere.
    """
    if not isinstance(raw, Mapping):
        complaints.add(place, f"must be a section with keys, not {raw!r}")
        return None
    try:
        return _validated(section, raw)
    except ValidationError as error:
        known = [row.name for row in setting_rows(section)]
        wrong = {str(detail["loc"][0]) for detail in error.errors(include_url=False)}
        unreadable = (wrong | _nearest(wrong - set(known), known)) & set(known)
        complaints.unreadable(place, list(_sentences(error, [*known, *beside])), unreadable)
    given = {name: value for name, value in raw.items() if name not in wrong}
    lacking = [row for row in setting_rows(section) if row.required and row.name not in given]
    try:
        return _validated(section, given | {row.name: _NOTHING.get(row.kind, ()) for row in lacking})
    except ValidationError:
        return None


SettingFields = Mapping[str, tuple[Any, Any]]


def read_keys(
    keys: SettingFields, raw: object, place: str, complaints: Complaints, *, only_given: bool = False
) -> dict[str, Any]:
    """The values of a table whose keys are known only now: each has a type and a default, or pydantic's field. Nothing
    if one is wrong; every complaint is added.
    """
    config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, str_strip_whitespace=True)
    spec: dict[str, Any] = dict(keys)
    try:
        found = create_model("Keys", __config__=config, **spec).model_validate(raw)
    except ValidationError as error:
        for sentence in _sentences(error, list(keys)):
            complaints.add(place, sentence)
        return {}
    return {name: getattr(found, name) for name in (found.model_fields_set if only_given else keys)}


def _validated(section: type[S], raw: Mapping[str, Any]) -> S:
    model = pydantic_model(section)  # type: ignore[arg-type]  # a class is hashable
    checked = model.model_validate(dict(raw))
    return section(**{name: getattr(checked, name) for name in model.model_fields})


def _nearest(names: Iterable[str], known: list[str]) -> set[str]:
    return {near for name in names for near in get_close_matches(name, known, n=1, cutoff=SUGGESTION_CUTOFF)}


def _sentences(error: ValidationError, known: list[str]) -> Iterator[str]:
    details = error.errors(include_url=False)
    misspelt = _nearest((str(detail["loc"][0]) for detail in details if detail["type"] == "extra_forbidden"), known)
    for detail in details:
        if detail["type"] == "missing" and detail["loc"][0] in misspelt:
            continue  # The misspelt key is reported already.
        yield _sentence(detail, known)


def _sentence(detail: Any, known: list[str]) -> str:
    name = str(detail["loc"][0])
    if detail["type"] == "extra_forbidden":
        if name in SECRET_KEYS and f"{name}_env" in known:
            return f"{name}: a secret never stands in the settings; use {name}_env or {name}_file"
        return f"{name}: unknown{did_you_mean(name, known)}"
    if detail["type"] in ("enum", "literal_error") and isinstance(detail["input"], str):
        choices = _CHOICE.findall(detail["ctx"]["expected"])
        return f"{name}: no such value {detail['input']!r}{did_you_mean(detail['input'], choices)}"
    template = _SENTENCES.get(detail["type"])
    if template is None:
        return f"{name}: {detail['msg']}"
    return f"{name}: {template.format(input=repr(detail['input']), **detail.get('ctx', {}))}"


@dataclass(frozen=True, slots=True)
class RawSection:
    """A section as written. `place`: its name in complaints, like `[store]`. `before`: values of sections of lower
    order.
    """

    raw: object
    place: str
    before: Mapping[str, Any] = field(default_factory=dict)

    def parted(self, *names: str) -> tuple[object, dict[str, object]]:
        """The section without these keys, and the content of each."""
        if not isinstance(self.raw, Mapping):
            return self.raw, {name: {} for name in names}
        rest = {key: value for key, value in self.raw.items() if key not in names}
        return rest, {name: self.raw.get(name, {}) for name in names}


@dataclass(frozen=True, slots=True)
class Section(Generic[T]):
    """`order`: on the page and in complaints. `tables`: the name of each table of keys, and the declaring class. `read`
    returns the section's value and adds complaints; then the value is not used. `overridden`: the environment may
    override keys. `live_tables`: tables of the section that may also stand in the store.
    """

    name: str
    order: int
    tables: tuple[tuple[str, type], ...]
    read: Callable[[RawSection, Complaints], T]
    overridden: bool = False
    live_tables: tuple[str, ...] = ()

    @property
    def keys(self) -> type:
        """The class that declares the first table."""
        return self.tables[0][1]


@cache
def all_sections() -> tuple[Section[Any], ...]:
    """Every section, by `order`."""
    modules = pkgutil.iter_modules(sections.__path__)
    found = [importlib.import_module(f"{sections.__name__}.{one.name}").SECTION for one in modules]
    return tuple(sorted(found, key=lambda section: section.order))


# Names of topics, where `*` stands for any characters.
TOPIC_WILDCARD = re.compile(r"[A-Za-z0-9._*-]+")
PatternNumbers = tuple[tuple[str, int], ...]


def pattern_error(pattern: str) -> str:
    """What is wrong with a regular expression; empty if valid."""
    try:
        re.compile(pattern)
    except re.error as error:
        where = "" if error.pos is None else f" at character {error.pos + 1}"
        return f"{pattern!r} is not a regular expression: {error.msg}{where}"
    return ""


def check_pattern(pattern: str, name: str, place: str, complaints: Complaints) -> None:
    """Complains if the expression under the key `name` is invalid."""
    reason = pattern_error(pattern)
    if reason:
        complaints.add(place, f"{name}: {reason}")


def read_numbers(table: object, name: str, low: int, high: int, place: str, complaints: Complaints) -> PatternNumbers:
    """Pairs of expression and whole number, as written; the first match counts."""
    if not isinstance(table, Mapping):
        complaints.add(place, f'{name}: must be a table like {{ "orders.*" = 1000 }}, not {table!r}')
        return ()
    found = []
    for pattern, number in table.items():
        check_pattern(pattern, name, place, complaints)
        if isinstance(number, bool) or not isinstance(number, int):
            complaints.add(place, f"{name}: {pattern!r}: must be a whole number, not {number!r}; quote names with dots")
        elif not low <= number <= high:
            complaints.add(place, f"{name}: {pattern!r}: is {number}, must be {low} to {high:,}")
        else:
            found.append((pattern, number))
    return tuple(found)


def flatten_table(table: Mapping[str, object], prefix: str = "") -> tuple[tuple[str, str], ...]:
    """Pairs of dotted names and text: TOML turns unquoted dotted names into tables."""
    pairs: list[tuple[str, str]] = []
    for key, value in table.items():
        if isinstance(value, Mapping):
            pairs.extend(flatten_table(value, f"{prefix}{key}."))
        elif isinstance(value, bool):
            pairs.append((prefix + key, "true" if value else "false"))
        else:
            pairs.append((prefix + key, str(value)))
    return tuple(sorted(pairs))


def read_secret(env: str, file: str, name: str, place: str, complaints: Complaints) -> Secret:
    """The secret `name`; one of two keys may say where it is kept."""
    if env and file:
        complaints.add(place, f"{name}_env and {name}_file: one or the other")
    return Secret(env=env, file=file)


def network_error(text: str) -> str:
    """Why the text is no network; empty if valid."""
    try:
        ipaddress.ip_network(text)
    except ValueError as error:
        return f"{text!r} is no network like 10.1.0.0/16: {error}"
    return ""
