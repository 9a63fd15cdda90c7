"""Twins of a removed reverse link, which a new link would replicate back.

No mirror replicates such twins (`topic_lineage`), so adding the link says so at once.
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
    """`in_the_way`: sentences on twins that the link could not replicate. `at_home`: topics that the link leaves alone,
    since their home is the target.
    """

    in_the_way: tuple[str, ...] = ()
    at_home: tuple[str, ...] = ()


def check_reverse_link(
    link: Link, before: Link | None, carried: Collection[str], rows: Iterable[LinkRow], store: Store
) -> ReverseLinkCheck:
    """`before`: the link as it was, if any. `carried`: present links; `rows`: also removed ones."""
    known = {row.link: row for row in rows}
    back = f"{link.target}->{link.source}"
    home = store.homes.of(ownership.pair_name(link)) if link.naming is TwinNaming.SAME else {}
    away, came = ownership.homes_elsewhere(link, home), ownership.topics_moved_here(link, home)
    ids = _ids(store)
    in_the_way, at_home = list[str](), set[str]()
    # In a pair, homes decide which link replicates a topic, and the twins of both are known.
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
    """Whether that link ran the other way between the same clusters, under any names."""
    identity = store.links.identity(name)
    return (
        identity is not None
        and identity.target_cluster_id in ids.get(link.source, ())
        and identity.source_cluster_id in ids.get(link.target, ())
    )


def _ids(store: Store) -> Mapping[str, set[str]]:
    """Known cluster ids by cluster name."""
    found: dict[str, set[str]] = {}
    for identity in store.links.identities():
        source, _, target = identity.link.partition("->")
        found.setdefault(source, set()).add(identity.source_cluster_id)
        found.setdefault(target, set()).add(identity.target_cluster_id)
    return found


def _twins(row: LinkRow, store: Store) -> set[str]:
    """The twins' names on the target. Without heartbeats, whose twins are named by source and never go back."""
    source, _, target = row.link.partition("->")
    link = Link(source, target, naming=TwinNaming(parse_section(row).get("naming", TwinNaming.SAME)))
    return {
        link.twin_of(twin_row.topic) for twin_row in store.twins.of(row.link) if not is_heartbeats_topic(twin_row.topic)
    }
