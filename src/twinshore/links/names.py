"""Sets of topic names as terms, and a name that is in all of several sets.

A term is derived by one character after another (Brzozowski): intersection and complement cost nothing special, and a
search over the derivatives ends because equal terms are one. Terms are tuples, so that they can be remembered.
"""

from __future__ import annotations

import string
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

Term = tuple[Any, ...]

ALPHABET = frozenset(string.ascii_letters + string.digits + "._-")
LENGTH_MAX = 249
NOTHING: Term = ("set", frozenset())
BLANK: Term = ("blank",)
NOT_TOLD = frozenset({""})
# Names made up for a sentence should look like names.
PREFERRED = "abcdefghijklmnopqrstuvwxyz0123456789-_."
_TERMS_KEPT = 1 << 16
_BEGINNINGS_MAX = 64
_TERMS_MAX = 4000


class TooManyError(Exception):
    """The search was given up: the expressions are too entangled."""


def one_of(characters: Iterable[str]) -> Term:
    return ("set", frozenset(characters) & ALPHABET)


def text(word: str) -> Term:
    found = BLANK
    for character in reversed(word):
        found = then(one_of(character), found)
    return found


def then(first: Term, second: Term) -> Term:
    if NOTHING in (first, second):
        return NOTHING
    if first == BLANK:
        return second
    if second == BLANK:
        return first
    if first[0] == "then":
        return ("then", first[1], then(first[2], second))
    return ("then", first, second)


def many(term: Term) -> Term:
    if term in (BLANK, NOTHING):
        return BLANK
    return term if term[0] == "many" else ("many", term)


def either(*terms: Term) -> Term:
    parts = _flat("either", terms) - {NOTHING}
    if EVERYTHING in parts:
        return EVERYTHING
    if len(parts) <= 1:
        return next(iter(parts), NOTHING)
    return ("either", parts)


def both(*terms: Term) -> Term:
    parts = _flat("both", terms) - {EVERYTHING}
    if NOTHING in parts:
        return NOTHING
    if len(parts) <= 1:
        return next(iter(parts), EVERYTHING)
    return ("both", parts)


def without(term: Term) -> Term:
    """Every name but these."""
    if term == NOTHING:
        return EVERYTHING
    if term == EVERYTHING:
        return NOTHING
    return term[1] if term[0] == "without" else ("without", term)


EVERYTHING: Term = ("many", ("set", ALPHABET))


def _flat(kind: str, terms: Iterable[Term]) -> frozenset[Term]:
    found: set[Term] = set()
    for term in terms:
        found |= term[1] if term[0] == kind else {term}
    return frozenset(found)


@lru_cache(_TERMS_KEPT)
def blank(term: Term) -> bool:
    """Whether the empty name is among them."""
    match term:
        case ("set", _):
            return False
        case ("blank",) | ("many", _):
            return True
        case ("then", first, second):
            return blank(first) and blank(second)
        case ("either", parts):
            return any(blank(part) for part in parts)
        case ("both", parts):
            return all(blank(part) for part in parts)
        case _:
            return not blank(term[1])


@lru_cache(_TERMS_KEPT)
def derived(term: Term, character: str) -> Term:
    """What may follow the character in names that begin with it."""
    match term:
        case ("set", characters):
            return BLANK if character in characters else NOTHING
        case ("blank",):
            return NOTHING
        case ("many", inner):
            return then(derived(inner, character), term)
        case ("then", first, second):
            found = then(derived(first, character), second)
            return either(found, derived(second, character)) if blank(first) else found
        case ("either", parts):
            return either(*(derived(part, character) for part in parts))
        case ("both", parts):
            return both(*(derived(part, character) for part in parts))
        case _:
            return without(derived(term[1], character))


@lru_cache(_TERMS_KEPT)
def beginnings(term: Term) -> frozenset[str]:
    """Words with one of which each name of the set begins. The empty word tells nothing; no word: there is no name."""
    found = NOT_TOLD
    match term:
        case ("set", characters):
            found = characters
        case ("then", first, second) if first[0] == "set":
            found = frozenset(head + rest for head in beginnings(first) for rest in beginnings(second))
        case ("then", first, _):
            found = beginnings(first)
        case ("either", parts):
            found = frozenset().union(*(beginnings(part) for part in parts))
        case ("both", parts):
            found = min((beginnings(part) for part in parts), key=lambda words: ("" in words, len(words)))
    return NOT_TOLD if "" in found or len(found) > _BEGINNINGS_MAX else found


def apart(one: Term, other: Term) -> bool:
    """Whether their beginnings alone tell that no name is in both: a quick look, before `example` is searched for."""
    return not any(a.startswith(b) or b.startswith(a) for a in beginnings(one) for b in beginnings(other))


def example(term: Term) -> str | None:
    """One of the shortest names in the set; None when it has none. TooManyError when that cannot be told in time."""
    letters = _representatives(term)
    seen, edge = {term}, [(term, "")]
    while edge:
        following: list[tuple[Term, str]] = []
        for at, name in edge:
            if name and blank(at):
                return name
            for letter in letters:
                onward = derived(at, letter)
                # A name of no character is no name, though its term may be the same again later.
                if onward == NOTHING or (onward in seen and name):
                    continue
                seen.add(onward)
                following.append((onward, name + letter))
            if len(seen) > _TERMS_MAX:
                raise TooManyError
        edge = following if len(following[0][1] if following else "") <= LENGTH_MAX else []
    return None


def _representatives(term: Term) -> list[str]:
    """One character for all that no set in the term tells apart."""
    sets = list(_sets(term))
    classes: dict[tuple[bool, ...], str] = {}
    for letter in (*PREFERRED, *sorted(ALPHABET - set(PREFERRED))):
        classes.setdefault(tuple(letter in members for members in sets), letter)
    return list(classes.values())


def _sets(term: Term) -> set[frozenset[str]]:
    match term:
        case ("set", characters):
            return {characters}
        case ("blank",):
            return set()
        case ("either" | "both", parts):
            return set().union(*(_sets(part) for part in parts))
        case _:
            return set().union(*(_sets(part) for part in term[1:]))
