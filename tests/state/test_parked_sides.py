"""Whatever two processes do to the store at once ends as if one had come after the other; on three databases.

One side is parked before each of its statements, so behind all that it has read and written by then. The other side
does its work meanwhile, or waits for the first. What stands in the tables, and what both were answered, must be what
one of the two orders gives.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, select

from twinshore.config.incident_policy import POLICY_DROP, POLICY_STOP, IncidentKind
from twinshore.config.model import OffsetRun, SourceOffset, TargetOffset, TwinNaming
from twinshore.state import incident_log
from twinshore.state.core.values import (
    AlarmRow,
    ControlRow,
    Incident,
    LeaseRow,
    LinkIdentity,
    LinkPresence,
    LinkRow,
    PartitionState,
    ProgressRecord,
    TwinRow,
)
from twinshore.state.store import Store, open_store
from twinshore.state.tables import metadata

pytestmark = pytest.mark.claim(
    "groups",
    "one-after-the-other",
    "whatever two processes do to a store at once, one parked at each of its statements, ends as if "
    "one had come after the other, on SQLite, PostgreSQL and MariaDB: no offset run, receipt, row or "
    "lease is lost",
)

LINK = "east->west"
# Whoever has not come through by then waits for the side that is parked.
WAITS_S = 0.15
ENDS_S = 60.0
STATEMENTS = ("SELECT", "INSERT", "UPDATE", "DELETE")
Act = Callable[[Store], object]


@dataclass(frozen=True)
class Pair:
    """Two that meet, and what stands before."""

    name: str
    before: Act
    one: Act
    other: Act


def offset_run(source: int, target: int, length: int, sequence: int) -> OffsetRun:
    return OffsetRun(SourceOffset(source), TargetOffset(target), length, sequence)


def told(begin: int, end: int, *offset_runs: OffsetRun, topic: str = "orders") -> ProgressRecord:
    return ProgressRecord(
        link=LINK,
        topic=topic,
        partition=0,
        from_offset=begin,
        to_offset=end,
        records=end - begin,
        bytes=10,
        batches=1,
        source_end=end,
        first_ms=1,
        last_ms=2,
        lag_records=0,
        offset_runs=offset_runs,
    )


def twin(topic_id: str, partition: int = 0) -> TwinRow:
    return TwinRow(LINK, "orders", partition, "aa", topic_id, 100, 0, 1)


def adopt(store: Store, target: int = 200, topic_id: str = "bb") -> None:
    store.offset_runs.adopt([(twin(topic_id), offset_run(100, target, 0, 0))])


def carried(store: Store) -> None:
    adopt(store)
    store.progress.record([told(100, 150, offset_run(100, 200, 30, 0), offset_run(135, 240, 10, 30))])


def record(*receipts: ProgressRecord) -> Act:
    return lambda store: store.progress.record(list(receipts))


def trim(below: int, *, all_told: bool = False) -> Act:
    place = ("orders", 0)
    return lambda store: store.offset_runs.trim(LINK, {place: below}, told=[place] if all_told else ())


def forget(store: Store) -> int:
    return store.forget_topic(LINK, "orders")


def nothing(store: Store) -> None:
    del store


HELD = LeaseRow("task", "a", 1, 0, 1000)


def leased(store: Store) -> None:
    assert store.leases.take("task", "a", 1000, row=None) == HELD


def take(owner: str, seen: LeaseRow | None = HELD) -> Act:
    return lambda store: store.leases.take("task", owner, 1000, row=seen)


def beat(store: Store) -> object:
    return store.leases.renew_each([HELD], {HELD.name: HELD.ttl_ms}).get(HELD.name)


def release(store: Store) -> object:
    return store.leases.release(HELD)


def incident(sentence: str, partition: int = 0) -> Incident:
    return Incident(LINK, "orders", partition, IncidentKind.TRUNCATION, 4, 5, POLICY_STOP, sentence)


def tell(sentence: str) -> Act:
    return lambda store: store.incidents.add(incident(sentence), now_ms=7)


def close(came_to: str) -> Act:
    return lambda store: store.incidents.close(store.incidents.rows(LINK)[0].id, now_ms=9, came_to=came_to)


def alarm(sentence: str) -> Act:
    row = AlarmRow(LINK, "late", "orders", "a group", sentence, 7)
    return lambda store: store.delay.raise_alarm(row)


def clear(store: Store) -> bool:
    return store.delay.clear_alarm(store.delay.alarms(LINK)[-1].id, 9)


def change(value: str, *, seen: int = 0) -> Act:
    rows = {"paused": ControlRow(LINK, "paused", value, 5, value)}
    return lambda store: store.controls.change(LINK, rows, seen=seen, told=[])


def identity(number: int) -> LinkIdentity:
    return LinkIdentity(LINK, number, 0, "east id", "west id")


def drops(store: Store) -> None:
    """As many as are joined, and some that stay; the last one is open."""
    store.twins.save([twin("bb")])
    for at in range(0, 50, 10):
        what = Incident(LINK, "orders", 0, IncidentKind.STALE_DROPPED, at, at + 3, POLICY_DROP, "3 were dropped")
        row = store.incidents.add(what, now_ms=5)
        if at < 40:
            assert store.incidents.close(row.id, now_ms=6)


def join(store: Store) -> int:
    return store.incidents.join_drops(LINK, "orders", 0)


def close_open(store: Store) -> bool:
    (row,) = store.incidents.rows(LINK, open_only=True)
    return store.incidents.close(row.id, now_ms=7)


def links_stand(store: Store) -> None:
    assert store.link_rows.change([LinkRow(LINK, LinkPresence.KEPT, "{}", "", 0, 5, "anna")], seen=0)


def turn(store: Store) -> bool:
    gone = LinkRow(LINK, LinkPresence.REMOVED, "{}", "", 0, 5, "anna")
    rows = [gone, replace(gone, link="west->east", state=LinkPresence.KEPT)]
    return store.link_rows.change(rows, seen=1, turned=(LINK, "west->east"))


def rename(store: Store) -> bool:
    row = LinkRow(LINK, LinkPresence.KEPT, '{"naming":"prefix"}', "", 0, 5, "anna")
    return store.link_rows.change([row], seen=1)


def save_named(store: Store) -> object:
    return store.twins.save([twin("bb")], TwinNaming.SAME)


GROUND = told(150, 160, offset_run(150, 300, 10, 40))
PAIRS = [
    Pair("ground is raised, a receipt told", carried, trim(300, all_told=True), record(GROUND)),
    Pair("offset runs are trimmed, a receipt told", carried, trim(245), record(GROUND)),
    Pair("offset runs are trimmed, the topic forgotten", carried, trim(300, all_told=True), forget),
    Pair("ground is raised twice", carried, trim(300, all_told=True), trim(310, all_told=True)),
    Pair("two adopt", nothing, lambda store: adopt(store), lambda store: adopt(store, 222, "cc")),
    Pair("an adoption, a first receipt", adopt, lambda store: adopt(store, 222), record(told(100, 101))),
    Pair("an adoption, the topic forgotten", carried, lambda store: adopt(store, 222, "cc"), forget),
    Pair("one receipt twice", carried, record(GROUND), record(told(150, 170, offset_run(150, 300, 20, 40)))),
    Pair("first receipts", adopt, record(told(100, 110)), record(told(100, 120, offset_run(100, 200, 20, 0)))),
    Pair("a receipt, the topic forgotten", carried, record(GROUND), forget),
    Pair("a first receipt, the topic forgotten", adopt, record(told(100, 101, offset_run(100, 200, 1, 0))), forget),
    Pair(
        "a receipt, a state",
        carried,
        record(GROUND),
        lambda store: store.progress.set_state(LINK, "orders", 0, PartitionState.STOPPED),
    ),
    Pair(
        "twins are saved, the topic forgotten",
        lambda store: store.twins.save([twin("bb")]),
        lambda store: store.twins.save([twin("cc"), twin("cc", 1)]),
        forget,
    ),
    Pair(
        "two save a twin",
        nothing,
        lambda store: store.twins.save([twin("bb")]),
        lambda store: store.twins.save([twin("cc")]),
    ),
    Pair("a link is turned, its mirror saves a twin", links_stand, turn, lambda store: store.twins.save([twin("bb")])),
    Pair("a link is turned, its mirror adopts", links_stand, turn, adopt),
    Pair("a link is renamed, its mirror saves a twin", links_stand, rename, save_named),
    Pair("two take a new lease", nothing, take("a", None), take("b", None)),
    Pair("two take a lease", leased, take("b"), take("c")),
    Pair("a lease is beaten and taken", leased, beat, take("b")),
    Pair("a lease is released and taken", leased, release, take("b")),
    Pair("a lease is beaten and released", leased, beat, release),
    Pair("a row is opened and closed", tell("first"), tell("second"), close("")),
    Pair("a row is closed twice", tell("first"), close("one"), close("two")),
    Pair("a row is opened twice", nothing, tell("first"), tell("second")),
    Pair("an alarm is raised and cleared", alarm("first"), alarm("second"), clear),
    Pair("an alarm is raised twice", nothing, alarm("first"), alarm("second")),
    Pair("two change a control", nothing, change("a"), change("b")),
    Pair("two change a control again", change("0"), change("a", seen=1), change("b", seen=1)),
    Pair(
        "two save an identity",
        nothing,
        lambda store: store.links.save_identity(identity(1)),
        lambda store: store.links.save_identity(identity(2)),
    ),
    Pair(
        "two replace an identity",
        lambda store: store.links.save_identity(identity(1)),
        lambda store: store.links.replace_identity(identity(1), identity(2)),
        lambda store: store.links.replace_identity(identity(1), identity(3)),
    ),
    Pair(
        "two name the store", nothing, lambda store: store.links.own_id("one"), lambda store: store.links.own_id("two")
    ),
    Pair("two join rows of the ledger", drops, join, join),
    Pair("rows are joined, the last one is closed", drops, join, close_open),
    Pair("rows are joined, the topic forgotten", drops, join, forget),
]


class Parking:
    """Holds one thread before its statement of this number; `seen` is how many there were."""

    def __init__(self, number: int) -> None:
        self.number, self.seen = number, 0
        self.parked, self.go = threading.Event(), threading.Event()
        self._thread = threading.get_ident()

    def mine(self) -> None:
        self._thread = threading.get_ident()

    def __call__(self, _connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if threading.get_ident() != self._thread or not statement.lstrip().startswith(STATEMENTS):
            return
        self.seen += 1
        if self.seen == self.number:
            self.parked.set()
            assert self.go.wait(ENDS_S)


@contextmanager
def watching(parking: Parking) -> Iterator[None]:
    event.listen(Engine, "before_cursor_execute", parking)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", parking)


class Stage:
    """Two stores on one database, emptied for each try."""

    def __init__(self, url: str) -> None:
        self.first, self.second = open_store(url), open_store(url)
        self._engine = create_engine(url)

    def close(self) -> None:
        self.first.close()
        self.second.close()
        self._engine.dispose()

    def set(self, before: Act) -> None:
        with self._engine.begin() as connection:
            for table in reversed(metadata.sorted_tables):
                connection.execute(table.delete())
        before(self.first)

    def stands(self) -> list[object]:
        found: list[object] = []
        with self._engine.connect() as connection:
            for table in metadata.sorted_tables:
                columns = [column for column in table.c if column.name not in ("id", "position_id")]
                found += sorted(((table.name, *row) for row in connection.execute(select(*columns))), key=repr)
        return found

    def in_order(self, before: Act, *acts: Act) -> tuple[list[object], list[object]]:
        self.set(before)
        return [answer(act, self.first) for act in acts], self.stands()

    def statements(self, before: Act, act: Act) -> int:
        self.set(before)
        parking = Parking(0)
        with watching(parking):
            answer(act, self.first)
        return parking.seen

    def at_once(self, before: Act, parked: Act, other: Act, number: int) -> tuple[list[object], list[object]]:
        """The one held before its statement of this number; the other comes through, or waits for it."""
        self.set(before)
        parking, answers = Parking(number), dict[str, object]()

        def first() -> None:
            parking.mine()
            answers["parked"] = answer(parked, self.first)

        def second() -> None:
            answers["other"] = answer(other, self.second)

        threads = [threading.Thread(target=act, daemon=True) for act in (first, second)]
        with watching(parking):
            threads[0].start()
            assert parking.parked.wait(ENDS_S)
            threads[1].start()
            threads[1].join(WAITS_S)
            parking.go.set()
            for thread in threads:
                thread.join(ENDS_S)
                assert not thread.is_alive(), "the two wait for each other"
        return [answers["parked"], answers["other"]], self.stands()


def answer(act: Act, store: Store) -> object:
    """What it says; its failure too. Numbers of rows are the databases' own."""
    try:
        found = act(store)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return replace(found, id=0) if is_dataclass(found) and hasattr(found, "id") else found  # type: ignore[type-var]


