"""What the links from a cluster have of its topics: by the store, by how the links stand, and by both sides' settings.

Where there is no store, or it has no link from the cluster, there is nothing to see and nothing to miss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from twinshore.advisor.looking import Eyes
from twinshore.advisor.seen import LinkSeen, TwinSeen, Unseen
from twinshore.fleet import Link
from twinshore.fleet.settings import Settings
from twinshore.kafka.rights import Acl
from twinshore.kafka.rights_requests import read_acls
from twinshore.links.homes import elsewhere, pair_of
from twinshore.links.in_force import in_force
from twinshore.links.known import known
from twinshore.mirror.follow.acls import WRITTEN
from twinshore.mirror.follow.reading import Comparing
from twinshore.service.connections import Shared, once
from twinshore.service.ends import Ends
from twinshore.status import LinkView, look
from twinshore.store import Store

PATIENCE_S = 5.0


def links_from(
    cluster: str, settings: Settings, store: Store, *, clock: Callable[[], int], eyes: Eyes
) -> tuple[LinkSeen, ...]:
    """Each link whose source the cluster is, without topics that are at home elsewhere."""
    settings = settings.with_links(known(settings, store).links)
    found, shared = [], once("twinshore-advise")
    for link in settings.links:
        if link.source != cluster:
            continue
        (view,) = look(store, settings, [link.name], clock=clock, topics=True, pool=shared.pool)
        away = elsewhere(link, store.homes.of(pair_of(link)))
        topics = [one.topic for one in view.topics if one.topic not in away]
        compared = _compared(link, settings, store, topics, eyes, shared) if topics else Compared()
        found.append(_seen(link, settings, view, topics, compared, eyes))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Compared:
    """`differs`: by topic, the settings that its twin has, and those that it should have. The rest as `LinkSeen`."""

    differs: Mapping[str, tuple[tuple[str, str | None, str | None], ...]] = field(default_factory=dict)
    lacks: tuple[Acl, ...] = ()
    left: tuple[Acl, ...] = ()
    open: bool = False


def _compared(link: Link, settings: Settings, store: Store, topics: list[str], eyes: Eyes, shared: Shared) -> Compared:
    found = Compared()
    ends = Ends(link, settings, patience_s=PATIENCE_S, shared=shared)
    with eyes.trying(f"settings of twins of {link.name}"), ends:
        now = in_force(link, store.controls.of(link.name)).link
        comparing = Comparing(now, ends.source, ends.target, store)
        plan = comparing.settings(topics)
        for name, why in plan.silent.items():
            eyes.unseen.append(Unseen(f"settings of {name} for {link.name}", why))
        differs = {
            topic: tuple((name, before, after) for name, (before, after) in changes.items())
            for topic, changes in plan.wanted.items()
        }
        found = Compared(differs)
        with eyes.trying(f"ACLs of twins of {link.name}"):
            found = _with_rights(found, comparing, topics, eyes)
    return found


def _with_rights(found: Compared, comparing: Comparing, topics: list[str], eyes: Eyes) -> Compared:
    """As `mirror plan` compares them, also where they do not follow. What waits for a switch is not lacking."""
    name = comparing.link.name
    theirs = read_acls(comparing.source)
    if theirs is None:
        return found
    ours = read_acls(comparing.target)
    if ours is None:
        return replace(found, open=True)
    sight = comparing.acls(theirs, ours, topics, comparing.store.memories.of(name, WRITTEN))
    if sight.reason:
        eyes.unseen.append(Unseen(f"whether ACLs of {name} are the same on both sides", sight.reason))
    return replace(found, lacks=sight.plan.create, left=sight.plan.remove)


def _seen(
    link: Link,
    settings: Settings,
    view: LinkView,
    topics: list[str],
    compared: Compared,
    eyes: Eyes,
) -> LinkSeen:
    if view.says_of_lag:
        eyes.unseen.append(Unseen(f"how far {link.name} is behind", view.says_of_lag))
    target = settings.cluster(link.target)
    twins = tuple(
        TwinSeen(one.topic, link.twin_of(one.topic), one.lag_records, one.stopped, compared.differs.get(one.topic, ()))
        for one in view.topics
        if one.topic in topics
    )
    secured = target.security.protocol != "PLAINTEXT"
    incidents = tuple(row.incident.sentence for row in view.incidents)
    return LinkSeen(
        link.name,
        target.bootstrap,
        secured,
        view.runs,
        view.says,
        twins,
        incidents,
        compared.lacks,
        compared.left,
        compared.open,
    )
