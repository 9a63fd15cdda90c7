"""What can be asked of the platform: each verb of the command line, who may ask it, and with which values.

The verbs themselves say what values they take (`verbs.py`); the table here says the rest. A verb that is in neither
list fails a test.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import resources
from typing import Any

from pydantic import TypeAdapter

from twinshore.config.errors import ConfigError


class Role(StrEnum):
    """Each may do all that the ones before may. APPROVER: also approve what others ask. ADMIN: also people, tokens,
    settings and secrets.
    """

    VIEWER = "viewer"
    OPERATOR = "operator"
    APPROVER = "approver"
    ADMIN = "admin"

    def covers(self, other: Role) -> bool:
        return _RANKS[self] >= _RANKS[other]


_RANKS = {role: number for number, role in enumerate(Role)}


def lower_role(one: Role, other: Role) -> Role:
    return min(one, other, key=_RANKS.__getitem__)


class Effect(StrEnum):
    """READS: changes nothing. CHANGES: can be taken back. DESTROYS: deletes something, or may lose records: where the
    settings want four eyes, another person approves it.
    """

    READS = "reads"
    CHANGES = "changes"
    DESTROYS = "destroys"


@dataclass(frozen=True, slots=True)
class VerbRule:
    """Who may ask a verb, and what it does. `resumes`: the verb that goes on with what a dead job began, by the job's
    subject. `worse_with`: options with which it does more. `withheld`: options that no platform takes. `names`: values
    that are files on a command line, and here names in the worker's folder. `title`: for people. `first`: options that
    a form does not fold away.
    """

    role: Role
    effect: Effect
    title: str
    resumes: str = ""
    worse_with: Mapping[str, Effect] = field(default_factory=dict)
    withheld: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    first: frozenset[str] = frozenset()


def _read_tables() -> tuple[Mapping[str, VerbRule], Mapping[str, str], Mapping[str, str]]:
    """Reads who may ask which verb, why others are not asked of a platform, and what forms call values."""
    tables = json.loads(resources.files(__package__).joinpath("verbs.json").read_text(encoding="utf-8"))
    rules = TypeAdapter(dict[str, VerbRule]).validate_python(tables["asked"])
    return rules, {name: why for why, names in tables["left_out"].items() for name in names}, tables["labels"]


RULES, LEFT_OUT, LABELS = _read_tables()


def label_of(name: str) -> str:
    """Returns what people call the value of this name."""
    return LABELS.get(name, name.replace("_", " ").capitalize())


# With which a verb prints values in place of sentences. Forms do not show it.
JSON = "json_output"


class ValueKind(StrEnum):
    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    FLAG = "flag"


# What no store keeps: NUL, and halves of a character.
_UNKEPT = re.compile("[\0\ud800-\udfff]")
# The longest text and list that a request may have.
TEXT_MAX, LIST_MAX = 1_000, 200


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value that a verb takes. `option`: as on the command line; empty: by its place."""

    name: str
    kind: ValueKind
    help: str
    option: str = ""
    is_many: bool = False
    is_required: bool = False
    default: str | int | float | bool | None = None
    low: float = -math.inf
    high: float = math.inf
    is_file_name: bool = False

    def read(self, value: object) -> list[str]:
        """Returns the value's words on the command line. Raises ConfigError for one that does not fit."""
        values = value if self.is_many and isinstance(value, list) else [value]
        if len(values) > LIST_MAX:
            raise self._refuse(f"has {len(values)} values, the most is {LIST_MAX}")
        if self.kind is ValueKind.FLAG:
            if not isinstance(value, bool):
                raise self._refuse("must be true or false")
            on, _, off = self.option.partition("/")
            return [on] if value else [off] if off else []
        words = [self._word(one) for one in values]
        if not self.option:
            return words
        return [f"{self.option}={word}" for word in words]

    def _word(self, value: object) -> str:
        if self.kind is ValueKind.TEXT:
            if not isinstance(value, str) or _UNKEPT.search(value):
                raise self._refuse("must be text")
            if self.is_file_name and ("/" in value or value.startswith(".")):
                raise self._refuse("must be a file's name without its folder")
            if len(value) > TEXT_MAX:
                raise self._refuse(f"has {len(value)} characters, the most is {TEXT_MAX}")
            return value
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # JSON has one kind of number
        whole = isinstance(value, int) and not isinstance(value, bool)
        is_number = whole or (self.kind is ValueKind.NUMBER and isinstance(value, float) and math.isfinite(value))
        if not is_number:
            raise self._refuse(f"must be {'a whole number' if self.kind is ValueKind.INTEGER else 'a number'}")
        assert isinstance(value, int | float)
        if not self.low <= value <= self.high:
            raise self._refuse(f"must be between {self.low:g} and {self.high:g}")
        return str(value)

    def _refuse(self, why: str) -> ConfigError:
        return ConfigError("server.wrong-value", name=self.name, why=why)

    def schema(self) -> dict[str, Any]:
        """Returns the JSON schema."""
        kinds = {"text": "string", "flag": "boolean"}
        one: dict[str, Any] = {"type": kinds.get(self.kind, str(self.kind))}
        if self.kind is ValueKind.TEXT:
            one |= {"maxLength": TEXT_MAX, "pattern": "^[^\\u0000]*$"}
        if math.isfinite(self.low):
            one["minimum"] = self.low
        if math.isfinite(self.high):
            one["maximum"] = self.high
        found: dict[str, Any] = {"type": "array", "items": one, "maxItems": LIST_MAX} if self.is_many else one
        found["description"] = self.help
        if self.is_many and self.is_required:
            found["minItems"] = 1
        if self.default is not None and not self.is_many:
            found["default"] = self.default
        return found


