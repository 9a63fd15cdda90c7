"""Denials and guards over a model of Kafka's authorizer: who may do what before, halfway, meanwhile and afterwards."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.switch.authorizer import Right, rights
from twinshore.kafka.protocol.rights import Acl, Operation, Pattern, Permission, Resource
from twinshore.switch.core.acl_rules import RulesPlan, Sight, Step, denial, done, guard

US = "User:mirror"
PRINCIPALS = ("User:anna", "Group:ops", US, "User:newcomer")
HOSTS = ("10.0.0.7", "10.0.0.8")
EXIST = ("orders", "orders-eu", "order", "bills")
OPERATIONS = (Operation.ALL, Operation.WRITE, Operation.READ, Operation.DESCRIBE, Operation.ALTER_CONFIGS)


def rule(
    name: str,
    operation: Operation = Operation.WRITE,
    who: str = "User:anna",
    *,
    host: str = "*",
    pattern: Pattern = Pattern.LITERAL,
    deny: bool = False,
    resource: Resource = Resource.TOPIC,
) -> Acl:
    return Acl(resource, name, pattern, who, host, operation, Permission.DENY if deny else Permission.ALLOW)


acls = st.one_of(
    st.builds(
        Acl,
        st.sampled_from([int(Resource.TOPIC)] * 4 + [int(Resource.GROUP)]),
        st.sampled_from(["orders", "orders-eu", "bills", "*"]),
        st.just(int(Pattern.LITERAL)),
        st.sampled_from(["User:*", "User:*", *PRINCIPALS[:-1]]),
        st.sampled_from(["*", "*", HOSTS[0]]),
        st.sampled_from([int(one) for one in OPERATIONS]),
        st.sampled_from([int(Permission.ALLOW)] * 3 + [int(Permission.DENY)]),
    ),
    st.builds(
        rule,
        st.sampled_from(["o", "orders", "orders-", "b"]),
        st.sampled_from(OPERATIONS),
        st.sampled_from(["User:*", "User:*", *PRINCIPALS[:-1]]),
        pattern=st.just(Pattern.PREFIXED),
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
    return operation == Operation.WRITE and name in topics


def halfway(data: st.DataObject, steps: list[Step], rules: frozenset[Acl]) -> frozenset[Acl]:
    """Killed somewhere: all steps before one, and some rules of that one."""
    if not steps:
        return rules
    number = data.draw(st.integers(0, len(steps) - 1), label="step")
    part = steps[number]
    some = data.draw(st.frozensets(st.sampled_from(part.acls), max_size=len(part.acls)), label="done of it")
    return done([*steps[:number], replace(part, acls=tuple(some))], rules)


def check_halfway(before: frozenset[Right], now: frozenset[Right], topics: frozenset[str]) -> None:
    """Nobody has more than before, and nobody has lost what is not to write there."""
    assert now <= before
    assert all(is_write(right, topics) for right in before - now)


@given(sets, moved, openness, st.data())
def test_a_denial_takes_the_right_to_write_there_from_everybody_and_no_other(
    rules: frozenset[Acl], topics: frozenset[str], openness: tuple[bool, bool | None], data: st.DataObject
) -> None:
    open_, told = openness
    plan = denial(Sight("east", rules, topics, frozenset(EXIST), "", told))
    shut = topics - set(plan.open_to_all)
    before, after = may(rules, open_=open_), may(done(plan.doing(), rules), open_=open_)
    assert after == {right for right in before if not is_write(right, shut)}
    assert plan.stands(done(plan.doing(), rules))
    dead = halfway(data, plan.doing(), rules)
    check_halfway(before, may(dead, open_=open_), shut)
    assert done(plan.doing(), dead) == done(plan.doing(), rules)
    undone = halfway(data, plan.restoring(), dead)
    check_halfway(before, may(undone, open_=open_), shut)
    for state in (dead, undone, done(plan.doing(), rules)):
        assert done(plan.restoring(), state) == rules
    assert plan.restored(rules)
    assert {acl.resource for acl in plan.deny} <= {Resource.TOPIC}


@given(sets, acls, moved)
def test_who_is_given_the_right_while_a_denial_stands_may_not_use_it(
    rules: frozenset[Acl], fresh: Acl, topics: frozenset[str]
) -> None:
    plan = denial(Sight("east", rules, topics, frozenset(EXIST), US, open_unless_ruled=False))
    denied = done(plan.doing(), rules) | {fresh}
    assert not [right for right in may(denied, open_=False) if is_write(right, topics)]
    assume(fresh not in plan.deny)
    assert done(plan.restoring(), denied) == rules | {fresh}, "what others changed meanwhile stays"


@given(sets, moved, moved)
def test_a_denial_counts_on_no_denial_that_an_earlier_switch_is_to_take_back(
    rules: frozenset[Acl], topics: frozenset[str], before: frozenset[str]
) -> None:
    """The mirror may take it back at any time; and where it does not, the link back would be shut out by it."""
    east = Sight("east", rules, before, frozenset(EXIST), open_unless_ruled=False)
    first = denial(east)
    left = done(first.doing(), rules)
    again = replace(east, acls=left, topics=topics)
    plan = denial(again, owed=first.deny)
    assert set(plan.deny) == set(denial(replace(again, acls=rules)).deny)
    assert set(plan.deny).isdisjoint(rules), "what others deny is theirs"
    paid = done(first.restoring(), left)
    assert plan.stands(left) is (set(plan.deny) <= left)
    assert plan.stands(paid) is (not plan.deny)
    for state in (left, paid):
        assert plan.stands(done(plan.doing(), state))
        ended = done(plan.restoring(), done(plan.doing(), state))
        assert not [one for one in ended - rules if one.name in topics]


@given(sets, moved, openness, st.data())
def test_a_guard_leaves_the_right_to_write_to_us(
    rules: frozenset[Acl], topics: frozenset[str], openness: tuple[bool, bool | None], data: st.DataObject
) -> None:
    open_, told = openness
    plan = guard(Sight("west", rules, topics, frozenset(EXIST), US, told))
    shut = topics - set(plan.open_to_all)
    before, after = may(rules, open_=open_), may(done(plan.doing(), rules), open_=open_)
    assert after == {right for right in before if right[0] == US or not is_write(right, shut)}
    assert {acl for acl in done(plan.doing(), rules) ^ rules if acl.resource != Resource.TOPIC} == set()
    dead = halfway(data, plan.doing(), rules)
    check_halfway(before, may(dead, open_=open_), shut)
    assert done(plan.doing(), dead) == done(plan.doing(), rules)
    undone = halfway(data, plan.restoring(), dead)
    check_halfway(before, may(undone, open_=open_), shut)
    for state in (dead, undone, done(plan.doing(), rules)):
        assert done(plan.restoring(), state) == rules


@given(sets, sets, moved, moved, st.data())
def test_a_guard_is_made_anew_for_other_topics_and_for_whoever_is_new(
    rules: frozenset[Acl], fresh: frozenset[Acl], topics: frozenset[str], later: frozenset[str], data: st.DataObject
) -> None:
    exist = frozenset(EXIST)
    earlier = guard(Sight("west", rules, topics, exist, US, open_unless_ruled=False))
    stands = done(earlier.doing(), rules)
    # What looks like ours counts as ours: nobody could tell.
    fresh -= {*earlier.give, *earlier.deny}
    plan = guard(Sight("west", stands | fresh, later, exist, US, open_unless_ruled=False), earlier)
    alone = guard(Sight("west", rules | fresh, later, exist, US, open_unless_ruled=False))
    assert done(plan.doing(), stands | fresh) == done(alone.doing(), rules | fresh), "as if it were the first"
    dead = halfway(data, plan.doing(), stands | fresh)
    both = topics & later
    held = {right for right in may(dead, open_=False) if is_write(right, both) and right[0] != US}
    assert held <= {right for right in may(stands | fresh, open_=False) if is_write(right, both)}
    assert done(plan.doing(), dead) == done(alone.doing(), rules | fresh)
    assert done(plan.restoring(), dead) == rules | fresh


@pytest.mark.parametrize("make", [denial, guard])
def test_without_an_authorizer_nobody_is_kept_out_and_it_is_said(make: type) -> None:
    plan = make(Sight("east", None, frozenset({"orders"}), frozenset(EXIST), US, None))
    assert not plan.doing()
    assert plan.open_to_all == ("orders",)
    assert plan.remarks == ("east has no authorizer: nobody can be kept from writing to orders; its ends are watched",)


def test_a_guard_needs_to_know_who_we_are_and_undoes_the_one_before() -> None:
    rules = frozenset({rule("*", Operation.ALL, "User:*"), rule("orders")})
    sight = Sight("west", rules, frozenset({"orders"}), frozenset(EXIST), US, open_unless_ruled=False)
    earlier = guard(sight)
    unknown = replace(sight, us="", acls=done(earlier.doing(), rules))
    plan = guard(unknown, earlier)
    assert plan.open_to_all == ("orders",)
    assert "set `principal`" in plan.remarks[0]
    assert done(plan.doing(), unknown.acls or ()) == rules
    assert not guard(replace(unknown, acls=rules)).doing()


def test_where_everybody_may_use_what_no_rule_speaks_of_such_a_topic_is_left_alone() -> None:
    sight = Sight("east", frozenset({rule("bills")}), frozenset({"orders", "bills"}), frozenset(EXIST), US, None)
    plan = denial(sight)
    assert plan.deny == (rule("bills", who="User:*", deny=True),)
    assert plan.open_to_all == ("orders",)
    assert "allow.everyone.if.no.acl.found" in plan.remarks[0]
    assert denial(replace(sight, open_unless_ruled=False)).open_to_all == ()


def test_a_denial_that_stood_before_is_not_taken_back() -> None:
    stood = rule("orders", who="User:*", deny=True)
    plan = denial(Sight("east", frozenset({stood}), frozenset({"orders"}), frozenset(EXIST), open_unless_ruled=False))
    assert not plan.doing()
    assert not plan.restoring()


def test_everybody_keeps_what_a_wide_rule_gave_elsewhere() -> None:
    wide = rule("ord", Operation.ALL, "User:*", pattern=Pattern.PREFIXED)
    plan = guard(Sight("west", frozenset({wide}), frozenset({"orders"}), frozenset(EXIST), US, open_unless_ruled=False))
    assert plan.take == (wide,)
    assert not plan.deny
    writes = {acl for acl in plan.give if acl.operation == Operation.WRITE}
    assert writes == {rule(name, who="User:*") for name in ("order", "orders-eu")} | {rule("orders", who=US)}
    assert {acl.pattern for acl in plan.give if acl not in writes} == {Pattern.PREFIXED}
    assert "a topic made later" in plan.remarks[-1]


@given(sets, moved)
def test_a_plan_is_kept_as_json(rules: frozenset[Acl], topics: frozenset[str]) -> None:
    sight = Sight("west", rules, topics, frozenset(EXIST), US, open_unless_ruled=False)
    for plan in (denial(sight), guard(sight), guard(sight, guard(replace(sight, topics=frozenset({"bills"}))))):
        assert RulesPlan.from_record(json.loads(json.dumps(plan.as_record()))) == plan
