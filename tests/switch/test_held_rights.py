"""What a twin is given when its topic comes home to it, by rows as the follower leaves them."""

from __future__ import annotations

from hypothesis import given as over
from hypothesis import strategies as st

from tests.switch.authorizer import rights
from tests.switch.test_write_rules import EXIST, HOSTS, PRINCIPALS, US, moved, rule, sets
from twinshore.config.model import Link
from twinshore.kafka.protocol.access_control import (
    ANY_USER,
    Acl,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from twinshore.replication.sync.core import decisions
from twinshore.replication.sync.core.decisions import AclContext
from twinshore.state.core.values import LinkStateRow
from twinshore.switch.core.acl_rules import (
    AclSnapshot,
    acl_rows_to_forget,
    acls_for_new_home,
    apply_changes,
    plan_denial,
)

LINK = Link("east", "west")
SHUT = rule("orders", who="User:*", deny=True)


def rows(source: frozenset[Acl], twins: dict[str, str]) -> list[LinkStateRow]:
    """As the follower remembers them once it has looked."""
    want = decisions.wanted_acls(source, AclContext(twins, US), LINK)
    held = [
        LinkStateRow(LINK.name, decisions.ACL_HELD_KIND, decisions.acl_to_text(acl), why, decisions.ACL_HELD_KIND, 0)
        for acl, why in want.held.items()
    ]
    wrote = [
        LinkStateRow(
            LINK.name, decisions.ACL_WRITTEN_KIND, decisions.acl_to_text(acl), "", decisions.ACL_WRITTEN_KIND, 0
        )
        for acl in want.write
    ]
    return held + wrote


def written(of: list[LinkStateRow]) -> frozenset[Acl]:
    return frozenset(decisions.acl_from_text(row.subject) for row in of if row.kind == decisions.ACL_WRITTEN_KIND)


def shuts_out(acl: Acl) -> bool:
    return acl.permission == AclPermission.DENY and (acl.principal, acl.host) == (ANY_USER, "*")


@over(sets, moved)
def test_at_the_new_home_everybody_may_do_what_he_might_at_the_old_one(
    source: frozenset[Acl], topics: frozenset[str]
) -> None:
    twins = {name: name for name in EXIST}
    remembered = rows(source, twins)
    target = written(remembered) | acls_for_new_home(remembered, {name: name for name in topics})
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
    plan = plan_denial(AclSnapshot("east", source, topics, frozenset(EXIST), open_unless_ruled=False))
    before, while_denied = rows(source, twins), rows(apply_changes(plan.changes_to_apply(), source), twins)
    assert written(while_denied) == written(before), "the follower writes no rule of the denial"
    moving = {name: name for name in topics}
    assert acls_for_new_home(while_denied, moving, plan.deny) == acls_for_new_home(before, moving)


def test_rules_are_given_for_a_twin_by_its_name() -> None:
    wide = rule("ord", AclOperation.ALL, pattern=PatternType.PREFIXED)
    held = rows(frozenset({wide, rule("bills")}), {"orders": "east.orders", "bills": "bills"})
    assert acls_for_new_home(held, {"orders": "east.orders"}) == {rule("east.orders", AclOperation.ALL)}


def test_what_a_denial_that_is_not_given_forbade_is_not_given_either() -> None:
    held = rows(frozenset({rule("orders", AclOperation.ALL), SHUT}), {"orders": "orders"})
    operations = {acl.operation for acl in acls_for_new_home(held, {"orders": "orders"})}
    assert AclOperation.WRITE not in operations
    assert {AclOperation.READ, AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER} <= operations
    assert acls_for_new_home(held, {"orders": "orders"}, ours=(SHUT,)) == {rule("orders", AclOperation.ALL)}


def test_rules_that_the_link_wrote_on_twins_become_the_twins_own() -> None:
    group = rule("orders", AclOperation.READ, resource=ResourceType.GROUP)
    texts = [
        decisions.acl_to_text(acl)
        for acl in (rule("orders", AclOperation.READ), rule("bills", AclOperation.READ), group)
    ]
    remembered = [
        LinkStateRow(LINK.name, decisions.ACL_WRITTEN_KIND, text, "", decisions.ACL_WRITTEN_KIND, 0) for text in texts
    ]
    held = LinkStateRow(
        LINK.name, decisions.ACL_HELD_KIND, texts[0], decisions.CHANGES_TWIN_REASON, decisions.ACL_HELD_KIND, 0
    )
    assert acl_rows_to_forget([*remembered, held], ["orders"]) == (remembered[0],)


def test_what_is_handed_over_stays_when_the_topic_is_no_twin_any_more() -> None:
    source = frozenset({rule("orders", AclOperation.READ), rule("orders"), rule("bills", AclOperation.READ)})
    remembered = rows(source, {"orders": "orders", "bills": "bills"})
    target = written(remembered) | acls_for_new_home(remembered, {"orders": "orders"})
    over = acl_rows_to_forget(remembered, ["orders"])
    left = AclContext({"bills": "bills"}, US)
    want = decisions.wanted_acls(source, left, LINK)
    kept = written([row for row in remembered if row not in over])
    assert not decisions.plan_acls(want, target, kept, left).changes()
    assert decisions.plan_acls(want, target, written(remembered), left).remove, (
        "else nobody could read it at its new home"
    )


@over(st.frozensets(st.sampled_from(EXIST)))
def test_nothing_remembered_nothing_given(topics: frozenset[str]) -> None:
    assert acls_for_new_home([], {name: name for name in topics}) == frozenset()
