"""What a switch has left on clusters: who needs it still, and what it may have stood for. Pure.

Who is kept from writing to topics by ACLs, and how all of it is given back. Pure: rules in, a plan out.

Two plans. A *denial* is for a switch, while nobody writes, we neither: one rule against everybody on each topic. It
keeps out whoever is given the right to write later, takes no rule away, and goes as it came; and the follower of a
link, which writes denials of single users on twins as well, leaves it at the source. A *guard* is for a twin, to which
we alone write: a denial for each principal that has the right, since one for everybody would shut us out as well.

Kafka's authorizer, as both lean on it: a denial beats all that allows; `User:*` is everybody, of whatever kind; a
denial of Write denies Write and no more, while whoever is allowed to write may describe as well; super users are asked
for no rule.

What a switch that is no more owes to a home that did not answer. Pure.

What it changed there is a *debt*: kept in the store, and paid by the running mirror when that home is back. A forced
switch that takes over another remembers one, and so does a planned switch whose old home dies under it.

The guard of a cluster: which twins there are kept from all writers but their link, and which rules were changed for
that. Pure. It travels as JSON.

A cluster has one guard for all its twins, since a rule may speak of several. It is looked at again and again: whoever
is given the right to write meanwhile is kept out by the next look.

Which rights a twin gets when its topic comes home to it: what was held back from it, by what the store remembers.
Pure: rows in, rules out.

While a topic is a twin, rules of its source cross only as far as they leave the twin as it is; the link remembers the
others as the source has them, and which rules it wrote. It works with the source dead.

Which topics a switch has left to a link, whose target was their home before, and what must be said there. Pure.

After a planned switch the old home has heard it all when the switch ends. After a forced one it was not there, and
whoever still talks to it when it is back would write where nobody reads. A guard is put only where the store's row says
that the topic is at home elsewhere, and while no switch has the topic.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from typing import Any

from twinshore.config.errors import WireError
from twinshore.config.model import FIRST_TERM, Link
from twinshore.config.sentences import count_phrase, is_or_are, join_names
from twinshore.kafka.protocol.access_control import (
    ANY_USER,
    WILDCARD,
    Acl,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from twinshore.replication.core.filters import admits
from twinshore.replication.core.ownership import is_kept_on_cluster, pair_name
from twinshore.replication.sync.core.decisions import (
    ACL_HELD_KIND,
    ACL_WRITTEN_KIND,
    CHANGES_TWIN_REASON,
    LOCKS_OUT_REASON,
    acl_from_text,
)
from twinshore.routing.core.home_records import HomeRecord
from twinshore.state.core.values import HomeRow, LinkStateRow, SwitchRow, TwinRow
from twinshore.switch.core.steps import HOLDS, MAKES_TWINS, MOVES_HOMES, SwitchState, SwitchStep, is_past

NAMED_MAX = 5
END_HINT = "`twinshore switch resume` or `switch rollback` ends it"

# Of one cluster: where each partition of a topic ends; of a topic that is not there, none.
TopicLogEnds = Mapping[str, Mapping[int, int]]


def find_unfinished_switches(
    rows: Iterable[SwitchRow], kept: Iterable[SwitchState], debts: Iterable[tuple[str, str]]
) -> dict[str, str]:
    """The switches that have not ended, or that still owe something, and what ends them: what they left is not to be
    freed. `rows`: all that the store knows; `kept`: the records that stand on clusters; `debts`: a switch, and the
    cluster to which it owes something."""
    known = {row.id: row for row in rows}
    found = {row.id: END_HINT for row in known.values() if row.ended_ms is None}
    for record in kept:
        row = known.get(record.id)
        # Where the store has the switch for its own, the cluster's record is of long ago.
        if not record.ended and (row is None or is_kept_on_cluster(row)):
            found[record.id] = END_HINT
    for switch, cluster in debts:
        found.setdefault(switch, f"it has ended, and the mirror frees what it left on {cluster} once that answers")
    return found


def describe_partly_filled(
    links: Iterable[Link], topics: Iterable[str], ends: Mapping[str, TopicLogEnds]
) -> Iterator[str]:
    """Topics of these whose log on one cluster is shorter than on the other: whoever freed them, and moved them there
    by force, might move them to a part of them. `ends`: of the clusters that were asked."""
    some, seen = sorted(set(topics)), set()
    pairs = [(link, *both) for link in links for both in ((link.target, link.source), (link.source, link.target))]
    for link, here, there in pairs:
        if here not in ends or there not in ends:
            continue
        ours = [topic for topic in some if admits(link, topic) and (here, there, topic) not in seen]
        seen |= {(here, there, topic) for topic in ours}
        lacks = {topic: _lacks(ends[here].get(topic, {}), ends[there].get(topic, {})) for topic in ours}
        if short := [topic for topic in ours if lacks[topic]]:
            offsets = count_phrase(sum(lacks.values()), "offset")
            yield (
                f"{join_names(short, NAMED_MAX)} {is_or_are(short)} shorter on {here} than on {there}, by {offsets}: "
                "if that "
                f"switch was a fail-back or a rebuild, it may have stopped while it filled {here} again, and its claim "
                "is what keeps a forced switch from moving the topic to a part of it. Wait until the mirror has filled "
                f"{here}; where it does not, rebuild the twins right after this (`twinshore mirror rebuild "
                f"'{there}->{here}'`), and force no switch there before"
            )


def pair_names(links: Iterable[Link]) -> tuple[str, ...]:
    """Under which names the store may have debts of switches along these links."""
    return tuple(dict.fromkeys(name for link in links for name in (pair_name(link), link.name)))


def _lacks(short: Mapping[int, int], whole: Mapping[int, int]) -> int:
    """How many offsets the one ends before the other."""
    return sum(max(0, end - short.get(number, 0)) for number, end in whole.items())


# What is left of a right on a topic when Write is taken out of it: all that it includes.
RIGHTS_WITHOUT_WRITE: Mapping[int, tuple[AclOperation, ...]] = {
    AclOperation.ALL: (
        *(AclOperation.READ, AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER),
        *(AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS),
    ),
    AclOperation.WRITE: (AclOperation.DESCRIBE,),
}
_LISTS = ("deny", "give", "take", "over", "back")


@dataclass(frozen=True, slots=True)
class AclSnapshot:
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
class AclChange:
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

    def changes_to_apply(self) -> list[AclChange]:
        """In order. Halfway nobody has more than before, and nobody has lost a right but that to write there."""
        return _steps((True, self.deny), (True, (*self.give, *self.back)), (False, (*self.take, *self.over)))

    def changes_to_restore(self) -> list[AclChange]:
        """In order. Halfway nobody has more than before the plan, and nobody loses anything."""
        return _steps((True, (*self.take, *self.back)), (False, (*self.give, *self.over)), (False, self.deny))

    def stands(self, acls: Collection[Acl]) -> bool:
        """Whether rules are as after `doing`."""
        return _are_done(self.changes_to_apply(), acls)

    def is_restored(self, acls: Collection[Acl]) -> bool:
        """Whether rules are as after `restoring`."""
        return _are_done(self.changes_to_restore(), acls)

    def before(self, acls: frozenset[Acl]) -> frozenset[Acl]:
        """What the rules would be without us: what others changed meanwhile is in it."""
        return apply_changes(self.changes_to_restore(), acls)

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


def apply_changes(steps: Iterable[AclChange], acls: Iterable[Acl]) -> frozenset[Acl]:
    """The rules afterwards; done twice as done once."""
    now = frozenset(acls)
    for step in steps:
        now = now | frozenset(step.acls) if step.add else now - frozenset(step.acls)
    return now


def plan_denial(sight: AclSnapshot, owed: Collection[Acl] = ()) -> RulesPlan:
    """Nobody but super users writes to the topics, and nobody loses another right. We are kept out as well: where we
    are to write next, a guard must stand before this goes. `owed`: denials of earlier switches that are to be taken
    back still. They count as this plan's own: it looks whether they stand, and takes them back as well."""
    if sight.acls is None:
        return _nobody_kept_out(sight)
    shut, open_to_all = _can_be_ruled(sight)
    deny = {write_denied_to(ANY_USER, topic) for topic in shut} - sight.acls.difference(owed)
    remarks = _of_open(sight, open_to_all)
    if shut:
        remarks += [
            f"{sight.cluster}: super users can still write to {_names(shut)}, and no rule can keep them from it: its"
            " ends are watched",
            f"{sight.cluster}: a producer that begins anew meanwhile and may write to nothing else is refused with"
            " CLUSTER_AUTHORIZATION_FAILED, unless it may IdempotentWrite on the cluster",
        ]
    return RulesPlan(_sorted(deny), open_to_all=tuple(open_to_all), remarks=tuple(remarks))


