"""Which topics a link admits, and which links together could loop or write the same twin.

`NameSet` terms are sets of topic names, made from regular expressions. `derivative_of` takes off one character
(Brzozowski), which makes intersection and complement cheap. A search ends because equal terms are one.

Conflicts are judged by names, not by existing topics: a configuration that is safe only until a topic is created is
refused, with an example name.
"""

from __future__ import annotations

import importlib
import json
import re
import string
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from twinshore.config.errors import ConfigError
from twinshore.config.frozen import HEARTBEATS, NOTES_TOPICS, OWN_PREFIX
from twinshore.config.model import Link, TwinNaming, is_heartbeats_topic

KAFKA_INTERNAL_TOPICS = frozenset(
    ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata", "__remote_log_metadata")
)
# Nothing an application wrote.
INTERNAL_TOPICS = KAFKA_INTERNAL_TOPICS.union(NOTES_TOPICS)


def is_internal_topic(topic: str) -> bool:
    return topic in INTERNAL_TOPICS or is_heartbeats_topic(topic)


@lru_cache(maxsize=1024)
def is_reserved_topic(topic: str) -> bool:
    """Whether clients may not change the topic: Kafka's own, and all that begin with `twinshore.`."""
    return topic.startswith(OWN_PREFIX) or is_internal_topic(topic)


def admits(link: Link, topic: str) -> bool:
    """Whether the link may carry the topic. Kafka's own topics never pass; the source's own heartbeats always do, and
    those of others where twins go on, as far as they are twins, which their descent says."""
    if topic == HEARTBEATS or (link.chain and is_heartbeats_topic(topic)):
        return True
    return topic not in INTERNAL_TOPICS and passes_filters(link, topic)


def passes_filters(link: Link, topic: str) -> bool:
    """Whether the filters admit the topic. Exclusions win."""
    if any(re.fullmatch(pattern, topic) for pattern in link.exclude):
        return False
    return any(re.fullmatch(pattern, topic) for pattern in link.topics)


def filters_json(link: Link) -> str:
    return json.dumps([link.topics, link.exclude])


def with_filters(link: Link, text: str) -> Link:
    """Returns the link with filters from the store; ValueError or TypeError if invalid."""
    topics, exclude = json.loads(text)
    return replace(link, topics=tuple(topics), exclude=tuple(exclude))


NameSet = tuple[Any, ...]

TOPIC_CHARACTERS = frozenset(string.ascii_letters + string.digits + "._-")
TOPIC_LENGTH_MAX = 249
EMPTY_SET: NameSet = ("set", frozenset())
EMPTY_NAME: NameSet = ("blank",)
UNKNOWN_PREFIX = frozenset({""})
# Example names should look like names.
PREFERRED_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789-_."
_TERMS_KEPT = 1 << 16
_BEGINNINGS_MAX = 64
_TERMS_MAX = 4000


class SearchTooLargeError(Exception):
    """The expressions are too complex."""


def any_character_of(characters: Iterable[str]) -> NameSet:
    return ("set", frozenset(characters) & TOPIC_CHARACTERS)


def literal_name(name: str) -> NameSet:
    term = EMPTY_NAME
    for character in reversed(name):
        term = concatenate(any_character_of(character), term)
    return term


def concatenate(first: NameSet, second: NameSet) -> NameSet:
    if EMPTY_SET in (first, second):
        return EMPTY_SET
    if first == EMPTY_NAME:
        return second
    if second == EMPTY_NAME:
        return first
    if first[0] == "then":
        return ("then", first[1], concatenate(first[2], second))
    return ("then", first, second)


def repeat_any(term: NameSet) -> NameSet:
    if term in (EMPTY_NAME, EMPTY_SET):
        return EMPTY_NAME
    return term if term[0] == "many" else ("many", term)


def union_of(*terms: NameSet) -> NameSet:
    parts = _flat("either", terms) - {EMPTY_SET}
    if ALL_NAMES in parts:
        return ALL_NAMES
    if len(parts) <= 1:
        return next(iter(parts), EMPTY_SET)
    return ("either", parts)


def intersection_of(*terms: NameSet) -> NameSet:
    parts = _flat("both", terms) - {ALL_NAMES}
    if EMPTY_SET in parts:
        return EMPTY_SET
    if len(parts) <= 1:
        return next(iter(parts), ALL_NAMES)
    return ("both", parts)


