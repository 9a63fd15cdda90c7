"""What can be done about a topic that ended or began anew, as values; and what the store remembers of it. Pure.

Which ACLs of the source follow to the target. Pure: both sides' rules and the twins in, changes out.

A twin is written by Twinshore alone, so what lets an application change it is held back, whole and by name, until the
twin is promoted; what lets it be read, and whatever forbids, crosses. Each rule bears one twin's own name: a rule for
many topics is written once for each twin that it speaks of, so it says nothing of any other topic, now or later.

Client quotas and SCRAM users, as far as they can follow. Pure.

A quota that the target has already with another value, not written by us, stays: somebody chose it for that site.
Quotas by address do not follow, since addresses belong to a site. Of a SCRAM user a cluster tells the name, the
mechanism and the iterations; so the target can be given it only where its password is known from the settings. Whom
the target had once and has no more, somebody took away there: such a user is not made again.

Which settings of a topic follow to its twin. Pure: both sides' settings in, changes out.

A setting that follows has on the twin the value it has on the source, whether it was set there on the topic or on the
brokers; where the source has Kafka's default, the twin has no setting of its own.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace
from enum import StrEnum

from twinshore.config.frozen import HOMES_TOPIC, RESCUED_TOPIC, TWINS_TOPIC
from twinshore.config.incidents import IncidentKind, IncidentSide, Policy
from twinshore.config.model import Link
from twinshore.config.sentences import listed
from twinshore.kafka.protocol.record_batch import MESSAGE_BYTES_DEFAULT
from twinshore.kafka.protocol.rights import (
    EVERYBODY,
    WILDCARD,
    Acl,
    Operation,
    Pattern,
    Permission,
    QuotaEntity,
    Resource,
    ScramUser,
    word,
)

# What is done, in words.
ARCHIVED = "archived: its twin stays and is watched no more"
FORGOTTEN = "forgotten: a new twin may begin"
THERE_AGAIN = "there again on the source"


@dataclass(frozen=True, slots=True)
class Change:
    """`before` and `after` are empty where there is, or will be, nothing. `topic`: which it is about, if any."""

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
    """Something that does not follow, and why: nothing is done about it."""

    kind: str
    subject: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.kind} {self.subject}: {self.sentence}"


class State(StrEnum):
    """What the store remembers of a topic that is no longer as it was. ANNOUNCED and BEGINNING: the ledger says when
    its twin is deleted. KEPT: the twin is more, or less, than a copy. ASKED: too many would go at once."""

    GONE = "gone"
    KEPT = "kept"
    ASKED = "asked"
    ARCHIVED = "archived"
    ANNOUNCED = "announced"
    BEGINNING = "beginning again"


@dataclass(frozen=True, slots=True)
class Remember:
    """`state` None: the topic was seen, whichever it is now; rows that speak of a deletion are closed."""

    topic: str
    state: State | None
    due_ms: int = 0
    source_id: str = ""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """No lane carries it from now on."""

    topic: str


@dataclass(frozen=True, slots=True)
class LookAgain:
    """The planner decides about it anew."""

    topic: str


@dataclass(frozen=True, slots=True)
class Tell:
    """A row for the ledger. `anew`: in place of an open one that says something else by now."""

    topic: str
    kind: IncidentKind
    sentence: str
    policy: Policy
    anew: bool = False
    side: IncidentSide | None = None


@dataclass(frozen=True, slots=True)
class AskSpans:
    """What the twin holds is to be asked, and the decision made again with the answer: alone it says nothing yet."""

    topic: str


@dataclass(frozen=True, slots=True)
class Archive:
    """Its partitions are marked; nothing watches them any more."""

    topic: str


@dataclass(frozen=True, slots=True)
class DeleteTwin:
    topic: str
    twin: str
    reason: str


@dataclass(frozen=True, slots=True)
class Forget:
    """The store drops all it knows of the topic, but for the ledger and the audit."""

    topic: str


@dataclass(frozen=True, slots=True)
class TakeBack:
    """An operator's word is spent: it spoke of something else."""

    topic: str


Act = AskSpans | Remember | Withdraw | LookAgain | Tell | Archive | DeleteTwin | Forget | TakeBack

