"""Decides what follows from source to target: ACLs, quotas, users and topic settings. Defines the actions about changed
topics.

**ACLs**: only Twinshore writes a twin. So rules that let applications change one are held back until its promotion.
Rights to read and denials follow. Each rule names one twin: a rule for many topics is written for each twin, so other
topics are never affected.

**Quotas** that the target has with another value stay, unless this link wrote them: an administrator set them. Quotas
by address do not follow, as addresses belong to a site. **SCRAM users** can be made only if the settings have the
password, which clusters do not show. A user that the target once had is not made again: an administrator removed it.

**Topic settings** that follow have the source's value, set on its topic or brokers. If the source has Kafka's default,
so has the twin.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace
from enum import StrEnum

from twinshore.config.frozen import HOMES_TOPIC, PROTECTION_TOPIC, RESCUED_TOPIC, TWINS_TOPIC
from twinshore.config.incident_policy import IncidentKind, IncidentPolicy, IncidentSide
from twinshore.config.model import Link
from twinshore.config.sentences import join_names
from twinshore.kafka.protocol.access_control import (
    ANY_USER,
    WILDCARD,
    Acl,
    AclOperation,
    AclPermission,
    PatternType,
    QuotaEntity,
    ResourceType,
    ScramUser,
    kafka_name,
)
from twinshore.kafka.protocol.record_batch import MESSAGE_BYTES_DEFAULT

# Outcomes, for people.
ARCHIVED_OUTCOME = "archived: its twin stays and is watched no more"
FORGOTTEN_OUTCOME = "forgotten: a new twin may begin"
RETURNED_OUTCOME = "there again on the source"


@dataclass(frozen=True, slots=True)
class Change:
    """A change, for people. `before` and `after` are empty for nothing. `topic`: the topic concerned, if any."""

    kind: str
    subject: str
    before: str
    after: str
    topic: str = ""

    def __str__(self) -> str:
        if not self.before:
            return f"{self.kind} {self.subject}" + (f": {self.after}" if self.after else "")
        if not self.after:
            return f"{self.kind} {self.subject}: taken back (was {self.before})"
        return f"{self.kind} {self.subject}: {self.before} becomes {self.after}"


@dataclass(frozen=True, slots=True)
class Remark:
    kind: str
    subject: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.kind} {self.subject}: {self.sentence}"


class DeletionState(StrEnum):
    """The remembered state of a changed topic. ANNOUNCED and BEGIN_ANNOUNCED: the incident log says when the twin is
    deleted. KEPT: the twin is no exact copy. NEEDS_APPROVAL: too many deletions at once.
    """

    GONE = "gone"
    KEPT = "kept"
    NEEDS_APPROVAL = "asked"
    ARCHIVED = "archived"
    ANNOUNCED = "announced"
    BEGIN_ANNOUNCED = "beginning again"


@dataclass(frozen=True, slots=True)
class RememberState:
    """`state` None: the topic was seen, perhaps another one; closes rows about a deletion."""

    topic: str
    state: DeletionState | None
    due_ms: int = 0
    source_id: str = ""


@dataclass(frozen=True, slots=True)
class TopicOrder:
    """What is to be done about one topic."""

    topic: str


class WithdrawTopic(TopicOrder):
    """No task replicates the topic any more."""


class ReplanTopic(TopicOrder):
    """The planner decides about the topic again."""


@dataclass(frozen=True, slots=True)
class ReportIncident:
    """An incident row. `anew`: replaces an open one with another sentence."""

    topic: str
    kind: IncidentKind
    sentence: str
    policy: IncidentPolicy
    anew: bool = False
    side: IncidentSide | None = None


class AskTwinRanges(TopicOrder):
    """Read what the twin holds, and decide again. Decides nothing yet."""


class ArchiveTwin(TopicOrder):
    """Marks the twin's partitions; they are no longer watched."""


@dataclass(frozen=True, slots=True)
class DeleteTwin:
    topic: str
    twin: str
    reason: str


class DropTopicState(TopicOrder):
    """The store forgets the topic, except incident log and audit."""


class RevokeApproval(TopicOrder):
    """An approval is void, as it covered something else."""


LifecycleAction = TopicOrder | RememberState | ReportIncident | DeleteTwin