def complement_of(term: NameSet) -> NameSet:
    if term == EMPTY_SET:
        return ALL_NAMES
    if term == ALL_NAMES:
        return EMPTY_SET
    return term[1] if term[0] == "without" else ("without", term)


ALL_NAMES: NameSet = ("many", ("set", TOPIC_CHARACTERS))


def _flat(kind: str, terms: Iterable[NameSet]) -> frozenset[NameSet]:
    parts: set[NameSet] = set()
    for term in terms:
        parts |= term[1] if term[0] == kind else {term}
    return frozenset(parts)


@lru_cache(_TERMS_KEPT)
def is_nullable(term: NameSet) -> bool:
    """Whether the set has the empty name."""
    match term:
        case ("set", _):
            return False
        case ("blank",) | ("many", _):
            return True
        case ("then", first, second):
            return is_nullable(first) and is_nullable(second)
        case ("either", parts):
            return any(is_nullable(part) for part in parts)
        case ("both", parts):
            return all(is_nullable(part) for part in parts)
        case _:
            return not is_nullable(term[1])


@lru_cache(_TERMS_KEPT)
def derivative_of(term: NameSet, character: str) -> NameSet:
    """The rests of the names that begin with the character."""
    match term:
        case ("set", characters):
            return EMPTY_NAME if character in characters else EMPTY_SET
        case ("blank",):
            return EMPTY_SET
        case ("many", inner):
            return concatenate(derivative_of(inner, character), term)
        case ("then", first, second):
            onward = concatenate(derivative_of(first, character), second)
            return union_of(onward, derivative_of(second, character)) if is_nullable(first) else onward
        case ("either", parts):
            return union_of(*(derivative_of(part, character) for part in parts))
        case ("both", parts):
            return intersection_of(*(derivative_of(part, character) for part in parts))
        case _:
            return complement_of(derivative_of(term[1], character))


@lru_cache(_TERMS_KEPT)
def prefixes_of(term: NameSet) -> frozenset[str]:
    """Prefixes that cover all names. An empty prefix says nothing; none: the set is empty."""
    prefixes = UNKNOWN_PREFIX
    match term:
        case ("set", characters):
            prefixes = characters
        case ("then", first, second) if first[0] == "set":
            prefixes = frozenset(head + rest for head in prefixes_of(first) for rest in prefixes_of(second))
        case ("then", first, _):
            prefixes = prefixes_of(first)
        case ("either", parts):
            prefixes = frozenset().union(*(prefixes_of(part) for part in parts))
        case ("both", parts):
            prefixes = min((prefixes_of(part) for part in parts), key=lambda words: ("" in words, len(words)))
    return UNKNOWN_PREFIX if "" in prefixes or len(prefixes) > _BEGINNINGS_MAX else prefixes


def have_disjoint_prefixes(first: NameSet, second: NameSet) -> bool:
    """Whether prefixes alone show that no name is shared: a quick check before `find_example`."""
    return not any(a.startswith(b) or b.startswith(a) for a in prefixes_of(first) for b in prefixes_of(second))


def find_example(term: NameSet) -> str | None:
    """Returns one of the shortest names; None: empty. May raise SearchTooLargeError."""
    letters = _representatives(term)
    known, edge = {term}, [(term, "")]
    while edge:
        following: list[tuple[NameSet, str]] = []
        for at, name in edge:
            if name and is_nullable(at):
                return name
            for letter in letters:
                onward = derivative_of(at, letter)
                # The empty string is no name, though its term may come again later.
                if onward == EMPTY_SET or (onward in known and name):
                    continue
                known.add(onward)
                following.append((onward, name + letter))
            if len(known) > _TERMS_MAX:
                raise SearchTooLargeError
        edge = following if len(following[0][1] if following else "") <= TOPIC_LENGTH_MAX else []
    return None


def _representatives(term: NameSet) -> list[str]:
    """One character for each class that the term's sets do not tell apart."""
    sets = list(_sets(term))
    classes: dict[tuple[bool, ...], str] = {}
    for letter in (*PREFERRED_CHARACTERS, *sorted(TOPIC_CHARACTERS - set(PREFERRED_CHARACTERS))):
        classes.setdefault(tuple(letter in members for members in sets), letter)
    return list(classes.values())


def _sets(term: NameSet) -> set[frozenset[str]]:
    match term:
        case ("set", characters):
            return {characters}
        case ("blank",):
            return set()
        case ("either" | "both", parts):
            return set().union(*(_sets(part) for part in parts))
        case _:
            return set().union(*(_sets(part) for part in term[1:]))