ACL_KIND = "acl"
WRITTEN = "acl written"
HELD = "acl held"
GIVEN = "given"
TWIN_ALONE = "it would let others change a twin"
SHUTS_OUT = "it would shut the mirror itself out"
MANY_GROUPS = "it speaks of the target's own groups too: see wide_group_acls"
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
# Without these on a twin the mirror fails at it; they include Describe and DescribeConfigs. Delete may be withheld.
NEEDED = frozenset({Operation.READ, Operation.WRITE, Operation.CREATE, Operation.ALTER, Operation.ALTER_CONFIGS})
# Only Twinshore writes to these. Applications must write to the topic of followers.
OWN_TOPICS = (HOMES_TOPIC, RESCUED_TOPIC, TWINS_TOPIC)
CHANGES = (Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS)
NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class Ground:
    """`twins`: each mirrored topic's twin. `us`: the mirror's principal on the target, empty where it is not known.
    `open_unless_ruled`: the target lets everybody use a topic without rules, or does not say that it does not.
    `shut_unless_ruled`: so does the target, and the source says that it lets nobody use such a topic. `gone`: topics
    that the target no longer has. `given`: what rules of the target's own let the mirror's user do, from any host."""

    twins: Mapping[str, str]
    us: str = ""
    open_unless_ruled: bool = False
    shut_unless_ruled: bool = False
    gone: frozenset[str] = frozenset()
    given: frozenset[Acl] = frozenset()

    def ruled(self, target: Iterable[Acl], written: frozenset[Acl]) -> Ground:
        """With what the target's own rules say of the mirror. Nobody knows which host it is to the target's brokers."""
        rules = [acl for acl in target if acl not in written and (acl.principal, acl.host) == (self.us, WILDCARD)]
        allow = [acl for acl in rules if acl.permission == Permission.ALLOW]
        makes = [
            replace(acl, resource=int(Resource.TOPIC), name=WILDCARD, operation=int(Operation.CREATE))
            for acl in allow
            if acl.resource == Resource.CLUSTER and acl.operation in (Operation.CREATE, Operation.ALL)
        ]
        return replace(self, given=frozenset([*makes, *(acl for acl in allow if acl.resource == Resource.TOPIC)]))

    def unruled(self, names: Iterable[str]) -> list[str]:
        """Those on which the target's own rules do not give the mirror all that it needs. Elsewhere they alone say what
        it may: who withholds the right to delete, and nothing else, has to be obeyed."""
        of_one: dict[str, set[int]] = {}
        wide = []
        for acl in self.given:
            if acl.names_one():
                of_one.setdefault(acl.name, set()).add(acl.operation)
            else:
                wide.append(acl)
        may = {name: {acl.operation for acl in wide if acl.covers(name)} | of_one.get(name, set()) for name in names}
        return [name for name, given in may.items() if Operation.ALL not in given and not given >= NEEDED]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Rules that the target shall have, and those held back with the reason."""

    write: frozenset[Acl]
    held: Mapping[Acl, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AclPlan:
    """`forget`: written by us once, and no longer ours to keep or take back. `us`: whose rules stand before others."""

    create: tuple[Acl, ...]
    remove: tuple[Acl, ...]
    forget: tuple[Acl, ...]
    us: str = ""

    def topics(self) -> frozenset[str]:
        """Those whose rules change."""
        return frozenset(acl.name for acl in (*self.create, *self.remove) if acl.resource == Resource.TOPIC)

    def without(self, topics: Collection[str]) -> AclPlan:
        """Of these topics no rule changes."""
        create, remove = (
            tuple(acl for acl in rules if acl.resource != Resource.TOPIC or acl.name not in topics)
            for rules in (self.create, self.remove)
        )
        return replace(self, create=create, remove=remove)

    def changes(self) -> list[Change]:
        return [as_change(acl, given=True) for acl in self.create] + [
            as_change(acl, given=False) for acl in self.remove
        ]

    def creating(self) -> list[list[Acl]]:
        """By turns: our own way in, what forbids, what allows. Where one fails for a topic, the next would open it."""
        own = [acl for acl in self.create if acl.principal == self.us]
        rest = [acl for acl in self.create if acl.principal != self.us]
        return [own, *([acl for acl in rest if acl.permission == kind] for kind in (Permission.DENY, Permission.ALLOW))]

    def removing(self) -> list[list[Acl]]:
        """By turns: what allows, then what forbids."""
        return [[acl for acl in self.remove if acl.permission == kind] for kind in (Permission.ALLOW, Permission.DENY)]


def kept_back(acl: Acl, refused: Iterable[Acl], *, given: bool) -> bool:
    """Whether the rule must wait for a rule that the target refused. It waits for any refused rule of the same
    resource and name. Where one of the two forbids what the other allows, it also waits if both speak of a common
    name."""
    for one in refused:
        if (one.resource, one.name) == (acl.resource, acl.name):
            return True
        opposed = {one.permission, acl.permission} == {Permission.DENY, Permission.ALLOW}
        allows = acl.permission == Permission.ALLOW
        if opposed and allows == given and one.resource == acl.resource:
            denial, allow = (one, acl) if allows else (acl, one)
            if _meets(denial, allow):
                return True
    return False


def as_change(acl: Acl, *, given: bool) -> Change:
    """A rule that is given or taken back, for people."""
    return Change(ACL_KIND, str(acl), *(("", GIVEN) if given else (GIVEN, "")))


def wanted(source: Iterable[Acl], ground: Ground, link: Link) -> Wanted:
    """What the target's rules should be for what the source's are."""
    rules = sorted(source)
    topics = [acl for acl in rules if acl.resource == Resource.TOPIC]
    write, held = _of_topics([acl for acl in topics if not _ours(acl, ground)], ground)
    if link.follow.group_acls:
        of_groups = _of_groups([acl for acl in rules if acl.resource == Resource.GROUP], ground, link)
        write |= of_groups.write
        held |= of_groups.held
    if ground.open_unless_ruled and ground.us:
        # Without a rule everybody could use the twin of a topic that is shut; a first rule would shut us out.
        ruled = ground.twins.keys() if ground.shut_unless_ruled else _spoken_of(topics, ground)
        write |= {own_rule(twin, ground.us) for twin in ground.unruled(ground.twins[topic] for topic in ruled)}
    return Wanted(frozenset(write), held)


def _of_topics(topics: list[Acl], ground: Ground) -> tuple[set[Acl], dict[Acl, str]]:
    denials = [acl for acl in topics if acl.permission == Permission.DENY]
    shutting = [acl for acl in denials if acl.principal == EVERYBODY and acl.host == WILDCARD]
    write: set[Acl] = set()
    held: dict[Acl, str] = {}
    for acl in topics:
        covered = _covered(acl, ground)
        if acl.permission == Permission.DENY:
            if acl in shutting:
                held |= {acl: SHUTS_OUT} if covered else {}
            else:
                write |= {_literal(acl, ground.twins[topic]) for topic in covered}
            continue
        safe = SAFE.get(acl.operation, ())
        if acl.operation not in safe and covered:
            held[acl] = TWIN_ALONE
        for operation in safe:
            # What a denial held back would have forbidden is not allowed either.
            free = {topic for topic in covered if not any(_forbids(one, topic, operation) for one in shutting)}
            write |= {_literal(replace(acl, operation=int(operation)), ground.twins[topic]) for topic in free}
    return write, held


def decide(want: Wanted, target: frozenset[Acl], written: frozenset[Acl], ground: Ground) -> AclPlan:
    """What to change. Rules that others wrote are never taken away. On a cluster that lets everybody use a topic
    without rules, a topic's last rule is not taken away either: the link's own rule stays in its place."""
    keep = want.write | _last((written - want.write) & target, ground)
    create = sorted(keep - target, key=lambda acl: (acl.permission, acl))
    over = written - keep
    remove = sorted(over & target, key=lambda acl: (-acl.permission, acl))
    return AclPlan(tuple(create), tuple(remove), tuple(sorted(over - target)), ground.us)


def _last(leaving: Iterable[Acl], ground: Ground) -> set[Acl]:
    """What stands in place of rules that leave a topic which the target may still have."""
    if not ground.open_unless_ruled or not ground.us:
        return set()
    names = {acl.name for acl in leaving if acl.resource == Resource.TOPIC and acl.names_one()}
    return {own_rule(name, ground.us) for name in ground.unruled(names - ground.gone)}


def exposing(target: Iterable[Acl], ground: Ground) -> list[Remark]:
    """Rules of the target's own that let others change a twin."""
    twins = sorted(ground.twins.values())
    found = []
    for acl in sorted(filter(_lets_change, target)):
        hit = next((twin for twin in twins if acl.covers(twin)), None)
        if hit is not None and acl.principal != ground.us:
            found.append(Remark(ACL_KIND, str(acl), f"stands on the target and lets others change the twin {hit}"))
    return found


