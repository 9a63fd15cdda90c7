"""The guard of a cluster: changed by one at a time, put back for whoever is new, and taken away as it came."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.switch.test_write_rules import EXIST, US, halfway, may, moved, rule, sets
from twinshore.config.errors import KafkaError, WireError
from twinshore.kafka.protocol.access_control import Acl, AclOperation, PatternType
from twinshore.runtime import lease_keeper
from twinshore.state.core.values import LeaseRow
from twinshore.state.store import Store, open_store
from twinshore.switch.core.acl_rules import (
    AclSnapshot,
    RulesPlan,
    WriteBlock,
    apply_changes,
    is_write_block_up,
    renew_write_block,
    settle_write_block,
)
from twinshore.switch.write_access import WriteBlockKeeper

WIDE = rule("*", AclOperation.ALL, "User:*")
EXISTING = frozenset(EXIST)
MEET_S = 1.0


@dataclass
class Ruled:
    """A cluster of the test's own: its rules change one by one, and others see each change."""

    acls: frozenset[Acl]
    name: str = "east"
    changes: int = 0
    killed_at: int = -1
    meets: threading.Barrier | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def look(self, topics: Iterable[str], us: str) -> AclSnapshot:
        seen = AclSnapshot(self.name, self.acls, frozenset(topics), EXISTING, us, open_unless_ruled=False)
        if self.meets is not None:
            with suppress(threading.BrokenBarrierError):
                self.meets.wait(MEET_S)  # whoever is not kept from looking now changes what both have seen
        return seen

    def take(self, plan: RulesPlan, may: Callable[[], None]) -> None:
        for step in plan.changes_to_apply():
            may()
            for acl in step.acls:
                if self.changes == self.killed_at:
                    raise KeyboardInterrupt
                with self.lock:
                    self.acls = self.acls | {acl} if step.add else self.acls - {acl}
                    self.changes += 1


@pytest.fixture
def store(tmp_path: Path) -> Iterable[Store]:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        yield opened


def writers(rules: frozenset[Acl], topic: str) -> set[str]:
    return {
        who for who, _, operation, name in may(rules, open_=False) if (operation, name) == (AclOperation.WRITE, topic)
    }


def test_two_switches_at_once_guard_all_twins_and_give_back_all_that_they_took(store: Store, tmp_path: Path) -> None:
    """One rule speaks of both switches' topics."""
    before = frozenset({WIDE, rule("b", AclOperation.ALL, pattern=PatternType.PREFIXED), rule("orders")})
    east = Ruled(before, meets=threading.Barrier(2))
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as other, ThreadPoolExecutor(2) as threads:
        one, two = WriteBlockKeeper(store, "anna"), WriteBlockKeeper(other, "bob")
        for done_ in [
            threads.submit(one.add, east, US, lambda: ["orders"]),
            threads.submit(two.add, east, US, lambda: ["bills"]),
        ]:
            done_.result()
        assert [writers(east.acls, topic) for topic in ("orders", "bills")] == [{US}, {US}]
        assert one.known("east").topics == {"orders", "bills"}
        assert WIDE not in east.acls
        for done_ in [
            threads.submit(one.drop, east, lambda: ["orders"]),
            threads.submit(two.drop, east, lambda: ["bills"]),
        ]:
            done_.result()
    assert east.acls == before
    assert one.known("east") == WriteBlock(us=US)


def test_who_is_given_the_right_meanwhile_is_kept_out_by_the_next_look(store: Store) -> None:
    before = frozenset({rule("orders")})
    east, guards = Ruled(before), WriteBlockKeeper(store, "anna")
    assert not guards.stands(east, US, ["orders"])
    guards.add(east, US, lambda: ["orders"])
    assert guards.stands(east, US, ["orders"])
    assert not guards.stands(east, US, ["orders", "bills"])
    fresh = {rule("ord", who="User:newcomer", pattern=PatternType.PREFIXED), WIDE}
    east.acls |= fresh
    assert writers(east.acls, "orders") > {US}
    assert not guards.stands(east, US, ["orders"])
    guards.add(east, US, lambda: ())
    assert (writers(east.acls, "orders"), guards.stands(east, US, ["orders"])) == ({US}, True)
    guards.drop(east, lambda: ["orders"])
    assert east.acls == before | fresh


def test_a_rule_that_was_ours_once_is_whoever_gives_it_later(store: Store) -> None:
    east, guards = Ruled(frozenset({WIDE})), WriteBlockKeeper(store, "anna")
    guards.add(east, US, lambda: ["orders"])
    given_then = rule("bills", who="User:*")
    assert given_then in east.acls, "in place of the wide rule"
    guards.drop(east, lambda: ["orders"])
    assert east.acls == {WIDE}
    east.acls |= {given_then}
    guards.add(east, US, lambda: ["orders"])
    guards.drop(east, lambda: ["orders"])
    assert east.acls == {WIDE, given_then}