# The first is played at each run of the tests, the others in the long one.
PARAMETERS = [pytest.param(pair, id=pair.name, marks=[pytest.mark.long] if pair != PAIRS[0] else []) for pair in PAIRS]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rows of the ledger are joined already."""
    monkeypatch.setattr(incident_log, "DROPS_PER_JOINED_ROW", 3)
    monkeypatch.setattr(incident_log, "DROPS_KEPT_SINGLE", 1)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("pair", PARAMETERS)
def test_what_two_do_at_once_ends_as_if_one_came_after_the_other(store_url: str, pair: Pair) -> None:
    stage = Stage(store_url)
    try:
        one_first = stage.in_order(pair.before, pair.one, pair.other)
        answers, stands = stage.in_order(pair.before, pair.other, pair.one)
        other_first = (answers[::-1], stands)
        for turned, (parked, other) in enumerate([(pair.one, pair.other), (pair.other, pair.one)]):
            most = stage.statements(pair.before, parked)
            assert most, "nothing can be parked"
            for number in range(1, most + 1):
                answers, stands = stage.at_once(pair.before, parked, other, number)
                found = (answers[::-1] if turned else answers, stands)
                assert found in (one_first, other_first), f"the {'other' if turned else 'one'} parked at {number}"
    finally:
        stage.close()
