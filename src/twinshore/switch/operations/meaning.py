"""Which topics an operator's words mean, and along which link they move."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from twinshore.fleet import ConfigError, Link, RefusedError, is_heartbeats, is_twinshores
from twinshore.fleet.sentences import are, listed
from twinshore.fleet.settings import Settings
from twinshore.fleet.settings.edge import did_you_mean
from twinshore.fleet.settings.shapes import why_not_pattern
from twinshore.fleet.switch_defaults import HOLD_S
from twinshore.links.filters import admits
from twinshore.links.homes import counterpart, pair_of
from twinshore.links.standing import standing
from twinshore.store import Store, TwinRow
from twinshore.switch.deeds import Kind

NAMED_MAX = 5
# A topic's whole name; a dot of it may be written as an expression has it.
NAME = re.compile(r"(?:[a-zA-Z0-9_-]|\\?\.)+")


@dataclass(frozen=True, slots=True)
class Switch:
    """Topics whose whole names match one of these expressions are at home on `to` from then on. `links`: only those
    that these links carry. `hold_s`: how long writers may wait before it turns back. `group`: it alone, and no topic.
    `wave`: of all topics so many at once, 0: those that are named. `of`: those that this switch has moved.
    `producer`: it alone, which is refused. `bare`: without what is in them."""

    topics: Sequence[str]
    to: str
    kind: Kind = Kind.PLANNED
    links: Sequence[str] = ()
    hold_s: float = HOLD_S
    group: str = ""
    wave: int = 0
    of: str = ""
    producer: str = ""
    bare: bool = False


def asked_of(
    topics: Sequence[str],
    to: str,
    links: Sequence[str] = (),
    *,
    force: bool = False,
    drill: bool = False,
    hold_s: float = HOLD_S,
    group: str = "",
    wave: int = 0,
    of: str = "",
    producer: str = "",
    bare: bool = False,
) -> Switch:
    """What an operator's words ask for."""
    kind = Kind.DRILL if drill else Kind.FORCED if force else Kind.PLANNED
    return Switch(topics, to, kind, links, hold_s, group, wave, of, producer, bare)


def must_be_expressions(topics: Sequence[str]) -> None:
    """ConfigError where one of these words is none."""
    for pattern in topics:
        if why := why_not_pattern(pattern):
            raise ConfigError(f"TOPIC: {why}")


def carrier_of(asked: Switch, settings: Settings, store: Store) -> tuple[Link, list[str]]:
    """The one link that carries these topics, and their names."""
    link, rows = link_of(asked, [one.link for one in standing(settings.links, store).values()], store)
    return link, sorted({row.topic for row in rows})


def leading_to(asked: Switch, links: Sequence[Link]) -> list[Link]:
    """The links that the topics may move along."""
    return [one for one in links if one.target == asked.to and (not asked.links or one.name in asked.links)]


@dataclass(frozen=True, slots=True)
class Meant:
    """`rows`: the twins that are meant, by the links that carry them; `known`: all topics that have twins there.
    `lacking`: which of the words fit nothing, neither a twin nor a topic that is at home there already. `dotted`: which
    fit others than the topic of that very name, by their dots. `settled`: topics that need none,
    being at home there or twins themselves."""

    rows: dict[str, list[TwinRow]]
    known: list[str]
    lacking: list[str]
    dotted: dict[str, list[str]]
    settled: frozenset[str] = frozenset()


