"""What holds for each link, by what the store has of operators' words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from twinshore.fleet import Link
from twinshore.links.in_force import InForce, in_force, settled
from twinshore.store import Store


def said_of(links: Iterable[Link], store: Store) -> dict[str, InForce]:
    """Each link as its settings and its operators say, whether or not they clash."""
    links = tuple(links)
    said = store.controls.of_each([link.name for link in links])
    return {link.name: in_force(link, said[link.name]) for link in links}


def standing(links: Sequence[Link], store: Store) -> dict[str, InForce]:
    """What holds for each link."""
    links = tuple(links)  # those of a running mirror may be others a moment later
    return settled(links, said_of(links, store))


def others_in_force(links: Iterable[Link], store: Store | None, now: InForce) -> list[Link]:
    """All links as is said of them, this one as it would be."""
    others = {link.name: link for link in links}
    if store:
        others = {name: one.link for name, one in said_of(others.values(), store).items()}
    return [now.link if name == now.link.name else link for name, link in others.items()]
