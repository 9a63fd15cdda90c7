"""How a link stands, in a word and a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from tests.replication.desk_office import KEY, LINK, Office, going, until
from twinshore.config.frozen import HEARTBEATS
from twinshore.config.model import Link, TopicPartition
from twinshore.replication.core.filters import admits
from twinshore.replication.core.model import STANDBY, ActiveLink, InactiveLink, count_partitions, describe_link_state
from twinshore.replication.task.core.messages import PartitionConfig


def test_a_link_flows_once_a_task_carries_some_of_its_partitions() -> None:
    unmanned = "12 partitions on 4 tasks; 12 partitions without a task, until one has started"
    assert describe_link_state(ActiveLink(12, 4, unmanned=12)) == ("waiting", unmanned)
    some = "12 partitions on 4 tasks; 3 partitions without a task, until one has started"
    assert describe_link_state(ActiveLink(12, 4, unmanned=3)) == ("flowing", some)
    assert describe_link_state(ActiveLink(1, 1)) == ("flowing", "1 partition on 1 task")


def test_a_link_of_which_nothing_crosses_does_not_flow() -> None:
    assert describe_link_state(ActiveLink(9, 1, away=7))[0] == "flowing"
    assert describe_link_state(ActiveLink(9, 1, away=9)) == (
        "waiting",
        "9 partitions on 1 task; 9 partitions whose leader is away",
    )
    assert describe_link_state(ActiveLink(0, 1, resting=5)) == (
        "waiting",
        "0 partitions on 1 task; 5 partitions stopped by incidents",
    )
    assert describe_link_state(ActiveLink(0, 1, refused=1)) == ("waiting", "0 partitions on 1 task, 1 topic refused")
    assert describe_link_state(ActiveLink(1, 1, resting=5, refused=3))[0] == "flowing"


def test_topics_that_are_written_elsewhere_or_nowhere_yet_are_counted_and_hold_nothing_up() -> None:
    left = ", 2 topics at home on the target, 1 topic without a home yet"
    assert describe_link_state(ActiveLink(3, 1, elsewhere=2, homeless=1)) == (
        "flowing",
        f"3 partitions on 1 task{left}",
    )
    assert describe_link_state(ActiveLink(0, 1, elsewhere=2, homeless=1)) == (
        "flowing",
        f"0 partitions on 1 task{left}",
    )


def test_each_partition_that_does_not_cross_counts_once_and_only_while_it_is_placed() -> None:
    parts = [TopicPartition("orders", number) for number in range(8)]

    def said(placed: int, unmanned: Sequence[int], away: Sequence[int]) -> tuple[str, str]:
        there, without, leaderless = ({parts[number] for number in some} for some in (range(placed), unmanned, away))
        return describe_link_state(count_partitions(there, without, leaderless, ActiveLink(0, 2)))

    both = (
        "8 partitions on 2 tasks; 4 partitions whose leader is away; 4 partitions without a task, until one has started"
    )
    assert said(8, range(4), range(4, 8)) == ("waiting", both)
    assert said(8, range(4), range(8)) == ("waiting", both)
    assert said(8, range(4), range(4))[0] == "flowing"
    gone = ("flowing", "2 partitions on 2 tasks")
    assert said(2, (), range(2, 8)) == gone, "they were told of before they left their tasks"


def test_a_link_that_has_nothing_to_carry_flows() -> None:
    assert describe_link_state(ActiveLink(0, 1)) == ("flowing", "0 partitions on 1 task")


def test_what_is_refused_and_what_is_aligned_is_said_behind() -> None:
    said = describe_link_state(ActiveLink(2, 1, refused=2, aligning="aligns orders-0"))[1]
    assert said == "2 partitions on 1 task, 2 topics refused; aligns orders-0"


def test_a_paused_link_says_what_is_still_carried() -> None:
    assert describe_link_state(ActiveLink(2, 1, unmanned=2, paused=True)) == (
        "paused",
        "2 partitions still on their tasks",
    )
    assert describe_link_state(ActiveLink(0, 1, refused=3, paused=True)) == ("paused", "nothing is replicated")


def test_a_look_that_fails_says_nothing_of_what_is_on_its_tasks() -> None:
    trouble = "west refuses describe on topic orders"
    assert describe_link_state(ActiveLink(9, 1, trouble=trouble)) == ("flowing", f"{trouble}; 9 partitions on 1 task")
    none = "9 partitions on 1 task; 9 partitions without a task, until one has started"
    assert describe_link_state(ActiveLink(9, 1, unmanned=9, trouble=trouble)) == ("waiting", f"{trouble}; {none}")
    assert describe_link_state(ActiveLink(0, 1, trouble=trouble)) == ("waiting", trouble)
    paused = "2 partitions still on their tasks; besides, west refuses describe on topic orders"
    assert describe_link_state(ActiveLink(2, 1, paused=True, trouble=trouble)) == ("paused", paused)


def test_a_link_waits_for_a_side_that_is_away_but_for_a_paused_one_and_one_that_stands_by() -> None:
    away = ["west does not answer", "nor does east"]
    held = "; held back by the source's quota: 1.00 MB/s"
    on_tasks = "2 partitions on 1 task"
    assert describe_link_state(ActiveLink(2, 1), away, held) == (
        "waiting",
        f"west does not answer; nor does east; {on_tasks}",
    )
    assert describe_link_state(ActiveLink(2, 1), (), held) == ("flowing", f"{on_tasks}{held}")
    assert (
        describe_link_state(ActiveLink(2, 1, trouble="late"), away[:1])[1] == f"west does not answer; late; {on_tasks}"
    )
    paused = ("paused", "nothing is replicated; besides, west does not answer; nor does east")
    assert describe_link_state(ActiveLink(0, 1, paused=True), away, held) == paused
    assert describe_link_state(InactiveLink(STANDBY, "another process has the lease"), away, held)[0] == "standby"


def test_partitions_have_no_task_until_one_carries_their_task() -> None:
    office = Office()
    office.coordinator.assign(KEY, [PartitionConfig("orders", 0, "aa", "bb")])
    assert office.coordinator.unmanned(LINK) == {TopicPartition("orders", 0)} == office.coordinator.placed(LINK).keys()
    line = going(office)
    assert not office.coordinator.unmanned(LINK)
    line.close()
    until(lambda: len(office.coordinator.unmanned(LINK)) == 1)
    office.coordinator.close()


def test_heartbeats_count_among_the_partitions_whatever_the_filters_say() -> None:
    """Somebody with 8 partitions looked for the ninth; docs/mirror.md says which it is."""
    link = Link("east", "west", topics=("orders",))
    carried = [topic for topic in ("bills", HEARTBEATS, "orders") if admits(link, topic)]
    assert carried == [HEARTBEATS, "orders"]
    _, sentence = describe_link_state(ActiveLink(8 * carried.count("orders") + carried.count(HEARTBEATS), 1))
    assert sentence == "9 partitions on 1 task"
