"""Who is kept from writing to topics by ACLs, and how all of it is given back. Pure: rules in, a plan out.

Two plans. A *denial* is for a switch, while nobody writes, we neither: one rule against everybody on each topic. It
keeps out whoever is given the right to write later, takes no rule away, and goes as it came; and the follower of a
link, which writes denials of single users on twins as well, leaves it at the source. A *guard* is for a twin, to which
we alone write: a denial for each principal that has the right, since one for everybody would shut us out as well.

Kafka's authorizer, as both lean on it: a denial beats all that allows; `User:*` is everybody, of whatever kind; a
denial of Write denies Write and no more, while whoever is allowed to write may describe as well; super users are asked
for no rule.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from twinshore.fleet.sentences import listed
from twinshore.kafka.rights import EVERYBODY, WILDCARD, Acl, Operation, Pattern, Permission, Resource

# What is left of a right on a topic when Write is taken out of it: all that it includes.
BESIDE_WRITE: Mapping[int, tuple[Operation, ...]] = {
    Operation.ALL: (
        *(Operation.READ, Operation.CREATE, Operation.DELETE, Operation.ALTER),
        *(Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
    ),
    Operation.WRITE: (Operation.DESCRIBE,),
}
NAMED_MAX = 5
_LISTS = ("deny", "give", "take", "over", "back")


@dataclass(frozen=True, slots=True)
class Sight:
    """A cluster before anything of it is changed. `acls`: None without an authorizer. `topics`: those to be kept from
    writers, `exist`: all that there are. `us`: whom the authorizer takes us for, empty where that cannot be known.
    `open_unless_ruled`: whether everybody may use a topic of which no rule speaks; None where nobody says."""

    cluster: str
    acls: frozenset[Acl] | None
    topics: frozenset[str]
    exist: frozenset[str]
    us: str = ""
    open_unless_ruled: bool | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """Rules that are added or removed in one go; in a go their order does not matter."""

    add: bool
    acls: tuple[Acl, ...]


@dataclass(frozen=True, slots=True)
class RulesPlan:
    """Keep it before anything is done: what was ours cannot be told from the rules afterwards.

    `deny`: denials that we add. `give`: what we allow in place of the rules that we `take` away. Of an earlier plan
    that this one takes the place of: `over`, ours and no longer needed, and `back`, theirs that may return.
    `open_to_all`: topics to which nobody can be kept from writing. `remarks`: what people should know, in sentences.
    `ruled`: whether an authorizer runs, so that somebody could be kept out.
    """

    deny: tuple[Acl, ...] = ()
    give: tuple[Acl, ...] = ()
    take: tuple[Acl, ...] = ()
    over: tuple[Acl, ...] = ()
    back: tuple[Acl, ...] = ()
    open_to_all: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    ruled: bool = True

    def doing(self) -> list[Step]:
        """In order. Halfway nobody has more than before, and nobody has lost a right but that to write there."""
        return _steps((True, self.deny), (True, (*self.give, *self.back)), (False, (*self.take, *self.over)))

    def restoring(self) -> list[Step]:
        """In order. Halfway nobody has more than before the plan, and nobody loses anything."""
        return _steps((True, (*self.take, *self.back)), (False, (*self.give, *self.over)), (False, self.deny))

    def stands(self, acls: Collection[Acl]) -> bool:
        """Whether rules are as after `doing`."""
        return _are_done(self.doing(), acls)

    def restored(self, acls: Collection[Acl]) -> bool:
        """Whether rules are as after `restoring`."""
        return _are_done(self.restoring(), acls)

    def before(self, acls: frozenset[Acl]) -> frozenset[Acl]:
        """What the rules would be without us: what others changed meanwhile is in it."""
        return done(self.restoring(), acls)

    def as_record(self) -> dict[str, Any]:
        """For the store, as JSON has it."""
        rules = {name: [list(astuple(acl)) for acl in getattr(self, name)] for name in _LISTS}
        return {**rules, "open_to_all": list(self.open_to_all), "remarks": list(self.remarks), "ruled": self.ruled}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> RulesPlan:
        """Out of the store."""
        rules = {name: tuple(Acl(*one) for one in record[name]) for name in _LISTS}
        open_, remarks = tuple(record["open_to_all"]), tuple(record["remarks"])
        return cls(**rules, open_to_all=open_, remarks=remarks, ruled=bool(record.get("ruled", True)))


def done(steps: Iterable[Step], acls: Iterable[Acl]) -> frozenset[Acl]:
    """The rules afterwards; done twice as done once."""
    now = frozenset(acls)
    for step in steps:
        now = now | frozenset(step.acls) if step.add else now - frozenset(step.acls)
    return now


def denial(sight: Sight, owed: Collection[Acl] = ()) -> RulesPlan:
    """Nobody but super users writes to the topics, and nobody loses another right. We are kept out as well: where we
    are to write next, a guard must stand before this goes. `owed`: denials of earlier switches that are to be taken
    back still. They count as this plan's own: it looks whether they stand, and takes them back as well."""
    if sight.acls is None:
        return _nobody_kept_out(sight)
    shut, open_to_all = _can_be_ruled(sight)
    deny = {_write_denied_to(EVERYBODY, topic) for topic in shut} - sight.acls.difference(owed)
    remarks = _of_open(sight, open_to_all)
    if shut:
        remarks += [
            f"{sight.cluster}: super users can still write to {_names(shut)}, and no rule can keep them from it: its"
            " ends are watched",
            f"{sight.cluster}: a producer that begins anew meanwhile and may write to nothing else is refused with"
            " CLUSTER_AUTHORIZATION_FAILED, unless it may IdempotentWrite on the cluster",
        ]
    return RulesPlan(_sorted(deny), open_to_all=tuple(open_to_all), remarks=tuple(remarks))


