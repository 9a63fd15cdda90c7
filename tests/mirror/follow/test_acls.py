"""Which rules cross, as what, and which are held back: a table of cases, and what the rules mean together."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from twinshore.fleet import Control, Follow, Link, Naming
from twinshore.kafka.rights import Acl, Operation, Pattern, Permission, Resource
from twinshore.mirror.follow import acls
from twinshore.mirror.follow.acls import SHUTS_OUT, TWIN_ALONE, Ground, Wanted

LINK = Link("east", "west")
PREFIX = Link("east", "west", naming=Naming.PREFIX)
GROUND = Ground({"orders": "orders", "order-log": "order-log"}, us="User:mirror")
Op, Literal, Prefixed = Operation, Pattern.LITERAL, Pattern.PREFIXED


def acl(
    name: str,
    operation: Operation = Operation.READ,
    *,
    pattern: Pattern = Pattern.LITERAL,
    who: str = "User:anna",
    host: str = "*",
    deny: bool = False,
    resource: Resource = Resource.TOPIC,
) -> Acl:
    return Acl(resource, name, pattern, who, host, operation, Permission.DENY if deny else Permission.ALLOW)


def want(*source: Acl, ground: Ground = GROUND, link: Link = LINK) -> Wanted:
    return acls.wanted(source, ground, link)


@pytest.mark.parametrize(
    ("rule", "written"),
    [
        (acl("orders"), [acl("orders")]),
        (acl("elsewhere"), []),
        (acl("ord", pattern=Prefixed), [acl("ord", pattern=Prefixed)]),
        (acl("bill", pattern=Prefixed), []),
        (acl("*"), [acl("*")]),
        (acl("orders", who="User:*", host="10.0.0.7"), [acl("orders", who="User:*", host="10.0.0.7")]),
        (acl("orders", who="Group:ops"), [acl("orders", who="Group:ops")]),
        (acl("orders", deny=True), [acl("orders", deny=True)]),
        (acl("orders", Op.WRITE, deny=True), [acl("orders", Op.WRITE, deny=True)]),
        (acl("*", Op.ALL, deny=True), [acl("*", Op.ALL, deny=True)]),
        (acl("orders", Op.ALL), [acl("orders"), acl("orders", Op.DESCRIBE), acl("orders", Op.DESCRIBE_CONFIGS)]),
        (acl("orders", Op.WRITE), [acl("orders", Op.DESCRIBE)]),
        (acl("orders", Op.ALTER_CONFIGS), [acl("orders", Op.DESCRIBE_CONFIGS)]),
        (acl("orders", Op.CREATE), []),
        (acl("orders", who="User:mirror"), []),
        (acl("orders", Op.ALL, who="User:mirror", deny=True), []),
        (acl("g", resource=Resource.GROUP), []),
        (acl("kafka-cluster", Op.ALTER, resource=Resource.CLUSTER), []),
    ],
)
def test_what_is_written(rule: Acl, written: list[Acl]) -> None:
    assert want(rule).write == frozenset(written)


@pytest.mark.parametrize("operation", [Op.ALL, Op.WRITE, Op.CREATE, Op.DELETE, Op.ALTER, Op.ALTER_CONFIGS])
@pytest.mark.parametrize("pattern", ["literal", "prefixed", "wildcard"])
def test_what_changes_a_topic_is_held_back_whole(operation: Operation, pattern: str) -> None:
    rule = {
        "literal": acl("orders", operation),
        "prefixed": acl("ord", operation, pattern=Prefixed),
        "wildcard": acl("*", operation),
    }[pattern]
    assert want(rule).held == {rule: TWIN_ALONE}
    assert all(one.operation in (Op.READ, Op.DESCRIBE, Op.DESCRIBE_CONFIGS) for one in want(rule).write)


def test_an_operation_of_a_newer_kafka_is_held_back_when_it_allows_and_crosses_when_it_forbids() -> None:
    new = replace(acl("orders"), operation=99)
    assert (want(new).write, want(new).held) == (frozenset(), {new: TWIN_ALONE})
    forbids = replace(new, permission=int(Permission.DENY))
    assert want(forbids).write == {forbids}
    assert "operation 99" in str(new)


def test_a_wide_rule_stays_wide_only_while_all_it_covers_are_twins() -> None:
    shared = replace(GROUND, others=frozenset({"ordinary"}))
    narrow = {acl("orders"), acl("order-log")}
    assert want(acl("ord", pattern=Prefixed), ground=shared).write == narrow
    assert want(acl("*"), ground=shared).write == narrow
    assert want(acl("order", pattern=Prefixed), ground=shared).write == {acl("order", pattern=Prefixed)}
    denial = acl("ord", pattern=Prefixed, deny=True)
    assert {one.name for one in want(denial, ground=shared).write} == {"orders", "order-log"}


def test_rules_follow_a_twin_to_its_name() -> None:
    ground = Ground({"orders": "east.orders"}, frozenset({"orders", "bills"}))
    assert want(acl("orders"), ground=ground, link=PREFIX).write == {acl("east.orders")}
    assert want(acl("ord", pattern=Prefixed), ground=ground, link=PREFIX).write == {acl("east.ord", pattern=Prefixed)}
    assert want(acl("*"), ground=ground, link=PREFIX).write == {acl("east.", pattern=Prefixed)}


def test_a_denial_for_everybody_is_held_back_with_all_it_forbids() -> None:
    denial = acl("orders", Op.READ, who="User:*", deny=True)
    found = want(denial, acl("*"), acl("orders"), acl("orders", Op.DESCRIBE))
    assert found.held == {denial: SHUTS_OUT}
    assert found.write == {acl("order-log"), acl("orders", Op.DESCRIBE)}, "the wide rule without what was forbidden"
    from_one_host = replace(denial, host="10.0.0.7")
    assert from_one_host in want(from_one_host, acl("orders")).write, "it cannot shut everybody out"


def test_group_rules_follow_when_asked_and_admitted() -> None:
    control = Control(groups=("app.*",), exclude_groups=("app-x",))
    link = Link("east", "west", follow=Follow(group_acls=True), control=control)
    named = [acl(name, resource=Resource.GROUP) for name in ("app-1", "app-x", "other", "*")]
    wide = acl("other", pattern=Prefixed, resource=Resource.GROUP)
    mine = acl("app-1", who="User:mirror", resource=Resource.GROUP)
    assert want(*named, wide, mine, link=link).write == {named[0], named[3], wide}


def test_where_everybody_may_what_no_rule_speaks_of_the_mirror_keeps_its_way_in() -> None:
    ground = replace(GROUND, open_unless_ruled=True)
    own = acl("orders", Op.ALL, who="User:mirror")
    assert want(acl("orders"), ground=ground).write == {acl("orders"), own}
    assert acls.cannot(ground) == ""
    assert "allow.everyone.if.no.acl.found" in acls.cannot(replace(ground, us=""))
    assert acls.cannot(replace(GROUND, us="")) == ""


def test_only_rules_that_we_wrote_are_taken_away() -> None:
    ours, theirs, new, lost = acl("a"), acl("b"), acl("c"), acl("d")
    both = acl("e")
    wanted = Wanted(frozenset({new, both}))
    plan = acls.decide(wanted, frozenset({ours, theirs, both}), frozenset({ours, lost}))
    assert (plan.create, plan.remove, plan.forget) == ((new,), (ours,), (lost,))
    again = acls.decide(wanted, frozenset({theirs, both, new}), frozenset({new}))
    assert (again.create, again.remove, again.forget) == ((), (), ())


def test_denials_come_first_and_go_last() -> None:
    rules = frozenset({acl("a"), acl("b", deny=True)})
    assert acls.decide(Wanted(rules), frozenset(), frozenset()).create == (acl("b", deny=True), acl("a"))
    assert acls.decide(Wanted(frozenset()), rules, rules).remove == (acl("a"), acl("b", deny=True))


def test_a_rule_of_the_targets_own_that_opens_a_twin_is_named() -> None:
    rules = [
        acl("ord", Op.WRITE, pattern=Prefixed),
        acl("orders"),
        acl("*", Op.ALL, who="User:mirror"),
        acl("x", Op.ALL),
    ]
    (remark,) = acls.exposing(rules, GROUND)
    assert str(remark) == (
        "acl allow User:anna write on topic ord and all it begins: stands on the target and lets others change the "
        "twin order-log"
    )


def test_a_rule_survives_its_way_through_the_store() -> None:
    rule = acl('o"r\n', Op.ALTER_CONFIGS, pattern=Prefixed, who="User:CN=a,O=b", deny=True)
    assert acls.from_text(acls.to_text(rule)) == rule


def may(rules: frozenset[Acl], who: str, topic: str, operation: Operation) -> bool:
    """As brokers judge: a denial wins, and some operations include describe."""
    include = {Op.DESCRIBE: {Op.READ, Op.WRITE, Op.DELETE, Op.ALTER}, Op.DESCRIBE_CONFIGS: {Op.ALTER_CONFIGS}}
    ours = [one for one in rules if one.covers(topic) and one.principal in (who, "User:*")]
    if any(one.permission == Permission.DENY and one.operation in (Op.ALL, operation) for one in ours):
        return False
    enough = {Op.ALL, operation, *include.get(operation, set())}
    return any(one.permission == Permission.ALLOW and one.operation in enough for one in ours)


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
        others = frozenset(chance.sample(["ordinary", "own", "bil"], chance.randrange(3)))
        there = want(*rules, ground=Ground(twins, others, "User:mirror")).write
        for who in people[:2]:
            for topic in twins:
                assert not may(there, who, topic, Op.WRITE), (seed, rules, there)
                reads = may(rules, who, topic, Op.READ), may(there, who, topic, Op.READ)
                shut = any(one.permission == Permission.DENY and one.operation == Op.DESCRIBE for one in rules)
                assert reads[0] == reads[1] or (shut and not reads[1]), (seed, rules, there, who, topic)
            for topic in others:
                assert not may(there, who, topic, Op.READ), (seed, rules, there, who, topic)
