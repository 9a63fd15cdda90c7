"""A regular expression, as Python reads it, turned into the set of topic names that it matches whole."""

from __future__ import annotations

import importlib
import re
from functools import lru_cache
from typing import Any

from twinshore.links.names import (
    ALPHABET,
    BLANK,
    EVERYTHING,
    NOTHING,
    Term,
    both,
    either,
    many,
    one_of,
    then,
    without,
)

# Where re itself has its expressions read; public under another name until Python 3.13.
_parser: Any = importlib.import_module("re._parser")
REPEATED_MAX = 300


class StrangeError(Exception):
    """An expression with more than sets of names can say: a back reference, a look back, a look inside a repetition."""


@lru_cache(1024)
def names_of(pattern: str) -> Term:
    """The names that match whole; StrangeError where that cannot be said."""
    return _sequence(list(_parser.parse(pattern)), BLANK, re.compile(pattern).flags, first=True)


def _sequence(items: list[Any], onward: Term, flags: int, *, first: bool) -> Term:
    """What matches the items and then `onward`, which is all that follows: so looks ahead are intersections."""
    if not items:
        return onward
    (kind, value), rest = items[0], items[1:]
    name = str(kind)
    if name == "AT":
        following = _sequence(rest, onward, flags, first=first)
        return _at(str(value), following, first=first)
    following = _sequence(rest, onward, flags, first=False)
    if name in ("ASSERT", "ASSERT_NOT"):
        direction, inner = value
        if direction != 1:
            raise StrangeError
        seen = _sequence(list(inner), EVERYTHING, flags, first=False)
        return both(seen if name == "ASSERT" else without(seen), following)
    if name == "BRANCH":
        return either(*(_sequence(list(branch), following, flags, first=first) for branch in value[1]))
    if name == "SUBPATTERN":
        _, added, removed, inner = value
        return _sequence(list(inner), following, (flags | added) & ~removed, first=first)
    if name in ("MAX_REPEAT", "MIN_REPEAT"):
        low, high, inner = value
        return then(_repeated(low, high, list(inner), flags), following)
    return then(_character(name, value, flags), following)


def _at(place: str, following: Term, *, first: bool) -> Term:
    if place in ("AT_BEGINNING", "AT_BEGINNING_STRING") and first:
        return following
    if place in ("AT_END", "AT_END_STRING"):
        return both(BLANK, following)
    raise StrangeError


def _repeated(low: int, high: Any, items: list[Any], flags: int) -> Term:
    if _looks(items):
        raise StrangeError
    once = _sequence(items, BLANK, flags, first=False)
    endless = str(high) == "MAXREPEAT"
    if low > REPEATED_MAX or (not endless and high > REPEATED_MAX):
        raise StrangeError
    found = many(once) if endless else BLANK
    for _ in range(0 if endless else high - low):
        found = either(BLANK, then(once, found))
    for _ in range(low):
        found = then(once, found)
    return found


def _looks(items: list[Any]) -> bool:
    """Whether something in there depends on what stands around it."""
    for kind, value in items:
        name = str(kind)
        if name in ("AT", "ASSERT", "ASSERT_NOT"):
            return True
        inner: list[Any] = []
        if name == "BRANCH":
            inner = value[1]
        elif name in ("SUBPATTERN", "MAX_REPEAT", "MIN_REPEAT"):
            inner = [value[-1]]
        if any(_looks(list(one)) for one in inner):
            return True
    return False


def _character(name: str, value: Any, flags: int) -> Term:
    match name:
        case "LITERAL":
            return _cased({chr(value)}, flags)
        case "NOT_LITERAL":
            return one_of(ALPHABET - _cased({chr(value)}, flags)[1])
        case "ANY":
            return one_of(ALPHABET)
        case "IN":
            return _class(value, flags)
        case _:
            raise StrangeError


def _class(members: list[Any], flags: int) -> Term:
    found: set[str] = set()
    negated = False
    for kind, value in members:
        match str(kind):
            case "NEGATE":
                negated = True
            case "LITERAL":
                found.add(chr(value))
            case "RANGE":
                found |= {letter for letter in ALPHABET if value[0] <= ord(letter) <= value[1]}
            case "CATEGORY":
                found |= {letter for letter in ALPHABET if re.fullmatch(_CATEGORIES[str(value)], letter)}
            case _:
                raise StrangeError
    inside = _cased(found, flags)[1]
    return one_of(ALPHABET - inside) if negated else one_of(inside)


_CATEGORIES = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
}


def _cased(letters: set[str], flags: int) -> Term:
    if flags & re.IGNORECASE:
        letters = {form for letter in letters for form in (letter.lower(), letter.upper())}
    return one_of(letters) if letters & ALPHABET else NOTHING