def plan_write_block(sight: AclSnapshot, earlier: RulesPlan | None = None) -> RulesPlan:
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
        write_denied_to(acl.principal, topic)
        for acl in writing
        if acl.principal != ANY_USER
        for topic in shut
        if acl.covers(topic)
    }
    take = {acl for acl in writing if acl.principal == ANY_USER and any(acl.covers(topic) for topic in shut)}
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


def _nobody_kept_out(sight: AclSnapshot) -> RulesPlan:
    remark = (
        f"{sight.cluster} has no authorizer: nobody can be kept from writing to {_names(sight.topics)}; its ends are"
        " watched"
    )
    return RulesPlan(open_to_all=tuple(sorted(sight.topics)), remarks=(remark,), ruled=False)


def _nobody_kept_out_for_want_of_us(sight: AclSnapshot) -> RulesPlan:
    remark = (
        f"{sight.cluster}: it is not known whom its authorizer takes us for, so nobody is kept from writing to"
        f" {_names(sight.topics)}: set `principal` in the link's section `follow`"
    )
    return RulesPlan(open_to_all=tuple(sorted(sight.topics)), remarks=(remark,))


def _can_be_ruled(sight: AclSnapshot) -> tuple[list[str], list[str]]:
    """Topics on which a rule of ours says no more than it says, and those where a first rule would shut everybody out
    of everything."""
    topics = sorted(sight.topics)
    if sight.open_unless_ruled is False:
        return topics, []
    wide = [acl for acl in sight.acls or () if acl.resource == ResourceType.TOPIC]
    bare = {topic for topic in topics if not any(acl.covers(topic) for acl in wide)}
    return [topic for topic in topics if topic not in bare], sorted(bare)