ACL_KIND = "acl"
ACL_WRITTEN_KIND = "acl written"
ACL_HELD_KIND = "acl held"
ACL_GIVEN = "given"
CHANGES_TWIN_REASON = "it would let others change a twin"
LOCKS_OUT_REASON = "it would shut the mirror itself out"
WIDE_GROUPS_REASON = "it also covers groups of the target's own: see wide_group_acls"
# The parts of a right that cannot change a twin; brokers read some as including others.
SAFE_OPERATIONS: Mapping[int, tuple[AclOperation, ...]] = {
    AclOperation.ALL: (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS),
    AclOperation.READ: (AclOperation.READ,),
    AclOperation.WRITE: (AclOperation.DESCRIBE,),
    AclOperation.DELETE: (AclOperation.DESCRIBE,),
    AclOperation.ALTER: (AclOperation.DESCRIBE,),
    AclOperation.DESCRIBE: (AclOperation.DESCRIBE,),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.DESCRIBE_CONFIGS,),
    AclOperation.ALTER_CONFIGS: (AclOperation.DESCRIBE_CONFIGS,),
}
# The mirror needs these on a twin; they include Describe and DescribeConfigs. Delete may be withheld.
NEEDED_OPERATIONS = frozenset(
    {AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.ALTER, AclOperation.ALTER_CONFIGS}
)
# Only Twinshore writes to these. Applications must write to the topics of followers and of gates.
OWN_TOPICS = (HOMES_TOPIC, PROTECTION_TOPIC, RESCUED_TOPIC, TWINS_TOPIC)
WRITE_OPERATIONS = (AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.ALTER_CONFIGS)
NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class AclContext:
    """What ACL decisions need besides the rules. `twins`: by topic. `us`: the mirror's principal on the target, or
    empty. `open_unless_ruled`: the target lets all users use a topic without rules, or may. `shut_unless_ruled`: so
    does the target, and the source surely not. `gone`: topics missing on the target. `given`: what the target's own
    rules allow the mirror, from any host.
    """

    twins: Mapping[str, str]
    us: str = ""
    open_unless_ruled: bool = False
    shut_unless_ruled: bool = False
    gone: frozenset[str] = frozenset()
    acls: frozenset[Acl] = frozenset()

    def ruled(self, target: Iterable[Acl], acls: frozenset[Acl]) -> AclContext:
        """Adds what the target's own rules allow the mirror from any host, as the mirror's host is unknown."""
        rules = [acl for acl in target if acl not in acls and (acl.principal, acl.host) == (self.us, WILDCARD)]
        allow = [acl for acl in rules if acl.permission == AclPermission.ALLOW]
        makes = [
            replace(acl, resource=int(ResourceType.TOPIC), name=WILDCARD, operation=int(AclOperation.CREATE))
            for acl in allow
            if acl.resource == ResourceType.CLUSTER and acl.operation in (AclOperation.CREATE, AclOperation.ALL)
        ]
        return replace(self, acls=frozenset([*makes, *(acl for acl in allow if acl.resource == ResourceType.TOPIC)]))

    def unruled(self, names: Iterable[str]) -> list[str]:
        """The topics where the target's own rules allow less than the mirror needs. Elsewhere these decide alone: an
        administrator may withhold only the right to delete.
        """
        of_one: dict[str, set[int]] = {}
        wide = []
        for acl in self.acls:
            if acl.names_one():
                of_one.setdefault(acl.name, set()).add(acl.operation)
            else:
                wide.append(acl)
        may = {name: {acl.operation for acl in wide if acl.covers(name)} | of_one.get(name, set()) for name in names}
        return [name for name, given in may.items() if AclOperation.ALL not in given and not given >= NEEDED_OPERATIONS]