# The parser of `re`; public under another name until Python 3.13.
_parser: Any = importlib.import_module("re._parser")
REPETITIONS_MAX = 300


class UnsupportedPatternError(Exception):
    """A pattern that `NameSet` cannot express: a back reference, a lookbehind, a lookahead in a repetition."""


@lru_cache(1024)
def names_matching(pattern: str) -> NameSet:
    """The names that the pattern matches in full. May raise UnsupportedPatternError."""
    return _sequence(list(_parser.parse(pattern)), EMPTY_NAME, re.compile(pattern).flags, first=True)


def _sequence(items: list[Any], onward: NameSet, flags: int, *, first: bool) -> NameSet:
    """The names that match the items and then `onward`, all that follows; so a lookahead is an intersection."""
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
            raise UnsupportedPatternError
        names = _sequence(list(inner), ALL_NAMES, flags, first=False)
        return intersection_of(names if name == "ASSERT" else complement_of(names), following)
    if name == "BRANCH":
        return union_of(*(_sequence(list(branch), following, flags, first=first) for branch in value[1]))
    if name == "SUBPATTERN":
        _, added, removed, inner = value
        return _sequence(list(inner), following, (flags | added) & ~removed, first=first)
    if name in ("MAX_REPEAT", "MIN_REPEAT"):
        low, high, inner = value
        return concatenate(_repeated(low, high, list(inner), flags), following)
    return concatenate(_character(name, value, flags), following)


def _at(place: str, following: NameSet, *, first: bool) -> NameSet:
    if place in ("AT_BEGINNING", "AT_BEGINNING_STRING") and first:
        return following
    if place in ("AT_END", "AT_END_STRING"):
        return intersection_of(EMPTY_NAME, following)
    raise UnsupportedPatternError


def _repeated(low: int, high: Any, items: list[Any], flags: int) -> NameSet:
    if _looks(items):
        raise UnsupportedPatternError
    once = _sequence(items, EMPTY_NAME, flags, first=False)
    endless = str(high) == "MAXREPEAT"
    if low > REPETITIONS_MAX or (not endless and high > REPETITIONS_MAX):
        raise UnsupportedPatternError
    term = repeat_any(once) if endless else EMPTY_NAME
    for _ in range(0 if endless else high - low):
        term = union_of(EMPTY_NAME, concatenate(once, term))
    for _ in range(low):
        term = concatenate(once, term)
    return term


def _looks(items: list[Any]) -> bool:
    for kind, value in items:
        name = str(kind)
        if name in ("AT", "ASSERT", "ASSERT_NOT"):
            return True
        repeats = name in ("SUBPATTERN", "MAX_REPEAT", "MIN_REPEAT")
        branches = value[1] if name == "BRANCH" else [value[-1]] if repeats else []
        if any(_looks(list(branch)) for branch in branches):
            return True
    return False


def _character(name: str, value: Any, flags: int) -> NameSet:
    match name:
        case "LITERAL":
            return _cased({chr(value)}, flags)
        case "NOT_LITERAL":
            return any_character_of(TOPIC_CHARACTERS - _cased({chr(value)}, flags)[1])
        case "ANY":
            return any_character_of(TOPIC_CHARACTERS)
        case "IN":
            return _class(value, flags)
        case _:
            raise UnsupportedPatternError


def _class(members: list[Any], flags: int) -> NameSet:
    letters: set[str] = set()
    negated = False
    for kind, value in members:
        match str(kind):
            case "NEGATE":
                negated = True
            case "LITERAL":
                letters.add(chr(value))
            case "RANGE":
                letters |= {letter for letter in TOPIC_CHARACTERS if value[0] <= ord(letter) <= value[1]}
            case "CATEGORY":
                letters |= {letter for letter in TOPIC_CHARACTERS if re.fullmatch(_CATEGORIES[str(value)], letter)}
            case _:
                raise UnsupportedPatternError
    inside = _cased(letters, flags)[1]
    return any_character_of(TOPIC_CHARACTERS - inside) if negated else any_character_of(inside)


_CATEGORIES = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
}


def _cased(letters: set[str], flags: int) -> NameSet:
    if flags & re.IGNORECASE:
        letters = {form for letter in letters for form in (letter.lower(), letter.upper())}
    return any_character_of(letters) if letters & TOPIC_CHARACTERS else EMPTY_SET


CYCLE_LINKS_MAX = 12
CONFLICTS_CACHED = 64
PAIR_LINKS = 2  # links of a pair, whose topics have homes: see `ownership`


