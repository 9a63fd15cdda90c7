"""What holds for a link now: its settings, and what operators have said since. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from twinshore.fleet import Link
from twinshore.fleet.control import PRIORITY_MAX
from twinshore.fleet.settings.sections.links import RATE_MAX
from twinshore.fleet.settings.shapes import why_not_pattern
from twinshore.store.values import ControlRow

SETTINGS, STORE = "settings", "store"
UNSAID = -1
Value = Any


class BadValueError(ValueError):
    """A value that its name cannot have; the sentence says why."""


def _patterns(raw: Value) -> tuple[str, ...]:
    if not isinstance(raw, list) or not all(isinstance(one, str) for one in raw):
        raise BadValueError("must be a list of expressions")
    for pattern in raw:
        reason = why_not_pattern(pattern)
        if reason:
            raise BadValueError(reason)
    return tuple(raw)


def _some_patterns(raw: Value) -> tuple[str, ...]:
    found = _patterns(raw)
    if not found:
        raise BadValueError('needs at least one expression; ".*" is all')
    return found


def _flag(raw: Value) -> bool:
    if not isinstance(raw, bool):
        raise BadValueError("must be true or false")
    return raw


def _number(raw: Value, low: int, high: int) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int):
        raise BadValueError(f"must be a whole number, not {raw!r}")
    if not low <= raw <= high:
        raise BadValueError(f"is {raw}, must be {low} to {high:,}")
    return raw


def _rate(raw: Value) -> int:
    return _number(raw, 0, RATE_MAX)


def _pairs(high: int) -> Callable[[Value], tuple[tuple[str, int], ...]]:
    def read(raw: Value) -> tuple[tuple[str, int], ...]:
        if not isinstance(raw, list) or not all(isinstance(one, list) and len(one) == 2 for one in raw):
            raise BadValueError("must be a list of pairs, expression and number")
        _patterns([pattern for pattern, _ in raw])
        return tuple((pattern, _number(number, 1, high)) for pattern, number in raw)

    return read


# Every name that may stand in the store; the first two belong to the link itself.
READERS: dict[str, Callable[[Value], Any]] = {
    "topics": _some_patterns,
    "exclude": _patterns,
    "groups": _patterns,
    "exclude_groups": _patterns,
    "paused": _flag,
    "paused_topics": _patterns,
    "throttle_bytes_s": _rate,
    "topic_throttles": _pairs(RATE_MAX),
    "priorities": _pairs(PRIORITY_MAX),
}
OF_LINK = ("topics", "exclude")


@dataclass(frozen=True, slots=True)
class InForce:
    """`origins`: where each value comes from. `troubles`: rows of the store that make no sense and do not count.
    `filtered_ms`: when operators last said something of its filters."""

    link: Link
    origins: tuple[tuple[str, str], ...]
    troubles: tuple[str, ...] = ()
    filtered_ms: int = UNSAID

    def value(self, name: str) -> Any:
        return getattr(self.link if name in OF_LINK else self.link.control, name)


def in_force(link: Link, rows: Iterable[ControlRow]) -> InForce:
    """The link as it holds now."""
    found: dict[str, Any] = {}
    troubles = []
    filtered_ms = UNSAID
    for row in rows:
        try:
            found[row.name] = READERS[row.name](json.loads(row.value))
            filtered_ms = max(filtered_ms, row.changed_ms) if row.name in OF_LINK else filtered_ms
        except KeyError:
            troubles.append(f"the store says {row.name} of link {link.name}, which this version does not know")
        except (BadValueError, ValueError) as error:
            troubles.append(f"the store's {row.name} of link {link.name} does not count: {error}")
    own = {name: value for name, value in found.items() if name in OF_LINK}
    rest = {name: value for name, value in found.items() if name not in OF_LINK}
    whole = replace(link, **own, control=replace(link.control, **rest))
    origins = tuple((name, STORE if name in found else SETTINGS) for name in READERS)
    return InForce(whole, origins, tuple(troubles), filtered_ms)


def as_json(value: Any) -> str:
    """As it stands in the store, and in the audit."""
    return json.dumps([list(one) if isinstance(one, tuple) else one for one in value] if _is_list(value) else value)


def _is_list(value: Any) -> bool:
    return isinstance(value, tuple | list)
