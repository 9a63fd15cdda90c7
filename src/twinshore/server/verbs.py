"""Reads the catalogue from the command line's own verbs: names, values, defaults, help."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

from twinshore.cli.app import app, register_verbs
from twinshore.config.errors import ConfigError
from twinshore.server.core.catalogue import LEFT_OUT, RULES, Operation, Parameter, ValueKind

_KINDS: dict[object, ValueKind] = {
    str: ValueKind.TEXT,
    int: ValueKind.INTEGER,
    float: ValueKind.NUMBER,
    bool: ValueKind.FLAG,
}
# What the platform gives itself.
OWN_OPTIONS = frozenset({"settings", "dry_run", "yes", "watch"})

Verb = Callable[..., None]


def all_verbs() -> Iterator[tuple[str, Verb]]:
    """Yields each verb of the command line with its function."""
    register_verbs()
    yield from _verbs_of(app, ())


def _verbs_of(group: typer.Typer, words: tuple[str, ...]) -> Iterator[tuple[str, Verb]]:
    callback = group.registered_callback
    if words and callback is not None and callback.callback is not None:
        yield " ".join(words), callback.callback
    for command in group.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__.replace("_", "-")
        yield " ".join([*words, name]), command.callback
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        yield from _verbs_of(inner.typer_instance, (*words, str(inner.name)))


@cache
def operations() -> dict[str, Operation]:
    """Returns what can be asked, by name."""
    return {name: _operation(name, verb) for name, verb in sorted(all_verbs()) if name in RULES}


def unlisted_verbs() -> list[str]:
    """Returns the verbs of which the catalogue says nothing."""
    return [name for name, _ in all_verbs() if name not in RULES and name not in LEFT_OUT]


def operation_of(path: str) -> Operation:
    """Returns the operation by its name or its path."""
    for one in operations().values():
        if path in (one.name, one.path):
            return one
    raise ConfigError("server.no-operation", name=path)


def _operation(name: str, verb: Verb) -> Operation:
    hints, given = get_type_hints(verb), inspect.signature(verb).parameters
    taken = [one for one in given.values() if one.name not in RULES[name].withheld | OWN_OPTIONS]
    names = RULES[name].names
    found = [_parameter(one.name, hints.get(one.name), one.default, one.name in names) for one in taken]
    parameters = [one for one in found if one]
    summary = inspect.getdoc(verb) or ""
    return Operation(
        name,
        RULES[name],
        summary.partition("\n\n")[0].replace("\n", " "),
        tuple(parameters),
        has_dry_run="dry_run" in given,
        asks="yes" in given,
        takes_settings="settings" in given,
    )


def _parameter(name: str, hint: object, info: Any, is_file_name: bool) -> Parameter | None:
    """Returns the parameter; None for a file that is not given by its name alone."""
    if not isinstance(info, OptionInfo | ArgumentInfo):
        return None
    inner = [one for one in get_args(hint) if one is not type(None)]
    many = get_origin(hint) is list or any(get_origin(one) is list for one in inner)
    while inner:
        hint, inner = inner[0], [one for one in get_args(inner[0]) if one is not type(None)]
    kind = ValueKind.TEXT if is_file_name else _KINDS.get(hint)
    if kind is None:
        return None
    words = [word for word in info.param_decls or () if word.startswith("--")]
    option = (words[0] if words else f"--{name.replace('_', '-')}") if isinstance(info, OptionInfo) else ""
    default = info.default if isinstance(info.default, str | int | float) and not many else None
    return Parameter(
        name,
        kind,
        info.help or "",
        option=option,
        is_many=many,
        is_required=info.default is ...,
        default=default,
        low=-math.inf if info.min is None else info.min,
        high=math.inf if info.max is None else info.max,
        is_file_name=is_file_name,
    )
