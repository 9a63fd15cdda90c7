"""Which rules cross, as what, and which are held back: a table of cases, and what the rules mean together."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from twinshore.config.model import Link, LinkControl, SyncRules, TwinNaming
from twinshore.kafka.protocol.access_control import Acl, AclOperation, AclPermission, PatternType, ResourceType
from twinshore.replication.sync.core import decisions
from twinshore.replication.sync.core.decisions import (
    CHANGES_TWIN_REASON,
    LOCKS_OUT_REASON,
    WIDE_GROUPS_REASON,
    AclContext,
    AclSyncPlan,
    WantedAcls,
)

LINK = Link("east", "west")
PREFIX = Link("east", "west", naming=TwinNaming.PREFIX)
GROUND = AclContext({"orders": "orders", "order-log": "order-log"}, us="User:mirror")
OPEN = replace(GROUND, open_unless_ruled=True)
Op, Literal, Prefixed = AclOperation, PatternType.LITERAL, PatternType.PREFIXED


def acl(
    name: str,
    operation: AclOperation = AclOperation.READ,
    *,
    pattern: PatternType = PatternType.LITERAL,
    who: str = "User:anna",
    host: str = "*",
    deny: bool = False,
    resource: ResourceType = ResourceType.TOPIC,
) -> Acl:
    return Acl(resource, name, pattern, who, host, operation, AclPermission.DENY if deny else AclPermission.ALLOW)


def want(*source: Acl, ground: AclContext = GROUND, link: Link = LINK) -> WantedAcls:
    return decisions.wanted_acls(source, ground, link)


@pytest.mark.parametrize(
    ("rule", "written"),
    [
        (acl("orders"), [acl("orders")]),
        (acl("elsewhere"), []),
        (acl("ord", pattern=Prefixed), [acl("orders"), acl("order-log")]),
        (acl("orders", pattern=Prefixed), [acl("orders")]),
        (acl("bill", pattern=Prefixed), []),
        (acl("*"), [acl("orders"), acl("order-log")]),
        (acl("orders", who="User:*", host="10.0.0.7"), [acl("orders", who="User:*", host="10.0.0.7")]),
        (acl("orders", who="Group:ops"), [acl("orders", who="Group:ops")]),
        (acl("orders", deny=True), [acl("orders", deny=True)]),
        (acl("orders", Op.WRITE, deny=True), [acl("orders", Op.WRITE, deny=True)]),
        (acl("*", Op.ALL, deny=True), [acl(name, Op.ALL, deny=True) for name in ("orders", "order-log")]),
        (acl("orders", Op.ALL), [acl("orders"), acl("orders", Op.DESCRIBE), acl("orders", Op.DESCRIBE_CONFIGS)]),
        (acl("orders", Op.WRITE), [acl("orders", Op.DESCRIBE)]),
        (acl("orders", Op.ALTER_CONFIGS), [acl("orders", Op.DESCRIBE_CONFIGS)]),
        (acl("orders", Op.CREATE), []),
        (acl("orders", who="User:mirror"), []),
        (acl("orders", Op.ALL, who="User:mirror", deny=True), []),
        (acl("g", resource=ResourceType.GROUP), []),
        (acl("kafka-cluster", Op.ALTER, resource=ResourceType.CLUSTER), []),
    ],
)
def test_what_is_written(rule: Acl, written: list[Acl]) -> None:
    assert want(rule).write == frozenset(written)


@pytest.mark.parametrize("operation", [Op.ALL, Op.WRITE, Op.CREATE, Op.DELETE, Op.ALTER, Op.ALTER_CONFIGS])
@pytest.mark.parametrize("pattern", ["literal", "prefixed", "wildcard"])
def test_what_changes_a_topic_is_held_back_whole(operation: AclOperation, pattern: str) -> None:
    rule = {
        "literal": acl("orders", operation),
        "prefixed": acl("ord", operation, pattern=Prefixed),
        "wildcard": acl("*", operation),
    }[pattern]
    assert want(rule).held == {rule: CHANGES_TWIN_REASON}
    assert all(one.operation in (Op.READ, Op.DESCRIBE, Op.DESCRIBE_CONFIGS) for one in want(rule).write)


def test_an_operation_of_a_newer_kafka_is_held_back_when_it_allows_and_crosses_when_it_forbids() -> None:
    new = replace(acl("orders"), operation=99)
    assert (want(new).write, want(new).held) == (frozenset(), {new: CHANGES_TWIN_REASON})
    forbids = replace(new, permission=int(AclPermission.DENY))
    assert want(forbids).write == {forbids}
    assert "operation 99" in str(new)


def test_rules_follow_a_twin_to_its_name() -> None:
    ground = AclContext({"orders": "east.orders"})
    for rule in (acl("orders"), acl("ord", pattern=Prefixed), acl("*")):
        assert want(rule, ground=ground, link=PREFIX).write == {acl("east.orders")}


def test_a_denial_for_everybody_is_held_back_with_all_it_forbids() -> None:
    denial = acl("orders", Op.READ, who="User:*", deny=True)
    found = want(denial, acl("*"), acl("orders"), acl("orders", Op.DESCRIBE))
    assert found.held == {denial: LOCKS_OUT_REASON}
    assert found.write == {acl("order-log"), acl("orders", Op.DESCRIBE)}, "the wide rule without what was forbidden"
    from_one_host = replace(denial, host="10.0.0.7")
    assert from_one_host in want(from_one_host, acl("orders")).write, "it cannot shut everybody out"


def grouped(*, wide: bool) -> Link:
    control = LinkControl(groups=("app.*",), exclude_groups=("app-x",))
    return Link("east", "west", follow=SyncRules(group_acls=True, wide_group_acls=wide), control=control)


def group(name: str, *, pattern: PatternType = Literal, who: str = "User:anna", deny: bool = False) -> Acl:
    return acl(name, pattern=pattern, who=who, deny=deny, resource=ResourceType.GROUP)


def test_group_rules_follow_when_asked_and_admitted_and_wide_ones_when_asked_for_by_themselves() -> None:
    named = [group(name) for name in ("app-1", "app-x", "other", "*")]
    wide, mine = group("other", pattern=Prefixed), group("app-1", who="User:mirror")
    found = want(*named, wide, mine, link=grouped(wide=False))
    assert found == WantedAcls(frozenset({named[0]}), {named[3]: WIDE_GROUPS_REASON, wide: WIDE_GROUPS_REASON})
    found = want(*named, wide, mine, link=grouped(wide=True))
    assert found == WantedAcls(frozenset({named[0], named[3], wide}))


@pytest.mark.parametrize(
    ("denial", "given"),
    [
        (group("app-", pattern=Prefixed, deny=True), ["User:bert"]),
        (group("*", deny=True), ["User:bert"]),
        (group("*", who="User:*", deny=True), []),
        (group("app-1", who="User:*", deny=True), []),
        (group("*", who="Group:staff", deny=True), []),
        (group("app-2", deny=True), ["User:anna", "User:bert"]),
        (group("bills", pattern=Prefixed, deny=True), ["User:anna", "User:bert"]),
    ],
)
def test_a_group_is_not_given_where_a_denial_of_it_is_held_back(denial: Acl, given: list[str]) -> None:
    found = want(group("app-1"), group("app-1", who="User:bert"), denial, link=grouped(wide=False))
    assert sorted(one.principal for one in found.write if one.permission == AclPermission.ALLOW) == given


def mine(name: str) -> Acl:
    return acl(name, Op.ALL, who="User:mirror")


@pytest.mark.parametrize(
    "rule", [acl("orders"), acl("orders", Op.CREATE), acl("orders", who="User:mirror"), acl("orders", deny=True)]
)
def test_where_everybody_may_what_no_rule_speaks_of_the_mirrors_own_shuts_what_is_ruled_on_the_source(
    rule: Acl,
) -> None:
    assert want(rule, ground=OPEN).write - want(rule).write == {mine("orders")}


def test_where_the_source_is_shut_unless_ruled_every_twin_is() -> None:
    assert want(ground=replace(OPEN, shut_unless_ruled=True)).write == {mine("orders"), mine("order-log")}
    assert want(ground=replace(GROUND, shut_unless_ruled=True)).write == frozenset()
    assert want(ground=OPEN).write == frozenset(), "open on both sides"


def gives(*operations: AclOperation, name: str = "orders", who: str = "User:mirror", host: str = "*") -> list[Acl]:
    pattern = Prefixed if name == "ord" else Literal
    return [acl(name, operation, who=who, pattern=pattern, host=host) for operation in operations]


UNDELETED = (Op.READ, Op.WRITE, Op.CREATE, Op.ALTER, Op.ALTER_CONFIGS)
UNMADE = (Op.READ, Op.WRITE, Op.ALTER, Op.ALTER_CONFIGS)
MAKES = acl("kafka-cluster", Op.CREATE, who="User:mirror", resource=ResourceType.CLUSTER)


@pytest.mark.parametrize(
    ("theirs", "given"),
    [
        (gives(*UNDELETED), True),
        (gives(*UNDELETED, name="ord"), True),
        (gives(*UNDELETED, name="*"), True),
        ([*gives(*UNMADE[:2]), *gives(*UNMADE[2:], name="ord"), MAKES], True),
        ([*gives(*UNMADE), replace(MAKES, operation=Op.ALL)], True),
        (gives(Op.ALL), True),
        (gives(Op.ALL, name="*"), True),
        (gives(*UNMADE), False),
        *([gives(*(one for one in UNDELETED if one is not missing)), False] for missing in UNDELETED),
        ([*gives(*UNMADE), replace(MAKES, host="10.9.9.9")], False),
        (gives(Op.WRITE, name="*", who="User:*"), False),
        (gives(Op.ALL, name="*", who="User:*"), False),
        (gives(*UNDELETED, host="10.9.9.9"), False),
        (gives(Op.ALL, host="10.0.0.1"), False),
        (gives(*UNDELETED, who="User:anna"), False),
        (gives(*UNDELETED, name="bills"), False),
        ([acl("orders", Op.ALL, who="User:mirror", deny=True)], False),
        ([], False),
    ],
)
def test_where_the_targets_own_rules_give_the_mirror_all_it_needs_they_alone_say_what_it_may(
    theirs: list[Acl], given: bool
) -> None:
    """An operator who withholds Delete there forbids it: a rule of the mirror's own must not give it. Where a rule of
    theirs leaves anything else out, or speaks of a host, the mirror cannot do without its own."""
    ruled = OPEN.ruled({*theirs, mine("order-log")}, frozenset({mine("order-log")}))
    rules = want(acl("ord", pattern=Prefixed), ground=ruled).write
    others = {"order-log"} if given and not theirs[0].names_one() else set()
    assert {"orders", "order-log"} - {one.name for one in rules if one.principal == "User:mirror"} == (
        {"orders", *others} if given else set()
    ), "what we wrote ourselves is no word of the target's"
    before = frozenset({mine("orders")})
    both = frozenset({*theirs, acl("orders")} - before)
    plan = decisions.plan_acls(want(acl("orders"), ground=ruled), both | before, before, ruled)
    assert plan.remove == ((mine("orders"),) if given else ()), "one of a former version goes"
    again = decisions.plan_acls(want(acl("orders"), ground=ruled), both, frozenset({acl("orders")}), ruled)
    assert again.create == (() if given else (mine("orders"),)), "one that a former version took away comes back"


def test_no_rule_follows_before_it_is_known_who_the_mirror_is() -> None:
    assert decisions.explain_no_acls(OPEN) == ""
    assert "allow.everyone.if.no.acl.found" in decisions.explain_no_acls(replace(OPEN, us=""))
    assert decisions.explain_no_acls(replace(GROUND, us="")) == ""


@pytest.mark.parametrize("left", ["orders", "forgotten"])
def test_the_last_rule_of_a_topic_is_never_taken_off(left: str) -> None:
    """Of a twin, and of a topic that was one."""
    rule, own = acl(left), mine(left)
    for target in (frozenset({rule, own}), frozenset({rule})):
        plan = decisions.plan_acls(WantedAcls(frozenset()), target, target, OPEN)
        assert (plan.remove, plan.create) == ((rule,), () if own in target else (own,))
        assert plan.forget == ()
    again = decisions.plan_acls(WantedAcls(frozenset()), frozenset({own}), frozenset({own}), OPEN)
    assert (again.create, again.remove, again.forget) == ((), (), ())
    gone = replace(OPEN, gone=frozenset({left}))
    assert decisions.plan_acls(WantedAcls(frozenset()), frozenset({own}), frozenset({own}), gone).remove == (own,)
    assert decisions.plan_acls(WantedAcls(frozenset()), frozenset({rule}), frozenset({rule}), GROUND).create == ()


def test_a_wide_rule_of_a_former_version_goes_and_leaves_nothing_behind() -> None:
    wide = acl("*")
    plan = decisions.plan_acls(want(wide, ground=OPEN), frozenset({wide}), frozenset({wide}), OPEN)
    assert plan.remove == (wide,)
    assert {one.name for one in plan.create} == {"orders", "order-log"}


def test_what_shuts_comes_before_what_opens_and_goes_after_it() -> None:
    allow, deny = acl("a"), acl("a", deny=True)
    plan = AclSyncPlan((deny, allow, mine("a")), (allow, deny), (), "User:mirror")
    assert plan.creating() == [[mine("a")], [deny], [allow]]
    assert plan.removing() == [[allow], [deny]]
    assert AclSyncPlan((allow,), (), ()).creating() == [[], [], [allow]]


def test_only_rules_that_we_wrote_are_taken_away() -> None:
    ours, theirs, new, lost = acl("a"), acl("b"), acl("c"), acl("d")
    both = acl("e")
    wanted = WantedAcls(frozenset({new, both}))
    plan = decisions.plan_acls(wanted, frozenset({ours, theirs, both}), frozenset({ours, lost}), GROUND)
    assert (plan.create, plan.remove, plan.forget) == ((new,), (ours,), (lost,))
    again = decisions.plan_acls(wanted, frozenset({theirs, both, new}), frozenset({new}), GROUND)
    assert (again.create, again.remove, again.forget) == ((), (), ())


def test_a_rule_of_the_targets_own_that_opens_a_twin_is_named() -> None:
    rules = [
        acl("ord", Op.WRITE, pattern=Prefixed),
        acl("orders"),
        acl("*", Op.ALL, who="User:mirror"),
        acl("x", Op.ALL),
    ]
    (remark,) = decisions.find_exposing_acls(rules, GROUND)
    assert str(remark) == (
        "acl allow User:anna write on topic ord and all it begins: is a rule of the target and lets others change the "
        "twin order-log"
    )


@pytest.mark.parametrize(
    ("rules", "is_open"),
    [
        ([acl("twinshore.homes", Op.WRITE)], True),
        ([acl("twinshore.", Op.WRITE, pattern=Prefixed)], True),
        ([acl("*", Op.ALL)], True),
        ([acl("*", Op.WRITE, who="User:*")], True),
        ([acl("twinshore.twins", Op.DELETE)], True),
        ([acl("twinshore.rescued", Op.ALTER_CONFIGS, host="10.0.0.7")], True),
        ([acl("*", Op.READ), acl("twinshore.homes", Op.DESCRIBE)], False),
        ([acl("twinshore.followers", Op.WRITE), acl("orders", Op.ALL)], False),
        ([acl("*", Op.ALL, who="User:mirror"), acl("*", Op.ALL, who="User:operator")], False),
        ([acl("*", Op.WRITE, resource=ResourceType.GROUP)], False),
        ([acl("*", Op.WRITE, deny=True)], False),
        ([acl("twinshore.homes", Op.WRITE), acl("twinshore.homes", Op.WRITE, deny=True)], False),
        ([acl("twinshore.homes", Op.WRITE), acl("twinshore.homes", deny=True)], True),
        ([acl("twinshore.homes", Op.WRITE), acl("*", Op.ALL, who="User:bert", deny=True)], True),
        ([acl("twinshore.homes", Op.WRITE), acl("*", Op.ALL, host="10.0.0.7", deny=True)], True),
        ([acl("*", Op.WRITE), acl("twinshore.homes", Op.WRITE, deny=True)], True),
        ([acl("twinshore.homes", Op.ALL), acl("twinshore.homes", Op.WRITE, deny=True)], True),
        (
            [
                acl("*", Op.ALL),
                *(acl("twinshore.", one, pattern=Prefixed, deny=True) for one in decisions.WRITE_OPERATIONS),
            ],
            False,
        ),
    ],
)
def test_who_else_may_change_our_own_topics_is_found(rules: list[Acl], is_open: bool) -> None:
    assert decisions.find_open_topic_acls(rules, {"User:mirror", "User:operator"}) == (rules[:1] if is_open else [])


def test_the_command_denies_named_users_what_they_need_not_do() -> None:
    rules = [acl("*", Op.ALL), acl("twinshore.", Op.WRITE, pattern=Prefixed, who="User:*")]
    said = decisions.describe_open_topics("west", "west:9092", rules)
    assert "; ".join(map(str, rules)) in said
    assert said.endswith(
        "(try: kafka-acls.sh --bootstrap-server west:9092 --command-config admin.properties --add --deny-principal"
        " User:anna --operation Write --operation Delete --operation Alter --operation AlterConfigs"
        " --topic twinshore.homes --topic twinshore.protection --topic twinshore.rescued"
        " --topic twinshore.twins)"
    )
    assert "try" not in decisions.describe_open_topics(
        "west", "west:9092", rules[1:]
    )  # a denial for all would shut us out
    assert decisions.describe_open_topics("west", "west:9092", []) == ""


def test_a_rule_survives_its_way_through_the_store() -> None:
    rule = acl('o"r\n', Op.ALTER_CONFIGS, pattern=Prefixed, who="User:CN=a,O=b", deny=True)
    assert decisions.acl_from_text(decisions.acl_to_text(rule)) == rule


def may(rules: frozenset[Acl], who: str, topic: str, operation: AclOperation) -> bool:
    """As brokers judge: a denial wins, and some operations include describe."""
    include = {Op.DESCRIBE: {Op.READ, Op.WRITE, Op.DELETE, Op.ALTER}, Op.DESCRIBE_CONFIGS: {Op.ALTER_CONFIGS}}
    ours = [one for one in rules if one.covers(topic) and one.principal in (who, "User:*")]
    if any(one.permission == AclPermission.DENY and one.operation in (Op.ALL, operation) for one in ours):
        return False
    enough = {Op.ALL, operation, *include.get(operation, set())}
    return any(one.permission == AclPermission.ALLOW and one.operation in enough for one in ours)


def test_whoever_may_read_on_the_source_may_on_the_twin_and_nobody_may_write() -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    twins = {name: name for name in ("orders", "order-log", "bills")}
    people = ["User:anna", "User:bert", "User:*"]
    for _ in range(3_000):
        rules = frozenset(
            acl(
                chance.choice(["orders", "order", "bills", "b", "*", "ordinary"]),
                chance.choice(list(Op)),
                pattern=chance.choice([Literal, Prefixed]),
                who=chance.choice(people),
                deny=chance.random() < 0.3,
            )
            for _ in range(chance.randrange(1, 6))
        )
        there = want(*rules, ground=AclContext(twins, "User:mirror")).write
        for who in people[:2]:
            for topic in twins:
                assert not may(there, who, topic, Op.WRITE), (seed, rules, there)
                reads = may(rules, who, topic, Op.READ), may(there, who, topic, Op.READ)
                shut = any(one.permission == AclPermission.DENY and one.operation == Op.DESCRIBE for one in rules)
                assert reads[0] == reads[1] or (shut and not reads[1]), (seed, rules, there, who, topic)
            for topic in ("ordinary", "own", "bil", "*"):
                assert not may(there, who, topic, Op.READ), (seed, rules, there, who, topic)
