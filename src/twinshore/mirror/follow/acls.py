"""Which ACLs of the source follow to the target. Pure: both sides' rules and the twins in, changes out.

A twin is written by Twinshore alone, so what lets an application change it is held back, whole and by name, until the
twin is promoted; what lets it be read, and whatever forbids, crosses as it is. A rule for many topics crosses as it is
where all it covers on the target are this link's twins, else as one rule for each of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace

from twinshore.fleet import Link
from twinshore.kafka.rights import EVERYBODY, WILDCARD, Acl, Operation, Pattern, Permission, Resource
from twinshore.mirror.follow.change import Change, Remark

KIND = "acl"
WRITTEN = "acl written"
HELD = "acl held"
GIVEN = "given"
TWIN_ALONE = "it would let others change a twin"
SHUTS_OUT = "it would shut the mirror itself out"
# What of a right leaves a twin as it is; some include others, as brokers read them.
SAFE: Mapping[int, tuple[Operation, ...]] = {
    Operation.ALL: (Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
    Operation.READ: (Operation.READ,),
    Operation.WRITE: (Operation.DESCRIBE,),
    Operation.DELETE: (Operation.DESCRIBE,),
    Operation.ALTER: (Operation.DESCRIBE,),
    Operation.DESCRIBE: (Operation.DESCRIBE,),
    Operation.DESCRIBE_CONFIGS: (Operation.DESCRIBE_CONFIGS,),
    Operation.ALTER_CONFIGS: (Operation.DESCRIBE_CONFIGS,),
}


@dataclass(frozen=True, slots=True)
class Ground:
    """`twins`: each mirrored topic's twin. `others`: the target's topics that are none. `us`: the mirror's principal on
    the target, empty where it is not known. `open_unless_ruled`: what no rule speaks of, everybody may use."""

    twins: Mapping[str, str]
    others: frozenset[str] = frozenset()
    us: str = ""
    open_unless_ruled: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """Rules that the target shall have, and those held back with the reason."""

    write: frozenset[Acl]
    held: Mapping[Acl, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AclPlan:
    """`forget`: written by us once, and no longer ours to keep or take back."""

    create: tuple[Acl, ...]
    remove: tuple[Acl, ...]
    forget: tuple[Acl, ...]

    def changes(self) -> list[Change]:
        return [Change(KIND, str(acl), "", GIVEN) for acl in self.create] + [
            Change(KIND, str(acl), GIVEN, "") for acl in self.remove
        ]


def wanted(source: Iterable[Acl], ground: Ground, link: Link) -> Wanted:
    """What the target's rules should be for what the source's are."""
    topics = [acl for acl in source if acl.resource == Resource.TOPIC and not _ours(acl, ground)]
    denials = [acl for acl in topics if acl.permission == Permission.DENY]
    shutting = [acl for acl in denials if acl.principal == EVERYBODY and acl.host == WILDCARD]
    write: set[Acl] = set()
    held: dict[Acl, str] = {}
    for acl in denials:
        for there in _placed(acl, _covered(acl, ground), ground, link):
            if acl in shutting:
                held[there] = SHUTS_OUT
            else:
                write.add(there)
    for acl in topics:
        if acl.permission == Permission.DENY:
            continue
        covered = _covered(acl, ground)
        safe = SAFE.get(acl.operation, ())
        if acl.operation not in safe:
            held.update(dict.fromkeys(_placed(acl, covered, ground, link), TWIN_ALONE))
        for operation in safe:
            # What a denial held back would have forbidden is not allowed either.
            free = {topic for topic in covered if not any(_forbids(one, topic, operation) for one in shutting)}
            write |= set(_placed(replace(acl, operation=int(operation)), free, ground, link))
    if link.follow.group_acls:
        write |= {acl for acl in source if acl.resource == Resource.GROUP and _group_follows(acl, ground, link)}
    if ground.open_unless_ruled and ground.us:
        # The first rule for a topic ends that everybody may use it, and so may not end that we may.
        write |= {_own(acl, ground.us) for acl in write if acl.resource == Resource.TOPIC}
    return Wanted(frozenset(write), held)


def decide(want: Wanted, target: frozenset[Acl], written: frozenset[Acl]) -> AclPlan:
    """What to change: rules that we did not write are never taken away."""
    create = sorted(want.write - target, key=lambda acl: (acl.permission, acl))
    over = written - want.write
    remove = sorted(over & target, key=lambda acl: (-acl.permission, acl))
    return AclPlan(tuple(create), tuple(remove), tuple(sorted(over - target)))


def exposing(target: Iterable[Acl], ground: Ground) -> list[Remark]:
    """Rules of the target's own that let others change a twin."""
    changing = set(SAFE) - {Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS}
    twins = sorted(ground.twins.values())
    found = []
    for acl in sorted(target):
        if acl.resource != Resource.TOPIC or acl.permission != Permission.ALLOW or acl.operation not in changing:
            continue
        hit = next((twin for twin in twins if acl.covers(twin)), None)
        if hit is not None and acl.principal != ground.us:
            found.append(Remark(KIND, str(acl), f"stands on the target and lets others change the twin {hit}"))
    return found


