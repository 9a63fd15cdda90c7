"""ACL rules of a switch: who is kept from writing, and how every right is given back.

A *denial* serves a switch, while nothing may write: one rule against everybody on each topic. The denial also stops
principals that get the right later, and leaves no trace. Config sync does not copy this rule to twins, only denials of
single users.

A *write block* serves a twin, to which Twinshore alone writes: one denial for each principal with the right to write,
since a rule against everybody would stop Twinshore as well. A cluster has one block for all its twins: a rule may cover
several. Regular renewals block rights given in between.

Kafka's authorizer: a denial wins over every allowance; `User:*` is every principal; a denial of Write denies nothing
else, while an allowance of Write includes Describe; super users are exempt.

A *deferred cleanup* is what a switch changed on a home that does not answer, left by a forced switch that takes over
another, or a planned switch whose old home dies. The running mirror performs the cleanup when that home is back.

A twin gets the rights of its source when its topic comes home to it. Until then, only rules that leave the twin
unchanged are synced; the link remembers the others, and which rules it wrote. So this works while the source is down.

After a forced switch the old home has no announcement, so its remaining clients would write where no consumer reads. A
write block is set there only if the store says that the topic's home is elsewhere, and no switch has the topic.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from typing import Any

from twinshore.config.errors import WireError
from twinshore.config.model import FIRST_TERM, Link
from twinshore.config.sentences import is_or_are, join_names
from twinshore.kafka.protocol.access_control import (
    ANY_USER,
    WILDCARD,
    Acl,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
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

END_HINT = "`twinshore switch resume` or `switch rollback` ends it"


def find_unfinished_switches(
    rows: Iterable[SwitchRow], kept: Iterable[SwitchState], debts: Iterable[tuple[str, str]]
) -> dict[str, str]:
    """Returns the switches that have not ended or still have a deferred cleanup, each with what ends it. Their claims
    must not be freed.

    `rows`: all in the store. `kept`: states found on clusters. `debts`: deferred cleanups, as pairs of switch and
    cluster.
    """
    known = {row.id: row for row in rows}
    found = {row.id: END_HINT for row in known.values() if row.ended_ms is None}
    for state in kept:
        row = known.get(state.id)
        # If the store keeps the switch itself, the cluster's state is outdated.
        if not state.ended and (row is None or is_kept_on_cluster(row)):
            found[state.id] = END_HINT
    for switch, cluster in debts:
        found.setdefault(switch, f"it has ended, and the mirror frees what it left on {cluster} once that answers")
    return found


def pair_names(links: Iterable[Link]) -> tuple[str, ...]:
    """Returns the names under which the store keeps deferred cleanups of these links."""
    return tuple(dict.fromkeys(name for link in links for name in (pair_name(link), link.name)))


# What is left of a right on a topic without Write: all that it includes.
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
    """ACLs and topics of a cluster before any change.

    `acls`: None without an authorizer. `topics`: those to keep writers from. `exist`: all topics. `us`: Twinshore's
    principal, empty if unknown. `open_unless_ruled`: whether everybody may use a topic without rules; None if unknown.
    """

    cluster: str
    acls: frozenset[Acl] | None
    topics: frozenset[str]
    exist: frozenset[str]
    us: str = ""
    open_unless_ruled: bool | None = None


@dataclass(frozen=True, slots=True)
class AclChange:
    add: bool
    acls: tuple[Acl, ...]


@dataclass(frozen=True, slots=True)
class RulesPlan:
    """Rules to add and to remove. Save the plan before applying it: afterwards the rules do not tell which of them the
    plan added.

    `deny`: denials to add. `give`: allowances to add in place of those to `take` away. Of the earlier plan: `over` are
    Twinshore's rules, to remove; `back` are foreign rules, to restore. `open_to_all`: topics that writers cannot be
    kept from. `remarks`: for people. `ruled`: whether an authorizer runs.
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
        """Halfway, no principal has gained a right or lost any but Write on these topics."""
        return _steps((True, self.deny), (True, (*self.give, *self.back)), (False, (*self.take, *self.over)))

    def changes_to_restore(self) -> list[AclChange]:
        """Halfway, no principal has more rights than before the plan, and none loses a right."""
        return _steps((True, (*self.take, *self.back)), (False, (*self.give, *self.over)), (False, self.deny))

    def stands(self, acls: Collection[Acl]) -> bool:
        return _are_done(self.changes_to_apply(), acls)

    def is_restored(self, acls: Collection[Acl]) -> bool:
        return _are_done(self.changes_to_restore(), acls)

    def before(self, acls: frozenset[Acl]) -> frozenset[Acl]:
        """Returns the rules without this plan, including what others have changed since."""
        return apply_changes(self.changes_to_restore(), acls)

    def as_record(self) -> dict[str, Any]:
        rules = {name: [list(astuple(acl)) for acl in getattr(self, name)] for name in _LISTS}
        return {**rules, "open_to_all": list(self.open_to_all), "remarks": list(self.remarks), "ruled": self.ruled}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> RulesPlan:
        rules = {name: tuple(Acl(*one) for one in record[name]) for name in _LISTS}
        open_, remarks = tuple(record["open_to_all"]), tuple(record["remarks"])
        return cls(**rules, open_to_all=open_, remarks=remarks, ruled=bool(record.get("ruled", True)))