def guard(sight: Sight, earlier: RulesPlan | None = None) -> RulesPlan:
    """We alone write to the topics, and super users. `earlier`: the guard that stands; what it changed counts as not
    changed, and what it did and this one does not is undone. One guard for all twins of a cluster: two would each take
    away what the other gave."""
    if sight.acls is None:
        return _nobody_kept_out(sight)
    if not sight.us:
        return _in_turn(_nobody_kept_out_for_want_of_us(sight), earlier or RulesPlan())
    original = earlier.before(sight.acls) if earlier else sight.acls
    shut, open_to_all = _can_be_ruled(replace(sight, acls=original))
    writing = [acl for acl in original if _lets_write(acl) and acl.principal != sight.us]
    deny = {
        _write_denied_to(acl.principal, topic)
        for acl in writing
        if acl.principal != EVERYBODY
        for topic in shut
        if acl.covers(topic)
    }
    take = {acl for acl in writing if acl.principal == EVERYBODY and any(acl.covers(topic) for topic in shut)}
    give = {one for acl in take for one in _in_place_of(acl, shut, sight.exist)}
    # Everybody was us as well, perhaps by no other rule.
    give |= {replace(_writing(acl, topic), principal=sight.us) for acl in take for topic in shut if acl.covers(topic)}
    remarks = _of_open(sight, open_to_all)
    if take:
        remarks.append(
            f"{sight.cluster}: rules that let everybody write are replaced by rules for each topic that is no twin: to"
            " a topic made later, everybody may write after the next look"
        )
    plan = RulesPlan(
        _sorted(deny - original),
        _sorted(give - original),
        _sorted(take),
        open_to_all=tuple(open_to_all),
        remarks=tuple(remarks),
    )
    return _in_turn(plan, earlier or RulesPlan())


def _in_turn(plan: RulesPlan, earlier: RulesPlan) -> RulesPlan:
    ours, theirs = {*plan.deny, *plan.give}, {*plan.take}
    over = {*earlier.deny, *earlier.give, *earlier.over} - ours - theirs
    back = {*earlier.take, *earlier.back} - theirs - ours
    return replace(plan, over=_sorted(over - back), back=_sorted(back))