@dataclass(frozen=True, slots=True)
class Operation:
    """A verb as it can be asked. `asks`: it wants `--yes` before it changes anything."""

    name: str
    rule: VerbRule
    summary: str
    parameters: tuple[Parameter, ...]
    has_dry_run: bool
    asks: bool
    takes_settings: bool

    @property
    def plans(self) -> bool:
        """Whether it can say first what it would change."""
        return self.has_dry_run or self.asks

    @property
    def plan_options(self) -> list[str]:
        return ["--dry-run"] if self.has_dry_run else []

    def act_options(self, arguments: Mapping[str, object]) -> list[str]:
        return ["--yes"] if self.asks and self.effect(arguments) is not Effect.READS else []

    @property
    def path(self) -> str:
        """The name in addresses."""
        return self.name.replace(" ", "-")

    def in_form(self, text: str) -> str:
        """Returns help with labels of the form in place of options; what the platform gives itself is left out."""
        labels = {one.option.partition("/")[0]: f' "{label_of(one.name)}"' for one in self.parameters}
        return re.sub(r" ?(--[a-z-]+)", lambda found: labels.get(found[1], ""), text.replace("; repeatable", ""))

    def effect(self, arguments: Mapping[str, object]) -> Effect:
        worse = (
            effect for name, effect in self.rule.worse_with.items() if arguments.get(name) not in (False, None, "", [])
        )
        return max([self.rule.effect, *worse], key=list(Effect).index)

    def confirmation(self, arguments: Mapping[str, object]) -> str:
        """Returns the name that a person types to agree: the new home, or the first thing that the verb is given."""
        given = arguments.get("to") or next(
            (value for one in self.parameters if not one.option and (value := arguments.get(one.name))), ""
        )
        return str(given[0] if isinstance(given, list) else given or self.name)

    def words(self, arguments: Mapping[str, object], own: Sequence[str] = ()) -> list[str]:
        """Returns the command's words, with the platform's `own` options. Raises ConfigError for what the verb does not
        take.
        """
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in arguments:
            if name not in known:
                raise ConfigError("server.unknown-value", operation=self.name, name=name, known=", ".join(known))
        placed: list[str] = []
        options: list[str] = []
        for name, parameter in known.items():
            value = arguments.get(name)
            is_empty = value == [] if parameter.is_many else value == "" and not parameter.is_required
            if name not in arguments or is_empty:
                if parameter.is_required:
                    raise ConfigError("server.missing-value", operation=self.name, name=name)
                continue
            (options if parameter.option else placed).extend(parameter.read(value))
        return [*self.name.split(), *own, *options, *(["--", *placed] if placed else [])]

    def schema(self) -> dict[str, Any]:
        """Returns the JSON schema of the arguments."""
        return {
            "type": "object",
            "properties": {parameter.name: parameter.schema() for parameter in self.parameters},
            "required": [parameter.name for parameter in self.parameters if parameter.is_required],
            "additionalProperties": False,
        }


def command_line(words: Sequence[str]) -> str:
    """Returns the command that does the same, for a shell."""
    kept = list(words)
    # What cannot be taken for an option needs no separator.
    if "--" in kept:
        at = kept.index("--")
        if not any(word.startswith("-") for word in kept[at + 1 :]):
            del kept[at]
    return shlex.join(["twinshore", *kept])