def _of_open(sight: AclSnapshot, topics: Sequence[str]) -> list[str]:
    if not topics:
        return []
    return [
        f"{sight.cluster}: no rule speaks of {_names(topics)}, and the cluster lets everybody use such topics"
        " (allow.everyone.if.no.acl.found), or does not say that it does not: nobody can be kept from writing there;"
        " its ends are watched"
    ]


def _lets_write(acl: Acl) -> bool:
    return (
        acl.resource == ResourceType.TOPIC
        and acl.permission == AclPermission.ALLOW
        and acl.operation in (AclOperation.WRITE, AclOperation.ALL)
    )


def _in_place_of(acl: Acl, shut: Iterable[str], exist: Iterable[str]) -> set[Acl]:
    """All that the rule allows, but to write to topics that are shut. What is not Write stays as wide as it was, so a
    topic of which this rule alone speaks does not become one of which none does."""
    rest = {replace(acl, operation=int(operation)) for operation in RIGHTS_WITHOUT_WRITE[acl.operation]}
    others = {name for name in exist if acl.covers(name)} - set(shut)
    return rest | {_writing(acl, name) for name in others}


def _writing(acl: Acl, topic: str) -> Acl:
    return replace(acl, name=topic, pattern=int(PatternType.LITERAL), operation=int(AclOperation.WRITE))


def write_denied_to(principal: str, topic: str) -> Acl:
    """From any host: a principal that may write from one is not to write from another either."""
    where = (int(ResourceType.TOPIC), topic, int(PatternType.LITERAL))
    return Acl(*where, principal, WILDCARD, int(AclOperation.WRITE), int(AclPermission.DENY))


def _steps(*parts: tuple[bool, Iterable[Acl]]) -> list[AclChange]:
    steps = [AclChange(add, _sorted(acls)) for add, acls in parts]
    return [step for step in steps if step.acls]


def _are_done(steps: Iterable[AclChange], acls: Collection[Acl]) -> bool:
    return all((acl in acls) == step.add for step in steps for acl in step.acls)


def _sorted(acls: Iterable[Acl]) -> tuple[Acl, ...]:
    return tuple(sorted(set(acls)))


def _names(topics: Collection[str]) -> str:
    return join_names(sorted(topics), NAMED_MAX)


