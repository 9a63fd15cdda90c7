"""How links stand, asked as a program asks: views come back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from twinshore.cli.status import render
from twinshore.config.incident_policy import POLICY_STOP, POLICY_TOPIC, IncidentKind
from twinshore.config.model import Link
from twinshore.config.sentences import format_age
from twinshore.config.settings import Settings, parse_settings
from twinshore.monitoring.link_status import LAG_FROM_MIRROR, LinkLag, LinkView, _by_topic, as_values, read_link_views
from twinshore.replication.core.lag import LagStatus, TopicLag, lag_row
from twinshore.runtime.lease_keeper import exclusive
from twinshore.state.core.values import (
    ControlRow,
    HomeChange,
    Incident,
    LinkStatus,
    PartitionState,
    ProgressRecord,
    ReplicatedPosition,
    TwinRow,
    WriteBlockRow,
)
from twinshore.state.store import Store, open_store
from twinshore.switch.core.acl_rules import AclSnapshot, WriteBlock, renew_write_block

LINK, BACK = "east->west", "west->east"


@pytest.fixture
def settings() -> Settings:
    """Two links, whose clusters do not exist: nobody may ask them."""
    clusters = '[clusters.east]\nbootstrap = ["east:9092"]\n[clusters.west]\nbootstrap = ["west:9092"]\n'
    return parse_settings(f'{clusters}[links."{LINK}"]\n[links."{BACK}"]\n', name="settings", env={})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """With one partition of `orders`."""
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        opened.progress.record(
            [
                ProgressRecord(
                    link=LINK,
                    topic="orders",
                    partition=0,
                    from_offset=0,
                    to_offset=60,
                    records=60,
                    bytes=6_000_000,
                    batches=3,
                    source_end=100,
                    first_ms=5,
                    last_ms=9,
                    lag_records=40,
                )
            ]
        )
        yield opened


def _word(updated_ms: int) -> LinkStatus:
    figures = (12_345.6, 7_890_000.0, 40, 1.25, 9.5)
    return LinkStatus(LINK, "a-host process 7 1a2b3c4d", "flowing", "1 partition", updated_ms, 1, 1, *figures)


def test_a_view_has_the_links_word_its_lag_and_what_is_open(store: Store, settings: Settings) -> None:
    now_ms = int(time.time() * 1000)
    store.links.save_status(_word(now_ms))
    store.link_states.remember([lag_row(LINK, LagStatus(now_ms, 40, 1, 0, {"orders": TopicLag(1, 60, 100, 40, 0)}))])
    store.incidents.add(
        Incident(LINK, "orders", 0, IncidentKind.RETENTION_GAP, 5, 9, POLICY_STOP, "they are gone"), now_ms=1
    )
    view, back = read_link_views(store, settings, (), clock=lambda: now_ms, topics=True)
    assert (view.link, view.state, view.lag, back.status) == (
        LINK,
        "flowing",
        LinkLag(40, 0.0, LAG_FROM_MIRROR, 0, 0.0),
        None,
    )
    assert view.says_of_incidents == ("east->west: open incident 1, retention gap, orders-0: they are gone",)
    values = as_values(view, topics=True)
    assert (values["lag_records"], values["topics"][0]["twin_end"]) == (40, 60)
    assert [one.link for one in read_link_views(store, settings, ["west..east"], clock=lambda: now_ms)] == [BACK]


@pytest.mark.claim(
    "groups", "status-recovery-point", "status says how many records a lost source would take with it, and how old"
)
def test_a_view_says_what_would_be_lost_with_the_source(store: Store, settings: Settings) -> None:
    now_ms = int(time.time() * 1000)
    store.links.save_status(_word(now_ms))
    assert [view.says_of_recovery_point for view in read_link_views(store, settings, (), clock=lambda: now_ms)] == [
        "",
        "",
    ]
    topics = {"orders": TopicLag(1, 60, 100, 40, 0, now_ms - 12_000), "till": TopicLag(1, 60, 60)}
    store.link_states.remember([lag_row(LINK, LagStatus(now_ms, 40, 2, 0, topics, now_ms - 12_000))])
    view, _ = read_link_views(store, settings, (), clock=lambda: now_ms, topics=True)
    assert view.says_of_recovery_point == "recovery point: of east's records west lacks 40, the oldest for 12 s"
    values = as_values(view, topics=True)
    assert values["recovery_point_s"] == 12
    assert [topic["recovery_point_s"] for topic in values["topics"]] == [12, 0]
    later, _ = read_link_views(store, settings, (), clock=lambda: now_ms + 300_000)
    assert later.lag is not None and later.lag.oldest_s == 312
    store.link_states.remember([lag_row(LINK, LagStatus(now_ms, 0, 2, 0, {"till": TopicLag(1, 60, 60)}))])
    view, _ = read_link_views(store, settings, (), clock=lambda: now_ms)
    assert view.says_of_recovery_point.endswith("west lacks 0")
    assert _recovery_points(store, settings, now_ms + 300_000) == [300, None, 300]
    topics = {"orders": TopicLag(1, 60, 0, 0, 1), "till": TopicLag(1, 60, 60)}
    store.link_states.remember([lag_row(LINK, LagStatus(now_ms, 0, 2, 1, topics))])
    assert _recovery_points(store, settings, now_ms) == [None, None, 0]


def _recovery_points(store: Store, settings: Settings, now_ms: int) -> list[float | None]:
    """The link's, and each topic's that the last look saw."""
    view, _ = read_link_views(store, settings, (), clock=lambda: now_ms, topics=True)
    values = as_values(view, topics=True)
    seen = [one for one in values["topics"] if one["topic"] in ("orders", "till")]
    return [one["recovery_point_s"] for one in [values, *seen]]


def _shown(views: list[LinkView]) -> list[list[str]]:
    """The table of topics as people see it, by its rows' words."""
    console = Console(width=1000)
    with console.capture() as caught:
        console.print(render(views, topics=True))
    lines = [line.split() for line in caught.get().splitlines()]
    return lines[next(number for number, words in enumerate(lines) if words[:2] == ["link", "topic"]) + 1 :]