def apply_changes(steps: Iterable[AclChange], acls: Iterable[Acl]) -> frozenset[Acl]:
    """Returns the rules after the changes. Idempotent."""
    now = frozenset(acls)
    for step in steps:
        now = now | frozenset(step.acls) if step.add else now - frozenset(step.acls)
    return now


def plan_denial(sight: AclSnapshot, owed: Collection[Acl] = ()) -> RulesPlan:
    """Plans that only super users write to the topics, and that no other right is lost.

    Twinshore is denied as well: where it writes next, a write block must be up before the denial is removed. `owed`:
    denials of earlier switches that are still to be removed; the plan treats them as its own.
    """
    if sight.acls is None:
        return _plan_without_rules(sight, ruled=False)
    shut, open_to_all = _can_be_ruled(sight)
    deny = {write_denied_to(ANY_USER, topic) for topic in shut} - sight.acls.difference(owed)
    remarks = _remarks_on_open(sight, open_to_all)
    if shut:
        remarks += [
            f"{sight.cluster}: super users can still write to {_names(shut)}, and no rule keeps them out: its ends are"
            " watched",
            f"{sight.cluster}: a producer that starts again in between and may write to nothing else is refused with"
            " CLUSTER_AUTHORIZATION_FAILED, unless it may IdempotentWrite on the cluster",
        ]
    return RulesPlan(_sorted(deny), open_to_all=tuple(open_to_all), remarks=tuple(remarks))


def plan_write_block(sight: AclSnapshot, earlier: RulesPlan | None = None) -> RulesPlan:
    """Plans that only Twinshore and super users write to the topics.

    `earlier`: the block in place. Rules that it changed count as unchanged; those no longer needed are undone. One
    block serves all twins of a cluster: two would revoke each other's rules.
    """
    if sight.acls is None:
        return _plan_without_rules(sight, ruled=False)
    if not sight.us:
        return _in_turn(_plan_without_rules(sight, ruled=True), earlier or RulesPlan())
    original = earlier.before(sight.acls) if earlier else sight.acls
    shut, open_to_all = _can_be_ruled(replace(sight, acls=original))
    writing = [acl for acl in original if _lets_write(acl) and acl.principal != sight.us]
    others = [acl for acl in writing if acl.principal != ANY_USER]
    deny = {write_denied_to(acl.principal, topic) for acl in others for topic in shut if acl.covers(topic)}
    take = {acl for acl in writing if acl.principal == ANY_USER and any(acl.covers(topic) for topic in shut)}
    give = {one for acl in take for one in _in_place_of(acl, shut, sight.exist)}
    # Such a rule included Twinshore, which may have no other.
    give |= {replace(_writing(acl, topic), principal=sight.us) for acl in take for topic in shut if acl.covers(topic)}
    remarks = _remarks_on_open(sight, open_to_all)
    if take:
        remarks.append(
            f"{sight.cluster}: rules that let everybody write are replaced by rules for each topic that is no twin: to"
            " a topic made later, everybody may write after the next check"
        )
    added = (_sorted(deny - original), _sorted(give - original), _sorted(take))
    plan = RulesPlan(*added, open_to_all=tuple(open_to_all), remarks=tuple(remarks))
    return _in_turn(plan, earlier or RulesPlan())