def denies_writing(acl: Acl, topics: Iterable[str]) -> bool:
    """Whether the rule keeps somebody from writing to one of these topics."""
    writes = acl.operation in (AclOperation.WRITE, AclOperation.ALL)
    return (
        acl.resource == ResourceType.TOPIC
        and acl.permission == AclPermission.DENY
        and writes
        and any(acl.covers(topic) for topic in topics)
    )


# As the store remembers it, of the pair of clusters; the switch is the subject.
DEFERRED_CLEANUP_KIND = "switch debt"


@dataclass(frozen=True, slots=True)
class DeferredCleanup:
    """`old` is the cluster that it is owed to. `rights`: what the switch changed of its ACLs, as its record has it. Its
    claims of the topics, and the word that they are held, may stand there as well."""

    switch: str
    old: str
    topics: tuple[str, ...]
    rights: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> DeferredCleanup:
        """WireError where it is none."""
        try:
            raw = json.loads(text)
            return DeferredCleanup(
                str(raw["switch"]), str(raw["old"]), tuple(map(str, raw["topics"])), str(raw["rights"])
            )
        except (ValueError, TypeError, KeyError) as error:
            raise WireError("what a switch still owes to an old home cannot be read from the store") from error


def has_promoted(record: SwitchState) -> bool:
    """Whether it has moved its topics to the new home already, and has only to end what it began on the old one."""
    flipped = record.kind in MOVES_HOMES and record.committed and is_past(record.kind, record.deed, SwitchStep.PROMOTE)
    return flipped and not record.ended


def select_rights(rights: str, topics: Collection[str]) -> str:
    """Of what a planned switch denied on its old home, what it denied of these topics."""
    if not rights:
        return ""
    plan = RulesPlan.from_record(json.loads(rights))
    return json.dumps(
        replace(plan, deny=tuple(one for one in plan.deny if one.name in topics)).as_record(), sort_keys=True
    )


def deferred_cleanup_of(record: SwitchState, topics: Collection[str] | None = None) -> DeferredCleanup | None:
    """What of it, or of these topics of it, stands perhaps on the home that is gone: a forced switch never spoke to
    it."""
    names = tuple(one for one in record.names() if topics is None or one in topics)
    if record.kind in MAKES_TWINS or has_promoted(record):
        return DeferredCleanup(record.id, record.new, names)
    if record.kind in HOLDS:
        return DeferredCleanup(record.id, record.old, names, record.rights)
    return None


def merge_cleanups(debt: DeferredCleanup, before: DeferredCleanup | None) -> DeferredCleanup:
    """Where the same switch owes something to this cluster already."""
    if before is None or before.old != debt.old:
        return debt
    return replace(debt, topics=tuple(sorted({*debt.topics, *before.topics})), rights=debt.rights or before.rights)


def may_clean_up(
    debt: DeferredCleanup,
    link: Link,
    moved: Collection[str],
    left: Collection[str],
    stands: Callable[[Collection[str]], bool],
) -> bool:
    """Whether this link's mirror may undo it now. `moved`: topics that are at home elsewhere than at the link's source;
    `left`: those that came to be at home there by a switch; `stands`: whether a guard of these twins stands on the
    target, asked there and then, since what the debt takes away may be all that keeps writers out."""
    if debt.old == link.source:
        return not set(debt.topics).intersection(moved)  # else the link back does, behind a guard
    twins = frozenset(left).intersection(debt.topics)
    return debt.old == link.target and (not twins or stands(twins))