def open_own_topics(rules: Collection[Acl], ours: Collection[str]) -> list[Acl]:
    """Rules that let others than these users change Twinshore's own topics, unless denials forbid all that."""
    denials = [acl for acl in rules if acl.resource == Resource.TOPIC and acl.permission == Permission.DENY]

    def is_denied(acl: Acl, topic: str, operation: int) -> bool:
        return any(
            one.principal in (acl.principal, EVERYBODY)
            and one.host in (acl.host, WILDCARD)
            and one.operation in (operation, Operation.ALL)
            and one.covers(topic)
            for one in denials
        )

    return sorted(
        acl
        for acl in rules
        if _lets_change(acl) and acl.principal not in ours
        for operations in [CHANGES if acl.operation == Operation.ALL else (acl.operation,)]
        if not all(is_denied(acl, topic, one) for topic in OWN_TOPICS if acl.covers(topic) for one in operations)
    )


def open_in_words(cluster: str, bootstrap: str, rules: Collection[Acl]) -> str:
    """One sentence for the ledger, with the command that denies it to users who have names; empty without rules."""
    if not rules:
        return ""
    named = sorted({acl.principal for acl in rules} - {EVERYBODY})
    who = [f"--deny-principal {shlex.quote(one)}" for one in named]
    what = [f"--operation {word(Operation, one).title().replace(' ', '')}" for one in CHANGES]
    where = [f"--topic {topic}" for topic in OWN_TOPICS]
    command = " ".join(
        [f"kafka-acls.sh --bootstrap-server {bootstrap} --command-config admin.properties --add", *who, *what, *where]
    )
    return (
        f"{cluster} lets others than Twinshore change {listed(OWN_TOPICS, NAMED_MAX)}, and what these say is believed:"
        f" {listed([str(acl) for acl in rules], NAMED_MAX, '; ')}" + (f" (try: {command})" if named else "")
    )