def _nobody_kept_out(sight: Sight) -> RulesPlan:
    remark = (
        f"{sight.cluster} has no authorizer: nobody can be kept from writing to {_names(sight.topics)}; its ends are"
        " watched"
    )
    return RulesPlan(open_to_all=tuple(sorted(sight.topics)), remarks=(remark,), ruled=False)


def _nobody_kept_out_for_want_of_us(sight: Sight) -> RulesPlan:
    remark = (
        f"{sight.cluster}: it is not known whom its authorizer takes us for, so nobody is kept from writing to"
        f" {_names(sight.topics)}: set `principal` in the link's section `follow`"
    )
    return RulesPlan(open_to_all=tuple(sorted(sight.topics)), remarks=(remark,))


def _can_be_ruled(sight: Sight) -> tuple[list[str], list[str]]:
    """Topics on which a rule of ours says no more than it says, and those where a first rule would shut everybody out
    of everything."""
    topics = sorted(sight.topics)
    if sight.open_unless_ruled is False:
        return topics, []
    wide = [acl for acl in sight.acls or () if acl.resource == Resource.TOPIC]
    bare = {topic for topic in topics if not any(acl.covers(topic) for acl in wide)}
    return [topic for topic in topics if topic not in bare], sorted(bare)


def _of_open(sight: Sight, topics: Sequence[str]) -> list[str]:
    if not topics:
        return []
    return [
        f"{sight.cluster}: no rule speaks of {_names(topics)}, and the cluster lets everybody use such topics"
        " (allow.everyone.if.no.acl.found), or does not say that it does not: nobody can be kept from writing there;"
        " its ends are watched"
    ]


def _lets_write(acl: Acl) -> bool:
    return (
        acl.resource == Resource.TOPIC
        and acl.permission == Permission.ALLOW
        and acl.operation in (Operation.WRITE, Operation.ALL)
    )


def _in_place_of(acl: Acl, shut: Iterable[str], exist: Iterable[str]) -> set[Acl]:
    """All that the rule allows, but to write to topics that are shut. What is not Write stays as wide as it was, so a
    topic of which this rule alone speaks does not become one of which none does."""
    rest = {replace(acl, operation=int(operation)) for operation in BESIDE_WRITE[acl.operation]}
    others = {name for name in exist if acl.covers(name)} - set(shut)
    return rest | {_writing(acl, name) for name in others}


def _writing(acl: Acl, topic: str) -> Acl:
    return replace(acl, name=topic, pattern=int(Pattern.LITERAL), operation=int(Operation.WRITE))


def _write_denied_to(principal: str, topic: str) -> Acl:
    """From any host: a principal that may write from one is not to write from another either."""
    where = (int(Resource.TOPIC), topic, int(Pattern.LITERAL))
    return Acl(*where, principal, WILDCARD, int(Operation.WRITE), int(Permission.DENY))


def _steps(*parts: tuple[bool, Iterable[Acl]]) -> list[Step]:
    steps = [Step(add, _sorted(acls)) for add, acls in parts]
    return [step for step in steps if step.acls]


def _are_done(steps: Iterable[Step], acls: Collection[Acl]) -> bool:
    return all((acl in acls) == step.add for step in steps for acl in step.acls)


def _sorted(acls: Iterable[Acl]) -> tuple[Acl, ...]:
    return tuple(sorted(set(acls)))


def _names(topics: Collection[str]) -> str:
    return listed(sorted(topics), NAMED_MAX)


def shuts_out(acl: Acl, topics: Iterable[str]) -> bool:
    """Whether the rule keeps somebody from writing to one of these topics."""
    writes = acl.operation in (Operation.WRITE, Operation.ALL)
    return (
        acl.resource == Resource.TOPIC
        and acl.permission == Permission.DENY
        and writes
        and any(acl.covers(topic) for topic in topics)
    )