@dataclass(frozen=True, slots=True)
class WantedAcls:
    """Rules for the target, and those held back with the reason."""

    write: frozenset[Acl]
    held: Mapping[Acl, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AclSyncPlan:
    """Rules to change. `forget`: rules no longer the link's own. `us`: the principal whose rules come first."""

    create: tuple[Acl, ...]
    remove: tuple[Acl, ...]
    forget: tuple[Acl, ...]
    us: str = ""

    def topics(self) -> frozenset[str]:
        return frozenset(acl.name for acl in (*self.create, *self.remove) if acl.resource == ResourceType.TOPIC)

    def without(self, topics: Collection[str]) -> AclSyncPlan:
        create, remove = (
            tuple(acl for acl in rules if acl.resource != ResourceType.TOPIC or acl.name not in topics)
            for rules in (self.create, self.remove)
        )
        return replace(self, create=create, remove=remove)

    def changes(self) -> list[Change]:
        created = [acl_change(acl, given=True) for acl in self.create]
        return created + [acl_change(acl, given=False) for acl in self.remove]

    def creating(self) -> list[list[Acl]]:
        """In order: the mirror's access, denials, permissions. If one fails for a topic, the next would open that."""
        own = [acl for acl in self.create if acl.principal == self.us]
        denials, permissions = _by_permission(acl for acl in self.create if acl.principal != self.us)
        return [own, denials, permissions]

    def removing(self) -> list[list[Acl]]:
        """In order: permissions, then denials."""
        return list(reversed(_by_permission(self.remove)))


def _by_permission(acls: Iterable[Acl]) -> tuple[list[Acl], list[Acl]]:
    """Denials and permissions."""
    denials, permissions = list[Acl](), list[Acl]()
    for acl in acls:
        (denials if acl.permission == AclPermission.DENY else permissions).append(acl)
    return denials, permissions


def is_blocked(acl: Acl, refused: Iterable[Acl], *, given: bool) -> bool:
    """Whether the rule must wait for a refused one: of the same resource and name, or one that denies what the other
    allows, with a common name.
    """
    allows = acl.permission == AclPermission.ALLOW
    for one in refused:
        if (one.resource, one.name) == (acl.resource, acl.name):
            return True
        opposed = {one.permission, acl.permission} == {AclPermission.DENY, AclPermission.ALLOW}
        denial, allow = (one, acl) if allows else (acl, one)
        if opposed and allows == given and one.resource == acl.resource and _meets(denial, allow):
            return True
    return False


def acl_change(acl: Acl, *, given: bool) -> Change:
    return Change(ACL_KIND, str(acl), *(("", ACL_GIVEN) if given else (ACL_GIVEN, "")))


def wanted_acls(source: Iterable[Acl], ground: AclContext, link: Link) -> WantedAcls:
    rules = sorted(source)
    topics = [acl for acl in rules if acl.resource == ResourceType.TOPIC]
    write, held = _of_topics([acl for acl in topics if not _ours(acl, ground)], ground)
    if link.follow.group_acls:
        of_groups = _of_groups([acl for acl in rules if acl.resource == ResourceType.GROUP], ground, link)
        write |= of_groups.write
        held |= of_groups.held
    if ground.open_unless_ruled and ground.us:
        # Without a rule all users could use the twin of a closed topic; a first rule would shut us out.
        ruled = ground.twins.keys() if ground.shut_unless_ruled else _spoken_of(topics, ground)
        write |= {own_acl(twin, ground.us) for twin in ground.unruled(ground.twins[topic] for topic in ruled)}
    return WantedAcls(frozenset(write), held)


def _of_topics(topics: list[Acl], ground: AclContext) -> tuple[set[Acl], dict[Acl, str]]:
    denials = [acl for acl in topics if acl.permission == AclPermission.DENY]
    shutting = [acl for acl in denials if acl.principal == ANY_USER and acl.host == WILDCARD]
    write: set[Acl] = set()
    held: dict[Acl, str] = {}
    for acl in topics:
        covered = _covered(acl, ground)
        if acl.permission == AclPermission.DENY:
            if acl in shutting:
                held |= {acl: LOCKS_OUT_REASON} if covered else {}
            else:
                write |= {_literal(acl, ground.twins[topic]) for topic in covered}
            continue
        safe = SAFE_OPERATIONS.get(acl.operation, ())
        if acl.operation not in safe and covered:
            held[acl] = CHANGES_TWIN_REASON
        for operation in safe:
            # What a held-back denial would forbid is not allowed either.
            free = {topic for topic in covered if not any(_forbids(one, topic, operation) for one in shutting)}
            write |= {_literal(replace(acl, operation=int(operation)), ground.twins[topic]) for topic in free}
    return write, held


def plan_acls(want: WantedAcls, target: frozenset[Acl], acls: frozenset[Acl], ground: AclContext) -> AclSyncPlan:
    """Plans changes. Foreign rules are never removed. If the cluster lets all users use a topic without rules, the
    link's own rule replaces a topic's last one.
    """
    keep = want.write | _last((acls - want.write) & target, ground)
    create = sorted(keep - target, key=lambda acl: (acl.permission, acl))
    over = acls - keep
    remove = sorted(over & target, key=lambda acl: (-acl.permission, acl))
    return AclSyncPlan(tuple(create), tuple(remove), tuple(sorted(over - target)), ground.us)


def _last(leaving: Iterable[Acl], ground: AclContext) -> set[Acl]:
    if not ground.open_unless_ruled or not ground.us:
        return set()
    names = {acl.name for acl in leaving if acl.resource == ResourceType.TOPIC and acl.names_one()}
    return {own_acl(name, ground.us) for name in ground.unruled(names - ground.gone)}


def find_exposing_acls(target: Iterable[Acl], ground: AclContext) -> list[Remark]:
    """The target's own rules that let other users change a twin."""
    twins = sorted(ground.twins.values())
    found = []
    for acl in sorted(filter(_lets_change, target)):
        hit = next((twin for twin in twins if acl.covers(twin)), None)
        if hit is not None and acl.principal != ground.us:
            found.append(Remark(ACL_KIND, str(acl), f"is a rule of the target and lets others change the twin {hit}"))
    return found


def find_open_topic_acls(rules: Collection[Acl], ours: Collection[str]) -> list[Acl]:
    """Rules that let other users than these change Twinshore's own topics, unless denied."""
    denials = [acl for acl in rules if acl.resource == ResourceType.TOPIC and acl.permission == AclPermission.DENY]

    def is_denied(acl: Acl, topic: str, operation: int) -> bool:
        return any(
            one.principal in (acl.principal, ANY_USER)
            and one.host in (acl.host, WILDCARD)
            and one.operation in (operation, AclOperation.ALL)
            and one.covers(topic)
            for one in denials
        )

    return sorted(
        acl
        for acl in rules
        if _lets_change(acl) and acl.principal not in ours
        for operations in [WRITE_OPERATIONS if acl.operation == AclOperation.ALL else (acl.operation,)]
        if not all(is_denied(acl, topic, one) for topic in OWN_TOPICS if acl.covers(topic) for one in operations)
    )


def describe_open_topics(cluster: str, bootstrap: str, rules: Collection[Acl]) -> str:
    """A sentence for the incident log, with a command to deny access to named users; "" without rules."""
    if not rules:
        return ""
    named = sorted({acl.principal for acl in rules} - {ANY_USER})
    names = [kafka_name(AclOperation, operation).title().replace(" ", "") for operation in WRITE_OPERATIONS]
    options = [f"--deny-principal {shlex.quote(user)}" for user in named]
    options += [f"--operation {name}" for name in names] + [f"--topic {topic}" for topic in OWN_TOPICS]
    add = f"kafka-acls.sh --bootstrap-server {bootstrap} --command-config admin.properties --add"
    sentence = (
        f"{cluster} lets others than Twinshore change {join_names(OWN_TOPICS, NAMED_MAX)}, and what these say is "
        f"believed: {join_names([str(acl) for acl in rules], NAMED_MAX, '; ')}"
    )
    return f"{sentence} (try: {' '.join([add, *options])})" if named else sentence


def explain_no_acls(ground: AclContext) -> str:
    """Returns why no ACL may follow at all, or ""."""
    if ground.open_unless_ruled and not ground.us:
        return (
            "the target lets all users use what has no ACL (allow.everyone.if.no.acl.found), or hides that setting; so"
            " a twin's first ACL would shut the mirror out: set `principal` in the link's section `follow`"
        )
    return ""


def has_acl_for(source: Iterable[Acl], topic: str) -> bool:
    return any(acl.resource == ResourceType.TOPIC and acl.covers(topic) for acl in source)


def acl_to_text(acl: Acl) -> str:
    """For the store."""
    return json.dumps(astuple(acl))


def acl_from_text(text: str) -> Acl:
    resource, name, pattern, principal, host, operation, permission = json.loads(text)
    return Acl(resource, name, pattern, principal, host, operation, permission)


def own_acl(twin: str, us: str) -> Acl:
    """The mirror's access to a twin that was open to all. ALL with Delete, as cutting a twin to its source's start
    needs that.
    """
    allow = int(AclPermission.ALLOW)
    return Acl(int(ResourceType.TOPIC), twin, int(PatternType.LITERAL), us, WILDCARD, int(AclOperation.ALL), allow)


def _ours(acl: Acl, ground: AclContext) -> bool:
    return bool(ground.us) and acl.principal == ground.us


def _covered(acl: Acl, ground: AclContext) -> set[str]:
    if acl.names_one():
        return {acl.name} & ground.twins.keys()
    return {topic for topic in ground.twins if acl.covers(topic)}


def _spoken_of(topics: Iterable[Acl], ground: AclContext) -> set[str]:
    return {topic for acl in topics for topic in _covered(acl, ground)}


def _lets_change(acl: Acl) -> bool:
    allows = acl.resource == ResourceType.TOPIC and acl.permission == AclPermission.ALLOW
    return allows and acl.operation in (AclOperation.ALL, *WRITE_OPERATIONS)


def _literal(acl: Acl, name: str) -> Acl:
    return replace(acl, name=name, pattern=int(PatternType.LITERAL))


def _forbids(denial: Acl, name: str, operation: int) -> bool:
    return denial.covers(name) and denial.operation in (AclOperation.ALL, AclOperation.DESCRIBE, operation)


def _of_groups(groups: list[Acl], ground: AclContext, link: Link) -> WantedAcls:
    """Rules for admitted groups, unchanged; for many groups only by a setting. What a held-back denial would forbid is
    not allowed either.
    """
    write: set[Acl] = set()
    held: dict[Acl, str] = {}
    for acl in groups:
        if _ours(acl, ground) or (acl.names_one() and not link.control.admits_group(acl.name)):
            continue
        if acl.permission == AclPermission.DENY and acl.principal == ANY_USER and acl.host == WILDCARD:
            held[acl] = LOCKS_OUT_REASON
        elif acl.names_one() or link.follow.wide_group_acls:
            write.add(acl)
        else:
            held[acl] = WIDE_GROUPS_REASON
    denials, permissions = _by_permission(held)[0], _by_permission(write)[1]
    forbidden = {acl for acl in permissions if any(_meets(denial, acl) for denial in denials)}
    return WantedAcls(frozenset(write - forbidden), held)


def _meets(denial: Acl, allow: Acl) -> bool:
    """Whether the denial may forbid a part of what the other allows. A principal that is no plain user may be a group
    of users.
    """
    plain = all(acl.principal.startswith("User:") for acl in (denial, allow))
    same = denial.principal == allow.principal or ANY_USER in (denial.principal, allow.principal) or not plain
    places = denial.covers(allow.name) or allow.covers(denial.name) or not allow.names_one()
    return same and places


QUOTA_KIND = "quota"
USER_KIND = "scram user"
QuotasByEntity = Mapping[QuotaEntity, Mapping[str, float]]
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
        return Change(QUOTA_KIND, f"{self.key} of {self.entity}", before, after)


@dataclass(frozen=True, slots=True)
class QuotaPlan:
    """Quotas to change. `forget`: those that others changed since."""

    changes: tuple[QuotaChange, ...]
    forget: tuple[QuotaKey, ...]
    remarks: tuple[Remark, ...]


def plan_quotas(
    source: QuotasByEntity, target: QuotasByEntity, written: Mapping[QuotaKey, float], us: str
) -> QuotaPlan:
    """Plans changes. `us`: the mirror's user, whose quotas each side decides."""
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
            remarks.append(Remark(QUOTA_KIND, f"{key} of {entity}", sentence))
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
    """For the store."""
    return json.dumps([key[0].parts, key[1]])


def quota_from_text(text: str) -> QuotaKey:
    parts, key = json.loads(text)
    return QuotaEntity(tuple((kind, name) for kind, name in parts)), key


@dataclass(frozen=True, slots=True)
class UserPlan:
    """Users to make. `seen`: new on the target. `forget`: gone from the source, so a later one of that name may be
    made.
    """

    make: tuple[ScramUser, ...]
    remarks: tuple[Remark, ...]
    seen: tuple[UserKey, ...] = ()
    forget: tuple[UserKey, ...] = ()

    def changes(self) -> list[Change]:
        return [
            Change(USER_KIND, user.name, "", f"{user.mechanism} with {user.iterations} iterations")
            for user in self.make
        ]


def plan_users(
    source: Collection[ScramUser],
    target: Collection[ScramUser],
    secrets: Collection[str],
    us: str,
    seen: Collection[UserKey],
) -> UserPlan:
    """Plans users to make, and remarks on those that stay missing. Users are never removed. `seen`: users that the
    target has had.
    """
    there = {user_key(user) for user in target}
    make: list[ScramUser] = []
    why: list[tuple[str, str]] = []
    for user in sorted(source):
        if user_key(user) in there or user.name == us:
            continue
        if user_key(user) in seen:
            removed = f"was removed on the target with {user.mechanism}, and is not made again"
            why.append((user.name, f"{removed}: make it there if you want it"))
        elif user.name in secrets:
            make.append(user)
        else:
            missing = f"missing on the target with {user.mechanism}"
            why.append((user.name, f"{missing}; no cluster tells a password: name it in the settings"))
    known = {user.name for user in source}
    why += [(name, "in the settings, but not on the source") for name in secrets if name not in known]
    remarks = [Remark(USER_KIND, name, sentence) for name, sentence in why]
    theirs = {user_key(user) for user in source}
    news = (theirs & there) - set(seen)
    return UserPlan(tuple(make), tuple(remarks), tuple(sorted(news)), tuple(sorted(set(seen) - theirs)))


def user_key(user: ScramUser) -> UserKey:
    return user.name, user.mechanism


def user_to_text(key: UserKey) -> str:
    """For the store."""
    return json.dumps(key)


def user_from_text(text: str) -> UserKey:
    name, mechanism = json.loads(text)
    return name, mechanism


SETTING_KIND = "topic setting"

SYNCED_SETTINGS = frozenset(
    {
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "index.interval.bytes",
        "max.compaction.lag.ms",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
    }
)
# A twin has its own values of these; the source's are remembered for a promotion.
PROMOTION_SETTINGS = frozenset(
    {
        "cleanup.policy",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
        "retention.bytes",
        "retention.ms",
        "unclean.leader.election.enable",
    }
)
# About brokers or storage of one cluster, or a format that no longer exists.
UNSYNCED_SETTINGS = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "message.downconversion.enable",
        "message.format.version",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    }
)


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """A topic's settings other than Kafka's defaults: all in force, and those set on the topic."""

    in_force: Mapping[str, str]
    own: Mapping[str, str]