def cannot(ground: Ground) -> str:
    """Why no ACL may follow at all; empty where they may."""
    if ground.open_unless_ruled and not ground.us:
        return (
            "the target lets everybody use what no ACL speaks of (allow.everyone.if.no.acl.found), or does not say that"
            " it does not; so a twin's first ACL would shut the mirror out: set `principal` in the link's section"
            " `follow`"
        )
    return ""


def speaks_of(source: Iterable[Acl], topic: str) -> bool:
    """Whether any rule of the source is about the topic."""
    return any(acl.resource == Resource.TOPIC and acl.covers(topic) for acl in source)


def to_text(acl: Acl) -> str:
    """For the store."""
    return json.dumps(astuple(acl))


def from_text(text: str) -> Acl:
    """Out of the store."""
    resource, name, pattern, principal, host, operation, permission = json.loads(text)
    return Acl(resource, name, pattern, principal, host, operation, permission)


def own_rule(twin: str, us: str) -> Acl:
    """The mirror's own way to a twin that was open to everybody. All of a topic is just what the mirror needs: also
    Delete, without which no twin can be cut to its source's start."""
    allow = int(Permission.ALLOW)
    return Acl(int(Resource.TOPIC), twin, int(Pattern.LITERAL), us, WILDCARD, int(Operation.ALL), allow)


def _ours(acl: Acl, ground: Ground) -> bool:
    """Rules for the mirror's own user are each side's own affair."""
    return bool(ground.us) and acl.principal == ground.us


def _covered(acl: Acl, ground: Ground) -> set[str]:
    if acl.names_one():
        return {acl.name} & ground.twins.keys()
    return {topic for topic in ground.twins if acl.covers(topic)}


def _spoken_of(topics: Iterable[Acl], ground: Ground) -> set[str]:
    return {topic for acl in topics for topic in _covered(acl, ground)}


def _lets_change(acl: Acl) -> bool:
    allows = acl.resource == Resource.TOPIC and acl.permission == Permission.ALLOW
    return allows and acl.operation in (Operation.ALL, *CHANGES)


def _literal(acl: Acl, name: str) -> Acl:
    return replace(acl, name=name, pattern=int(Pattern.LITERAL))


def _forbids(denial: Acl, name: str, operation: int) -> bool:
    return denial.covers(name) and denial.operation in (Operation.ALL, Operation.DESCRIBE, operation)


