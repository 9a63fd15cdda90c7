"""How a link stands, in a word and a sentence."""

from __future__ import annotations

from tests.mirror.desk_office import KEY, LINK, Office, going, until
from twinshore.mirror.link_state import link_state
from twinshore.mirror.orders import TrackOrder


def test_a_link_flows_once_a_pump_carries_some_of_its_partitions() -> None:
    assert link_state(12, 12, 4, 0, "", paused=False) == (
        "waiting",
        "12 partitions on 4 lanes; 12 partitions without a pump, until one has started",
    )
    assert link_state(12, 3, 4, 0, "", paused=False) == (
        "flowing",
        "12 partitions on 4 lanes; 3 partitions without a pump, until one has started",
    )
    assert link_state(1, 0, 1, 0, "", paused=False) == ("flowing", "1 partition on 1 lane")


def test_a_link_with_nothing_to_carry_waits_for_no_pump() -> None:
    assert link_state(0, 0, 1, 1, "", paused=False) == ("flowing", "0 partitions on 1 lane, 1 topic refused")


def test_what_is_refused_and_what_is_aligned_is_said_behind() -> None:
    assert link_state(2, 0, 1, 2, "aligns orders-0", paused=False)[1] == (
        "2 partitions on 1 lane, 2 topics refused; aligns orders-0"
    )


def test_a_paused_link_says_what_is_still_carried() -> None:
    assert link_state(2, 2, 1, 0, "", paused=True) == ("paused", "2 partitions still on their lanes")
    assert link_state(0, 0, 1, 3, "", paused=True) == ("paused", "nothing is carried")


def test_partitions_have_no_pump_until_one_carries_their_lane() -> None:
    office = Office()
    office.desk.assign(KEY, [TrackOrder("orders", 0, "aa", "bb")])
    assert office.desk.unmanned(LINK) == len(office.desk.placed(LINK)) == 1
    line = going(office)
    assert office.desk.unmanned(LINK) == 0
    line.close()
    until(lambda: office.desk.unmanned(LINK) == 1)
    office.desk.close()
