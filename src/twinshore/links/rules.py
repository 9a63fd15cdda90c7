"""Which links, taken together, could loop or write the same twin. Pure; asked before anything is touched.

Names decide, not what exists today: a configuration that is harmless only until somebody makes a topic is refused, with
the names of topics that are there already when there are any, and with one that could be made otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from twinshore.fleet import ConfigError, Link, Naming
from twinshore.fleet.sentences import listed
from twinshore.links.names import Term, TooManyError, apart, both, either, example, holds, text, then, without
from twinshore.links.patterns import StrangeError, names_of

SHOWN_MAX = 3
CYCLE_LINKS_MAX = 12
KEPT = 64
PAIR = 2  # links, whose topics have homes: see `homes`


@dataclass(frozen=True, slots=True)
class Conflict:
    """`topics`: some names that are concerned; those of topics that exist, else one that could."""

    kind: str
    links: tuple[str, ...]
    topics: tuple[str, ...]
    sentence: str
    hint: str


def check_links(links: Sequence[Link], topics: Mapping[str, Sequence[str]] | None = None) -> None:
    """ConfigError with every conflict between these links. `topics`: what is known to exist on each cluster."""
    found = conflicts(links, topics or {})
    if found:
        raise ConfigError("; ".join(one.sentence for one in found), hint=found[0].hint)


def conflicts(links: Sequence[Link], topics: Mapping[str, Sequence[str]]) -> tuple[Conflict, ...]:
    """All that could go wrong between these links."""
    return (*_loops(links, topics), *_collisions(links, topics)) if topics else _without_topics(tuple(links))


@lru_cache(KEPT)
def _without_topics(links: tuple[Link, ...]) -> tuple[Conflict, ...]:
    """Each of many links asks the same of all of them."""
    return (*_loops(links, {}), *_collisions(links, {}))


def _loops(links: Sequence[Link], topics: Mapping[str, Sequence[str]]) -> Iterator[Conflict]:
    """Rings in which a topic would come back under its own name. By prefix it comes back under another one, and there
    its provenance stops it. Of two links that are each other's way back, the topic's home says which one carries it."""
    for ring in rings([link for link in links if link.naming is Naming.SAME]):
        if len(ring) == PAIR:
            continue
        shared = _shared([_admitted(link) for link in ring], [n for link in ring for n in topics.get(link.source, ())])
        if shared is None:
            continue
        names = tuple(link.name for link in ring)
        what = _what(shared)
        sentence = f"links {_list(names)} would carry {what} in a circle, each under the same name: it could loop"
        hint = 'give the links topics of their own, or naming = "prefix"'
        yield Conflict("loop", names, shared, sentence, hint)


def _collisions(links: Sequence[Link], topics: Mapping[str, Sequence[str]]) -> Iterator[Conflict]:
    """Two links that would write the same twin of their target."""
    called = [_twins(link) for link in links]
    for index, one in enumerate(links):
        for at, other in enumerate(links[index + 1 :], index + 1):
            if one.target != other.target or one.source == other.source:
                continue
            ours, theirs = called[index], called[at]
            if ours is not None and theirs is not None and apart(ours, theirs):
                continue
            known = [link.twin_of(name) for link in (one, other) for name in topics.get(link.source, ())]
            shared = _shared([ours, theirs], known)
            if shared is None:
                continue
            names = (one.name, other.name)
            sentence = f"links {_list(names)} would both write {_what(shared)} on {one.target}"
            hint = 'naming = "prefix" for both, or filters that have no topic in common'
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


def _shared(sets: Sequence[Term | None], known: Sequence[str]) -> tuple[str, ...] | None:
    """Names that are in all the sets: known ones, else one made up, else none named; None when there are none."""
    if any(term is None for term in sets):
        # What an expression says is not understood: it may say anything.
        return ()
    term = both(*(one for one in sets if one is not None))
    found = sorted({name for name in known if holds(term, name)})
    if found:
        return tuple(found)
    try:
        made_up = example(term)
    except TooManyError:
        return ()
    return None if made_up is None else (made_up,)


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


def _what(names: tuple[str, ...]) -> str:
    if not names:
        return "topics that their expressions do not rule out"
    return ("topics like " if len(names) == 1 else "topics ") + listed(names, SHOWN_MAX)


def _list(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
