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
from twinshore.kafka.protocol.rights import Acl
from twinshore.replication.sync.core import decisions
from twinshore.state.core.values import Asked, Remembered, TopicInSwitch
from twinshore.state.store import Store
from twinshore.switch import old_home as beside
from twinshore.switch import write_access
from twinshore.switch.core.acl_rules import DEBT, Debt, RulesPlan, Sight, denial
from twinshore.switch.core.steps import Done, Kind, Wait
from twinshore.switch.write_access import Writers, denied, pay

settings, store = test_companion.settings, test_companion.store
PAIR = "east<>west"
NOBODY: Any = type("Nobody", (), {})()
OPEN = frozenset({rule("orders"), rule("bills")})
BEFORE = denial(Sight("east", OPEN, frozenset({"orders"}), frozenset({"orders", "bills"}), open_unless_ruled=False))
RIGHTS = json.dumps(BEFORE.as_record())


def owes(store: Store, *debts: Debt) -> None:
    rows = [Remembered(PAIR, DEBT, f"{one.switch} {one.old}", one.to_json(), "owed", 1) for one in debts]
    store.memories.remember(rows)


def begins(store: Store, topic: str) -> None:
    store.switching.begin([TopicInSwitch(PAIR, topic, "2" * 32, "east->west", Asked.ANNOUNCED, 1)])


def test_what_earlier_switches_deny_on_the_old_home_is_known(store: Store) -> None:
    here, there = Debt("1" * 32, "east", ("orders",), RIGHTS), Debt("3" * 32, "west", ("orders",), RIGHTS)
    assert denied(store, record()) == frozenset()
    owes(store, here, there, Debt("4" * 32, "east", ("bills",)), Debt("5" * 32, "east", ("bills",), '{"deny": 1}'))
    store.memories.remember([Remembered(PAIR, DEBT, "of another version", "{}", "owed", 1)])
    assert denied(store, record()) == frozenset(BEFORE.deny)
    assert denied(store, replace(record(), old="west", new="east")) == frozenset(BEFORE.deny)


def test_a_hold_leans_on_no_denial_that_another_switch_owes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """East came back, and the switch began before the mirror had paid; it pays while the rules are looked at."""
    owes(store, Debt("1" * 32, "east", ("orders",), RIGHTS))

    def seen(_: object, topics: tuple[str, ...]) -> Sight:
        store.memories.forget(store.memories.of(PAIR, DEBT))
        return Sight("east", OPEN | {*BEFORE.deny}, frozenset(topics), frozenset(topics), open_unless_ruled=False)

    monkeypatch.setattr(write_access, "look", seen)
    held = Writers(NOBODY, NOBODY, NOBODY, NOBODY, store).deny(record())
    assert isinstance(held, Wait)
    assert held.record is not None
    plan = RulesPlan.from_record(json.loads(held.record.rights))
    assert (plan.deny, plan.stands(OPEN)) == (BEFORE.deny, False)


@pytest.mark.parametrize("topics", [("orders",), ("orders", "bills")])
def test_nothing_is_paid_under_a_switch_that_began_while_clusters_were_asked(
    settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch, topics: tuple[str, ...]
) -> None:
    """Each debt takes its time, and a switch of the second one's topics begins under the first."""
    owes(store, Debt("1" * 32, "east", ("bills",)), Debt("3" * 32, "east", topics, RIGHTS))
    asked: list[str] = []

    def paid(_: object, debt: Debt, __: str, may: Callable[[], None]) -> None:
        asked.append(debt.switch[:1])
        begins(store, "orders")
        may()

    monkeypatch.setattr(beside, "pay", paid)
    with companion("east->west", settings, store) as ours:
        ours._look()
        assert asked == ["1"]
        assert [row.subject[:1] for row in store.memories.of(PAIR, DEBT)] == ["3"]
        store.switching.end("2" * 32)
        ours._look()
        assert asked == ["1", "3"]
        assert len(store.memories.of(PAIR, DEBT)) == 1, "one has begun again right before its rules were changed"


def test_no_rule_is_changed_once_it_is_not_to_be_paid_any_more() -> None:
    def may() -> None:
        raise KafkaError("another switch has begun", retriable=True)

    with pytest.raises(KafkaError, match="another switch has begun"):
        pay(NOBODY, Debt("1" * 32, "east", ("orders",), RIGHTS), "anna", may)


def test_what_a_switch_denied_that_died_keeps_nobody_out_at_the_new_home(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link saw the denial while writers were held, then east died: a forced switch denies nothing itself."""
    want = decisions.wanted(OPEN | {*BEFORE.deny}, decisions.Ground({"orders": "orders"}, US), Link("east", "west"))
    store.memories.remember(
        [
            Remembered("east->west", decisions.HELD, decisions.to_text(acl), why, decisions.HELD, 0)
            for acl, why in want.held.items()
        ]
    )
    made: list[Acl] = []

    def create(_: object, rules: list[Acl]) -> dict[Acl, KafkaError]:
        made.extend(rules)
        return {}

    monkeypatch.setattr(write_access, "create_acls", create)
    west: Any = type("West", (), {"name": "west"})()
    owes(store, Debt("1" * 32, "east", ("orders",), RIGHTS))
    assert isinstance(Writers(NOBODY, west, Link("east", "west"), NOBODY, store).given(record(Kind.FORCED)), Done)
    assert made == [rule("orders")]