def _in_turn(plan: RulesPlan, earlier: RulesPlan) -> RulesPlan:
    ours, theirs = {*plan.deny, *plan.give}, {*plan.take}
    over = {*earlier.deny, *earlier.give, *earlier.over} - ours - theirs
    back = {*earlier.take, *earlier.back} - theirs - ours
    return replace(plan, over=_sorted(over - back), back=_sorted(back))


def _plan_without_rules(sight: AclSnapshot, *, ruled: bool) -> RulesPlan:
    names = _names(sight.topics)
    remark = f"{sight.cluster} has no authorizer: no writer can be kept from {names}; its ends are watched"
    if ruled:
        unknown = f"{sight.cluster}: the principal of Twinshore is unknown, so no writer is kept from {names}"
        remark = f"{unknown}: set `principal` in the link's section `follow`"
    return RulesPlan(open_to_all=tuple(sorted(sight.topics)), remarks=(remark,), ruled=ruled)


def _can_be_ruled(sight: AclSnapshot) -> tuple[list[str], list[str]]:
    """Returns topics where an added rule affects nothing else, and those where a first rule would deny everybody
    everything.
    """
    topics = sorted(sight.topics)
    if sight.open_unless_ruled is False:
        return topics, []
    wide = [acl for acl in sight.acls or () if acl.resource == ResourceType.TOPIC]
    bare = {topic for topic in topics if not any(acl.covers(topic) for acl in wide)}
    return [topic for topic in topics if topic not in bare], sorted(bare)


def _remarks_on_open(sight: AclSnapshot, topics: Sequence[str]) -> list[str]:
    if not topics:
        return []
    return [
        f"{sight.cluster}: no rule names {_names(topics)}, and the cluster lets everybody use such topics"
        " (allow.everyone.if.no.acl.found), or does not say that it does not: no writer can be kept out;"
        " its ends are watched"
    ]


def _lets_write(acl: Acl) -> bool:
    writes = acl.operation in (AclOperation.WRITE, AclOperation.ALL)
    return writes and acl.resource == ResourceType.TOPIC and acl.permission == AclPermission.ALLOW


def _in_place_of(acl: Acl, shut: Iterable[str], exist: Iterable[str]) -> set[Acl]:
    """Returns all that the rule allows except Write to the topics in `shut`. Other operations stay as wide as before,
    so no topic loses its last rule.
    """
    rest = {replace(acl, operation=int(operation)) for operation in RIGHTS_WITHOUT_WRITE[acl.operation]}
    others = {name for name in exist if acl.covers(name)} - set(shut)
    return rest | {_writing(acl, name) for name in others}


def _writing(acl: Acl, topic: str) -> Acl:
    return replace(acl, name=topic, pattern=int(PatternType.LITERAL), operation=int(AclOperation.WRITE))


def write_denied_to(principal: str, topic: str) -> Acl:
    """Denies from any host: a principal that may write from one host must not write from another either."""
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
    return join_names(sorted(topics))


def denies_writing(acl: Acl, topics: Iterable[str]) -> bool:
    writes = acl.operation in (AclOperation.WRITE, AclOperation.ALL) and acl.resource == ResourceType.TOPIC
    return writes and acl.permission == AclPermission.DENY and any(acl.covers(topic) for topic in topics)


# The kind of its rows in the store, kept for a pair of clusters; the switch is the subject.
DEFERRED_CLEANUP_KIND = "switch debt"


@dataclass(frozen=True, slots=True)
class DeferredCleanup:
    """What a switch has to clean up on cluster `old`. `rights`: ACL changes there, as in `SwitchState`. Claims and home
    records that hold writers may be left there as well.
    """

    switch: str
    old: str
    topics: tuple[str, ...]
    rights: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> DeferredCleanup:
        """Raises WireError if the text is invalid."""
        try:
            raw = json.loads(text)
            topics = tuple(map(str, raw["topics"]))
            return DeferredCleanup(str(raw["switch"]), str(raw["old"]), topics, str(raw["rights"]))
        except (ValueError, TypeError, KeyError) as error:
            raise WireError("what a switch still owes to an old home cannot be read from the store") from error


def has_promoted(state: SwitchState) -> bool:
    """Returns whether the switch has already moved its topics, and only has to finish on the old home."""
    flipped = state.kind in MOVES_HOMES and state.committed and is_past(state.kind, state.step, SwitchStep.PROMOTE)
    return flipped and not state.ended


