"""Words of an operator such as `topics=["orders.*"]` put into a link's section. Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from twinshore.fleet import ConfigError
from twinshore.links.seeds import Section

EXAMPLE = 'topics=["orders.*"], naming="prefix", groups.enabled=false'


def with_values(section: Section, words: Iterable[str]) -> dict[str, Any]:
    """The section with these values in place of its own; a table within it keeps what is not named."""
    found = dict(section)
    for word in words:
        try:
            given = tomllib.loads(word)
        except tomllib.TOMLDecodeError as error:
            hint = f"write name=value as in the settings, like {EXAMPLE}; a shell needs '...' around it"
            raise ConfigError(f"{word!r} is not a value: {error}", hint=hint) from error
        found = _merged(found, given)
    return found


def without(section: Section, names: Iterable[str]) -> dict[str, Any]:
    """The section without these values: what is usual holds for them again."""
    found = dict(section)
    for name in names:
        head, _, rest = name.partition(".")
        within = found.get(head)
        if name in found:
            del found[name]
        elif rest and isinstance(within, Mapping):
            found[head] = without(within, [rest])
        else:
            raise ConfigError(f"{name!r} is not set", hint=f"set are: {', '.join(found) or 'none'}")
    return found


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    both = {name: _one(old.get(name), value) for name, value in new.items()}
    return {**old, **both}


def _one(old: object, new: object) -> object:
    return _merged(old, new) if isinstance(old, Mapping) and isinstance(new, Mapping) else new
