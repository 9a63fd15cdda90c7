"""Old homes are told and guarded where the store says that the topic is at home elsewhere, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from testkit.errors import mentions
from twinshore.config.model import Link
from twinshore.kafka.protocol.access_control import Acl
from twinshore.routing.core.home_records import HomeRecord
from twinshore.state.core.values import HomeRow, TwinRow
from twinshore.switch.core.acl_rules import (
    AclSnapshot,
    WriteBlock,
    describe_missing_authorizer,
    describe_old_home_writers,
    describe_open_old_home,
    missing_home_records,
    renew_write_block,
    topics_blocked_at_home,
    topics_left_to_link,
    topics_left_to_other_links,
)

BACK = Link("west", "east")
PAIR = "east<>west"
ORDERS = HomeRow(PAIR, "orders", "west", 2, 5_000, "anna")
TWIN = TwinRow("west->east", "orders", 0, "be" * 16, "ea" * 16, 100, 0, 5_000, 100, 2)
LINE = HomeRecord(topic="orders", home="west", cluster_id="id-of-west", term=2, switch="1" * 32)


def test_only_what_a_switch_left_to_the_link_and_no_switch_has_now() -> None:
    rows = {"orders": ORDERS}
    assert topics_left_to_link(BACK, rows, [TWIN], ()) == ("orders",)
    assert topics_left_to_link(BACK, rows, [TWIN], ["orders"]) == (), (
        "a switch that brings it home takes the guard away"
    )
    assert topics_left_to_link(BACK, {"orders": replace(ORDERS, home="east")}, [TWIN], ()) == (), "it is at home there"
    assert topics_left_to_link(BACK, rows, [replace(TWIN, epoch=0)], ()) == ("orders",), (
        "a twin that a fail-back made anew"
    )
    first = {"orders": replace(ORDERS, term=1)}
    assert topics_left_to_link(BACK, first, [replace(TWIN, epoch=0)], ()) == (), (
        "a twin that was one from the beginning"
    )
    assert topics_left_to_link(BACK, rows, [], ()) == (), "the link does not carry it"
    assert topics_left_to_link(BACK, {}, [TWIN], ()) == ()
    assert topics_left_to_link(Link("east", "west"), rows, [TWIN], ()) == ()


def test_nobody_is_kept_out_of_a_topics_own_home() -> None:
    """A switch without the store made east its home again, and nobody took the guard of the twin away."""
    link, rows = Link("west", "east"), {"orders": replace(ORDERS, home="east", term=3), "bills": ORDERS}
    assert topics_blocked_at_home(link, rows, ["orders", "bills", "others"], ()) == ("orders",)
    assert topics_blocked_at_home(link, rows, ["bills"], ()) == ()
    assert topics_blocked_at_home(link, rows, ["orders"], ["orders"]) == (), "a switch has it, and does that itself"


def test_a_twin_of_one_pair_is_guarded_though_another_pair_says_that_it_is_at_home() -> None:
    """Switched west to east; then left out there, and switched east to north. Its row in the first pair stays."""
    first, second = (
        HomeRow(PAIR, "orders", "east", 2, 1, "anna"),
        HomeRow("east<>north", "orders", "north", 2, 2, "anna"),
    )
    twins = {"north->east": ["orders", "bills"], "south->east": ["bills"]}

    def begun(name: str, topics: Iterable[str]) -> set[str]:
        return {*topics}.intersection(twins.get(name, ()))

    assert topics_left_to_other_links(BACK, [first, second], begun) == {"orders"}
    assert topics_left_to_other_links(BACK, [replace(second, term=9), replace(first, term=30)], begun) == {"orders"}
    assert topics_left_to_other_links(Link("north", "east"), [first, second], begun) == set(), (
        "it is at home in the other pair"
    )
    assert topics_left_to_other_links(BACK, [first, replace(second, home="east", term=3)], begun) == set(), (
        "it has come home"
    )
    assert topics_left_to_other_links(BACK, [first, replace(second, term=1)], begun) == set(), (
        "no switch has left it to the link"
    )
    assert topics_left_to_other_links(BACK, [replace(first, home="west", term=3)], begun) == set(), (
        "its own pair says that"
    )
    assert topics_left_to_other_links(BACK, [first, replace(second, pair="north<>south")], begun) == set(), (
        "of other clusters"
    )
    twins["north->east"].remove("orders")
    assert topics_left_to_other_links(BACK, [first, second], begun) == set(), "its twin was forgotten"


def test_the_old_home_hears_what_it_lacks_and_what_the_store_says_too() -> None:
    rows = {"orders": ORDERS}
    was = replace(LINE, home="east", cluster_id="id-of-east", term=1, step=3)
    assert missing_home_records(["orders"], rows, "id-of-west", {"orders": LINE}, {"orders": was}) == (LINE,)
    assert missing_home_records(["orders"], rows, "id-of-west", {"orders": LINE}, {}) == (LINE,)
    assert missing_home_records(["orders"], rows, "id-of-west", {"orders": LINE}, {"orders": LINE}) == ()
    assert missing_home_records(["orders"], rows, "id-of-west", {}, {}) == ()
    later = replace(LINE, term=3)
    assert missing_home_records(["orders"], rows, "id-of-west", {"orders": later}, {}) == (), (
        "the store does not know it yet"
    )
    other = replace(LINE, cluster_id="id-of-north")
    assert missing_home_records(["orders"], rows, "id-of-west", {"orders": other}, {}) == (), (
        "another cluster of that name"
    )


def test_whoever_is_on_call_reads_which_cluster_is_open() -> None:
    said = describe_open_old_home(BACK, ["orders", "bills"], "unreached")
    assert mentions(said, "bills, orders", "west", "east") and said.endswith(": unreached")


def test_what_is_left_is_told_once_the_switch_has_ended() -> None:
    """A topic that a switch has is that switch's alone, and the others are looked at all the same."""
    rows = {"orders": ORDERS, "bills": replace(ORDERS, topic="bills")}
    twins = [TWIN, replace(TWIN, topic="bills")]
    assert topics_left_to_link(BACK, rows, twins, ["orders"]) == ("bills",)


def test_a_plan_says_whether_anybody_can_keep_writers_from_the_old_home() -> None:
    kept, open_, silent = (describe_old_home_writers("east", ["orders"], ruled=ruled) for ruled in (True, False, None))
    assert mentions(kept, "east", "orders") and "authorizer" not in kept
    assert mentions(open_, "east", "no authorizer", "orders") and mentions(silent, "east", "an authorizer")
    assert open_.endswith("stop its producers") and silent.endswith("stop its producers")


def test_it_is_said_as_long_as_no_rule_can_keep_writers_out() -> None:
    """The alarm of an old home that is open closes once it has heard where its topics are."""

    def guard(acls: frozenset[Acl] | None, topics: Iterable[str]) -> WriteBlock:
        return renew_write_block(
            WriteBlock(), AclSnapshot("east", acls, frozenset(topics), frozenset(topics), "User:us", False)
        )

    said = describe_missing_authorizer(BACK, guard(None, ["orders", "bills"]), ["orders"])
    assert mentions(said, "east", "orders") and "bills" not in said
    assert describe_missing_authorizer(BACK, guard(None, ["orders"]), []) == "", "it has come home"
    assert describe_missing_authorizer(BACK, guard(frozenset(), ["orders"]), ["orders"]) == "", "rules are asked"
    assert describe_missing_authorizer(BACK, WriteBlock(), ["orders"]) == "", "nobody has looked yet"