def select_rights(rights: str, topics: Collection[str]) -> str:
    if not rights:
        return ""
    plan = RulesPlan.from_record(json.loads(rights))
    plan = replace(plan, deny=tuple(acl for acl in plan.deny if acl.name in topics))
    return json.dumps(plan.as_record(), sort_keys=True)


def deferred_cleanup_of(state: SwitchState, topics: Collection[str] | None = None) -> DeferredCleanup | None:
    """Returns what the switch, or its part with these topics, may have left on the unreachable home; None if nothing.
    Until a forced switch promotes, it contacts no home that could be gone.
    """
    names = tuple(one for one in state.names() if topics is None or one in topics)
    if state.kind in MAKES_TWINS or has_promoted(state):
        return DeferredCleanup(state.id, state.new, names)
    if state.kind in HOLDS:
        return DeferredCleanup(state.id, state.old, names, state.rights)
    return None


def merge_cleanups(cleanup: DeferredCleanup, before: DeferredCleanup | None) -> DeferredCleanup:
    if before is None or before.old != cleanup.old:
        return cleanup
    topics = tuple(sorted({*cleanup.topics, *before.topics}))
    return replace(cleanup, topics=topics, rights=cleanup.rights or before.rights)


def may_clean_up(
    cleanup: DeferredCleanup,
    link: Link,
    moved: Collection[str],
    left: Collection[str],
    stands: Callable[[Collection[str]], bool],
) -> bool:
    """Returns whether this link's mirror may perform the cleanup now.

    `moved`: topics whose home is not the link's source. `left`: topics that a switch moved there. `stands`: whether a
    write block of these twins is up on the target; called last, since the rules to remove may be all that stops
    writers.
    """
    if cleanup.old == link.source:
        return not set(cleanup.topics).intersection(moved)  # else the reverse link does, with a write block
    twins = frozenset(left).intersection(cleanup.topics)
    return cleanup.old == link.target and (not twins or stands(twins))


