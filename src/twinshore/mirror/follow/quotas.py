"""Client quotas and SCRAM users, as far as they can follow. Pure.

A quota that the target has already with another value, not written by us, stays: somebody chose it for that site.
Quotas by address do not follow, since addresses belong to a site. Of a SCRAM user a cluster tells the name, the
mechanism and the iterations; so the target can be given it only where its password is known from the settings. Whom
the target had once and has no more, somebody took away there: such a user is not made again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from twinshore.kafka.rights import QuotaEntity, ScramUser
from twinshore.mirror.follow.acts import Change, Remark

QUOTA = "quota"
USER = "scram user"
Quotas = Mapping[QuotaEntity, Mapping[str, float]]
QuotaKey = tuple[QuotaEntity, str]
UserKey = tuple[str, str]  # name and mechanism


@dataclass(frozen=True, slots=True)
class QuotaChange:
    entity: QuotaEntity
    key: str
    before: float | None
    after: float | None

    def as_change(self) -> Change:
        before, after = ("" if value is None else f"{value:g}" for value in (self.before, self.after))
        return Change(QUOTA, f"{self.key} of {self.entity}", before, after)


@dataclass(frozen=True, slots=True)
class QuotaPlan:
    """`forget`: written by us once, and changed by others since."""

    changes: tuple[QuotaChange, ...]
    forget: tuple[QuotaKey, ...]
    remarks: tuple[Remark, ...]


def decide_quotas(source: Quotas, target: Quotas, written: Mapping[QuotaKey, float], us: str) -> QuotaPlan:
    """What to set and take back; `us` is the mirror's own user, whose quotas are each side's own affair."""
    changes: list[QuotaChange] = []
    forget: list[QuotaKey] = []
    remarks: list[Remark] = []
    theirs = {
        (entity, key): value
        for entity, values in source.items()
        if entity.name_of("ip") is None and not (us and entity.name_of("user") == us)
        for key, value in values.items()
    }
    for (entity, key), value in sorted(theirs.items()):
        now = target.get(entity, {}).get(key)
        if now == value:
            continue
        if now is not None and written.get((entity, key)) != now:
            sentence = f"the target has {now:g}, which this link did not write; the source has {value:g}"
            remarks.append(Remark(QUOTA, f"{key} of {entity}", sentence))
            continue
        changes.append(QuotaChange(entity, key, now, value))
    for (entity, key), value in sorted(written.items()):
        if (entity, key) in theirs:
            continue
        if target.get(entity, {}).get(key) == value:
            changes.append(QuotaChange(entity, key, value, None))
        else:
            forget.append((entity, key))
    return QuotaPlan(tuple(changes), tuple(forget), tuple(remarks))


def quota_to_text(key: QuotaKey) -> str:
    """A quota's name for the store."""
    return json.dumps([key[0].parts, key[1]])


def quota_from_text(text: str) -> QuotaKey:
    """Out of the store."""
    parts, key = json.loads(text)
    return QuotaEntity(tuple((kind, name) for kind, name in parts)), key


@dataclass(frozen=True, slots=True)
class UserPlan:
    """`seen`: the target has them now, which is news; `forget`: the source has them no more, so they may come anew."""

    make: tuple[ScramUser, ...]
    remarks: tuple[Remark, ...]
    seen: tuple[UserKey, ...] = ()
    forget: tuple[UserKey, ...] = ()

    def changes(self) -> list[Change]:
        return [
            Change(USER, user.name, "", f"{user.mechanism} with {user.iterations} iterations") for user in self.make
        ]


def decide_users(
    source: Collection[ScramUser],
    target: Collection[ScramUser],
    secrets: Collection[str],
    us: str,
    seen: Collection[UserKey],
) -> UserPlan:
    """Users to make, and a remark for each that the target lacks and is not given. None is ever taken away; `seen` are
    those that the target has had."""
    there = {key_of(user) for user in target}
    make: list[ScramUser] = []
    remarks: list[Remark] = []
    for user in sorted(source):
        if key_of(user) in there or user.name == us:
            continue
        if key_of(user) in seen:
            sentence = f"was taken away on the target with {user.mechanism}, and is not made again: make it there"
            remarks.append(Remark(USER, user.name, f"{sentence} if it shall be"))
            continue
        if user.name in secrets:
            make.append(user)
            continue
        sentence = f"missing on the target with {user.mechanism}; no cluster tells a password: name it in the settings"
        remarks.append(Remark(USER, user.name, sentence))
    known = {user.name for user in source}
    remarks += [Remark(USER, name, "in the settings, but not on the source") for name in secrets if name not in known]
    theirs = {key_of(user) for user in source}
    news = (theirs & there) - set(seen)
    return UserPlan(tuple(make), tuple(remarks), tuple(sorted(news)), tuple(sorted(set(seen) - theirs)))


def key_of(user: ScramUser) -> UserKey:
    """As whom it logs in, and how."""
    return user.name, user.mechanism


def user_to_text(key: UserKey) -> str:
    """A user for the store."""
    return json.dumps(key)


def user_from_text(text: str) -> UserKey:
    """Out of the store."""
    name, mechanism = json.loads(text)
    return name, mechanism
