"""What would follow, without any of it being done: what the follower has judged and compared, in lines."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial

from twinshore.fleet import KafkaError, Link
from twinshore.fleet.settings import Settings
from twinshore.fleet.settings.sections.links import unmet
from twinshore.kafka.rights_requests import read_acls
from twinshore.mirror.follow import acls, quotas, topic_settings
from twinshore.mirror.follow.acts import (
    ARCHIVED,
    FORGOTTEN,
    THERE_AGAIN,
    Archive,
    Change,
    DeleteTwin,
    Forget,
    Remark,
    Remember,
    Tell,
)
from twinshore.mirror.follow.endings import Judged, Judging
from twinshore.mirror.follow.lifecycle import KIND, LOOKS_MIN, Presence, stands
from twinshore.mirror.follow.reading import Comparing
from twinshore.mirror.follow.safety_now import SafetyNow
from twinshore.service.clock import wall_ms
from twinshore.service.connections import Shared
from twinshore.service.ends import Ends
from twinshore.store import Store

Line = Change | Remark
TOPICS_AT_ONCE = 500


def preview(link: Link, settings: Settings, store: Store, shared: Shared, soon: Iterable[str]) -> list[Line]:
    """Every change and every remark; `soon` are topics whose twins would be made first."""
    with Ends(link, settings, patience_s=10.0, shared=shared) as ends:
        safety = SafetyNow(settings, lambda _: None)
        judging = Judging(link, ends.source, ends.target, store, links=settings.links, safety=safety)
        return _lines(Comparing(link, ends.source, ends.target, store), judging, soon)


def _lines(comparing: Comparing, judging: Judging, soon: Iterable[str]) -> list[Line]:
    link = comparing.link
    judged = looked(judging)
    topics = judged.keys() | set(soon)
    plain = sorted(topic for topic, one in judged.items() if one.is_plain)
    parts: list[tuple[str, Callable[[], list[Line]]]] = [
        *((KIND, partial(becoming, judging, one)) for one in judged.values() if not one.is_plain),
        (topic_settings.KIND, lambda: _settings(comparing, plain)),
        (acls.KIND, lambda: _acls(comparing, topics)),
        ("outputs", lambda: _outputs(link, topics)),
        (quotas.QUOTA, lambda: _quotas(comparing)),
        (quotas.USER, lambda: _users(comparing)),
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
    for act in judging.decide(one, wall_ms()):
        match act:
            case Tell(_, _, sentence, policy):
                found.append(Remark(KIND, topic, f"{sentence} ({policy.words})"))
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


def _settings(comparing: Comparing, plain: list[str]) -> list[Line]:
    found: list[Line] = []
    for start in range(0, len(plain), TOPICS_AT_ONCE):
        plan = comparing.settings(plain[start : start + TOPICS_AT_ONCE])
        found += [Remark(topic_settings.KIND, name, why) for name, why in plan.silent.items()]
        for topic, wanted in plan.wanted.items():
            found += topic_settings.as_changes(comparing.link.twin_of(topic), wanted)
    return found


def _acls(comparing: Comparing, topics: set[str]) -> list[Line]:
    link = comparing.link
    if not link.follow.acls or not topics:
        return []
    theirs = read_acls(comparing.source)
    ours = read_acls(comparing.target) if theirs is not None else None
    if theirs is None or ours is None:
        return []
    sight = comparing.acls(theirs, ours, topics, comparing.store.memories.of(link.name, acls.WRITTEN))
    if sight.reason:
        return [Remark(acls.KIND, link.name, f"none follows: {sight.reason}")]
    held = [Remark(acls.KIND, str(acl), f"held back: {why}") for acl, why in sorted(sight.want.held.items())]
    return [*sight.plan.changes(), *held, *acls.exposing(ours, sight.floor)]


def _outputs(link: Link, topics: Collection[str]) -> list[Line]:
    """Expressions for what groups write that hold nothing back now."""
    return [Remark("outputs", repr(expression), said) for expression, said in unmet(link.groups.outputs, topics)]


def _quotas(comparing: Comparing) -> list[Line]:
    plan = comparing.quotas()
    return [*(one.as_change() for one in plan.changes), *plan.remarks] if plan else []


def _users(comparing: Comparing) -> list[Line]:
    plan = comparing.users()
    return [*plan.changes(), *plan.remarks] if plan else []