def is_synced_setting(name: str, exclude: tuple[str, ...]) -> bool:
    return name in SYNCED_SETTINGS and not any(re.fullmatch(pattern, name) for pattern in exclude)


def synced_settings(source: Mapping[str, str], link: Link, replication: int) -> dict[str, str]:
    """The settings for the twin. The link's own override the source's."""
    wanted = {name: value for name, value in source.items() if is_synced_setting(name, link.follow.settings_exclude)}
    if "min.insync.replicas" in wanted:
        # More than the twin's replicas would prevent all writes.
        wanted["min.insync.replicas"] = str(max(1, min(int(wanted["min.insync.replicas"]), replication)))
    wanted.update(link.topic_settings)
    return wanted


def diff_settings(
    link: Link, source: TopicSettings, target: TopicSettings, replication: int, *, mapped: bool = False
) -> dict[str, tuple[str | None, str | None]]:
    """Returns the settings to change: present and wanted value, None for Kafka's default. A mapped twin has another
    owner: it gets only the link's own settings, and a size limit for the source's batches.
    """
    wanted = dict(link.topic_settings) if mapped else synced_settings(source.in_force, link, replication)
    found: dict[str, tuple[str | None, str | None]] = {
        name: (target.in_force.get(name), value) for name, value in wanted.items() if target.in_force.get(name) != value
    }
    for name, value in () if mapped else target.own.items():
        if is_synced_setting(name, link.follow.settings_exclude) and name not in wanted:
            found[name] = (value, None)
    # Only ever raised: the twin may hold larger batches than the source would take now.
    largest = int(source.in_force.get("max.message.bytes", MESSAGE_BYTES_DEFAULT))
    now = target.in_force.get("max.message.bytes")
    if int(now or MESSAGE_BYTES_DEFAULT) < largest:
        found["max.message.bytes"] = (now, str(largest))
    return dict(sorted(found.items()))


def settings_to_changes(twin: str, wanted: Mapping[str, tuple[str | None, str | None]]) -> list[Change]:
    changes = []
    for name, values in wanted.items():
        before, after = ("Kafka's default" if value is None else value for value in values)
        changes.append(Change(SETTING_KIND, f"{name} of {twin}", before, after, twin))
    return changes


def dump_promotion_settings(source: TopicSettings) -> str:
    """The source topic's own settings, stored for a promotion."""
    kept = {name: value for name, value in source.own.items() if name not in UNSYNCED_SETTINGS}
    return json.dumps(kept, sort_keys=True, separators=(",", ":"))


def restore_promotion_settings(value: str, link: Link, replication: int) -> dict[str, str]:
    """The settings that make the twin equal to its source topic."""
    kept: dict[str, str] = json.loads(value or "{}")
    restored = {name: text for name, text in kept.items() if name in PROMOTION_SETTINGS}
    return {**restored, **synced_settings(kept, link, replication)}
