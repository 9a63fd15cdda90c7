"""The ledger on every database."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest
from sqlalchemy import create_engine, text

from testkit.errors import raises
from twinshore.config.errors import StoreError
from twinshore.config.incident_policy import (
    POLICY_DROP,
    POLICY_GAP,
    POLICY_RETRY,
    POLICY_STOP,
    IncidentEffect,
    IncidentKind,
    IncidentPolicy,
    IncidentSide,
)
from twinshore.state import incident_log
from twinshore.state.core.values import Incident, IncidentCount, IncidentRow, TwinRow
from twinshore.state.incident_log import IncidentFilter
from twinshore.state.store import Store, open_store

GAP = Incident(
    "east->west", "orders", 3, IncidentKind.RETENTION_GAP, 100, 250, POLICY_STOP, "offsets 100 to 249 are gone 🌊"
)


def test_an_incident_is_open_once(store: Store) -> None:
    row = store.incidents.add(GAP, now_ms=5)
    assert row == IncidentRow(row.id, GAP, 5, None)
    assert store.incidents.add(replace(GAP, sentence="said otherwise"), now_ms=9) == row
    assert store.incidents.rows("east->west") == (row,)


@pytest.mark.claim(
    "topics",
    "ledger-has-room",
    "the ledger takes each kind of incident with what was done about it, on SQLite, PostgreSQL and MariaDB",
)
def test_each_kind_has_room_for_what_was_done_about_it(store: Store) -> None:
    """PostgreSQL and MariaDB hold a column to its length, SQLite does not: a policy is a sentence."""
    told = [replace(GAP, kind=kind, policy=kind.policy) for kind in IncidentKind]
    told += [
        replace(GAP, from_offset=at, policy=policy)
        for at, policy in enumerate((POLICY_RETRY, IncidentPolicy("why " * 100, IncidentEffect.INFORMS)))
    ]
    for incident in told:
        store.incidents.add(incident, now_ms=1)
    assert [row.incident for row in store.incidents.rows()] == told


def test_another_place_or_kind_is_another_incident(store: Store) -> None:
    different = [
        GAP,
        replace(GAP, partition=4),
        replace(GAP, topic="Orders"),
        replace(GAP, to_offset=251),
        replace(GAP, kind=IncidentKind.TRUNCATION),
        replace(GAP, link="north->west"),
    ]
    for incident in different:
        store.incidents.add(incident, now_ms=1)
    assert [row.incident for row in store.incidents.rows()] == different


def test_the_rest_of_a_gap_is_no_other_row(store: Store) -> None:
    """A task that takes over amid a gap tells the rest of it."""
    first = store.incidents.add(GAP, now_ms=1)
    assert store.incidents.add(replace(GAP, from_offset=170), now_ms=2) == first


def test_more_that_was_dropped_from_the_same_offset_on_is_a_row_of_its_own(store: Store) -> None:
    """Whoever told of the first part died before it told of the rest."""
    part = replace(GAP, kind=IncidentKind.STALE_DROPPED, from_offset=100, to_offset=110)
    rows = [store.incidents.add(one, now_ms=5) for one in (part, part, replace(part, to_offset=150))]
    assert rows[0] == rows[1]
    assert [row.incident.to_offset for row in store.incidents.rows("east->west")] == [110, 150]


def test_a_gap_that_grew_and_one_that_halts_are_rows_of_their_own(store: Store) -> None:
    """The next task begins where the last one did, and the source has lost more by then."""
    passed = replace(GAP, policy=POLICY_GAP)
    for one in (passed, passed, replace(passed, to_offset=400), replace(passed, to_offset=400, policy=POLICY_STOP)):
        store.incidents.add(one, now_ms=5)
    rows = [(row.incident.to_offset, row.incident.policy.stops) for row in store.incidents.rows(open_only=True)]
    assert rows == [(250, False), (400, False), (400, True)]


def test_each_side_that_turns_the_mirror_away_has_a_row(store: Store) -> None:
    lost = replace(GAP, topic="", partition=-1, kind=IncidentKind.RIGHTS_LOST, side=IncidentSide.SOURCE)
    for one in (lost, replace(lost, side=IncidentSide.TARGET), replace(lost, sentence="once more")):
        store.incidents.add(one, now_ms=5)
    sides = [(row.incident.side, row.incident.sentence) for row in store.incidents.rows()]
    assert sides == [(IncidentSide.SOURCE, GAP.sentence), (IncidentSide.TARGET, GAP.sentence)]


def test_after_it_was_closed_it_may_come_again(store: Store) -> None:
    first = store.incidents.add(GAP, now_ms=5)
    assert store.incidents.close(first.id, now_ms=7)
    assert not store.incidents.close(first.id, now_ms=8)
    second = store.incidents.add(GAP, now_ms=9)
    assert second.id != first.id
    assert store.incidents.rows("east->west") == (replace(first, closed_ms=7), second)
    assert store.incidents.rows("east->west", open_only=True) == (second,)
    assert store.incidents.rows("west->east") == ()


def test_many_rows_are_closed_at_once_and_those_that_were_closed_keep_their_time(store: Store) -> None:
    rows = [store.incidents.add(replace(GAP, to_offset=250 + at), now_ms=1) for at in range(1_100)]
    store.incidents.close(rows[7].id, now_ms=3, came_to="by hand")
    store.incidents.close_all([row.id for row in rows[:1_050]], now_ms=5)
    store.incidents.close_all((), now_ms=6)
    closed = [row.closed_ms for row in store.incidents.rows()]
    assert (closed[7], set(closed[:7] + closed[8:1_050]), set(closed[1_050:])) == (3, {5}, {None})
    assert store.incidents.add(replace(GAP, from_offset=0), now_ms=9).id not in {row.id for row in rows}


def test_every_kind_is_kept(store: Store) -> None:
    rows = [store.incidents.add(replace(GAP, kind=kind), now_ms=1) for kind in IncidentKind]
    assert store.incidents.rows() == tuple(rows)
    assert [row.incident.kind for row in rows] == list(IncidentKind)


def test_a_sentence_with_broken_text_is_kept_all_the_same(store: Store) -> None:
    row = store.incidents.add(replace(GAP, sentence="name \0 and \udcff"), now_ms=1)
    assert row.incident.sentence == "name \ufffd and ?"
    assert store.incidents.rows() == (row,)


def test_many_who_see_it_at_once_open_one_row(open_another: Callable[[], Store]) -> None:
    stores = [open_another() for _ in range(4)]
    start = Barrier(4)

    def add(index: int) -> int:
        start.wait()
        return stores[index].incidents.add(GAP, now_ms=index).id

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(add, range(4)))) == 1
    assert len(stores[0].incidents.rows()) == 1


def test_a_row_somebody_else_wrote_is_named(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with open_store(url) as store:
        row = store.incidents.add(GAP, now_ms=1)
        engine = create_engine(url)
        with engine.begin() as connection:
            connection.execute(text("UPDATE incidents SET kind = 'fire'"))
        engine.dispose()
        with raises(StoreError, "state.invalid-row", place=f"incidents, row {row.id}"):
            store.incidents.rows()


def test_the_ledger_in_numbers_by_link_and_kind(store: Store) -> None:
    assert store.incidents.counts() == ()
    first = store.incidents.add(GAP, now_ms=5)
    store.incidents.add(replace(GAP, partition=7), now_ms=5)
    store.incidents.add(replace(GAP, link="west->east", kind=IncidentKind.RIGHTS_LOST), now_ms=5)
    store.incidents.close(first.id, now_ms=7)
    assert store.incidents.counts() == (
        IncidentCount("east->west", GAP.kind, 2, 1),
        IncidentCount("west->east", IncidentKind.RIGHTS_LOST, 1, 1),
    )


def test_pages_of_the_ledger_follow_each_other_by_id(store: Store) -> None:
    rows = [store.incidents.add(replace(GAP, from_offset=at, side=IncidentSide.SOURCE), now_ms=at) for at in range(10)]
    other = store.incidents.add(replace(GAP, kind=IncidentKind.OLD_FORMAT, topic="bills"), now_ms=99)
    store.incidents.close(rows[4].id, now_ms=100)
    found: list[IncidentRow] = []
    wanted = IncidentFilter(
        (GAP.link,), GAP.kind, "orders", IncidentEffect.STOPS_PARTITION, IncidentSide.SOURCE, open_only=True
    )
    while page := store.incidents.page(wanted, limit=4):
        assert len(page) <= 4
        found += page
        wanted = replace(wanted, before=page[-1].id)
    assert found == [row for row in reversed(rows) if row.id != rows[4].id]
    assert store.incidents.page(IncidentFilter(), limit=1) == (other,)
    for none in (
        IncidentFilter(("x->y",)),
        IncidentFilter(topic="none"),
        IncidentFilter(effect=IncidentEffect.INFORMS),
        IncidentFilter(side=IncidentSide.BOTH),
    ):
        assert store.incidents.page(none) == ()


TWIN = TwinRow("east->west", "orders", 3, "aa", "bb", 0, 0, 1_000)


def dropped(store: Store, begin: int, *, partition: int = 3, is_open: bool = False) -> IncidentRow:
    what = Incident(
        "east->west", "orders", partition, IncidentKind.STALE_DROPPED, begin, begin + 3, POLICY_DROP, "3 were dropped"
    )
    row = store.incidents.add(what, now_ms=2_000 + begin)
    if not is_open:
        store.incidents.close(row.id, now_ms=3_000 + begin)
    return row


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten rows become one, three stay alone."""
    monkeypatch.setattr(incident_log, "DROPS_PER_JOINED_ROW", 10)
    monkeypatch.setattr(incident_log, "DROPS_KEPT_SINGLE", 3)