def cannot(ground: Ground) -> str:
    """Why no ACL may follow at all; empty where they may."""
    if ground.open_unless_ruled and not ground.us:
        return (
            "the target lets everybody use what no ACL speaks of (allow.everyone.if.no.acl.found), so a twin's first "
            "ACL would shut the mirror out: set `principal` in the link's section `follow`"
        )
    return ""


def to_text(acl: Acl) -> str:
    """For the store."""
    return json.dumps(astuple(acl))


def from_text(text: str) -> Acl:
    """Out of the store."""
    resource, name, pattern, principal, host, operation, permission = json.loads(text)
    return Acl(resource, name, pattern, principal, host, operation, permission)


def _ours(acl: Acl, ground: Ground) -> bool:
    """Rules for the mirror's own user are each side's own affair."""
    return bool(ground.us) and acl.principal == ground.us


def _covered(acl: Acl, ground: Ground) -> set[str]:
    return {topic for topic in ground.twins if acl.covers(topic)}


def _placed(acl: Acl, topics: set[str], ground: Ground, link: Link) -> list[Acl]:
    """The rule as it stands on the target, for the twins of these topics of those it covers."""
    if not topics:
        return []
    literal = [replace(acl, name=ground.twins[topic], pattern=int(Pattern.LITERAL)) for topic in sorted(topics)]
    if acl.pattern == Pattern.LITERAL and acl.name != WILDCARD:
        return literal
    wide = _widely(acl, link)
    exact = topics == _covered(acl, ground) and not any(wide.covers(name) for name in ground.others)
    if not exact:
        return literal
    return [wide, *(one for one in literal if not wide.covers(one.name))]


def _widely(acl: Acl, link: Link) -> Acl:
    """A rule for many topics, under the names that their twins have."""
    stem = "" if acl.pattern == Pattern.LITERAL else acl.name
    there = link.twin_of(stem)
    if acl.pattern == Pattern.LITERAL and not there:
        return acl
    return replace(acl, name=there, pattern=int(Pattern.PREFIXED))


def _forbids(denial: Acl, topic: str, operation: int) -> bool:
    return denial.covers(topic) and denial.operation in (Operation.ALL, Operation.DESCRIBE, operation)


def _group_follows(acl: Acl, ground: Ground, link: Link) -> bool:
    if _ours(acl, ground):
        return False
    if acl.pattern == Pattern.PREFIXED or acl.name == WILDCARD:
        return True
    control = link.control
    if any(re.fullmatch(pattern, acl.name) for pattern in control.exclude_groups):
        return False
    return any(re.fullmatch(pattern, acl.name) for pattern in control.groups)


def _own(acl: Acl, us: str) -> Acl:
    return replace(acl, principal=us, host=WILDCARD, operation=int(Operation.ALL), permission=int(Permission.ALLOW))