def test_what_the_filters_leave_out_now_has_no_lag_and_is_called_excluded(store: Store, settings: Settings) -> None:
    """Also before the mirror's next look."""
    now_ms = int(time.time() * 1000)
    store.progress.record(
        [
            ProgressRecord(
                link=LINK,
                topic="till",
                partition=0,
                from_offset=0,
                to_offset=60,
                records=60,
                bytes=5_000_000,
                batches=3,
                source_end=115,
                first_ms=1,
                last_ms=2,
                lag_records=55,
            )
        ]
    )
    topics = {"orders": TopicLag(1, 60, 100, 40, 0), "till": TopicLag(1, 60, 115, 55, 0)}
    store.link_states.remember([lag_row(LINK, LagStatus(now_ms, 95, 2, 0, topics))])
    store.links.save_status(_word(now_ms))

    def seen() -> LinkView:
        return read_link_views(store, settings, [LINK], clock=lambda: now_ms, topics=True)[0]

    assert seen().lag == LinkLag(95, 0.0, LAG_FROM_MIRROR, 0, 0.0)
    held = ControlRow(LINK, "exclude", '["til.*"]', 1, "anna")
    assert store.controls.change(LINK, {"exclude": held}, seen=0, told=[])
    orders, till = seen().topics
    assert seen().lag == LinkLag(40, 0.0, LAG_FROM_MIRROR, 0, 0.0)
    assert (orders.excluded, orders.lag_records) == (False, 40)
    assert (till.excluded, till.lag_records, till.last_lag_records) == (True, None, None)
    assert _shown([seen()])[1] == [LINK, "till", "1", "0", "60", "-", "(excluded)", "5.0"]


def test_of_a_topic_that_is_refused_no_twin_ends_at_nought(store: Store, settings: Settings) -> None:
    """The target's own topic holds records of others, and 0 partitions of it are stopped."""
    now_ms = int(time.time() * 1000)
    row = Incident(LINK, "theirs", -1, IncidentKind.FOREIGN_WRITE, -1, -1, POLICY_TOPIC, "holds data of others")
    store.incidents.add(row, now_ms=now_ms)
    topics = {"orders": TopicLag(1, 60, 100, 40, 0), "theirs": TopicLag(2, 0, 500, 500, 0)}
    store.link_states.remember([lag_row(LINK, LagStatus(now_ms, 540, 3, 0, topics))])
    store.links.save_status(_word(now_ms))
    (view,) = read_link_views(store, settings, [LINK], clock=lambda: now_ms, topics=True)
    orders, theirs = view.topics
    assert (orders.refused, orders.twin_end) == (False, 60)
    assert (theirs.refused, theirs.twin_end, theirs.lag_records) == (True, None, 500)
    assert _shown([view])[1][:7] == [LINK, "theirs", "2", "refused", "-", "500", "500"]


