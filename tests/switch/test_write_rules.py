"""Denials and guards over a model of Kafka's authorizer: who may do what before, halfway, meanwhile and afterwards."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from testkit.errors import mentions
from tests.switch.authorizer import Right, rights
from twinshore.kafka.protocol.access_control import Acl, AclOperation, AclPermission, PatternType, ResourceType
from twinshore.switch.core.acl_rules import (
    AclChange,
    AclSnapshot,
    RulesPlan,
    apply_changes,
    plan_denial,
    plan_write_block,
)

US = "User:mirror"
PRINCIPALS = ("User:anna", "Group:ops", US, "User:newcomer")
HOSTS = ("10.0.0.7", "10.0.0.8")
EXIST = ("orders", "orders-eu", "order", "bills")
OPERATIONS = (
    AclOperation.ALL,
    AclOperation.WRITE,
    AclOperation.READ,
    AclOperation.DESCRIBE,
    AclOperation.ALTER_CONFIGS,
)


def rule(
    name: str,
    operation: AclOperation = AclOperation.WRITE,
    who: str = "User:anna",
    *,
    host: str = "*",
    pattern: PatternType = PatternType.LITERAL,
    deny: bool = False,
    resource: ResourceType = ResourceType.TOPIC,
) -> Acl:
    return Acl(resource, name, pattern, who, host, operation, AclPermission.DENY if deny else AclPermission.ALLOW)


acls = st.one_of(
    st.builds(
        Acl,
        st.sampled_from([int(ResourceType.TOPIC)] * 4 + [int(ResourceType.GROUP)]),
        st.sampled_from(["orders", "orders-eu", "bills", "*"]),
        st.just(int(PatternType.LITERAL)),
        st.sampled_from(["User:*", "User:*", *PRINCIPALS[:-1]]),
        st.sampled_from(["*", "*", HOSTS[0]]),
        st.sampled_from([int(one) for one in OPERATIONS]),
        st.sampled_from([int(AclPermission.ALLOW)] * 3 + [int(AclPermission.DENY)]),
    ),
    st.builds(
        rule,
        st.sampled_from(["o", "orders", "orders-", "b"]),
        st.sampled_from(OPERATIONS),
        st.sampled_from(["User:*", "User:*", *PRINCIPALS[:-1]]),
        pattern=st.just(PatternType.PREFIXED),
        deny=st.sampled_from([False, False, False, True]),
    ),
)
sets = st.frozensets(acls, max_size=8)
moved = st.frozensets(st.sampled_from(EXIST), min_size=1, max_size=3)
# What the cluster does, and what it says of it.
openness = st.sampled_from([(True, True), (True, None), (False, None), (False, False)])


def may(rules: frozenset[Acl], *, open_: bool) -> frozenset[Right]:
    return rights(rules, PRINCIPALS, HOSTS, EXIST, open_=open_)


def is_write(right: Right, topics: frozenset[str]) -> bool:
    _, _, operation, name = right
    return operation == AclOperation.WRITE and name in topics


def halfway(data: st.DataObject, steps: list[AclChange], rules: frozenset[Acl]) -> frozenset[Acl]:
    """Killed somewhere: all steps before one, and some rules of that one."""
    if not steps:
        return rules
    number = data.draw(st.integers(0, len(steps) - 1), label="step")
    part = steps[number]
    some = data.draw(st.frozensets(st.sampled_from(part.acls), max_size=len(part.acls)), label="done of it")
    return apply_changes([*steps[:number], replace(part, acls=tuple(some))], rules)


def check_halfway(before: frozenset[Right], now: frozenset[Right], topics: frozenset[str]) -> None:
    """Nobody has more than before, and nobody has lost what is not to write there."""
    assert now <= before
    assert all(is_write(right, topics) for right in before - now)


@given(sets, moved, openness, st.data())
def test_a_denial_takes_the_right_to_write_there_from_everybody_and_no_other(
    rules: frozenset[Acl], topics: frozenset[str], openness: tuple[bool, bool | None], data: st.DataObject
) -> None:
    open_, told = openness
    plan = plan_denial(AclSnapshot("east", rules, topics, frozenset(EXIST), "", told))
    shut = topics - set(plan.open_to_all)
    before, after = may(rules, open_=open_), may(apply_changes(plan.changes_to_apply(), rules), open_=open_)
    assert after == {right for right in before if not is_write(right, shut)}
    assert plan.stands(apply_changes(plan.changes_to_apply(), rules))
    dead = halfway(data, plan.changes_to_apply(), rules)
    check_halfway(before, may(dead, open_=open_), shut)
    assert apply_changes(plan.changes_to_apply(), dead) == apply_changes(plan.changes_to_apply(), rules)
    undone = halfway(data, plan.changes_to_restore(), dead)
    check_halfway(before, may(undone, open_=open_), shut)
    for state in (dead, undone, apply_changes(plan.changes_to_apply(), rules)):
        assert apply_changes(plan.changes_to_restore(), state) == rules
    assert plan.is_restored(rules)
    assert {acl.resource for acl in plan.deny} <= {ResourceType.TOPIC}


@given(sets, acls, moved)
def test_who_is_given_the_right_while_a_denial_stands_may_not_use_it(
    rules: frozenset[Acl], fresh: Acl, topics: frozenset[str]
) -> None:
    plan = plan_denial(AclSnapshot("east", rules, topics, frozenset(EXIST), US, open_unless_ruled=False))
    denied = apply_changes(plan.changes_to_apply(), rules) | {fresh}
    assert not [right for right in may(denied, open_=False) if is_write(right, topics)]
    assume(fresh not in plan.deny)
    assert apply_changes(plan.changes_to_restore(), denied) == rules | {fresh}, "what others changed meanwhile stays"


@given(sets, moved, moved)
def test_a_denial_counts_on_no_denial_that_an_earlier_switch_is_to_take_back(
    rules: frozenset[Acl], topics: frozenset[str], before: frozenset[str]
) -> None:
    """The mirror may take it back at any time; and where it does not, the link back would be shut out by it."""
    east = AclSnapshot("east", rules, before, frozenset(EXIST), open_unless_ruled=False)
    first = plan_denial(east)
    left = apply_changes(first.changes_to_apply(), rules)
    again = replace(east, acls=left, topics=topics)
    plan = plan_denial(again, owed=first.deny)
    assert set(plan.deny) == set(plan_denial(replace(again, acls=rules)).deny)
    assert set(plan.deny).isdisjoint(rules), "what others deny is theirs"
    paid = apply_changes(first.changes_to_restore(), left)
    assert plan.stands(left) is (set(plan.deny) <= left)
    assert plan.stands(paid) is (not plan.deny)
    for state in (left, paid):
        assert plan.stands(apply_changes(plan.changes_to_apply(), state))
        ended = apply_changes(plan.changes_to_restore(), apply_changes(plan.changes_to_apply(), state))
        assert not [one for one in ended - rules if one.name in topics]


@given(sets, moved, openness, st.data())
def test_a_guard_leaves_the_right_to_write_to_us(
    rules: frozenset[Acl], topics: frozenset[str], openness: tuple[bool, bool | None], data: st.DataObject
) -> None:
    open_, told = openness
    plan = plan_write_block(AclSnapshot("west", rules, topics, frozenset(EXIST), US, told))
    shut = topics - set(plan.open_to_all)
    before, after = may(rules, open_=open_), may(apply_changes(plan.changes_to_apply(), rules), open_=open_)
    assert after == {right for right in before if right[0] == US or not is_write(right, shut)}
    assert {
        acl for acl in apply_changes(plan.changes_to_apply(), rules) ^ rules if acl.resource != ResourceType.TOPIC
    } == set()
    dead = halfway(data, plan.changes_to_apply(), rules)
    check_halfway(before, may(dead, open_=open_), shut)
    assert apply_changes(plan.changes_to_apply(), dead) == apply_changes(plan.changes_to_apply(), rules)
    undone = halfway(data, plan.changes_to_restore(), dead)
    check_halfway(before, may(undone, open_=open_), shut)
    for state in (dead, undone, apply_changes(plan.changes_to_apply(), rules)):
        assert apply_changes(plan.changes_to_restore(), state) == rules


@given(sets, sets, moved, moved, st.data())
def test_a_guard_is_made_anew_for_other_topics_and_for_whoever_is_new(
    rules: frozenset[Acl], fresh: frozenset[Acl], topics: frozenset[str], later: frozenset[str], data: st.DataObject
) -> None:
    exist = frozenset(EXIST)
    earlier = plan_write_block(AclSnapshot("west", rules, topics, exist, US, open_unless_ruled=False))
    stands = apply_changes(earlier.changes_to_apply(), rules)
    # What looks like ours counts as ours: nobody could tell.
    fresh -= {*earlier.give, *earlier.deny}
    plan = plan_write_block(AclSnapshot("west", stands | fresh, later, exist, US, open_unless_ruled=False), earlier)
    alone = plan_write_block(AclSnapshot("west", rules | fresh, later, exist, US, open_unless_ruled=False))
    assert apply_changes(plan.changes_to_apply(), stands | fresh) == apply_changes(
        alone.changes_to_apply(), rules | fresh
    ), "as if it were the first"
    dead = halfway(data, plan.changes_to_apply(), stands | fresh)
    both = topics & later
    held = {right for right in may(dead, open_=False) if is_write(right, both) and right[0] != US}
    assert held <= {right for right in may(stands | fresh, open_=False) if is_write(right, both)}
    assert apply_changes(plan.changes_to_apply(), dead) == apply_changes(alone.changes_to_apply(), rules | fresh)
    assert apply_changes(plan.changes_to_restore(), dead) == rules | fresh


@pytest.mark.parametrize("make", [plan_denial, plan_write_block])
def test_without_an_authorizer_nobody_is_kept_out_and_it_is_said(make: type) -> None:
    plan = make(AclSnapshot("east", None, frozenset({"orders"}), frozenset(EXIST), US, None))
    assert not plan.changes_to_apply()
    assert plan.open_to_all == ("orders",)
    assert [mentions(one, "east", "no authorizer", "orders") for one in plan.remarks] == [True]


def test_a_guard_needs_to_know_who_we_are_and_undoes_the_one_before() -> None:
    rules = frozenset({rule("*", AclOperation.ALL, "User:*"), rule("orders")})
    sight = AclSnapshot("west", rules, frozenset({"orders"}), frozenset(EXIST), US, open_unless_ruled=False)
    earlier = plan_write_block(sight)
    unknown = replace(sight, us="", acls=apply_changes(earlier.changes_to_apply(), rules))
    plan = plan_write_block(unknown, earlier)
    assert plan.open_to_all == ("orders",)
    assert "set `principal`" in plan.remarks[0]
    assert apply_changes(plan.changes_to_apply(), unknown.acls or ()) == rules
    assert not plan_write_block(replace(unknown, acls=rules)).changes_to_apply()


def test_where_everybody_may_use_what_no_rule_speaks_of_such_a_topic_is_left_alone() -> None:
    sight = AclSnapshot("east", frozenset({rule("bills")}), frozenset({"orders", "bills"}), frozenset(EXIST), US, None)
    plan = plan_denial(sight)
    assert plan.deny == (rule("bills", who="User:*", deny=True),)
    assert plan.open_to_all == ("orders",)
    assert "allow.everyone.if.no.acl.found" in plan.remarks[0]
    assert plan_denial(replace(sight, open_unless_ruled=False)).open_to_all == ()


def test_a_denial_that_stood_before_is_not_taken_back() -> None:
    stood = rule("orders", who="User:*", deny=True)
    plan = plan_denial(
        AclSnapshot("east", frozenset({stood}), frozenset({"orders"}), frozenset(EXIST), open_unless_ruled=False)
    )
    assert not plan.changes_to_apply()
    assert not plan.changes_to_restore()


def test_everybody_keeps_what_a_wide_rule_gave_elsewhere() -> None:
    wide = rule("ord", AclOperation.ALL, "User:*", pattern=PatternType.PREFIXED)
    plan = plan_write_block(
        AclSnapshot("west", frozenset({wide}), frozenset({"orders"}), frozenset(EXIST), US, open_unless_ruled=False)
    )
    assert plan.take == (wide,)
    assert not plan.deny
    writes = {acl for acl in plan.give if acl.operation == AclOperation.WRITE}
    assert writes == {rule(name, who="User:*") for name in ("order", "orders-eu")} | {rule("orders", who=US)}
    assert {acl.pattern for acl in plan.give if acl not in writes} == {PatternType.PREFIXED}
    assert "a topic made later" in plan.remarks[-1]


@given(sets, moved)
def test_a_plan_is_kept_as_json(rules: frozenset[Acl], topics: frozenset[str]) -> None:
    sight = AclSnapshot("west", rules, topics, frozenset(EXIST), US, open_unless_ruled=False)
    for plan in (
        plan_denial(sight),
        plan_write_block(sight),
        plan_write_block(sight, plan_write_block(replace(sight, topics=frozenset({"bills"})))),
    ):
        assert RulesPlan.from_record(json.loads(json.dumps(plan.as_record()))) == plan
