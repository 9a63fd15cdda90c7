"""The store as the other rooms see it: one object, any thread, each call one transaction."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence

from sqlalchemy import Connection

from twinshore.fleet import Secret
from twinshore.fleet.extents import Extent
from twinshore.store import audit, controls, extents, key_looks, leases, ledger, links, proofs, receipts
from twinshore.store.delays import DelayStore
from twinshore.store.engine import Database, check_place, place_of
from twinshore.store.schema import bring_up
from twinshore.store.values import (
    AuditRow,
    ControlRow,
    Followed,
    Incident,
    IncidentCount,
    KeyLookRow,
    LeaseRow,
    LedgerRow,
    LinkIdentity,
    LinkStatus,
    PartitionState,
    Position,
    ProofRow,
    Receipt,
    SourceProducer,
    TwinRow,
)


@contextlib.contextmanager
def empty_store(url: str) -> Iterator[Store]:
    """One that knows nothing, for looking where the store of this URL is not there yet: it is gone afterwards, and
    speaks of itself as of that one. StoreError where that one could not be made."""
    check_place(url)
    with tempfile.TemporaryDirectory(prefix="twinshore-empty-") as folder:
        place = f"{place_of(url)}, which is not there yet"
        with _open(Database(f"sqlite:///{folder}/empty.db", Secret(), place)) as store:
            yield store


def open_store(url: str, password: Secret | None = None) -> Store:
    """Opens the store, making or migrating its tables when need be; several processes may do so at once.

    `url` is `sqlite:///file`, `postgresql://...`, `mysql://...` or `mariadb://...`. ConfigError for a wrong one,
    StoreError when the database is not to be had.
    """
    return _open(Database(url, password or Secret()))


def _open(database: Database) -> Store:
    try:
        bring_up(database)
    except BaseException:
        database.close()
        raise
    return Store(database)


class Store:
    """What is remembered. Every method raises StoreError when the database fails, having changed nothing."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.delay = DelayStore(database)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def place(self) -> str:
        """Where it is, without user or password: for sentences."""
        return self._database.place

    def close(self) -> None:
        """Ends its connections."""
        self._database.close()

    def check_writable(self) -> None:
        """StoreError where this user may only read it. Nothing is changed."""
        self._database.write(leases.probe)

    # Leases (rules for holders and watchers: lease_watch)

    def read_lease(self, name: str) -> LeaseRow | None:
        """The lease as it stands; None if nobody ever took it."""
        return self._database.read(lambda connection: leases.read(connection, name))

    def take_lease(self, name: str, owner: str, ttl_ms: int, *, seen: LeaseRow | None) -> LeaseRow | None:
        """The lease, now `owner`'s, or None when it is no longer exactly as `seen`.

        `owner` must be new with each start of a process. Whether it may be taken is LeaseWatch's to say.
        """
        return self._database.write(lambda connection: leases.take(connection, name, owner, ttl_ms, seen))

    def beat_lease(self, row: LeaseRow, ttl_ms: int = 0) -> LeaseRow | None:
        """The lease after one more beat, or None: lost. After a StoreError it may be tried again with the same row.

        `ttl_ms`: for how long others are to wait from now on; 0 leaves it as it is.
        """
        return self._database.write(lambda connection: leases.beat(connection, row, ttl_ms or row.ttl_ms))

    def release_lease(self, row: LeaseRow) -> bool:
        """Gives the lease up so that another may take it at once: so only when no request is on its way any more."""
        return self._database.write(lambda connection: leases.release(connection, row))

    # Links

    def own_id(self, fresh: str) -> str:
        """Which store this is: `fresh` where nobody has asked yet. It goes wherever the store is moved or restored."""
        return self._database.write(lambda connection: links.own_id(connection, fresh))

    def link_identity(self, link: str) -> LinkIdentity | None:
        """Whom the link writes as; None before its first start."""
        return self._database.read(lambda connection: links.read_identity(connection, link))

    def save_link_identity(self, identity: LinkIdentity) -> LinkIdentity:
        """The link's identity from now on: this one, or the one another process saved first."""
        return self._database.write(lambda connection: links.save_identity(connection, identity))

    def replace_link_identity(self, seen: LinkIdentity, new: LinkIdentity) -> bool:
        """Whether the identity was still as `seen` and is `new` now."""
        return self._database.write(lambda connection: links.replace_identity(connection, seen, new))

    def twins(self, link: str) -> tuple[TwinRow, ...]:
        """The link's twin partitions, by topic and partition."""
        return self._database.read(lambda connection: links.read_twins(connection, link))

    def twin_count(self, link: str) -> int:
        """How many twin partitions the link has."""
        return self._database.read(lambda connection: links.count_twins(connection, link))

    def carried(self, link: str) -> tuple[TwinRow, ...]:
        """Those of them that the link still carries: an archived twin is carried no more."""
        archived = {one.topic for one in self.positions(link) if one.state is PartitionState.ARCHIVED}
        return tuple(row for row in self.twins(link) if row.topic not in archived)

    def save_twins(self, rows: Sequence[TwinRow]) -> tuple[TwinRow, ...]:
        """What stands now for each of the rows: itself, or the one that was there first."""
        return self._database.write(lambda connection: links.save_twins(connection, rows))

    def replace_twin(self, seen: TwinRow, new: TwinRow) -> bool:
        """Whether the twin was still as `seen` and is `new` now."""
        return self._database.write(lambda connection: links.replace_twin(connection, seen, new))

    def forget_topic(self, link: str, topic: str, spent: Sequence[Followed] = (), told: Sequence[AuditRow] = ()) -> int:
        """Drops a topic's twins, positions and receipts, so that it may begin again, and what was remembered of it
        that is `spent`; the ledger stays. How many partitions were known."""

        def drop(connection: Connection) -> int:
            partitions = links.forget_twins(connection, link, topic)
            receipts.forget(connection, link, topic)
            extents.forget(connection, link, topic)
            proofs.forget(connection, link, topic)
            key_looks.forget(connection, link, topic)
            audit.forget(connection, spent)
            audit.add(connection, told)
            return partitions

        return self._database.write(drop)

    def save_link_status(self, status: LinkStatus) -> None:
        """What the mirror says of a link; the last word stands."""
        self._database.write(lambda connection: links.save_status(connection, status))

    def link_statuses(self) -> tuple[LinkStatus, ...]:
        """The last word on each link, by name."""
        return self._database.read(links.read_statuses)

    # Receipts

    def record_receipts(self, given: Sequence[Receipt]) -> None:
        """Records all of them, or raises ReceiptsRefusedError and records none.

        A partition's first receipt says where its receipts begin; each later one begins where the last ended. One that
        lies within what is known already is taken for a repetition and changes nothing; of one that reaches beyond it,
        only what is new counts.
        """
        if given:
            self._database.write(lambda connection: receipts.record(connection, given))

    def positions(self, link: str) -> tuple[Position, ...]:
        """How far each partition of the link is receipted."""
        return self._database.read(lambda connection: receipts.read_positions(connection, link))

    def set_partition_state(self, link: str, topic: str, partition: int, state: PartitionState) -> bool:
        """Marks a partition; False where it has no receipt yet."""
        return self._database.write(lambda connection: receipts.set_state(connection, (link, topic, partition), state))

    def receipts(self, link: str, topic: str, partition: int, limit: int = 100) -> tuple[Receipt, ...]:
        """The partition's receipts as rolled up, newest first, without their producers."""
        return self._database.read(
            lambda connection: receipts.read_receipts(connection, (link, topic, partition), limit)
        )

    def source_producers(self, link: str, topic: str, partition: int) -> tuple[SourceProducer, ...]:
        """The source's producers of that partition with their last batches; the one that wrote last comes first."""
        return self._database.read(
            lambda connection: receipts.read_source_producers(connection, (link, topic, partition))
        )

    # Where the records of mapped twins lie

    def adopt(self, rows: Sequence[tuple[TwinRow, Extent]]) -> None:
        """Twins that go on behind data of others: each with the extent, still empty, that says from where on."""

        def begin(connection: Connection) -> None:
            links.save_twins(connection, [row for row, _ in rows])
            extents.begin(connection, rows)

        self._database.write(begin)

    def reached(self, link: str) -> dict[tuple[str, int], Extent]:
        """The furthest extent of each mapped partition of the link, by topic and partition."""
        return self._database.read(lambda connection: extents.last_of_link(connection, link))

    def extents(self, link: str, topic: str, partition: int, *, limit: int = 1000) -> tuple[Extent, ...]:
        """The partition's furthest extents, in order."""
        return self._database.read(lambda connection: extents.read(connection, (link, topic, partition), limit))

    def extents_around(
        self, link: str, topic: str, partition: int, offset: int, *, on_target: bool = False
    ) -> tuple[Extent | None, Extent | None]:
        """The extent that begins at this offset of the source (of the twin) or before it, and the next behind it: two
        look-ups in an index, however many extents there are."""
        find = extents.around_target if on_target else extents.around_source
        return self._database.read(lambda connection: find(connection, (link, topic, partition), offset))

    def trim_extents(
        self, link: str, below: Mapping[tuple[str, int], int], *, told: Collection[tuple[str, int]] = ()
    ) -> int:
        """Drops extents wholly below these offsets of the twins, where nothing lies any more; how many. Of partitions
        in `told` all that landed is told: their next extent is known to lie behind that."""

        return self._database.write(lambda connection: extents.trim(connection, link, below, told))

    # The ledger

    def add_incident(self, incident: Incident, *, now_ms: int) -> LedgerRow:
        """The incident's open row; the one that is there already if its place, kind and first offset are the same."""
        return self._database.write(lambda connection: ledger.add(connection, incident, now_ms))

    def close_incident(self, row_id: int, *, now_ms: int, came_to: str = "") -> bool:
        """Whether the row was open until now; `came_to` is added to its sentence."""
        return self._database.write(lambda connection: ledger.close(connection, row_id, now_ms, came_to))

    def incidents(self, link: str | None = None, *, open_only: bool = False) -> tuple[LedgerRow, ...]:
        """The ledger of one link, or of all, oldest first."""
        return self._database.read(lambda connection: ledger.read(connection, link, open_only=open_only))

    def incident_counts(self) -> tuple[IncidentCount, ...]:
        """The ledger in numbers, by link and kind."""
        return self._database.read(ledger.count)

    # What follows besides records

    def add_audit(self, rows: Sequence[AuditRow]) -> None:
        """Keeps what was changed and how it ended; the oldest rows of a link give way to the newest."""
        self._database.write(lambda connection: audit.add(connection, rows))

    def audit(self, *links: str, limit: int = 100) -> tuple[AuditRow, ...]:
        """The newest changes of these links together, or of all where none is named, newest first."""
        return self._database.read(lambda connection: audit.read(connection, links or None, limit))

    def remember(self, rows: Sequence[Followed], told: Sequence[AuditRow] = ()) -> None:
        """Each row stands from now on as given; `told` in the audit with it."""

        def write(connection: Connection) -> None:
            audit.remember(connection, rows)
            audit.add(connection, told)

        self._database.write(write)

    def forget(self, rows: Sequence[Followed], told: Sequence[AuditRow] = ()) -> None:
        """Drops what is remembered of these rows' subjects; `told` in the audit with it."""

        def write(connection: Connection) -> None:
            audit.forget(connection, rows)
            audit.add(connection, told)

        self._database.write(write)

    def followed(self, link: str, kind: str | None = None) -> tuple[Followed, ...]:
        """What is remembered of what follows, by kind and subject."""
        return self._database.read(lambda connection: audit.read_followed(connection, link, kind))

    # Control

    def control_version(self, link: str) -> int:
        """Grows with each change of the link's control; 0 before the first."""
        return self._database.read(lambda connection: controls.version(connection, link))

    def controls(self, link: str) -> tuple[ControlRow, ...]:
        """What operators have said of the link, by name."""
        return self._database.read(lambda connection: controls.read(connection, link))

    def change_controls(
        self, link: str, rows: Mapping[str, ControlRow | None], *, seen: int, told: Sequence[AuditRow]
    ) -> bool:
        """Whether the version was still `seen` and the rows stand now; None drops a name. The audit is told with it."""
        return self._database.write(lambda connection: controls.change(connection, rows, link, seen, list(told)))

    # Proofs

    def save_proofs(self, rows: Sequence[ProofRow]) -> None:
        """What was proven of these partitions; the last word stands."""
        self._database.write(lambda connection: proofs.save(connection, rows))

    def proofs(self, link: str | None = None) -> tuple[ProofRow, ...]:
        """What was proven of one link's partitions, or of all."""
        return self._database.read(lambda connection: proofs.read(connection, link))

    def save_key_looks(self, rows: Sequence[KeyLookRow]) -> None:
        """When the keys of these partitions were compared; the last word stands."""
        self._database.write(lambda connection: key_looks.save(connection, rows))

    def key_looks(self, link: str | None = None) -> tuple[KeyLookRow, ...]:
        """When the keys of one link's compacted twins were compared, or of all."""
        return self._database.read(lambda connection: key_looks.read(connection, link))
