"""What a switch has left on an old home that died under it, while the next switch of these topics runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.switch import test_companion
from tests.switch.test_companion import companion
from tests.switch.test_decision import record
from tests.switch.test_write_rules import US, rule
from twinshore.config.errors import KafkaError
from twinshore.config.model import Link
from twinshore.config.settings import Settings
from twinshore.kafka.protocol.access_control import Acl
from twinshore.replication.sync.core import decisions
from twinshore.state.core.values import LinkStateRow, MirrorRequest, TopicInSwitch
from twinshore.state.store import Store
from twinshore.switch import old_home as beside
from twinshore.switch import write_access
from twinshore.switch.core.acl_rules import DEFERRED_CLEANUP_KIND, AclSnapshot, DeferredCleanup, RulesPlan, plan_denial
from twinshore.switch.core.steps import StepPending, SwitchKind
from twinshore.switch.write_access import WriterAccess, clean_up, earlier_denials

settings, store = test_companion.settings, test_companion.store
PAIR = "east<>west"
NOBODY: Any = type("Nobody", (), {})()
OPEN = frozenset({rule("orders"), rule("bills")})
BEFORE = plan_denial(
    AclSnapshot("east", OPEN, frozenset({"orders"}), frozenset({"orders", "bills"}), open_unless_ruled=False)
)
RIGHTS = json.dumps(BEFORE.as_record())


def owes(store: Store, *debts: DeferredCleanup) -> None:
    rows = [
        LinkStateRow(PAIR, DEFERRED_CLEANUP_KIND, f"{one.switch} {one.old}", one.to_json(), "owed", 1) for one in debts
    ]
    store.link_states.remember(rows)


def begins(store: Store, topic: str) -> None:
    store.topics_in_switch.begin([TopicInSwitch(PAIR, topic, "2" * 32, "east->west", MirrorRequest.ANNOUNCED, 1)])


def test_what_earlier_switches_deny_on_the_old_home_is_known(store: Store) -> None:
    here, there = (
        DeferredCleanup("1" * 32, "east", ("orders",), RIGHTS),
        DeferredCleanup("3" * 32, "west", ("orders",), RIGHTS),
    )
    assert earlier_denials(store, record()) == frozenset()
    owes(
        store,
        here,
        there,
        DeferredCleanup("4" * 32, "east", ("bills",)),
        DeferredCleanup("5" * 32, "east", ("bills",), '{"deny": 1}'),
    )
    store.link_states.remember([LinkStateRow(PAIR, DEFERRED_CLEANUP_KIND, "of another version", "{}", "owed", 1)])
    assert earlier_denials(store, record()) == frozenset(BEFORE.deny)
    assert earlier_denials(store, replace(record(), old="west", new="east")) == frozenset(BEFORE.deny)


def test_a_hold_leans_on_no_denial_that_another_switch_owes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """East came back, and the switch began before the mirror had paid; it pays while the rules are looked at."""
    owes(store, DeferredCleanup("1" * 32, "east", ("orders",), RIGHTS))

    def seen(_: object, topics: tuple[str, ...]) -> AclSnapshot:
        store.link_states.forget(store.link_states.of(PAIR, DEFERRED_CLEANUP_KIND))
        return AclSnapshot("east", OPEN | {*BEFORE.deny}, frozenset(topics), frozenset(topics), open_unless_ruled=False)

    monkeypatch.setattr(write_access, "read_acl_snapshot", seen)
    held = WriterAccess(NOBODY, NOBODY, NOBODY, NOBODY, store).deny(record())
    assert isinstance(held, StepPending)
    assert held.state is not None
    plan = RulesPlan.from_record(json.loads(held.state.rights))
    assert (plan.deny, plan.stands(OPEN)) == (BEFORE.deny, False)


@pytest.mark.parametrize("topics", [("orders",), ("orders", "bills")])
def test_nothing_is_paid_under_a_switch_that_began_while_clusters_were_asked(
    settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch, topics: tuple[str, ...]
) -> None:
    """Each debt takes its time, and a switch of the second one's topics begins under the first."""
    owes(store, DeferredCleanup("1" * 32, "east", ("bills",)), DeferredCleanup("3" * 32, "east", topics, RIGHTS))
    asked: list[str] = []

    def paid(_: object, debt: DeferredCleanup, __: str, may: Callable[[], None]) -> None:
        asked.append(debt.switch[:1])
        begins(store, "orders")
        may()

    monkeypatch.setattr(beside, "clean_up", paid)
    with companion("east->west", settings, store) as ours:
        ours._look()
        assert asked == ["1"]
        assert [row.subject[:1] for row in store.link_states.of(PAIR, DEFERRED_CLEANUP_KIND)] == ["3"]
        store.topics_in_switch.end("2" * 32)
        ours._look()
        assert asked == ["1", "3"]
        assert len(store.link_states.of(PAIR, DEFERRED_CLEANUP_KIND)) == 1, (
            "one has begun again right before its rules were changed"
        )


def test_no_rule_is_changed_once_it_is_not_to_be_paid_any_more() -> None:
    def may() -> None:
        raise KafkaError("another switch has begun", retriable=True)

    with pytest.raises(KafkaError, match="another switch has begun"):
        clean_up(NOBODY, DeferredCleanup("1" * 32, "east", ("orders",), RIGHTS), "anna", may)


def test_what_a_switch_denied_that_died_keeps_nobody_out_at_the_new_home(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link saw the denial while writers were held, then east died: a forced switch denies nothing itself."""
    want = decisions.wanted_acls(
        OPEN | {*BEFORE.deny}, decisions.AclContext({"orders": "orders"}, US), Link("east", "west")
    )
    store.link_states.remember(
        [
            LinkStateRow(
                "east->west", decisions.ACL_HELD_KIND, decisions.acl_to_text(acl), why, decisions.ACL_HELD_KIND, 0
            )
            for acl, why in want.held.items()
        ]
    )
    made: list[Acl] = []

    def create(_: object, rules: list[Acl]) -> dict[Acl, KafkaError]:
        made.extend(rules)
        return {}

    monkeypatch.setattr(write_access, "create_acls", create)
    west: Any = type("West", (), {"name": "west"})()
    owes(store, DeferredCleanup("1" * 32, "east", ("orders",), RIGHTS))
    WriterAccess(NOBODY, west, Link("east", "west"), NOBODY, store).apply_rights(record(SwitchKind.FORCED))
    assert made == [rule("orders")]