@pytest.mark.usefixtures("few")
def test_old_drops_of_a_partition_become_few_rows_that_say_the_same(store: Store) -> None:
    store.twins.save([TWIN])
    first = [dropped(store, at) for at in range(0, 200, 10)]
    still = dropped(store, 200, is_open=True)
    for at in range(210, 250, 10):
        dropped(store, at)
    other = dropped(store, 0, partition=4)
    store.incidents.add(GAP, now_ms=1)
    before = store.incidents.counts()
    assert store.incidents.join_drops("east->west", "orders", 3) == 18
    assert store.incidents.counts() == before, "as many incidents as there were"
    assert store.incidents.join_drops("east->west", "orders", 3) == 0
    rows = [row for row in store.incidents.rows() if row.incident.kind is IncidentKind.STALE_DROPPED]
    assert [row.id for row in rows[:2]] == [first[9].id, first[19].id], "the newest of each ten stands for them"
    assert rows[0].joined_ranges == tuple((at, at + 3) for at in range(0, 100, 10))
    one = rows[0].incident
    assert (one.from_offset, one.to_offset, rows[0].opened_ms, rows[0].closed_ms) == (0, 93, 2_000, 3_090)
    assert one.sentence.startswith("30 offsets were dropped in 10 parts between these; first: 3 were dropped; last: ")
    assert rows[2] == still
    assert (rows[2].joined_ranges, rows[2].ranges) == ((), ((200, 203),))
    assert [row.incident.from_offset for row in rows[3:]] == [210, 220, 230, 240, 0]
    assert rows[-1].id == other.id


@pytest.mark.usefixtures("few")
def test_no_row_says_what_two_twins_of_a_topic_lack(store: Store) -> None:
    for at in range(0, 200, 10):
        dropped(store, at)
    assert store.incidents.join_drops("east->west", "orders", 3) == 0, "there is no twin"
    store.twins.save([TWIN])
    for at in range(300, 420, 10):
        dropped(store, at)
    assert store.incidents.join_drops("east->west", "orders", 3) == 0, "twelve are of this one"
    dropped(store, 420)
    assert store.incidents.join_drops("east->west", "orders", 3) == 9
    (row,) = [row for row in store.incidents.rows() if row.joined_ranges]
    assert row.joined_ranges[0] == (300, 303)