@dataclass(frozen=True, slots=True)
class Conflict:
    """`topic`: an example name; empty when a pattern is unsupported or the search was given up."""

    code: str
    links: tuple[str, ...]
    topic: str
    target: str = ""

    def error(self, others: Iterable[Conflict] = ()) -> ConfigError:
        """The error, with the sentences of the others."""
        more = "".join(f"; {conflict.error().message}" for conflict in others)
        links, topics = f"{', '.join(self.links[:-1])} and {self.links[-1]}", _what(self.topic)
        return ConfigError(self.code, links=links, topics=topics, cluster=self.target, more=more)


def check_links(links: Sequence[Link], changed: Set[str] | None = None) -> None:
    """Raises ConfigError with every conflict between these links, or with those that concern `changed`."""
    conflicts = find_conflicts(links)
    concerned = [conflict for conflict in conflicts if changed is None or not changed.isdisjoint(conflict.links)]
    if concerned:
        raise concerned[0].error(concerned[1:])


def find_conflicts(links: Sequence[Link]) -> tuple[Conflict, ...]:
    return _conflicts(tuple(links))


@lru_cache(CONFLICTS_CACHED)
def _conflicts(links: tuple[Link, ...]) -> tuple[Conflict, ...]:
    """Finds conflicts; cached, since each of many links asks the same."""
    return (*_loops(links), *_collisions(links))


def _loops(links: Sequence[Link]) -> Iterator[Conflict]:
    """Rings in which a topic would come back under the same name. Under a prefix, lineage stops the loop; in a pair,
    the topic's home does.
    """
    for ring in find_cycles([link for link in links if link.naming is TwinNaming.SAME]):
        if len(ring) == PAIR_LINKS:
            continue
        if (shared := _shared([_admitted(link) for link in ring])) is not None:
            yield Conflict("replication.links-loop", tuple(link.name for link in ring), shared)


def _collisions(links: Sequence[Link]) -> Iterator[Conflict]:
    called = [_twins(link) for link in links]
    for index, left in enumerate(links):
        for at, right in enumerate(links[index + 1 :], index + 1):
            if left.target != right.target or left.source == right.source:
                continue
            left_names, right_names = called[index], called[at]
            if left_names is not None and right_names is not None and have_disjoint_prefixes(left_names, right_names):
                continue
            if (shared := _shared([left_names, right_names])) is not None:
                yield Conflict("replication.links-collide", (left.name, right.name), shared, left.target)


def find_cycles(links: Sequence[Link]) -> Iterator[tuple[Link, ...]]:
    """Every ring of links that passes each cluster once."""
    clusters = sorted({link.source for link in links})
    for first in clusters:
        # Other clusters are later in the order, so a ring is found only from its first cluster.
        yield from _onward((), first, first, links)


def _onward(path: tuple[Link, ...], at: str, first: str, links: Sequence[Link]) -> Iterator[tuple[Link, ...]]:
    if len(path) == CYCLE_LINKS_MAX:
        return
    passed = {link.source for link in path}
    for link in links:
        if link.source != at:
            continue
        if link.target == first:
            yield (*path, link)
        elif link.target > first and link.target not in passed:
            yield from _onward((*path, link), link.target, first, links)


def _shared(sets: Sequence[NameSet | None]) -> str | None:
    """Returns a name in all sets; empty: unknown; None: there is none."""
    if any(term is None for term in sets):
        # An unsupported pattern may match anything.
        return ""
    try:
        return find_example(intersection_of(*(one for one in sets if one is not None)))
    except SearchTooLargeError:
        return ""


def _admitted(link: Link) -> NameSet | None:
    """The names that a link admits, except internal topics; None: unsupported pattern."""
    try:
        wanted = union_of(*(names_matching(pattern) for pattern in link.topics))
        unwanted = union_of(*(names_matching(pattern) for pattern in link.exclude))
        internal = names_matching(r"(.*\.)?twinshore\.(heartbeats|twins)")
    except UnsupportedPatternError:
        return None
    return intersection_of(wanted, complement_of(unwanted), complement_of(internal))


def _twins(link: Link) -> NameSet | None:
    """The names of a link's twins."""
    admitted = _admitted(link)
    if admitted is None or link.naming is TwinNaming.SAME:
        return admitted
    return concatenate(literal_name(f"{link.source}."), admitted)


def _what(name: str) -> str:
    return f"topics like {name}" if name else "topics that their expressions do not rule out"
