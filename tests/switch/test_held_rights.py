"""What a twin is given when its topic comes home to it, by rows as the follower leaves them."""

from __future__ import annotations

from hypothesis import given as over
from hypothesis import strategies as st

from tests.switch.authorizer import rights
from tests.switch.test_write_rules import EXIST, HOSTS, PRINCIPALS, US, moved, rule, sets
from twinshore.config.model import Link
from twinshore.kafka.protocol.rights import EVERYBODY, Acl, Operation, Pattern, Permission, Resource
from twinshore.replication.sync.core import decisions
from twinshore.replication.sync.core.decisions import Ground
from twinshore.state.core.values import Remembered
from twinshore.switch.core.acl_rules import Sight, denial, done, given, handed_over

LINK = Link("east", "west")
SHUT = rule("orders", who="User:*", deny=True)


def rows(source: frozenset[Acl], twins: dict[str, str]) -> list[Remembered]:
    """As the follower remembers them once it has looked."""
    want = decisions.wanted(source, Ground(twins, US), LINK)
    held = [
        Remembered(LINK.name, decisions.HELD, decisions.to_text(acl), why, decisions.HELD, 0)
        for acl, why in want.held.items()
    ]
    wrote = [
        Remembered(LINK.name, decisions.WRITTEN, decisions.to_text(acl), "", decisions.WRITTEN, 0) for acl in want.write
    ]
    return held + wrote


def written(of: list[Remembered]) -> frozenset[Acl]:
    return frozenset(decisions.from_text(row.subject) for row in of if row.kind == decisions.WRITTEN)


def shuts_out(acl: Acl) -> bool:
    return acl.permission == Permission.DENY and (acl.principal, acl.host) == (EVERYBODY, "*")


@over(sets, moved)
def test_at_the_new_home_everybody_may_do_what_he_might_at_the_old_one(
    source: frozenset[Acl], topics: frozenset[str]
) -> None:
    twins = {name: name for name in EXIST}
    remembered = rows(source, twins)
    target = written(remembered) | given(remembered, {name: name for name in topics})
    others = [who for who in PRINCIPALS if who != US]
    old = rights(source, others, HOSTS, topics, open_=False)
    new = rights(target, others, HOSTS, topics, open_=False)
    assert new <= old, "and no more"
    if not any(shuts_out(acl) for acl in source):
        assert new == old


@over(sets, moved)
def test_a_denial_at_the_old_home_takes_nothing_from_the_new_one(
    source: frozenset[Acl], topics: frozenset[str]
) -> None:
    twins = {name: name for name in EXIST}
    plan = denial(Sight("east", source, topics, frozenset(EXIST), open_unless_ruled=False))
    before, while_denied = rows(source, twins), rows(done(plan.doing(), source), twins)
    assert written(while_denied) == written(before), "the follower writes no rule of the denial"
    moving = {name: name for name in topics}
    assert given(while_denied, moving, plan.deny) == given(before, moving)


def test_rules_are_given_for_a_twin_by_its_name() -> None:
    wide = rule("ord", Operation.ALL, pattern=Pattern.PREFIXED)
    held = rows(frozenset({wide, rule("bills")}), {"orders": "east.orders", "bills": "bills"})
    assert given(held, {"orders": "east.orders"}) == {rule("east.orders", Operation.ALL)}


def test_what_a_denial_that_is_not_given_forbade_is_not_given_either() -> None:
    held = rows(frozenset({rule("orders", Operation.ALL), SHUT}), {"orders": "orders"})
    operations = {acl.operation for acl in given(held, {"orders": "orders"})}
    assert Operation.WRITE not in operations
    assert {Operation.READ, Operation.CREATE, Operation.DELETE, Operation.ALTER} <= operations
    assert given(held, {"orders": "orders"}, ours=(SHUT,)) == {rule("orders", Operation.ALL)}


def test_rules_that_the_link_wrote_on_twins_become_the_twins_own() -> None:
    group = rule("orders", Operation.READ, resource=Resource.GROUP)
    texts = [decisions.to_text(acl) for acl in (rule("orders", Operation.READ), rule("bills", Operation.READ), group)]
    remembered = [Remembered(LINK.name, decisions.WRITTEN, text, "", decisions.WRITTEN, 0) for text in texts]
    held = Remembered(LINK.name, decisions.HELD, texts[0], decisions.TWIN_ALONE, decisions.HELD, 0)
    assert handed_over([*remembered, held], ["orders"]) == (remembered[0],)


def test_what_is_handed_over_stays_when_the_topic_is_no_twin_any_more() -> None:
    source = frozenset({rule("orders", Operation.READ), rule("orders"), rule("bills", Operation.READ)})
    remembered = rows(source, {"orders": "orders", "bills": "bills"})
    target = written(remembered) | given(remembered, {"orders": "orders"})
    over = handed_over(remembered, ["orders"])
    left = Ground({"bills": "bills"}, US)
    want = decisions.wanted(source, left, LINK)
    kept = written([row for row in remembered if row not in over])
    assert not decisions.decide(want, target, kept, left).changes()
    assert decisions.decide(want, target, written(remembered), left).remove, "else nobody could read it at its new home"


@over(st.frozensets(st.sampled_from(EXIST)))
def test_nothing_remembered_nothing_given(topics: frozenset[str]) -> None:
    assert given([], {name: name for name in topics}) == frozenset()
