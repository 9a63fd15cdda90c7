"""What a link would carry back: twins that a link the other way round wrote before it was removed.

They are twins still, and no mirror carries them (`mirror.topology`): who adds such a link hears it at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from twinshore.config.model import Link, TwinNaming, is_heartbeats_topic
from twinshore.config.sentences import join_names
from twinshore.replication.core import ownership
from twinshore.replication.core.filters import admits
from twinshore.replication.core.link_config import parse_section
from twinshore.state.core.values import LinkRow
from twinshore.state.store import Store

NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class ReverseLinkCheck:
    """`in_the_way`: sentences, of twins that the link would have to leave where they are. `at_home`: topics that it
    leaves alone, as they are at home on its target."""

    in_the_way: tuple[str, ...] = ()
    at_home: tuple[str, ...] = ()


def check_reverse_link(
    link: Link, before: Link | None, carried: Collection[str], rows: Iterable[LinkRow], store: Store
) -> ReverseLinkCheck:
    """`before`: what the link was until now, where it was there. `carried`: the links that there are; `rows` are those
    of the store, of removed links too."""
    known = {row.link: row for row in rows}
    back = f"{link.target}->{link.source}"
    home = store.homes.of(ownership.pair_name(link)) if link.naming is TwinNaming.SAME else {}
    away, came = ownership.homes_elsewhere(link, home), ownership.topics_moved_here(link, home)
    ids = _ids(store)
    in_the_way, at_home = list[str](), set[str]()
    # Of a pair homes say which of the two carries a topic, and the twins of both are known.
    for name in sorted(known.keys() - set(carried)):
        twins = _twins(known[name], store) if name == back or _goes_back(name, link, ids, store) else set()
        fresh = {twin for twin in twins if admits(link, twin) and not (before and admits(before, twin))}
        at_home |= fresh & away.keys()
        if found := sorted(fresh - away.keys() - came):
            in_the_way.append(
                f"{name}, which is there no more, has twins on {link.source} ({join_names(found, NAMED_MAX)})"
            )
    return ReverseLinkCheck(tuple(in_the_way), tuple(sorted(at_home)))


def _goes_back(name: str, link: Link, ids: Mapping[str, set[str]], store: Store) -> bool:
    """Whether that link went the other way between the same clusters, whatever it called them, as far as is known."""
    identity = store.links.identity(name)
    return (
        identity is not None
        and identity.target_cluster_id in ids.get(link.source, ())
        and identity.source_cluster_id in ids.get(link.target, ())
    )


def _ids(store: Store) -> Mapping[str, set[str]]:
    """The ids of each cluster, as the links that name it knew them when they began."""
    found: dict[str, set[str]] = {}
    for identity in store.links.identities():
        source, _, target = identity.link.partition("->")
        found.setdefault(source, set()).add(identity.source_cluster_id)
        found.setdefault(target, set()).add(identity.target_cluster_id)
    return found


def _twins(row: LinkRow, store: Store) -> set[str]:
    """What the link's twins are called on its target. Without heartbeats: their twins are called by their source and
    never go back."""
    source, _, target = row.link.partition("->")
    link = Link(source, target, naming=TwinNaming(parse_section(row).get("naming", TwinNaming.SAME)))
    return {link.twin_of(one.topic) for one in store.twins.of(row.link) if not is_heartbeats_topic(one.topic)}