@pytest.mark.parametrize("at", [0, 7, 12, 13, 19, 25])  # thirteen changes put it up, as many take it away
def test_whoever_is_killed_amid_a_change_is_followed_by_another(
    store: Store, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_keeper, "LEASE_S", 0.5)
    monkeypatch.setattr(lease_keeper, "GRACE_S", 0.1)
    before = frozenset({WIDE, rule("orders")})
    east, guards = Ruled(before, killed_at=at), WriteBlockKeeper(store, "anna")

    def again(what: Callable[[], None]) -> None:
        try:
            what()
        except KeyboardInterrupt:
            east.killed_at = -1
            what()

    again(lambda: guards.add(east, US, lambda: ["orders"]))
    assert writers(east.acls, "orders") == {US}
    again(lambda: guards.drop(east, lambda: ["orders"]))
    assert east.acls == before


def test_a_guard_counts_as_up_once_it_was_seen_and_until_it_goes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_keeper, "LEASE_S", 1.5)
    monkeypatch.setattr(lease_keeper, "GRACE_S", 0.1)
    east, guards = Ruled(frozenset({WIDE, rule("orders")}), killed_at=3), WriteBlockKeeper(store, "anna")

    def up() -> tuple[list[str], list[str]]:
        known = guards.known("east")
        return sorted(known.topics), sorted(known.up)

    with pytest.raises(KeyboardInterrupt):
        guards.add(east, US, lambda: ["orders"])
    assert up() == (["orders"], []), "it is written down before anything is done"
    east.killed_at = -1
    guards.add(east, US, lambda: ["orders"])
    assert up() == (["orders"], ["orders"])

    east.killed_at = east.changes
    with pytest.raises(KeyboardInterrupt):
        guards.add(east, US, lambda: ["bills"])
    assert up() == (["bills", "orders"], ["orders"]), "one that is up stays so while another comes"
    east.killed_at = -1
    guards.add(east, US, lambda: ["bills"])
    assert up()[1] == ["bills", "orders"]

    east.killed_at, east.acls = east.changes, frozenset({WIDE})
    assert not guards.stands(east, US, ["orders"])
    with pytest.raises(KeyboardInterrupt):
        guards.add(east, US, lambda: ["orders"])
    assert up() == (["bills", "orders"], []), "somebody has changed its rules, and they are not put back yet"
    east.killed_at = -1
    guards.add(east, US, lambda: ["orders"])
    assert up()[1] == ["bills", "orders"]

    east.killed_at = east.changes
    with pytest.raises(KeyboardInterrupt):
        guards.drop(east, lambda: ["orders"])
    assert up() == (["bills"], ["bills"]), "whoever takes it away says so first"


def guard_lease(store: Store) -> LeaseRow:
    found = store.leases.read("guard of east")
    assert found is not None
    return found


def test_whoever_was_paused_for_too_long_changes_nothing_more(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_keeper, "LEASE_S", 0.3)
    monkeypatch.setattr(lease_keeper, "GRACE_S", 0.1)
    east, guards = Ruled(frozenset({rule("orders")})), WriteBlockKeeper(store, "anna")

    def look_long(topics: Iterable[str], us: str) -> AclSnapshot:
        # What another process does once it takes this one for dead; its own thread may renew the lease meanwhile.
        tries = (store.leases.take("guard of east", "bob", 60_000, row=guard_lease(store)) for _ in range(50))
        assert any(taken is not None for taken in tries)
        return AclSnapshot("east", east.acls, frozenset(topics), EXISTING, us, open_unless_ruled=False)

    monkeypatch.setattr(east, "look", look_long)
    with pytest.raises(KafkaError, match="another process goes on"):
        guards.add(east, US, lambda: ["orders"])
    assert (east.changes, guards.known("east")) == (0, WriteBlock())


@given(sets, moved, moved, st.data())
def test_a_late_hand_is_put_right_by_the_next_look(
    rules: frozenset[Acl], first: frozenset[str], more: frozenset[str], data: st.DataObject
) -> None:
    """Whoever was paused amid a step of an earlier guard may still do the rest of that step."""

    def sight(acls: frozenset[Acl], topics: frozenset[str]) -> AclSnapshot:
        return AclSnapshot("east", acls, topics, EXISTING, US, open_unless_ruled=False)

    one = renew_write_block(WriteBlock(), sight(rules, first))
    dead = halfway(data, one.plan.changes_to_apply(), rules)
    two = renew_write_block(one, sight(dead, first | more))
    stands = apply_changes(two.plan.changes_to_apply(), dead)
    late = halfway(data, one.plan.changes_to_apply(), stands)
    three = renew_write_block(two, sight(late, first | more))
    now = apply_changes(three.plan.changes_to_apply(), late)
    assert now == stands
    assert is_write_block_up(
        settle_write_block(three), renew_write_block(settle_write_block(three), sight(now, first | more)), now
    )
    gone = renew_write_block(settle_write_block(three), sight(now, frozenset()))
    assert apply_changes(gone.plan.changes_to_apply(), now) == rules


@given(sets, moved)
def test_a_guard_is_kept_as_json(rules: frozenset[Acl], topics: frozenset[str]) -> None:
    kept = renew_write_block(WriteBlock(), AclSnapshot("east", rules, topics, EXISTING, US, open_unless_ruled=False))
    assert WriteBlock.from_json(kept.to_json()) == kept
    assert WriteBlock.from_json(settle_write_block(kept).to_json()) == settle_write_block(kept)
    with pytest.raises(WireError):
        WriteBlock.from_json("[]")
