"""What a link would carry back: twins that a link the other way round wrote before it was removed.

Such a link is carried no more, so nobody judges by its rows; where the journal of twins cannot be read either, a mirror
would take its twins for originals.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from twinshore.fleet import Link, Naming, is_heartbeats
from twinshore.fleet.sentences import listed
from twinshore.links import homes
from twinshore.links.filters import admits
from twinshore.links.seeds import section_of
from twinshore.store import LinkRow, Store

NAMED_MAX = 5
Ids = Mapping[str, set[str]]


@dataclass(frozen=True, slots=True)
class WayBack:
    """Sentences. `in_the_way`: twins that the link would carry back. `unknown`: what the store cannot tell of others.
    `at_home`: topics that the link leaves alone, as they are at home on its target."""

    in_the_way: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    at_home: tuple[str, ...] = ()


def way_back(
    link: Link, before: Link | None, carried: Collection[str], rows: Iterable[LinkRow], store: Store
) -> WayBack:
    """`before`: what the link was until now, where it was there. `carried`: the links that there are; `rows` are those
    of the store, of removed links too."""
    known = {row.link: row for row in rows}
    back = f"{link.target}->{link.source}"
    home = store.homes.of(homes.pair_of(link)) if link.naming is Naming.SAME else {}
    away, brought = homes.elsewhere(link, home), homes.brought(link, home)
    ids = _ids(store)
    in_the_way, unknown, at_home = list[str](), list[str](), set[str]()
    # Of a pair homes say which of the two carries a topic, and the twins of both are known.
    for name in sorted({back, *known} - set(carried)):
        goes_back = True if name == back else _goes_back(name, link, ids, store)
        naming = Naming(section_of(known[name]).get("naming", Naming.SAME)) if name in known else None
        twins = _twins(name, naming, store) if goes_back is not False else set()
        fresh = {twin for twin in twins if admits(link, twin) and not (before and admits(before, twin))}
        at_home |= fresh & away.keys()
        if not (found := sorted(fresh - away.keys() - brought)):
            continue
        topics = listed(found, NAMED_MAX)
        if goes_back is None:
            unknown.append(f"{name} wrote twins ({topics}), and whether it was between these clusters is not known")
        elif naming is None:
            unknown.append(f"{name} wrote twins that may be called so ({topics}), and its names are not known any more")
        else:
            in_the_way.append(f"{name}, which is there no more, has twins on {link.source} ({topics})")
    return WayBack(tuple(in_the_way), tuple(unknown), tuple(sorted(at_home)))


def _goes_back(name: str, link: Link, ids: Ids, store: Store) -> bool | None:
    """Whether that link went the other way between the same clusters, whatever it called them; None where nobody
    knows which clusters these are."""
    identity = store.links.identity(name)
    if identity is None:
        return False  # It never began.
    source, target = ids.get(link.source), ids.get(link.target)
    if (source and identity.target_cluster_id not in source) or (target and identity.source_cluster_id not in target):
        return False
    return True if source and target else None


def _ids(store: Store) -> Ids:
    """The ids of each cluster, as the links that name it knew them when they began."""
    found: dict[str, set[str]] = {}
    for identity in store.links.identities():
        source, _, target = identity.link.partition("->")
        found.setdefault(source, set()).add(identity.source_cluster_id)
        found.setdefault(target, set()).add(identity.target_cluster_id)
    return found


def _twins(link: str, naming: Naming | None, store: Store) -> set[str]:
    """What the link's twins are called on its target; both ways to call them where its naming is not known. Without
    heartbeats: their twins are called by their source and never go back."""
    topics = {row.topic for row in store.twins.of(link)} | {row.topic for row in store.receipts.positions(link)}
    topics = {topic for topic in topics if not is_heartbeats(topic)}
    prefixed = {f"{link.partition('->')[0]}.{topic}" for topic in topics}
    match naming:
        case Naming.SAME:
            return topics
        case Naming.PREFIX:
            return prefixed
        case _:
            return topics | prefixed
