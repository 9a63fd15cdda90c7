"""What the links from a cluster have of its topics: by the store, by how the links stand, and by both sides' settings.

Where there is no store, or it has no link from the cluster, there is nothing to see and nothing to miss.
"""

from __future__ import annotations

from collections.abc import Callable

from twinshore.advisor.looking import Eyes
from twinshore.advisor.seen import LinkSeen, TwinSeen, Unseen
from twinshore.fleet import Link
from twinshore.fleet.settings import Settings
from twinshore.links.homes import elsewhere, pair_of
from twinshore.links.in_force import in_force
from twinshore.links.known import known
from twinshore.mirror.follow.comparing import Comparing
from twinshore.service.ends import Ends
from twinshore.status import LinkView, look
from twinshore.store import Store

PATIENCE_S = 5.0


def links_from(
    cluster: str, settings: Settings, store: Store, *, clock: Callable[[], int], eyes: Eyes
) -> tuple[LinkSeen, ...]:
    """Each link whose source the cluster is, without topics that are at home elsewhere."""
    settings = settings.with_links(known(settings, store).links)
    found = []
    for link in settings.links:
        if link.source != cluster:
            continue
        (view,) = look(store, settings, [link.name], clock=clock, topics=True)
        away = elsewhere(link, store.homes.of(pair_of(link)))
        topics = [one.topic for one in view.topics if one.topic not in away]
        wanted = _differing(link, settings, store, topics, eyes) if topics else {}
        found.append(_seen(link, settings, view, topics, wanted, eyes))
    return tuple(found)


def _differing(
    link: Link, settings: Settings, store: Store, topics: list[str], eyes: Eyes
) -> dict[str, tuple[tuple[str, str | None, str | None], ...]]:
    """By topic: the settings that its twin has, and those that it should have."""
    with eyes.trying(f"settings of twins of {link.name}"), Ends(link, settings, patience_s=PATIENCE_S) as ends:
        now = in_force(link, store.controls.of(link.name)).link
        plan = Comparing(now, ends.source, ends.target, store).settings(topics)
        for name, why in plan.silent.items():
            eyes.unseen.append(Unseen(f"settings of {name} for {link.name}", why))
        return {
            topic: tuple((name, before, after) for name, (before, after) in changes.items())
            for topic, changes in plan.wanted.items()
        }
    return {}


def _seen(
    link: Link,
    settings: Settings,
    view: LinkView,
    topics: list[str],
    wanted: dict[str, tuple[tuple[str, str | None, str | None], ...]],
    eyes: Eyes,
) -> LinkSeen:
    if view.says_of_lag:
        eyes.unseen.append(Unseen(f"how far {link.name} is behind", view.says_of_lag))
    target = settings.cluster(link.target)
    twins = tuple(
        TwinSeen(one.topic, link.twin_of(one.topic), one.lag_records, one.stopped, wanted.get(one.topic, ()))
        for one in view.topics
        if one.topic in topics
    )
    secured = target.security.protocol != "PLAINTEXT"
    incidents = tuple(row.incident.sentence for row in view.incidents)
    return LinkSeen(link.name, target.bootstrap, secured, view.runs, view.says, twins, incidents)
