"""The store: a part for each subject. Usable from any thread; each call is one transaction."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence

from sqlalchemy import Connection

from twinshore.config.model import Secret
from twinshore.state import log, mirrors
from twinshore.state.core.values import AuditRow, LinkStateRow
from twinshore.state.database import Database, check_store_file, describe_url
from twinshore.state.incident_log import IncidentLog
from twinshore.state.leases import Leases
from twinshore.state.link_store import LinkControls, LinkRows, LinkStore
from twinshore.state.log import Audit, LinkStateStore, LiveSettingStore, Revisions
from twinshore.state.mirrors import KeyCheckStore, OffsetRuns, Proofs, Twins
from twinshore.state.monitoring import DelayStore
from twinshore.state.platform import JobStore, PeopleStore, SnapshotStore
from twinshore.state.progress import ProgressStore
from twinshore.state.proxies import Breakers, ProxyResets, ProxyStore, PushStore, TrafficStore
from twinshore.state.schema_version import create_or_check_tables, has_tables
from twinshore.state.switches import HomeStore, ReplicatedPrefixes, Switches, TopicsInSwitch, WriteBlockStore


@contextlib.contextmanager
def empty_store(url: str) -> Iterator[Store]:
    """Opens an empty temporary store under the name of one not created yet. Raises StoreError if that could not be
    created.
    """
    check_store_file(url)
    with temporary_store(f"{describe_url(url)}, which is not there yet") as store:
        yield store


@contextlib.contextmanager
def temporary_store(place: str) -> Iterator[Store]:
    """Opens an empty store that is deleted afterwards. `place`: its name in sentences."""
    with (
        tempfile.TemporaryDirectory(prefix="twinshore-empty-") as folder,
        _open(Database(f"sqlite:///{folder}/empty.db", Secret(), place)) as store,
    ):
        store.passes = True
        yield store


def open_store(url: str, password: Secret | None = None) -> Store:
    """Opens the store, creating missing tables; several processes may do so at once.

    `url` is `sqlite:///file`, `postgresql://...`, `mysql://...` or `mariadb://...`. Raises ConfigError for a wrong URL,
    and StoreError if the database is unreachable or has another version's tables.
    """
    return _open(Database(url, password or Secret()))


def open_store_if_made(url: str, password: Secret) -> Store | None:
    """Opens the store to read; None without tables."""
    database = Database(url, password)
    with contextlib.ExitStack() as unless_made:
        unless_made.callback(database.close)
        if not has_tables(database):
            return None
        unless_made.pop_all()
    return Store(database)


def _open(database: Database) -> Store:
    with contextlib.ExitStack() as unless_made:
        unless_made.callback(database.close)
        create_or_check_tables(database)
        unless_made.pop_all()
    return Store(database)


class Store:
    """All parts of the store. Every method raises StoreError when the database fails, having changed nothing."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.passes = False  # Whether the store is deleted on closing.
        self.leases = Leases(database)
        self.links = LinkStore(database)
        self.link_rows = LinkRows(database)
        self.revisions = Revisions(database)
        self.settings = LiveSettingStore(database)
        self.twins = Twins(database)
        self.homes = HomeStore(database)
        self.topics_in_switch = TopicsInSwitch(database)
        self.switches = Switches(database)
        self.replicated_prefixes = ReplicatedPrefixes(database)
        self.write_blocks = WriteBlockStore(database)
        self.pushes = PushStore(database)
        self.breakers = Breakers(database)
        self.proxies = ProxyStore(database)
        self.traffic = TrafficStore(database)
        self.proxy_resets = ProxyResets(database)
        self.progress = ProgressStore(database)
        self.offset_runs = OffsetRuns(database)
        self.incidents = IncidentLog(database)
        self.audit = Audit(database)
        self.link_states = LinkStateStore(database)
        self.controls = LinkControls(database)
        self.proofs = Proofs(database)
        self.key_checks = KeyCheckStore(database)
        self.delay = DelayStore(database)
        self.people = PeopleStore(database)
        self.jobs = JobStore(database)
        self.snapshots = SnapshotStore(database)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def place(self) -> str:
        """The database without user and password, for sentences."""
        return self._database.place

    def close(self) -> None:
        self._database.close()

    def forget_topic(
        self, link: str, topic: str, spent: Sequence[LinkStateRow] = (), rows: Sequence[AuditRow] = ()
    ) -> int:
        """Deletes a topic's twin and the states `spent` in one transaction, so that it may start again. Incidents stay.
        Returns the number of partitions.
        """

        def drop(connection: Connection) -> int:
            partitions = mirrors.forget_twins(connection, link, topic)
            log.forget_link_states(connection, spent)
            log.add_audit_rows(connection, rows)
            return partitions

        return self._database.write(drop)
