"""What a switch left on clusters is needed by those that go on or owe something."""

from __future__ import annotations

from dataclasses import replace

from testkit.errors import mentions
from tests.switch.test_decision import NOW_MS, record
from twinshore.config.model import Link
from twinshore.switch.core.acl_rules import END_HINT, find_unfinished_switches, pair_names
from twinshore.switch.core.steps import SwitchKind, SwitchState, SwitchStatus, SwitchStep

LINK, BACK = Link("east", "west", ("orders", "bills")), Link("west", "east", ("orders",))
DONE = replace(record(SwitchKind.FORCED), state=SwitchStatus.DONE, step=SwitchStep.RELEASE)


def used(
    *rows: SwitchState, kept: tuple[SwitchState, ...] = (), debts: tuple[tuple[str, str], ...] = ()
) -> dict[str, str]:
    return find_unfinished_switches([one.row(NOW_MS) for one in rows], kept, debts)


def test_what_goes_on_or_owes_is_in_use_and_what_ended_is_not() -> None:
    assert used(record()) == {record().id: END_HINT}
    assert used(DONE) == {}
    assert used(replace(DONE, state=SwitchStatus.ROLLED_BACK)) == {}
    assert mentions(used(DONE, debts=((DONE.id, "west"),))[DONE.id], "mirror", "west")
    assert used(record(), debts=((record().id, "west"),)) == {record().id: END_HINT}


def test_a_record_on_a_cluster_counts_until_the_store_has_the_switch_for_its_own() -> None:
    owes = replace(DONE, kept="west").as_kept()
    assert used(kept=(owes,)) == {owes.id: END_HINT}
    assert used(owes, kept=(owes,)) == {owes.id: END_HINT}
    assert used(DONE, kept=(owes,)) == {}, "the store ended it, and the cluster has not heard"
    assert used(kept=(replace(owes, state=SwitchStatus.ROLLED_BACK, awaits_store=False),)) == {}


def test_debts_stand_under_the_pair_and_under_the_link() -> None:
    assert len(pair_names([LINK, BACK])) == 3
