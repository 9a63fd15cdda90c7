"""What a page costs the store and the network: the same with 200 and with 20,000 topics. No broker is asked."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from testkit.console import Browser, first_admin, web_process
from testkit.databases import DatabaseServer
from twinshore.monitoring.link_status import TopicView
from twinshore.server.core.snapshots import changed_rows, overview_row
from twinshore.state import sql
from twinshore.state.core.platform_values import SeriesPoint, SnapshotKind, SnapshotRow
from twinshore.state.store import Store, open_store

STATEMENTS_MAX, ROWS_MAX, BYTES_MAX = 8, 200, 150_000
LINKS, GROUPS = 200, 5_000
PAGES = (
    "/",
    "/links",
    "/links/c0-%3Ec1",
    "/topics",
    "/topics?search=topic-00",
    "/topics?link=c0-%3Ec1",
    "/topics/c0-%3Ec1/topic-00000",
    "/groups",
    "/groups/c0-%3Ec1/group-00000",
    "/switch",
    "/rescue",
    "/advisor",
    "/settings",
    "/proxies",
    "/incidents",
    "/alarms",
    "/jobs",
    "/do",
    "/do/switch-run",
    "/audit",
    "/people",
    "/account",
)


def link_name(number: int) -> str:
    return f"c{number % 20}->c{number // 20 + 1}"


def snapshot(kind: SnapshotKind, subject: str, link: str, rank: int, values: dict[str, Any]) -> SnapshotRow:
    return SnapshotRow(
        kind=kind,
        subject=subject,
        link=link,
        state="flowing",
        rank=rank,
        lag=rank * 7,
        value=json.dumps(values),
        at_ms=1_700_000_000_000,
    )


def fill(store: Store, topics: int) -> None:
    """Snapshots of this size, each as long as those of real ones."""
    link_values = {"says": "flowing: 100 partitions on 2 tasks", "recovery_point_s": 0.0, "p99_ms": 3.2}
    links = [snapshot(SnapshotKind.LINK, link_name(n), link_name(n), n % 3, link_values) for n in range(LINKS)]
    partition = {"start": 0, "twin_end": 90, "source_end": 100, "state": "flowing", "last_ms": 1, "proof": "identical"}
    parts = [{**partition, "partition": n, "proven_to": 80, "proven_ms": 1_700_000_000_000} for n in range(12)]
    found = []
    for number in range(topics):
        view = asdict(TopicView(f"topic-{number:05}", 12, 0, 90, 100, 10, 10, 100, 1000))
        more = {"partitions_shown": parts, "proven_ms": 1, "proven_partitions": 12, "incidents": []}
        link = link_name(number % LINKS)
        found.append(snapshot(SnapshotKind.TOPIC, f"{link}/topic-{number:05}", link, number % 3, {**view, **more}))
    offset = {"topic": "topic-00000", "partition": 0, "source": 5, "expected": 5, "target": 5, "behind": 0}
    groups = []
    for number in range(GROUPS):
        link = link_name(number % LINKS)
        sides = {"kind": "classic", "source_state": "Stable", "target_state": "Empty", "state": "follows", "why": ""}
        values = {"link": link, "group": f"group-{number:05}", "behind": 0, "offsets": [offset] * 12, **sides}
        groups.append(snapshot(SnapshotKind.GROUP, f"{link}/group-{number:05}", link, 0, values))
    for rows in (links, found, groups):
        store.snapshots.save(rows)
    store.snapshots.save([overview_row(links, found, [], 1_700_000_000_000)])
    store.snapshots.note([SeriesPoint(link_name(0), minute, 100.0) for minute in range(60)])


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    found = Counter[str]()
    real = sql.row_of

    def counted(*given: Any) -> Any:
        found["rows"] += 1
        return real(*given)

    monkeypatch.setattr(sql, "row_of", counted)
    return found


@pytest.fixture(params=["sqlite", *(pytest.param(one, marks=pytest.mark.long) for one in ("postgres", "mariadb"))])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[int, Store]]:
    def url(topics: int) -> str:
        if request.param == "sqlite":
            return f"sqlite:///{tmp_path / f'{topics}.db'}"
        server: DatabaseServer = request.getfixturevalue(request.param)
        return server.new_database()

    made = {topics: open_store(url(topics)) for topics in (200, 20_000)}
    for topics, store in made.items():
        fill(store, topics)
    yield made
    for store in made.values():
        store.close()


def cost(browser: Browser, path: str, counts: Counter[str]) -> tuple[int, int, int, float]:
    """Statements, rows, bytes and milliseconds."""
    counts.clear()
    began_s = time.monotonic()
    answer = browser.get(path)
    took_ms = 1000 * (time.monotonic() - began_s)
    assert answer.status == 200, (path, answer.text[:300])
    return counts["statements"], counts["rows"], len(answer.body), took_ms


@pytest.mark.claim(
    "platform",
    "cost",
    f"200 links, 20,000 topics, 5,000 groups: a page takes at most {STATEMENTS_MAX} statements, {ROWS_MAX} rows and"
    " 150 kB, the same as with 200 topics; no broker is asked, since the web process knows none",
)
def test_a_page_costs_the_same_at_any_size(stores: dict[int, Store], counts: Counter[str]) -> None:
    found: dict[int, dict[str, tuple[int, int, int, float]]] = {}
    for topics, store in stores.items():
        engine = store._database._engine

        @event.listens_for(engine, "after_cursor_execute")
        def executed(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            counts["statements"] += not re.match(r"(?i)begin|pragma", statement)

        with web_process(store) as base:
            browser = first_admin(store, base)
            found[topics] = {path: cost(browser, path, counts) for path in PAGES}
    for path in PAGES:
        statements, rows, size, _ = found[20_000][path]
        assert statements <= STATEMENTS_MAX, (path, statements)
        assert rows <= ROWS_MAX, (path, rows)
        assert size <= BYTES_MAX, (path, size)
        assert statements == found[200][path][0], path
    most = [max(one[at] for one in found[20_000].values()) for at in range(3)]
    slowest = sorted(one[3] for one in found[20_000].values())
    median_ms = slowest[len(slowest) // 2]
    kind = stores[200]._database._engine.dialect.name
    print(f"told: {kind}: at most {most[0]} statements, {most[1]} rows, {most[2]:,} bytes; median {median_ms:.0f} ms")


def test_rows_that_differ_in_their_age_alone_are_not_written() -> None:
    row = snapshot(SnapshotKind.LINK, "a->b", "a->b", 0, {"x": 1})
    older = SnapshotRow(**{**asdict(row), "at_ms": 5})
    assert changed_rows([row], {"a->b": older}) == ([], set())
    other = snapshot(SnapshotKind.LINK, "a->b", "a->b", 1, {"x": 1})
    assert changed_rows([other], {"a->b": row, "c->d": row}) == ([other], {"c->d"})
