"""However many links one process serves, their threads share a bounded number of connections, and none goes without."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from twinshore.config.model import Secret
from twinshore.state.core.values import AuditRow
from twinshore.state.database import CONNECTIONS_MAX, Database
from twinshore.state.store import Store, open_store

LINKS = 200
READS = 5


def test_two_hundred_links_at_once_do_not_run_it_dry(store_url: str, open_another: Callable[[], Store]) -> None:
    open_store(store_url).close()
    store, together = open_another(), threading.Barrier(LINKS)

    def one(number: int) -> None:
        link = f"link-{number}->west"
        together.wait(timeout=60)
        store.audit.add([AuditRow(number, link, "control", "paused", "", "true", "by anna", "anna")])
        for _ in range(READS):
            assert [row.at_ms for row in store.audit.rows(link)] == [number]

    with ThreadPoolExecutor(LINKS) as pool:
        failed = [
            error for error in (done.exception() for done in [pool.submit(one, n) for n in range(LINKS)]) if error
        ]
    assert failed == []
    assert len(store.audit.rows(limit=2 * LINKS)) == LINKS


def test_a_process_opens_no_more_connections_than_it_says(store_url: str) -> None:
    database, asked, go_on = Database(store_url, Secret()), threading.Semaphore(0), threading.Event()

    def hold(_: object) -> None:
        asked.release()
        assert go_on.wait(60)

    with ThreadPoolExecutor(CONNECTIONS_MAX + 4) as pool:
        held = [pool.submit(database.read, hold) for _ in range(CONNECTIONS_MAX + 4)]
        try:
            for _ in range(CONNECTIONS_MAX):
                assert asked.acquire(timeout=30), "so many are to be had"
            assert not asked.acquire(timeout=0.5), "the next one waits"
        finally:
            go_on.set()
        assert [done.result(timeout=60) for done in held] == [None] * len(held)
    database.close()
