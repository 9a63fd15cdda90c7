"""Topics in a switch and their flip, on every database: the first switch has a topic, a flip is whole or nothing."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

from testkit.errors import raises
from twinshore.config.errors import ConfigError
from twinshore.config.incident_policy import IncidentEffect, IncidentKind, IncidentPolicy
from twinshore.state.core.values import (
    AuditRow,
    HomeChange,
    HomeRow,
    Incident,
    LinkPresence,
    LinkRow,
    MirrorRequest,
    ProgressRecord,
    SwitchRow,
    TopicInSwitch,
    TwinRow,
)
from twinshore.state.store import Store

PAIR = "east<>west"
EAST_WEST, WEST_EAST = "east->west", "west->east"
FIRST, SECOND = "1" * 32, "2" * 32
ROW = TopicInSwitch(PAIR, "orders", FIRST, EAST_WEST, MirrorRequest.ANNOUNCED, 1_000)
HOME = HomeRow(PAIR, "orders", "east", 1, 10, "link east->west")
EAST_ID, WEST_ID = "ea" * 16, "be" * 16
FLIP = HomeChange(
    pair=PAIR,
    topic="orders",
    home="west",
    term=2,
    link=EAST_WEST,
    back=WEST_EAST,
    source_topic_id=WEST_ID,
    target_topic_id=EAST_ID,
    points=(100, 0),
    since_ms=5_000,
    set_by="anna",
)
TOLD = AuditRow(5_000, EAST_WEST, "switch", "orders", "east", "west", "by anna", "anna", "orders")
TURNED = tuple(
    TwinRow(WEST_EAST, "orders", n, WEST_ID, EAST_ID, point, 0, 5_000, point, 2) for n, point in ((0, 100), (1, 0))
)
SWITCH = SwitchRow(FIRST, "planned", "east", "west", "begun", "{}", "anna", 1_000, 1_000)


def carried_by_east(store: Store, topic: str = "orders") -> None:
    """The topic is at home on east and west is its twin, with all that hangs on one."""
    store.homes.settle([replace(HOME, topic=topic)])
    store.twins.save([TwinRow(EAST_WEST, topic, number, EAST_ID, WEST_ID, 0, 0, 1) for number in range(2)])
    store.progress.record(
        [
            ProgressRecord(
                link=EAST_WEST,
                topic=topic,
                partition=0,
                from_offset=0,
                to_offset=100,
                records=100,
                bytes=1000,
                batches=1,
                source_end=100,
                first_ms=1,
                last_ms=2,
            )
        ]
    )


def incident(topic: str = "orders") -> Incident:
    policy = IncidentPolicy("waits", IncidentEffect.STOPS_PARTITION)
    return Incident(EAST_WEST, topic, 0, IncidentKind.RETENTION_GAP, 5, 9, policy, "records are gone")


def test_the_first_switch_has_the_topic(store: Store) -> None:
    before = store.topics_in_switch.version(PAIR)
    bills = replace(ROW, topic="bills")
    assert store.topics_in_switch.begin([ROW, bills]) == (ROW, bills)
    assert store.topics_in_switch.version_lately(PAIR) == store.topics_in_switch.version(PAIR) > before
    assert store.topics_in_switch.version_lately("east<>north") == 0
    other = replace(ROW, switch_id=SECOND)
    lists = replace(other, topic="lists")
    assert store.topics_in_switch.begin([lists, other]) == (lists, ROW), "in the order asked"
    assert store.topics_in_switch.begin([ROW, bills]) == (ROW, bills), "begun twice"
    assert store.topics_in_switch.of(PAIR) == (bills, lists, ROW)
    assert store.topics_in_switch.of("east<>north") == store.topics_in_switch.of_link(WEST_EAST) == ()
    assert store.topics_in_switch.version("east<>north") == 0
    assert store.topics_in_switch.begin([]) == ()
    assert store.topics_in_switch.end(FIRST) == 2
    assert store.topics_in_switch.end(FIRST) == 0
    assert store.topics_in_switch.of_link(EAST_WEST) == (lists,)


def test_the_mirror_says_once_that_it_let_go_and_only_where_it_was_asked(store: Store) -> None:
    bills = replace(ROW, topic="bills", switch_id=SECOND)
    store.topics_in_switch.begin([ROW, bills])
    assert store.topics_in_switch.record_stopped(EAST_WEST, ["orders", "bills"], 3_000) == 0
    seen = store.topics_in_switch.version(PAIR)
    assert store.topics_in_switch.request(FIRST, MirrorRequest.STOP_REPLICATION, 2_000) == 1
    assert store.topics_in_switch.version(PAIR) == seen + 1
    assert store.topics_in_switch.request(FIRST, MirrorRequest.STOP_REPLICATION, 2_500) == 0
    assert store.topics_in_switch.record_stopped(WEST_EAST, ["orders"], 3_000) == 0
    assert store.topics_in_switch.record_stopped(EAST_WEST, ["orders", "bills", "lists"], 3_000) == 1
    assert store.topics_in_switch.record_stopped(EAST_WEST, ["orders"], 4_000) == 0
    gone = replace(ROW, request=MirrorRequest.STOP_REPLICATION, requested_ms=2_000, stopped_ms=3_000)
    assert store.topics_in_switch.of(PAIR) == (bills, gone)
    assert store.topics_in_switch.request(FIRST, MirrorRequest.ANNOUNCED, 5_000) == 1
    assert store.topics_in_switch.of(PAIR) == (bills, replace(ROW, requested_ms=5_000)), (
        "rolled back: it may be carried again"
    )


def test_two_switches_at_once_share_no_topic(open_another: Callable[[], Store]) -> None:
    stores, start = [open_another(), open_another()], Barrier(2)
    names = [f"orders-{number}" for number in range(50)]

    def begin(index: int) -> list[str]:
        rows = [replace(ROW, topic=name, switch_id=(FIRST, SECOND)[index]) for name in names]
        start.wait()
        return [row.switch_id for row in stores[index].topics_in_switch.begin(rows if index else rows[::-1])]

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(begin, range(2))
    assert one[::-1] == other
    assert len(one) == len(names)


def test_a_flip_moves_the_home_and_both_twins_at_once(store: Store) -> None:
    carried_by_east(store)
    carried_by_east(store, "bills")
    row = store.incidents.add(incident(), now_ms=1)
    kept = store.incidents.add(incident("bills"), now_ms=1)
    before = store.topics_in_switch.version(PAIR)
    assert store.topics_in_switch.change_homes([FLIP], [TOLD, replace(TOLD, topic="bills")]) == (FLIP,)
    assert store.homes.of(PAIR)["orders"] == HomeRow(PAIR, "orders", "west", 2, 5_000, "anna")
    assert store.twins.of(WEST_EAST) == TURNED
    assert {twin.topic for twin in store.twins.of(EAST_WEST)} == {"bills"}
    assert {one.topic for one in store.progress.positions(EAST_WEST)} == {"bills"}
    assert store.incidents.rows(open_only=True) == (kept,)
    closed = next(one for one in store.incidents.rows() if one.id == row.id)
    assert closed.closed_ms == 5_000 and "west the home of topic orders" in closed.incident.sentence
    assert [replace(one, id=0) for one in store.audit.rows()] == [TOLD]
    assert store.topics_in_switch.version(PAIR) > before


def test_a_flip_done_twice_is_done_once(store: Store) -> None:
    carried_by_east(store)
    store.topics_in_switch.change_homes([FLIP], [TOLD])
    store.progress.record(
        [
            ProgressRecord(
                link=WEST_EAST,
                topic="orders",
                partition=0,
                from_offset=100,
                to_offset=120,
                records=20,
                bytes=200,
                batches=1,
                source_end=120,
                first_ms=6,
                last_ms=7,
            )
        ]
    )
    again = replace(FLIP, since_ms=9_000, points=(120, 0))
    assert store.topics_in_switch.change_homes([again], [TOLD]) == (again,)
    assert store.homes.of(PAIR)["orders"].since_ms == 5_000
    assert store.twins.of(WEST_EAST) == TURNED
    assert len(store.progress.positions(WEST_EAST)) == 1
    assert len(store.audit.rows()) == 1


def test_a_flip_whose_home_alone_was_told_is_completed(store: Store) -> None:
    """A store that comes back may learn the new home first, from the clusters."""
    carried_by_east(store)
    store.homes.move(replace(HOME, home="west"), seen=1)
    assert store.topics_in_switch.change_homes([FLIP]) == (FLIP,)
    assert store.twins.of(EAST_WEST) == ()
    assert store.twins.of(WEST_EAST) == TURNED


def test_a_later_home_stands(store: Store) -> None:
    carried_by_east(store)
    later = replace(FLIP, term=4)
    assert store.topics_in_switch.change_homes([later]) == (later,)
    assert store.topics_in_switch.change_homes([FLIP, replace(FLIP, term=4, home="east")], [TOLD]) == ()
    assert store.homes.of(PAIR)["orders"].term == 4
    assert store.audit.rows() == ()


def test_a_flip_there_and_back(store: Store) -> None:
    carried_by_east(store)
    store.topics_in_switch.change_homes([FLIP])
    back = HomeChange(
        pair=PAIR,
        topic="orders",
        home="east",
        term=3,
        link=WEST_EAST,
        back=EAST_WEST,
        source_topic_id=EAST_ID,
        target_topic_id=WEST_ID,
        points=(150, 1),
        since_ms=8_000,
        set_by="bob",
    )
    assert store.topics_in_switch.change_homes([back, replace(back, topic="unheard")]) == (
        back,
        replace(back, topic="unheard"),
    )
    assert store.twins.of(WEST_EAST) == ()
    found = [twin for twin in store.twins.of(EAST_WEST) if twin.topic == "orders"]
    assert [(twin.base_offset, twin.inherited_end, twin.epoch) for twin in found] == [(150, 150, 3), (1, 1, 3)]
    assert store.homes.of(PAIR)["unheard"].term == 3
    alone = replace(back, topic="alone", back="")
    assert store.topics_in_switch.change_homes([alone]) == (alone,), "a home that nobody carries back"
    assert not [twin for twin in store.twins.of(EAST_WEST) if twin.topic == "alone"]


def test_a_flip_onto_a_link_that_was_removed_changes_nothing(store: Store) -> None:
    carried_by_east(store)
    removed = LinkRow(WEST_EAST, LinkPresence.REMOVED, "{}", "", 1, 1, "anna")
    store.link_rows.change([removed], seen=0, told=[])
    with raises(ConfigError, "state.link-removed"):
        store.topics_in_switch.change_homes([FLIP], [TOLD])
    assert store.homes.of(PAIR) == {"orders": HOME}
    assert len(store.twins.of(EAST_WEST)) == 2


def test_of_two_flips_at_once_one_is_made(open_another: Callable[[], Store]) -> None:
    one, other, start = open_another(), open_another(), Barrier(2)
    for number in range(10):
        topic = f"orders-{number}"
        carried_by_east(one, topic)
        flips = [replace(FLIP, topic=topic), replace(FLIP, topic=topic, home="north", back="")]

        def make(store: Store, flip: HomeChange) -> tuple[HomeChange, ...]:
            start.wait()
            return store.topics_in_switch.change_homes([flip], [replace(TOLD, topic=flip.topic, after=flip.home)])

        with ThreadPoolExecutor(2) as pool:
            made = [done for found in pool.map(make, (one, other), flips) for done in found]
        assert len(made) == 1
        assert one.homes.of(PAIR)[topic].home == made[0].home
        assert [row.after for row in one.audit.rows() if row.topic == topic] == [made[0].home]


def test_switches_are_kept_with_their_records(store: Store) -> None:
    assert store.switches.of(FIRST) is None
    store.switches.save(SWITCH)
    later = replace(
        SWITCH, id=SECOND, begun_ms=2_000, switch_state='{"name": "caf\N{LATIN SMALL LETTER E WITH ACUTE}"}'
    )
    store.switches.save(later)
    assert store.switches.all() == (later, SWITCH)
    ended = replace(SWITCH, state="done", changed_ms=3_000, ended_ms=3_000)
    store.switches.save(ended)
    store.switches.save(ended)
    assert store.switches.of(FIRST) == ended
    assert store.switches.all(open_only=True) == (later,)
    store.switches.save(replace(ended, switch_state="a\0b", set_by="x" * 300))
    found = store.switches.of(FIRST)
    assert found is not None
    assert (found.switch_state, len(found.set_by)) == ("a\N{REPLACEMENT CHARACTER}b", 255)


def test_a_record_is_kept_only_while_its_lease_is_held(store: Store) -> None:
    """A process that slept through its lease does not write over what its follower did."""
    row = SwitchRow("f" * 32, "planned", "east", "west", "going on", "{}", "anna", 1, 1)
    first = store.leases.take("switch f", "anna", 1000, row=None)
    assert first is not None
    assert store.switches.save(row, first)
    second = store.leases.take("switch f", "bert", 1000, row=first)
    assert second is not None
    assert not store.switches.save(replace(row, state="done"), first)
    assert store.switches.save(replace(row, state="turned back"), second)
    assert store.leases.release(second)
    assert not store.switches.save(row, second)
    kept = store.switches.of("f" * 32)
    assert kept is not None
    assert kept.state == "turned back"


def test_what_a_cluster_keeps_does_not_hide_who_goes_on_with_the_store(store: Store) -> None:
    """Its record was read, and then a process took the switch over from the cluster."""
    kept = SwitchRow("f" * 32, "forced", "east", "west", "going on", '{"kept":"west"}', "anna", 1, 1)
    assert store.switches.take_up(kept, None)
    ours = replace(kept, switch_state='{"kept":""}', state="done", changed_ms=9, ended_ms=9)
    store.switches.save(ours)
    for before in (None, kept):
        assert not store.switches.take_up(replace(kept, switch_state='{"kept":"west","deed":"flip"}'), before)
    assert store.switches.of(kept.id) == ours
    assert store.switches.take_up(kept, ours)
    assert store.switches.of(kept.id) == kept