@dataclass(frozen=True, slots=True)
class WriteBlock:
    """The write block of a cluster. `topics`: the twins. `us`: principal of their link. `plan`: changes made, or about
    to be. `up`: twins since confirmed as blocked on every broker.
    """

    topics: frozenset[str] = frozenset()
    us: str = ""
    plan: RulesPlan = field(default_factory=RulesPlan)
    up: frozenset[str] = frozenset()

    @property
    def is_settled(self) -> bool:
        """Returns whether nothing is left to remove or restore."""
        return not self.plan.over and not self.plan.back

    @property
    def left_open(self) -> frozenset[str]:
        """The twins that stay open to writers although an authorizer runs."""
        return frozenset(self.plan.open_to_all if self.plan.ruled else ())

    def to_json(self) -> str:
        raw = {"topics": sorted(self.topics), "us": self.us, "plan": self.plan.as_record(), "up": sorted(self.up)}
        return json.dumps(raw, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> WriteBlock:
        """Raises WireError if the text is invalid."""
        try:
            raw: dict[str, Any] = json.loads(text)
            topics, up = frozenset(raw["topics"]), frozenset(raw.get("up", ()))
            return WriteBlock(topics, str(raw["us"]), RulesPlan.from_record(raw["plan"]), up)
        except (ValueError, TypeError, KeyError) as error:
            raise WireError("the guard of a cluster cannot be read from the store") from error


def renew_write_block(block: WriteBlock, sight: AclSnapshot) -> WriteBlock:
    """Returns the block for the topics of `sight`, in place of `block`. If the rules of `block` have been changed, no
    twin is `up` until confirmed again.
    """
    up = block.up & sight.topics if block.plan.stands(sight.acls or ()) else frozenset[str]()
    return WriteBlock(sight.topics, sight.us, plan_write_block(sight, block.plan), up)


def settle_write_block(done: WriteBlock) -> WriteBlock:
    """Returns the block once every broker has applied it, without `over` and `back`: from now on, a rule that looks
    like one of them is foreign.
    """
    return replace(done, plan=replace(done.plan, over=(), back=()), up=done.topics - done.left_open)


def is_write_block_up(write_block: WriteBlock, block: WriteBlock, acls: Collection[Acl] | None) -> bool:
    return write_block == block == settle_write_block(block) and block.plan.stands(acls or ())


# The operations that ALL on a topic includes.
_EACH = (AclOperation.WRITE, *RIGHTS_WITHOUT_WRITE[AclOperation.ALL])


def acls_for_new_home(
    rows: Iterable[LinkStateRow], twins: Mapping[str, str], ours: Collection[Acl] = ()
) -> frozenset[Acl]:
    """Returns the held-back allowances, each with the twin's literal name, minus what held-back denials forbid.

    `twins`: twin by topic. `ours`: denials by a switch at the source, which are ignored. Denials for everybody are left
    out: they would stop Twinshore. So are rules for groups, transactional ids and the cluster, which belong to no
    topic.
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
    """Returns rows of rules that the link wrote on these twins. Forget them before the twins change homes: else the
    link would remove the rules as left over, and readers would lose access.
    """
    names = frozenset(twins)
    return tuple(row for row in rows if row.kind == ACL_WRITTEN_KIND and _is_of(acl_from_text(row.subject), names))


def _is_of(acl: Acl, names: frozenset[str]) -> bool:
    return acl.resource == ResourceType.TOPIC and acl.names_one() and acl.name in names


def _allowed(rule: Acl, denied: set[int]) -> set[Acl]:
    """Returns the rule, or what the denials leave of it. Every operation on a topic includes Describe."""
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
    """Returns the twins of the link whose topics a switch moved to the link's source. A recreated twin has no term; the
    home row has one.
    """
    carried = {row.topic for row in twins}
    switched = {topic for topic, row in homes.items() if row.home == link.source and row.term > FIRST_TERM}
    ours = switched & carried
    return tuple(sorted(ours.difference(in_switch)))


def topics_blocked_at_home(
    link: Link, homes: Mapping[str, HomeRow], guarded: Collection[str], in_switch: Collection[str]
) -> tuple[str, ...]:
    """Returns blocked topics whose home is now the link's target. Only a switch without the store leaves such a block.
    Topics in `topics_left_to_other_links` stay blocked.
    """
    ours = {topic for topic, row in homes.items() if row.home == link.target and row.term > FIRST_TERM}
    return tuple(sorted((ours & set(guarded)).difference(in_switch)))


def topics_left_to_other_links(
    link: Link, rows: Iterable[HomeRow], begun: Callable[[str, Iterable[str]], Collection[str]]
) -> frozenset[str]:
    """Returns topics that a switch left to another link with the same target, by the rule of `topics_left_to_link`.
    They stay blocked there: a topic has a home in each pair, a cluster has one block for all pairs, and terms of two
    pairs cannot be compared.

    `rows`: of all pairs. `begun`: returns those of the topics with a twin of the named link.
    """
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
    """Returns home records of the new home (cluster id `home_id`) that the old one lacks, and that agree with the
    store.
    """
    found = [new[topic] for topic in topics if topic in new and topic in homes]
    true = [record for record in found if (record.cluster_id, record.term) == (home_id, homes[record.topic].term)]
    return tuple(
        record
        for record in true
        if record.topic not in old or (not old[record.topic].newer and old[record.topic].word < record.word)
    )


def describe_old_home_writers(old: str, topics: Collection[str], *, ruled: bool | None) -> str:
    """`ruled`: whether an authorizer runs there; None if unknown."""
    names = join_names(sorted(topics))
    if ruled:
        return f"{old}: the mirror keeps writers from {names} there from then on"
    open_to_all = f"no writer can be kept from {names} there, and what is written there is not replicated"
    if ruled is None:
        unknown = f"{old} does not say whether it has an authorizer"
        shut = f"If it has, the mirror keeps writers out once {old} is back"
        return f"{unknown}. {shut}; if not, {open_to_all}: stop its producers"
    return f"{old} has no authorizer: {open_to_all}: stop its producers"


def describe_missing_authorizer(link: Link, guard: WriteBlock, left: Collection[str]) -> str:
    """Returns a warning if the link's target has no authorizer, else an empty string. `left`: topics that a switch left
    to the link.
    """
    names = () if guard.plan.ruled else sorted(set(left).intersection(guard.plan.open_to_all))
    left_open = describe_old_home_writers(link.target, names, ruled=False)
    return f"a switch has left it the old home: {left_open}" if names else ""


def describe_open_old_home(link: Link, topics: Collection[str], why: str) -> str:
    names = join_names(sorted(topics))
    open_yet = f"{names} {is_or_are(topics)} at home on {link.source}, and nothing keeps writers from {link.target}"
    return f"{open_yet}, the old home: what they write there is not replicated: {why}"
