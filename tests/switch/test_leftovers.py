"""What a switch left on clusters is needed by those that go on or owe something, and may have stood for half a log."""

from __future__ import annotations

from dataclasses import replace

from testkit.errors import mentions
from tests.switch.test_decision import NOW_MS, record
from twinshore.config.model import Link
from twinshore.switch.core.acl_rules import END_HINT, describe_partly_filled, find_unfinished_switches, pair_names
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


def test_a_log_that_is_shorter_or_not_there_is_named_once_for_each_side() -> None:
    east = {"orders": {0: 10, 1: 9}, "bills": {0: 5}, "others": {0: 7}}
    level = [*describe_partly_filled([LINK, BACK], ["orders", "bills", "others"], {"east": east, "west": east})]
    assert level == []
    (said,) = describe_partly_filled(
        [LINK, BACK], ["orders", "bills", "others"], {"east": east, "west": {"orders": {0: 4}}}
    )
    assert mentions(said, "bills, orders", "west", "east", "20 offsets")
    assert [*describe_partly_filled([LINK], ["orders"], {"east": east})] == [], "the other side was not asked"
    parted = {"east": {"orders": {0: 1, 1: 3}}, "west": {"orders": {0: 2, 1: 2}}}
    assert len([*describe_partly_filled([LINK, BACK], ["orders"], parted)]) == 2


def test_debts_stand_under_the_pair_and_under_the_link() -> None:
    assert len(pair_names([LINK, BACK])) == 3