def _of_groups(groups: list[Acl], ground: Ground, link: Link) -> Wanted:
    """Rules for groups that the link admits, as they are. Rules for many groups only where the settings ask for them;
    what a denial held back would have forbidden is not allowed either."""
    write: set[Acl] = set()
    held: dict[Acl, str] = {}
    for acl in groups:
        if _ours(acl, ground) or (acl.names_one() and not link.control.admits_group(acl.name)):
            continue
        if acl.permission == Permission.DENY and acl.principal == EVERYBODY and acl.host == WILDCARD:
            held[acl] = SHUTS_OUT
        elif acl.names_one() or link.follow.wide_group_acls:
            write.add(acl)
        else:
            held[acl] = MANY_GROUPS
    denials = [acl for acl in held if acl.permission == Permission.DENY]
    open_to = {acl for acl in write if acl.permission == Permission.ALLOW and any(_meets(one, acl) for one in denials)}
    return Wanted(frozenset(write - open_to), held)


def _meets(denial: Acl, allow: Acl) -> bool:
    """Whether the denial may forbid somebody a part of what the other rule allows. A principal that is no plain user
    may be anybody, such as a group of users."""
    plain = all(one.principal.startswith("User:") for one in (denial, allow))
    same = denial.principal == allow.principal or EVERYBODY in (denial.principal, allow.principal) or not plain
    places = denial.covers(allow.name) or allow.covers(denial.name) or not allow.names_one()
    return same and places


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


SETTING_KIND = "topic setting"

FOLLOWS = frozenset(
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
# A twin has its own of these while it is one; the source's are remembered for the day it is promoted.
AT_PROMOTION = frozenset(
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
# They name brokers, or storage, of one cluster alone, or a format that is no more.
NEVER = frozenset(
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
class SettingsOf:
    """A topic's settings that are not Kafka's defaults: all that are in force, and those set on the topic itself."""

    in_force: Mapping[str, str]
    own: Mapping[str, str]


def follows(name: str, exclude: tuple[str, ...]) -> bool:
    """Whether the setting follows, with these exclusions of the link's."""
    return name in FOLLOWS and not any(re.fullmatch(pattern, name) for pattern in exclude)


def followed(source: Mapping[str, str], link: Link, replication: int) -> dict[str, str]:
    """What the twin takes over, the link's own wishes above it."""
    wanted = {name: value for name, value in source.items() if follows(name, link.follow.settings_exclude)}
    if "min.insync.replicas" in wanted:
        # More than the twin has copies would keep it from being written at all.
        wanted["min.insync.replicas"] = str(max(1, min(int(wanted["min.insync.replicas"]), replication)))
    wanted.update(link.topic_settings)
    return wanted


def changes(
    link: Link, source: SettingsOf, target: SettingsOf, replication: int, *, mapped: bool = False
) -> dict[str, tuple[str | None, str | None]]:
    """Settings to change on the twin: what each is and what it shall be, None for Kafka's default. A mapped twin is
    somebody's own topic: it gets what the link's settings name, and room for the source's batches."""
    wanted = dict(link.topic_settings) if mapped else followed(source.in_force, link, replication)
    found: dict[str, tuple[str | None, str | None]] = {
        name: (target.in_force.get(name), value) for name, value in wanted.items() if target.in_force.get(name) != value
    }
    for name, value in () if mapped else target.own.items():
        if follows(name, link.follow.settings_exclude) and name not in wanted:
            found[name] = (value, None)
    # Only ever raised: the twin may hold larger batches than the source would take now.
    largest = int(source.in_force.get("max.message.bytes", MESSAGE_BYTES_DEFAULT))
    now = target.in_force.get("max.message.bytes")
    if int(now or MESSAGE_BYTES_DEFAULT) < largest:
        found["max.message.bytes"] = (now, str(largest))
    return dict(sorted(found.items()))


def as_changes(twin: str, wanted: Mapping[str, tuple[str | None, str | None]]) -> list[Change]:
    """The same, for people."""
    default = "Kafka's default"
    return [
        Change(
            SETTING_KIND,
            f"{name} of {twin}",
            default if before is None else before,
            default if after is None else after,
            twin,
        )
        for name, (before, after) in wanted.items()
    ]


def remembered(source: SettingsOf) -> str:
    """What the store keeps of the source's topic, so that a promotion can restore it: all that was set on it."""
    kept = {name: value for name, value in source.own.items() if name not in NEVER}
    return json.dumps(kept, sort_keys=True, separators=(",", ":"))


def at_promotion(value: str, link: Link, replication: int) -> dict[str, str]:
    """Out of what `remembered` kept: the settings that make the twin the topic its source was."""
    kept: dict[str, str] = json.loads(value or "{}")
    restored = {name: text for name, text in kept.items() if name in AT_PROMOTION}
    return {**restored, **followed(kept, link, replication)}