def test_a_row_of_a_topic_is_of_one_moment(store: Store, settings: Settings) -> None:
    """Receipts that came after the look put the twin's end beyond the source's, with a lag beside it."""
    now_ms = int(time.time() * 1000)
    store.links.save_status(_word(now_ms))
    store.link_states.remember([lag_row(LINK, LagStatus(now_ms, 1, 1, 0, {"orders": TopicLag(1, 49, 50, 1, 0)}))])
    (orders,) = read_link_views(store, settings, [LINK], clock=lambda: now_ms, topics=True)[0].topics
    assert (orders.twin_end, orders.source_end, orders.lag_records) == (49, 50, 1)
    (orders,) = read_link_views(store, settings, [LINK], clock=lambda: now_ms + 60_000, topics=True)[0].topics
    assert (orders.twin_end, orders.source_end) == (60, None), "the newest of the twin"


class CountedReads(list[ReplicatedPosition]):
    """Positions that count how often one is handed out."""

    reads = 0

    def __iter__(self) -> Iterator[ReplicatedPosition]:
        for position in super().__iter__():
            self.reads += 1
            yield position


def test_each_position_is_looked_at_once_however_many_topics_there_are() -> None:
    state = PartitionState.FLOWING
    rows = [
        ReplicatedPosition(
            link=LINK,
            topic=f"t{n}",
            partition=0,
            start_offset=0,
            to_offset=5,
            records=5,
            bytes=50,
            batches=1,
            source_end=7,
            lag_records=2,
            state=state,
            first_ms=1,
            last_ms=2,
        )
        for n in range(20_000)
    ]
    counted = CountedReads(rows)
    word = LagStatus(1, 40_000, 20_000, 0, {row.topic: TopicLag(1, 5, 7, 2) for row in rows})
    views = list(_by_topic(counted, word, LinkLag(40_000, 0.0, LAG_FROM_MIRROR), Link("east", "west")))
    assert counted.reads == len(rows)
    assert [view.topic for view in views] == sorted(row.topic for row in rows)
    assert {(view.partitions, view.lag_records) for view in views} == {(1, 2)}


def test_topics_are_gathered_only_where_they_are_asked_for(store: Store, settings: Settings) -> None:
    looks = [read_link_views(store, settings, [LINK], clock=lambda: 1, topics=asked) for asked in (False, True)]
    assert [len(view.topics) for (view,) in looks] == [0, 1]


def test_an_age_is_told_in_the_unit_that_says_it_best() -> None:
    assert [format_age(age_s) for age_s in (0.4, 119, 120, 7_199, 7_200, 172_800)] == [
        *("0 s", "119 s", "2 min", "120 min", "2 h", "2 d")
    ]


def test_a_clock_that_is_a_little_behind_makes_no_negative_age(store: Store, settings: Settings) -> None:
    now_ms = int(time.time() * 1000)
    store.links.save_status(_word(now_ms + 3_000))
    (view, _) = read_link_views(store, settings, [LINK, BACK], clock=lambda: now_ms)
    assert view.age_s == 0.0
    assert not view.stale


def test_what_a_mirror_wrote_while_a_look_took_long_is_not_ahead(store: Store, settings: Settings) -> None:
    """The clock goes on by seconds between the reads, as where a source is asked that does not answer."""
    now_ms = int(time.time() * 1000)
    store.links.save_status(_word(now_ms))
    store.link_states.remember(
        [lag_row(LINK, LagStatus(now_ms + 6_000, 40, 1, 0, {"orders": TopicLag(1, 60, 100, 40, 0)}))]
    )
    readings = iter(range(now_ms, now_ms + 1_000_000, 6_000))
    (view,) = read_link_views(store, settings, [LINK], clock=lambda: next(readings))
    assert view.lag == LinkLag(40, 0.0, LAG_FROM_MIRROR, 0, 6.0)
    assert view.says_of_lag == ""


def test_a_view_says_where_no_rule_can_keep_writers_from_an_old_home(store: Store, settings: Settings) -> None:
    """The alarm of an open old home is over by then."""
    flip = HomeChange(
        pair="east<>west",
        topic="orders",
        home="west",
        term=2,
        link=BACK,
        back=LINK,
        source_topic_id="b" * 32,
        target_topic_id="a" * 32,
        points=(60,),
        since_ms=5,
        set_by="anna",
    )
    store.topics_in_switch.change_homes([flip])
    store.twins.save([TwinRow(BACK, "orders", 0, "b" * 32, "a" * 32, 0, 0, 1, epoch=2)])
    sight = AclSnapshot("east", None, frozenset({"orders"}), frozenset({"orders"}))
    with exclusive("guard of east", store, "anna") as lease:
        row = lease.row()
        assert row is not None and store.write_blocks.save(
            WriteBlockRow("east", renew_write_block(WriteBlock(), sight).to_json(), 1), row
        )
    view, back = read_link_views(store, settings, (), clock=lambda: 1)
    assert (view.open_home, as_values(back, topics=False)["open_home"]) == ("", back.open_home)
    assert "east " in back.says_of_operators[-1] and "orders" in back.says_of_operators[-1]
