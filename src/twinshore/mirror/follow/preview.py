"""What would follow, without any of it being done: the same decisions as the follower's."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from twinshore.fleet import KafkaError, Link
from twinshore.fleet.settings import Settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.rights_requests import read_acls, read_quotas, read_scram_users
from twinshore.mirror.ends import Ends
from twinshore.mirror.follow import acls, quotas, topic_settings
from twinshore.mirror.follow.change import Change, Remark
from twinshore.mirror.follow.lifecycle import DELETED, KIND, Presence, policy_words
from twinshore.mirror.follow.reading import copies, ground, principal, settings_of, sides
from twinshore.store import Store

Line = Change | Remark
TOPICS_AT_ONCE = 500


def preview(link: Link, settings: Settings, store: Store, soon: Iterable[str]) -> list[Line]:
    """Every change and every remark; `soon` are topics whose twins would be made first."""
    with Ends(link, settings, patience_s=10.0) as ends:
        return _lines(link, ends.source, ends.target, store, soon)


def _lines(link: Link, source: KafkaCluster, target: KafkaCluster, store: Store, soon: Iterable[str]) -> list[Line]:
    known = {row.topic for row in store.twins.of(link.name)}
    twins = {topic: link.twin_of(topic) for topic in sorted(known | set(soon))}
    parts: list[tuple[str, Callable[[], list[Line]]]] = [
        ("topic", lambda: _topics(link, source, known)),
        (topic_settings.KIND, lambda: _settings(link, source, target, store, known)),
        (acls.KIND, lambda: _acls(link, source, target, store, twins)),
        (quotas.QUOTA, lambda: _quotas(link, source, target, store)),
        (quotas.USER, lambda: _users(link, source, target, store)),
    ]
    found: list[Line] = []
    for kind, part in parts:
        try:
            found += part()
        except KafkaError as error:
            found.append(Remark(kind, link.name, f"does not follow: {error}"))
    return found


def _topics(link: Link, source: KafkaCluster, known: set[str]) -> list[Line]:
    gone = [topic for topic, side in sides(source, known).items() if side.presence is Presence.GONE]
    policy = policy_words(link.follow)[DELETED]
    return [Remark(KIND, topic, f"was deleted on the source: {policy}") for topic in gone]


def _settings(link: Link, source: KafkaCluster, target: KafkaCluster, store: Store, known: set[str]) -> list[Line]:
    mapped = {topic for topic, _ in store.extents.reached(link.name)}
    here = {topic for topic, side in sides(source, known).items() if side.presence is Presence.THERE}
    twins = {link.twin_of(topic): topic for topic in here}
    there = [twin for twin, side in sorted(sides(target, twins).items()) if side.presence is Presence.THERE]
    found: list[Line] = []
    for start in range(0, len(there), TOPICS_AT_ONCE):
        part = there[start : start + TOPICS_AT_ONCE]
        theirs, hidden = settings_of(source, [twins[twin] for twin in part])
        ours, closed = settings_of(target, part)
        held = copies(target, part)
        found += [Remark(topic_settings.KIND, name, error.message) for name, error in (hidden | closed).items()]
        for twin in [twin for twin in part if twins[twin] in theirs and twin in ours]:
            topic = twins[twin]
            wanted = topic_settings.changes(link, theirs[topic], ours[twin], held.get(twin, 1), mapped=topic in mapped)
            found += topic_settings.as_changes(twin, wanted)
    return found


def _acls(link: Link, source: KafkaCluster, target: KafkaCluster, store: Store, twins: dict[str, str]) -> list[Line]:
    if not link.follow.acls or not twins:
        return []
    theirs = read_acls(source)
    ours = read_acls(target) if theirs is not None else None
    if theirs is None or ours is None:
        return []
    written = frozenset(acls.from_text(row.subject) for row in store.memories.of(link.name, acls.WRITTEN))
    floor = ground(link, source, target, twins, written)
    reason = acls.cannot(floor)
    if reason:
        return [Remark(acls.KIND, link.name, f"none follows: {reason}")]
    want = acls.wanted(theirs, floor, link)
    plan = acls.decide(want, ours, written, floor)
    held = [Remark(acls.KIND, str(acl), f"held back: {why}") for acl, why in sorted(want.held.items())]
    return [*plan.changes(), *held, *acls.exposing(ours, floor)]


def _quotas(link: Link, source: KafkaCluster, target: KafkaCluster, store: Store) -> list[Line]:
    if not link.follow.quotas:
        return []
    rows = store.memories.of(link.name, quotas.QUOTA)
    written = {quotas.quota_from_text(row.subject): float(row.value) for row in rows}
    plan = quotas.decide_quotas(read_quotas(source), read_quotas(target), written, _us(link, target))
    return [*(one.as_change() for one in plan.changes), *plan.remarks]


def _users(link: Link, source: KafkaCluster, target: KafkaCluster, store: Store) -> list[Line]:
    if not link.follow.scram_users:
        return []
    secrets = dict(link.follow.users)
    seen = {quotas.user_from_text(row.subject) for row in store.memories.of(link.name, quotas.USER)}
    theirs, ours = read_scram_users(source), read_scram_users(target)
    plan = quotas.decide_users(theirs, ours, secrets, _us(link, target), seen)
    return [*plan.changes(), *plan.remarks]


def _us(link: Link, target: KafkaCluster) -> str:
    return principal(link, target).removeprefix("User:")
