"""How a link stands, in a word and a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from tests.mirror.desk_office import KEY, LINK, Office, going, until
from twinshore.fleet import NamedPartition
from twinshore.mirror.link_state import Carrying, carrying, link_state
from twinshore.mirror.orders import TrackOrder


def state(now: Carrying) -> tuple[str, str]:
    return link_state(now, paused=False)


def test_a_link_flows_once_a_pump_carries_some_of_its_partitions() -> None:
    unmanned = "12 partitions on 4 lanes; 12 partitions without a pump, until one has started"
    assert state(Carrying(12, 4, unmanned=12)) == ("waiting", unmanned)
    some = "12 partitions on 4 lanes; 3 partitions without a pump, until one has started"
    assert state(Carrying(12, 4, unmanned=3)) == ("flowing", some)
    assert state(Carrying(1, 1)) == ("flowing", "1 partition on 1 lane")


def test_a_link_of_which_nothing_crosses_does_not_flow() -> None:
    assert state(Carrying(9, 1, away=7))[0] == "flowing"
    assert state(Carrying(9, 1, away=9)) == ("waiting", "9 partitions on 1 lane; 9 partitions whose leader is away")
    assert state(Carrying(0, 1, resting=5)) == ("waiting", "0 partitions on 1 lane; 5 partitions stopped by incidents")
    assert state(Carrying(0, 1, refused=1)) == ("waiting", "0 partitions on 1 lane, 1 topic refused")
    assert state(Carrying(1, 1, resting=5, refused=3))[0] == "flowing"


def test_each_partition_that_does_not_cross_counts_once_and_only_while_it_is_placed() -> None:
    parts = [NamedPartition("orders", number) for number in range(8)]

    def said(placed: int, unmanned: Sequence[int], away: Sequence[int]) -> tuple[str, str]:
        of = [{parts[number] for number in some} for some in (range(placed), unmanned, away)]
        return state(carrying(*of, lanes=2, resting=0, refused=0, aligning=""))

    both = (
        "8 partitions on 2 lanes; 4 partitions whose leader is away; 4 partitions without a pump, until one has started"
    )
    assert said(8, range(4), range(4, 8)) == ("waiting", both)
    assert said(8, range(4), range(8)) == ("waiting", both)
    assert said(8, range(4), range(4))[0] == "flowing"
    gone = ("flowing", "2 partitions on 2 lanes")
    assert said(2, (), range(2, 8)) == gone, "they were told of before they left their lanes"


def test_a_link_that_has_nothing_to_carry_flows() -> None:
    assert state(Carrying(0, 1)) == ("flowing", "0 partitions on 1 lane")


def test_what_is_refused_and_what_is_aligned_is_said_behind() -> None:
    said = state(Carrying(2, 1, refused=2, aligning="aligns orders-0"))[1]
    assert said == "2 partitions on 1 lane, 2 topics refused; aligns orders-0"


def test_a_paused_link_says_what_is_still_carried() -> None:
    assert link_state(Carrying(2, 1, unmanned=2), paused=True) == ("paused", "2 partitions still on their lanes")
    assert link_state(Carrying(0, 1, refused=3), paused=True) == ("paused", "nothing is carried")


def test_partitions_have_no_pump_until_one_carries_their_lane() -> None:
    office = Office()
    office.desk.assign(KEY, [TrackOrder("orders", 0, "aa", "bb")])
    assert office.desk.unmanned(LINK) == {NamedPartition("orders", 0)} == office.desk.placed(LINK).keys()
    line = going(office)
    assert not office.desk.unmanned(LINK)
    line.close()
    until(lambda: len(office.desk.unmanned(LINK)) == 1)
    office.desk.close()
