"""Keeps the snapshots that pages show, so that no page asks a broker. Of all workers one does it, by a lease."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from twinshore.config.errors import ConfigError, RefusedError, StoreError, TwinshoreError
from twinshore.config.repeat_filter import RepeatFilter, describe_error
from twinshore.config.settings import Settings, load_settings
from twinshore.groups.operations import view_as_values
from twinshore.groups.view import view_groups
from twinshore.kafka.clock import steady_s, wall_ms
from twinshore.kafka.pool import ConnectionPool
from twinshore.monitoring.link_status import LinkView, read_link_views
from twinshore.replication.links import load_links
from twinshore.runtime.lease_keeper import exclusive
from twinshore.server.core.snapshots import changed_rows, group_row, link_row, overview_row, topic_rows
from twinshore.state.core.platform_values import SeriesPoint, SnapshotKind, SnapshotRow
from twinshore.state.opening import open_or_create
from twinshore.state.store import Store

log = logging.getLogger(__name__)

LEASE = "snapshots"
ROUND_S = 2.0
# A round that takes long is followed by a longer pause: reading is not to be the store's main work.
PAUSE_RATIO = 4
GROUPS_INTERVAL_S = 15.0
ROWS_PER_ROUND = 1_000
TOUCH_INTERVAL_S = 10.0


def write_snapshots(settings: str, owner: str, worker: int) -> None:
    """The process's whole work, until its worker has ended."""
    loaded = load_settings(Path(settings), os.environ)
    outage = RepeatFilter(log)
    while os.getppid() != 1 and psutil.pid_exists(worker):
        try:
            with open_or_create(loaded) as store, exclusive(LEASE, store, owner) as lease:
                writer = SnapshotWriter(loaded, store)
                while lease.generation() and psutil.pid_exists(worker):
                    time.sleep(writer.turn())
                    outage.well("snapshots are written again")
        except RefusedError:
            continue  # another process has the lease
        except StoreError as error:
            outage.say(error.message)
            time.sleep(ROUND_S)


class SnapshotWriter:
    """Reads the store, and the clusters for groups; writes rows that have changed."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings, self._store = settings, store
        self._known = {kind: {row.subject: row for row in store.snapshots.all(kind)} for kind in SnapshotKind}
        self._pool = ConnectionPool()
        self._minute = 0
        self._groups_due_s = self._touched_s = 0.0
        self._groups = threading.Thread()
        # All rows, and the links that could be read.
        self._group_rows: tuple[list[SnapshotRow], list[str]] | None = None
        self._outage = RepeatFilter(log)

    def turn(self) -> float:
        """Writes one round. Returns how long to wait for the next one."""
        began_s = time.monotonic()
        try:
            settings = self._settings.with_links(load_links(self._settings, self._store).links)
            views = read_link_views(self._store, settings, (), clock=wall_ms, topics=True, pool=self._pool)
        except ConfigError as error:  # a link that was removed just now
            self._outage.say(describe_error(error))
            return ROUND_S
        self._write(views)
        self._note_rates(views)
        self._write_groups(settings)
        return max(ROUND_S, PAUSE_RATIO * (time.monotonic() - began_s))

    def _write(self, views: Sequence[LinkView]) -> None:
        now_ms = wall_ms()
        links = [link_row(view, now_ms) for view in views]
        topics = [
            row
            for view in views
            for row in topic_rows(
                view, self._store.progress.positions(view.link), self._store.proofs.of(view.link), now_ms
            )
        ]
        overview = overview_row(links, topics, views, now_ms)
        # All of them: what is left for a later round is older than that.
        are_written = all([self._save(SnapshotKind.LINK, links), self._save(SnapshotKind.TOPIC, topics)])
        self._store.snapshots.save([overview])
        if are_written and steady_s() - self._touched_s > TOUCH_INTERVAL_S:
            self._touched_s = steady_s()
            for kind in (SnapshotKind.LINK, SnapshotKind.TOPIC):
                self._store.snapshots.touch(kind, [view.link for view in views], now_ms)

    def _save(self, kind: SnapshotKind, rows: Sequence[SnapshotRow]) -> bool:
        """Returns whether every row that has changed is written."""
        known = self._known[kind]
        changed, gone = changed_rows(rows, known)
        # The oldest first: what has no turn now has it in the next round.
        changed.sort(key=lambda row: known[row.subject].at_ms if row.subject in known else 0)
        written = changed[:ROWS_PER_ROUND]
        self._store.snapshots.save(written)
        known |= {row.subject: row for row in written}
        if gone:
            self._store.snapshots.remove(kind, gone)
            for subject in gone:
                del known[subject]
        return len(written) == len(changed)

    def _note_rates(self, views: Sequence[LinkView]) -> None:
        minute = wall_ms() // 60_000
        if minute == self._minute:
            return
        self._minute = minute
        points = [
            SeriesPoint(view.link, minute, view.status.records_per_s)
            for view in views
            if view.status is not None and view.runs
        ]
        self._store.snapshots.note(points)

    def _write_groups(self, settings: Settings) -> None:
        """Groups are read from the clusters, in a thread: one that is silent holds nothing up."""
        if self._groups.is_alive():
            return
        if self._group_rows is not None:
            rows, read = self._group_rows
            if self._save(SnapshotKind.GROUP, rows):
                self._store.snapshots.touch(SnapshotKind.GROUP, read, wall_ms())
            self._group_rows = None
        if steady_s() < self._groups_due_s:
            return
        self._groups_due_s = steady_s() + GROUPS_INTERVAL_S
        self._groups = threading.Thread(target=self._read_groups, args=(settings,), name="groups", daemon=True)
        self._groups.start()

    def _read_groups(self, settings: Settings) -> None:
        rows: list[SnapshotRow] = []
        read: list[str] = []
        for link in settings.links:
            try:
                views = view_groups(link, settings, self._store)
            except TwinshoreError as error:
                self._outage.say(f"{link.name}: groups are not read: {describe_error(error)}")
                kept = self._known[SnapshotKind.GROUP].values()
                rows += [row for row in kept if row.link == link.name]
                continue
            rows += [group_row(view_as_values(view, partitions=True), wall_ms()) for view in views]
            read.append(link.name)
        self._group_rows = rows, read
