"""What would follow, without any of it being done.

What becomes of topics is decided where the follower has it decided (`judging`); all else is compared by the same pure
functions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial

from twinshore.fleet import KafkaError, Link
from twinshore.fleet.settings import Settings
from twinshore.fleet.settings_outputs import unmet
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.rights_requests import read_acls, read_quotas, read_scram_users
from twinshore.mirror.ends import Ends
from twinshore.mirror.follow import acls, quotas, topic_settings
from twinshore.mirror.follow.acts import (
    ARCHIVED,
    FORGOTTEN,
    THERE_AGAIN,
    Archive,
    DeleteTwin,
    Forget,
    Remember,
    Tell,
)
from twinshore.mirror.follow.change import Change, Remark
from twinshore.mirror.follow.hands import now_ms
from twinshore.mirror.follow.judging import Judged, Judging
from twinshore.mirror.follow.lifecycle import KIND, LOOKS_MIN, Presence, stands
from twinshore.mirror.follow.reading import copies, ground, principal, settings_of
from twinshore.mirror.safety_now import SafetyNow
from twinshore.store import Store

Line = Change | Remark
TOPICS_AT_ONCE = 500


def preview(link: Link, settings: Settings, store: Store, soon: Iterable[str]) -> list[Line]:
    """Every change and every remark; `soon` are topics whose twins would be made first."""
    with Ends(link, settings, patience_s=10.0) as ends:
        safety = SafetyNow(settings, lambda _: None)
        judging = Judging(link, ends.source, ends.target, store, links=settings.links, safety=safety)
        return _lines(link, ends.source, ends.target, store, soon, judging)


def _lines(
    link: Link, source: KafkaCluster, target: KafkaCluster, store: Store, soon: Iterable[str], judging: Judging
) -> list[Line]:
    known = {row.topic for row in store.twins.of(link.name)}
    judged = looked(judging)
    plain = {topic for topic, one in judged.items() if one.is_plain}
    twins = {topic: link.twin_of(topic) for topic in sorted(known | set(soon))}
    parts: list[tuple[str, Callable[[], list[Line]]]] = [
        *((KIND, partial(becoming, judging, one)) for one in judged.values() if not one.is_plain),
        (topic_settings.KIND, lambda: _settings(link, source, target, store, plain)),
        (acls.KIND, lambda: _acls(link, source, target, store, twins)),
        ("outputs", lambda: _outputs(link, twins)),
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


def looked(judging: Judging) -> dict[str, Judged]:
    """Every known topic, as often as the follower looks before it counts one as gone."""
    judged: dict[str, Judged] = {}
    for _ in range(LOOKS_MIN):
        judged = judging.look()
        if all(one.look.source.presence is not Presence.GONE for one in judged.values()):
            break
    return judged


def becoming(judging: Judging, one: Judged) -> list[Line]:
    """What the follower would do about a topic now, or what it waits for."""
    topic = one.look.topic
    found: list[Line] = []
    for act in judging.decide(one, now_ms()):
        match act:
            case Tell(_, _, sentence, policy):
                found.append(Remark(KIND, topic, f"{sentence} ({policy})"))
            case DeleteTwin(_, twin, reason):
                found.append(Change(KIND, topic, "", f"its twin {twin} is deleted: {reason}"))
            case Archive():
                found.append(Change(KIND, topic, "", ARCHIVED))
            case Forget():
                found.append(Change(KIND, topic, "", FORGOTTEN))
            case Remember(_, None):
                found.append(Change(KIND, topic, "", THERE_AGAIN))
    says = stands(*one)
    return found or ([Remark(KIND, topic, says)] if says else [])


def _settings(link: Link, source: KafkaCluster, target: KafkaCluster, store: Store, plain: set[str]) -> list[Line]:
    mapped = {topic for topic, _ in store.extents.reached(link.name)}
    twins = {link.twin_of(topic): topic for topic in plain}
    there = sorted(twins)
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
    floor = ground(link, source, target, twins, written).ruled(ours, written)
    reason = acls.cannot(floor)
    if reason:
        return [Remark(acls.KIND, link.name, f"none follows: {reason}")]
    want = acls.wanted(theirs, floor, link)
    plan = acls.decide(want, ours, written, floor)
    held = [Remark(acls.KIND, str(acl), f"held back: {why}") for acl, why in sorted(want.held.items())]
    return [*plan.changes(), *held, *acls.exposing(ours, floor)]


def _outputs(link: Link, topics: Collection[str]) -> list[Line]:
    """Expressions for what groups write that hold nothing back now."""
    return [Remark("outputs", repr(expression), said) for expression, said in unmet(link.groups.outputs, topics)]


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
