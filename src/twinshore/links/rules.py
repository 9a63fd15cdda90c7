"""Which links, taken together, could loop or write the same twin. Pure; asked before anything is touched.

Names decide, not what exists today: a configuration that is harmless only until somebody makes a topic is refused, with
the name of one that could be made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache

from twinshore.fleet import ConfigError, Link, Naming
from twinshore.links.names import (
    StrangeError,
    Term,
    TooManyError,
    apart,
    both,
    either,
    example,
    names_of,
    text,
    then,
    without,
)

CYCLE_LINKS_MAX = 12
KEPT = 64
PAIR = 2  # links, whose topics have homes: see `homes`


@dataclass(frozen=True, slots=True)
class Conflict:
    """`topic`: a name that is concerned; empty where the expressions are not understood."""

    kind: str
    links: tuple[str, ...]
    topic: str
    sentence: str
    hint: str


def check_links(links: Sequence[Link], changed: Set[str] | None = None) -> None:
    """ConfigError with every conflict between these links, or with those in which one of `changed` takes part."""
    found = [one for one in conflicts(links) if changed is None or not changed.isdisjoint(one.links)]
    if found:
        raise ConfigError("; ".join(one.sentence for one in found), hint=found[0].hint)


def conflicts(links: Sequence[Link]) -> tuple[Conflict, ...]:
    """All that could go wrong between these links."""
    return _conflicts(tuple(links))


@lru_cache(KEPT)
def _conflicts(links: tuple[Link, ...]) -> tuple[Conflict, ...]:
    """Each of many links asks the same of all of them."""
    return (*_loops(links), *_collisions(links))


def _loops(links: Sequence[Link]) -> Iterator[Conflict]:
    """Rings in which a topic would come back under its own name. By prefix it comes back under another one, and there
    its provenance stops it. Of two links that are each other's way back, the topic's home says which one carries it."""
    for ring in rings([link for link in links if link.naming is Naming.SAME]):
        if len(ring) == PAIR:
            continue
        shared = _shared([_admitted(link) for link in ring])
        if shared is None:
            continue
        names = tuple(link.name for link in ring)
        what = _what(shared)
        sentence = f"links {_list(names)} would carry {what} in a circle, each under the same name: it could loop"
        hint = 'give the links topics of their own, or naming = "prefix"'
        yield Conflict("loop", names, shared, sentence, hint)


def _collisions(links: Sequence[Link]) -> Iterator[Conflict]:
    """Two links that would write the same twin of their target."""
    called = [_twins(link) for link in links]
    for index, one in enumerate(links):
        for at, other in enumerate(links[index + 1 :], index + 1):
            if one.target != other.target or one.source == other.source:
                continue
            ours, theirs = called[index], called[at]
            if ours is not None and theirs is not None and apart(ours, theirs):
                continue
            shared = _shared([ours, theirs])
            if shared is None:
                continue
            names = (one.name, other.name)
            sentence = f"links {_list(names)} would both write {_what(shared)} on {one.target}"
            hint = 'naming = "prefix" for both, filters that have no topic in common, or `twinshore link remove`'
            yield Conflict("collision", names, shared, sentence, hint)


def rings(links: Sequence[Link]) -> Iterator[tuple[Link, ...]]:
    """Every way to come back to a cluster without passing one twice; each ring once."""
    clusters = sorted({link.source for link in links})
    for first in clusters:
        # Others begin later in the order, so a ring is found only from its first cluster.
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


def _shared(sets: Sequence[Term | None]) -> str | None:
    """A name that is in all the sets; empty where none can be told, None when there is none."""
    if any(term is None for term in sets):
        # What an expression says is not understood: it may say anything.
        return ""
    try:
        return example(both(*(one for one in sets if one is not None)))
    except TooManyError:
        return ""


def _admitted(link: Link) -> Term | None:
    """The names that a link's filters let through, its internal topics apart; None where that cannot be told."""
    try:
        wanted = either(*(names_of(pattern) for pattern in link.topics))
        unwanted = either(*(names_of(pattern) for pattern in link.exclude))
        internal = names_of(r"(.*\.)?twinshore\.(heartbeats|twins)")
    except StrangeError:
        return None
    return both(wanted, without(unwanted), without(internal))


def _twins(link: Link) -> Term | None:
    """What the twins of a link can be called."""
    admitted = _admitted(link)
    if admitted is None or link.naming is Naming.SAME:
        return admitted
    return then(text(f"{link.source}."), admitted)


def _what(name: str) -> str:
    return f"topics like {name}" if name else "topics that their expressions do not rule out"


def _list(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