def meant(asked: Switch, links: Sequence[Link], store: Store) -> Meant:
    """Of a switch along one of these links. What is a topic's whole name means that topic, and no other that it would
    fit as an expression."""
    into = leading_to(asked, links)
    rows: dict[str, list[TwinRow]] = {}
    for one in into:
        carried = [row for row in store.twins.carried(one.name) if not is_heartbeats(row.topic)]
        # By force also what the link carries no more: what has crossed is all there is.
        rows[one.name] = [row for row in carried if asked.kind is Kind.FORCED or admits(one, row.topic)]
    known = {row.topic for some in rows.values() for row in some}
    at_home = _at_home(asked, into, links, store)
    fits, settled = known | at_home, at_home | _twins_on_sources(into, links, store)
    words = {one: _fitting(one, fits) for one in asked.topics}
    wanted = {topic for some in words.values() for topic in some}
    found = {name: [row for row in some if row.topic in wanted] for name, some in rows.items()}
    lacking = [one for one, some in words.items() if not some]
    dotted = {
        one: sorted(some)
        for one, some in words.items()
        if some and some != [one.replace("\\", "")] and NAME.fullmatch(one)
    }
    rows_found = {name: some for name, some in found.items() if some}
    return Meant(rows_found, sorted(known), lacking, dotted, frozenset(settled))


def without_twins(asked: Switch, link: Link, words: Meant, topics: Iterable[str]) -> list[str]:
    """Those of the source's topics that are meant and admitted, and have no twin yet."""
    carried = {row.topic for row in words.rows.get(link.name, ())} | set(words.known) | words.settled
    new = [one for one in topics if one not in carried and not is_twinshores(one) and admits(link, one)]
    return sorted({topic for word in asked.topics for topic in _fitting(word, new) if word not in carried})


def link_of(asked: Switch, links: Sequence[Link], store: Store) -> tuple[Link, list[TwinRow]]:
    """The one link that carries the topics, and their twins. ConfigError where a word fits nothing, though others do:
    it may be a slip of the pen."""
    into = leading_to(asked, links)
    if not into:
        raise ConfigError(f"no link leads to {asked.to}", hint="a topic moves along the link that carries it")
    found = meant(asked, links, store)
    # Of what another switch has moved, some may be gone by now.
    if found.lacking and not (found.rows and asked.of):
        raise uncarried(found.lacking, into, asked.to, found.known)
    if not found.rows:
        said = listed(list(asked.topics), NAMED_MAX)
        said = f"{said} {are(asked.topics)} at home on {asked.to} already"
        raise RefusedError(said, hint="`twinshore link homes` shows homes")
    if len(found.rows) > 1:
        names = listed(sorted(found.rows), NAMED_MAX)
        raise ConfigError(f"several links carry these topics: {names}", hint="say --link")
    ((name, rows),) = found.rows.items()
    return next(one for one in into if one.name == name), rows


def uncarried(topics: Sequence[str], links: Sequence[Link], to: str, known: Sequence[str]) -> ConfigError:
    """Why a topic that no link carries is not moved, and how it gets a link and a twin first."""
    said = listed(list(topics), NAMED_MAX)
    near = did_you_mean(topics[0], sorted(known))
    sources = listed(sorted({link.source for link in links}), NAMED_MAX)
    return ConfigError(
        f"no link to {to} carries {said}{near}",
        hint=f"a planned switch has a topic of {sources} carried first that is named by its whole name; by force only "
        "what has crossed can move",
    )


def _fitting(word: str, topics: Collection[str]) -> list[str]:
    return [word] if word in topics else [one for one in topics if re.fullmatch(word, one)]


def _at_home(asked: Switch, into: Sequence[Link], links: Sequence[Link], store: Store) -> set[str]:
    """Topics that are at home where they would move to, also those that nobody has switched yet."""
    homes = {row.topic: row.home for one in into for row in store.homes.of(pair_of(one)).values()}
    back = {row.topic for one in into if (way := counterpart(one, links)) for row in store.twins.carried(way.name)}
    return {topic for topic, home in homes.items() if home == asked.to} | (back - homes.keys())


def _twins_on_sources(into: Sequence[Link], links: Sequence[Link], store: Store) -> set[str]:
    """Topics of the sources that are twins there, which links that chain nothing do not carry on."""
    sources = {one.source for one in into if not one.chain}
    others = [one for one in links if one.target in sources]
    return {one.twin_of(row.topic) for one in others for row in store.twins.carried(one.name)}


def literal(topic: str) -> str:
    """The expression that means this topic alone."""
    return topic.replace(".", "\\.")