@dataclass(frozen=True, slots=True)
class WriteBlock:
    """`topics`: the twins; `us`: whom the authorizer takes their link for; `plan`: what was changed, or is about to
    be; `up`: the twins that were seen to be guarded since, on every broker."""

    topics: frozenset[str] = frozenset()
    us: str = ""
    plan: RulesPlan = field(default_factory=RulesPlan)
    up: frozenset[str] = frozenset()

    @property
    def is_settled(self) -> bool:
        """Whether nothing of it is still to be taken back."""
        return not self.plan.over and not self.plan.back

    @property
    def left_open(self) -> frozenset[str]:
        """The twins that anybody may write to though rules could keep him out."""
        return frozenset(self.plan.open_to_all if self.plan.ruled else ())

    def to_json(self) -> str:
        raw = {"topics": sorted(self.topics), "us": self.us, "plan": self.plan.as_record(), "up": sorted(self.up)}
        return json.dumps(raw, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> WriteBlock:
        """WireError where it is none."""
        try:
            raw: dict[str, Any] = json.loads(text)
            topics, up = frozenset(raw["topics"]), frozenset(raw.get("up", ()))
            return WriteBlock(topics, str(raw["us"]), RulesPlan.from_record(raw["plan"]), up)
        except (ValueError, TypeError, KeyError) as error:
            raise WireError("the guard of a cluster cannot be read from the store") from error


def renew_write_block(known: WriteBlock, sight: AclSnapshot) -> WriteBlock:
    """The guard for the topics of `sight`, in place of the one that is known. Where somebody has changed its rules,
    nothing of it counts as up until it is seen again."""
    up = known.up & sight.topics if known.plan.stands(sight.acls or ()) else frozenset[str]()
    return WriteBlock(sight.topics, sight.us, plan_write_block(sight, known.plan), up)


def settle_write_block(done: WriteBlock) -> WriteBlock:
    """Once every broker shows it. What it took back of earlier guards is forgotten: a rule that looks like one of these
    from now on is somebody else's."""
    return replace(done, plan=replace(done.plan, over=(), back=()), up=done.topics - done.left_open)


def is_write_block_up(known: WriteBlock, wanted: WriteBlock, acls: Collection[Acl] | None) -> bool:
    """Whether nothing is to be done."""
    return known == wanted == settle_write_block(wanted) and wanted.plan.stands(acls or ())


# All that the right to all of a topic is made of.
_EACH = (AclOperation.WRITE, *RIGHTS_WITHOUT_WRITE[AclOperation.ALL])


def acls_for_new_home(
    rows: Iterable[LinkStateRow], twins: Mapping[str, str], ours: Collection[Acl] = ()
) -> frozenset[Acl]:
    """What the twins shall be given; `twins`: each topic's. Of the rules that were held back those that allow
    something, each for a twin by its name, but nothing that a denial which was held back would have forbidden. `ours`:
    denials of a switch that stand at the source: they say nothing of what its topics are to be.

    A denial for everybody is not given: at the new home it would shut us out. Rules for groups, transactional ids and
    the cluster are none of a topic's, and not here.
    """
    held = [(acl_from_text(row.subject), row.value) for row in rows if row.kind == ACL_HELD_KIND]
    held = [(acl, why) for acl, why in held if acl.resource == ResourceType.TOPIC and acl not in ours]
    denials = [acl for acl, why in held if why == LOCKS_OUT_REASON]
    allowing = [acl for acl, why in held if why == CHANGES_TWIN_REASON and acl.permission == AclPermission.ALLOW]
    found: set[Acl] = set()
    for acl in allowing:
        for topic, twin in twins.items():
            if acl.covers(topic):
                rule = replace(acl, name=twin, pattern=int(PatternType.LITERAL))
                found |= _allowed(rule, {one.operation for one in denials if one.covers(topic)})
    return frozenset(found)


def acl_rows_to_forget(rows: Iterable[LinkStateRow], twins: Iterable[str]) -> tuple[LinkStateRow, ...]:
    """Rules on these twins that the link wrote and shall forget before the twins are its own no longer: else it would
    take away, as left over, what lets people read at the new home."""
    names = frozenset(twins)
    return tuple(row for row in rows if row.kind == ACL_WRITTEN_KIND and _is_of(acl_from_text(row.subject), names))


def _is_of(acl: Acl, names: frozenset[str]) -> bool:
    return acl.resource == ResourceType.TOPIC and acl.names_one() and acl.name in names


def _allowed(rule: Acl, denied: set[int]) -> set[Acl]:
    """The rule, or what is left of it. Whoever may do anything with a topic may describe it, too."""
    if not denied:
        return {rule}
    if denied & {AclOperation.ALL, AclOperation.DESCRIBE}:
        return set()
    if AclOperation.DESCRIBE_CONFIGS in denied:
        denied = denied | {int(AclOperation.ALTER_CONFIGS)}
    parts = _EACH if rule.operation == AclOperation.ALL else (rule.operation,)
    return {replace(rule, operation=int(one)) for one in parts if one not in denied}


def topics_left_to_link(
    link: Link, homes: Mapping[str, HomeRow], twins: Iterable[TwinRow], in_switch: Collection[str]
) -> tuple[str, ...]:
    """The topics that came to be at home at the link's source by a switch, and are twins of the link since. A twin that
    was made anew, after a fail-back or a rebuild, bears no term: the home's row does."""
    carried = {row.topic for row in twins}
    switched = {topic for topic, row in homes.items() if row.home == link.source and row.term > FIRST_TERM}
    ours = switched & carried
    return tuple(sorted(ours.difference(in_switch)))


def topics_blocked_at_home(
    link: Link, homes: Mapping[str, HomeRow], guarded: Collection[str], in_switch: Collection[str]
) -> tuple[str, ...]:
    """Topics of the guard on the link's target that are at home there by now: a switch without the store could not take
    the guard away, and one that runs does it itself. Those of `topics_left_to_other_links` are guarded on."""
    ours = {topic for topic, row in homes.items() if row.home == link.target and row.term > FIRST_TERM}
    return tuple(sorted((ours & set(guarded)).difference(in_switch)))


def topics_left_to_other_links(
    link: Link, rows: Iterable[HomeRow], begun: Callable[[str, Iterable[str]], Collection[str]]
) -> frozenset[str]:
    """Topics that a switch has left to another link to the same target, by the rule of `topics_left_to_link`: they are
    guarded there, whatever this pair says. A topic has a home in each pair, and a cluster one guard for all its pairs;
    terms of two pairs cannot be compared. `rows`: of all pairs; `begun`: which of these topics a link has a twin of."""
    carried = defaultdict[str, list[str]](list)
    for row in rows:
        other = Link(row.home, link.target)
        if row.pair == pair_name(other) != pair_name(link) and row.home != link.target and row.term > FIRST_TERM:
            carried[other.name].append(row.topic)
    return frozenset(topic for name, topics in carried.items() for topic in begun(name, topics))


def missing_home_records(
    topics: Iterable[str],
    homes: Mapping[str, HomeRow],
    home_id: str,
    new: Mapping[str, HomeRecord],
    old: Mapping[str, HomeRecord],
) -> tuple[HomeRecord, ...]:
    """Lines of the new home, the cluster of this id, that the old one lacks. A line counts where it says what the
    store's row does: of others somebody else must decide."""
    found = [new[topic] for topic in topics if topic in new and topic in homes]
    true = [line for line in found if (line.cluster_id, line.term) == (home_id, homes[line.topic].term)]
    return tuple(
        line
        for line in true
        if line.topic not in old or (not old[line.topic].newer and old[line.topic].word < line.word)
    )


def describe_old_home_writers(old: str, topics: Collection[str], *, ruled: bool | None) -> str:
    """What a plan says of writers that stay on the old home, or come back with it. `ruled`: whether an authorizer runs
    there, None where nobody can ask."""
    names = join_names(sorted(topics), NAMED_MAX)
    if ruled:
        return f"{old}: the mirror keeps writers from {names} there from then on"
    nobody = f"nobody can be kept from writing to {names} there, and what is written there never crosses"
    if ruled is None:
        return (
            f"{old} does not say whether it has an authorizer. If it has, the mirror keeps writers out once {old} is "
            f"back; if not, {nobody}: stop its producers"
        )
    return f"{old} has no authorizer: {nobody}: stop its producers"


def describe_missing_authorizer(link: Link, guard: WriteBlock, left: Collection[str]) -> str:
    """Said for as long as it is so, where no rule can help; empty where rules are asked, or will be. `left`: topics
    that a switch has left to the link; `guard`: of its target."""
    names = () if guard.plan.ruled else sorted(set(left).intersection(guard.plan.open_to_all))
    return (
        f"a switch has left it the old home: {describe_old_home_writers(link.target, names, ruled=False)}"
        if names
        else ""
    )


def describe_open_old_home(link: Link, topics: Collection[str], why: str) -> str:
    """What whoever is on call must know; `why` the old home could not be shut."""
    names = join_names(sorted(topics), NAMED_MAX)
    return (
        f"{names} {is_or_are(topics)} at home on {link.source}, and nothing keeps writers from {link.target}, the "
        "old home: "
        f"what they write there never crosses: {why}"
    )
