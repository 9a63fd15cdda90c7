"""SQL of the platform: people, sessions, tokens, jobs, and snapshots for its pages."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Column, Connection, Index, and_, case, delete, func, insert, or_, select

from twinshore.state import log, sql
from twinshore.state.core.platform_values import (
    ENDED,
    FOR_WORKERS,
    JobLine,
    JobRow,
    JobState,
    PersonRow,
    SeriesPoint,
    SessionRow,
    SnapshotKind,
    SnapshotRow,
    TokenKind,
    TokenRow,
)
from twinshore.state.core.values import AuditRow
from twinshore.state.database import StorePart, reads, writes
from twinshore.state.tables import ID_LENGTH, exact_name, leases, row_table

people = row_table(
    "people", PersonRow, ("name",), Index("ix_people_identity", "identity", unique=True), identity=ID_LENGTH
)
sessions = row_table("sessions", SessionRow, ("digest",))
tokens = row_table("tokens", TokenRow, ("digest",))
jobs = row_table(
    "jobs",
    JobRow,
    ("id",),
    Index("ix_jobs_key", "key", unique=True),
    Index("ix_jobs_state", "state", "created_ms"),
    Index("ix_jobs_created", "created_ms", "id"),
)
job_lines = row_table("job_lines", JobLine, ("job", "number"), job=ID_LENGTH)
# The key has the subject's digest: a link and a topic together are longer than keys may be.
snapshots = row_table(
    "snapshots",
    SnapshotRow,
    ("kind",),
    Column("subject_digest", exact_name(ID_LENGTH), primary_key=True),
    Index("ix_snapshots_worst", "kind", "rank", "lag"),
    subject=512,
)
series = row_table("series", SeriesPoint, ("link", "minute"))

JOB_RETENTION_MS = 90 * 86_400_000
JOB_LINES_MAX = 10_000
JOB_LEASE = "job "
SERIES_MINUTES = 24 * 60


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


class PeopleStore(StorePart):
    """People who may log in, their sessions and tokens. Secrets are stored as digests."""

    @reads
    def all(self, connection: Connection) -> tuple[PersonRow, ...]:
        return sql.read_rows(connection, PersonRow, select(people).order_by(people.c.name))

    @reads
    def of(self, connection: Connection, name: str) -> PersonRow | None:
        return _person(connection, name)

    @writes
    def save(self, connection: Connection, row: PersonRow, told: Sequence[AuditRow] = ()) -> None:
        """Saves the person. One who is disabled loses sessions and tokens."""
        sql.upsert(connection, people, [sql.values_of(row)])
        if row.disabled_ms:
            _end_logins(connection, row.name)
        log.add_audit_rows(connection, told)

    @reads
    def by_identity(self, connection: Connection, identity: str) -> PersonRow | None:
        return _by_identity(connection, identity)

    @writes
    def add_by_identity(self, connection: Connection, row: PersonRow, told: Sequence[AuditRow]) -> PersonRow | None:
        """Adds the person unless the identity is known. Returns its row; None: another person has the name."""
        before = _by_identity(connection, str(row.identity))
        sql.insert_absent(connection, people, [sql.values_of(row)])
        found = _by_identity(connection, str(row.identity))
        log.add_audit_rows(connection, told if found and not before else ())
        return found

    @writes
    def change(
        self,
        connection: Connection,
        seen: PersonRow,
        values: Mapping[str, object],
        told: Sequence[AuditRow],
        *,
        keeps_admin: bool = True,
        ends_logins: bool = False,
    ) -> bool:
        """Changes these columns. One who is disabled loses sessions and tokens, as with `ends_logins`. Returns False,
        and does nothing, where the person has changed since, or with `keeps_admin` no admin would be left.
        """
        before = {"name": seen.name, "role": seen.role, "disabled_ms": seen.disabled_ms, "password": seen.password}
        stays = values.get("role", seen.role) == "admin" and not values.get("disabled_ms", seen.disabled_ms)
        if keeps_admin and not (stays or _has_admin(connection, but=seen.name)):
            return False
        if not sql.swap_row(connection, people, before, dict(values)):
            return False
        if ends_logins or values.get("disabled_ms"):
            _end_logins(connection, seen.name)
        log.add_audit_rows(connection, told)
        return True

    @writes
    def end_logins(self, connection: Connection, person: str, told: Sequence[AuditRow]) -> None:
        """Ends all sessions and tokens."""
        _end_logins(connection, person)
        log.add_audit_rows(connection, told)

    @writes
    def fails(self, connection: Connection, name: str, now_ms: int) -> None:
        """Counts a wrong password."""
        values = {"failures": people.c.failures + 1, "failed_ms": now_ms}
        connection.execute(people.update().where(people.c.name == name).values(**values))

    @writes
    def log_in(self, connection: Connection, row: SessionRow, now_ms: int) -> None:
        """Opens a session, and removes those that have ended."""
        connection.execute(delete(sessions).where(sessions.c.ends_ms <= now_ms))
        connection.execute(people.update().where(people.c.name == row.person).values(failures=0))
        connection.execute(insert(sessions), [sql.values_of(row)])

    @reads
    def session(self, connection: Connection, digest: str, now_ms: int) -> tuple[SessionRow | None, PersonRow | None]:
        """Returns the live session and its person."""
        query = select(sessions).where(sessions.c.digest == digest, sessions.c.ends_ms > now_ms)
        found = sql.read_row(connection, SessionRow, query)
        return found, _person(connection, found.person) if found else None

    @writes
    def log_out(self, connection: Connection, digest: str) -> None:
        connection.execute(delete(sessions).where(sessions.c.digest == digest))

    @reads
    def token(
        self, connection: Connection, digest: str, kind: TokenKind, now_ms: int
    ) -> tuple[TokenRow | None, PersonRow | None]:
        """Returns the live token of that kind and its person."""
        query = select(tokens).where(tokens.c.digest == digest, tokens.c.kind == kind, tokens.c.ends_ms > now_ms)
        found = sql.read_row(connection, TokenRow, query)
        return found, _person(connection, found.person) if found else None

    @reads
    def tokens_of(self, connection: Connection, person: str, now_ms: int) -> tuple[TokenRow, ...]:
        live = tokens.c.person == person, tokens.c.kind == TokenKind.BEARER, tokens.c.ends_ms > now_ms
        return sql.read_rows(connection, TokenRow, select(tokens).where(*live).order_by(tokens.c.made_ms))

    @writes
    def add_token(self, connection: Connection, row: TokenRow, told: Sequence[AuditRow] = ()) -> None:
        connection.execute(delete(tokens).where(tokens.c.ends_ms <= row.made_ms))
        connection.execute(insert(tokens), [sql.values_of(row)])
        log.add_audit_rows(connection, told)

    @writes
    def end_token(self, connection: Connection, digest: str, told: Sequence[AuditRow] = ()) -> bool:
        """Deletes the token. Returns whether it was there."""
        found = connection.execute(delete(tokens).where(tokens.c.digest == digest)).rowcount
        log.add_audit_rows(connection, told if found else ())
        return bool(found)

    @writes
    def confirm_device(self, connection: Connection, digest: str, row: TokenRow, told: Sequence[AuditRow]) -> bool:
        """Gives the waiting command line its person and rights. Returns whether it still waits."""
        seen = {"digest": digest, "kind": TokenKind.DEVICE, "person": ""}
        found = sql.swap_row(connection, tokens, seen, sql.values_of(row))
        log.add_audit_rows(connection, told if found else ())
        return found

    @writes
    def first_admin(self, connection: Connection, digest: str, row: PersonRow, told: AuditRow) -> bool:
        """Makes an admin by a link's token, which is used up. Returns False if another caller was quicker. A person of
        that name is logged out.
        """
        query = select(tokens).where(
            tokens.c.digest == digest, tokens.c.kind == TokenKind.FIRST_ADMIN, tokens.c.ends_ms > row.made_ms
        )
        used = sql.read_row(connection, TokenRow, query.with_for_update())
        if used is None or not (used.role or not _has_admin(connection)):
            return False
        connection.execute(delete(tokens).where(tokens.c.kind == TokenKind.FIRST_ADMIN))
        _end_logins(connection, row.name)
        sql.upsert(connection, people, [sql.values_of(row)])
        log.add_audit_rows(connection, [told])
        return True

    @reads
    def has_admin(self, connection: Connection) -> bool:
        return _has_admin(connection)


def _person(connection: Connection, name: str) -> PersonRow | None:
    return sql.read_row(connection, PersonRow, select(people).where(people.c.name == name))


def _by_identity(connection: Connection, identity: str) -> PersonRow | None:
    return sql.read_row(connection, PersonRow, select(people).where(people.c.identity == identity))


def _end_logins(connection: Connection, person: str) -> None:
    for table in (sessions, tokens):
        connection.execute(delete(table).where(table.c.person == person))


def _has_admin(connection: Connection, but: str = "") -> bool:
    """Whether an admin can log in, other than `but`."""
    query = select(people.c.name).where(people.c.role == "admin", people.c.disabled_ms == 0, people.c.name != but)
    return connection.execute(query.limit(1)).first() is not None


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Selects jobs by state, requester and operation, where given, and older than the job `before`."""

    states: Collection[JobState] = ()
    requested_by: str = ""
    before: str = ""
    operation: str = ""


class JobStore(StorePart):
    """Jobs and the lines that they print. Each change is a compare-and-swap of the revision."""

    @writes
    def add(self, connection: Connection, row: JobRow) -> JobRow:
        """Adds the job, or returns that of the same key."""
        if row.key is not None:
            known = sql.read_row(connection, JobRow, select(jobs).where(jobs.c.key == row.key))
            if known is not None:
                return known
        connection.execute(insert(jobs), [sql.values_of(row)])
        return row

    @reads
    def of(self, connection: Connection, job: str) -> JobRow | None:
        return sql.read_row(connection, JobRow, select(jobs).where(jobs.c.id == job))

    @writes
    def swap(self, connection: Connection, seen: JobRow, now: JobRow, told: Sequence[AuditRow] = ()) -> JobRow | None:
        """Saves `now` if the job is still as `seen`. Returns it with its new revision; None if it has changed."""
        saved = replace(now, revision=seen.revision + 1)
        if not sql.swap_row(connection, jobs, {"id": seen.id, "revision": seen.revision}, sql.values_of(saved)):
            return None
        log.add_audit_rows(connection, told)
        return saved

    @reads
    def for_workers(self, connection: Connection, limit: int = 20) -> tuple[JobRow, ...]:
        """Returns the jobs that processes have, and the next ones to take: first what was agreed to, then what is to be
        planned, then what reads.
        """
        query = select(jobs).where(jobs.c.state.in_(FOR_WORKERS))
        kind = case((jobs.c.digest != "", 0), (jobs.c.state == JobState.PLANNING, 1), else_=2)
        free = query.where(jobs.c.worker == "").order_by(kind, jobs.c.created_ms).limit(limit)
        held = sql.read_rows(connection, JobRow, query.where(jobs.c.worker != ""))
        return held + sql.read_rows(connection, JobRow, free)

    @reads
    def page(self, connection: Connection, wanted: JobFilter, *, limit: int = 50) -> tuple[JobRow, ...]:
        """Returns the newest matching jobs."""
        query = select(jobs).order_by(jobs.c.created_ms.desc(), jobs.c.id.desc()).limit(limit)
        query = sql.narrowed(query, jobs, wanted, "requested_by", "operation")
        if wanted.states:
            query = query.where(jobs.c.state.in_(wanted.states))
        if wanted.before:
            after = select(jobs.c.created_ms).where(jobs.c.id == wanted.before).scalar_subquery()
            older = or_(jobs.c.created_ms < after, and_(jobs.c.created_ms == after, jobs.c.id < wanted.before))
            query = query.where(older)
        return sql.read_rows(connection, JobRow, query)

    @writes
    def print_lines(self, connection: Connection, lines: Sequence[JobLine]) -> None:
        """Adds lines. Repeating them changes nothing."""
        sql.insert_absent(connection, job_lines, [sql.values_of(line) for line in lines])

    @reads
    def lines(self, connection: Connection, job: str, after: int = -1, *, limit: int = 200) -> tuple[JobLine, ...]:
        query = select(job_lines).where(job_lines.c.job == job, job_lines.c.number > after)
        return sql.read_rows(connection, JobLine, query.order_by(job_lines.c.number).limit(limit))

    @reads
    def tail(self, connection: Connection, job: str, count: int) -> tuple[JobLine, ...]:
        """Returns the last lines."""
        query = select(job_lines).where(job_lines.c.job == job).order_by(job_lines.c.number.desc()).limit(count)
        return sql.read_rows(connection, JobLine, query)[::-1]

    @reads
    def last_line(self, connection: Connection, job: str) -> int:
        """Returns the number of the last line; -1 without one."""
        found = connection.scalar(select(func.max(job_lines.c.number)).where(job_lines.c.job == job))
        return -1 if found is None else int(found)

    @writes
    def remove_old(self, connection: Connection, now_ms: int) -> bool:
        """Returns whether more may be left."""
        old = select(jobs.c.id).where(jobs.c.state.in_(ENDED), jobs.c.updated_ms < now_ms - JOB_RETENTION_MS)
        gone = connection.scalars(old.limit(sql.CHUNK_SIZE)).all()
        connection.execute(delete(job_lines).where(job_lines.c.job.in_(gone)))
        connection.execute(delete(leases).where(leases.c.name.in_([f"{JOB_LEASE}{job}" for job in gone])))
        connection.execute(delete(jobs).where(jobs.c.id.in_(gone)))
        return len(gone) == sql.CHUNK_SIZE


@dataclass(frozen=True, slots=True)
class SnapshotFilter:
    """Selects snapshots of a kind: of one link, in one state, with `search` in their subject. `after`: rank, lag and
    subject's digest of the last one of the page before.
    """

    kind: SnapshotKind
    link: str = ""
    state: str = ""
    search: str = ""
    after: tuple[int, int, str] | None = None


class SnapshotStore(StorePart):
    """What pages show, one row for each thing, the worst first."""

    @writes
    def save(self, connection: Connection, rows: Sequence[SnapshotRow]) -> None:
        for some in sql.chunks(rows):
            sql.upsert(
                connection,
                snapshots,
                [{**sql.values_of(row), "subject_digest": digest_of(row.subject)} for row in some],
            )

    @writes
    def touch(self, connection: Connection, kind: SnapshotKind, links: Iterable[str], at_ms: int) -> None:
        """All of this kind and these links that were not saved now are still as they were."""
        for some in sql.chunks(links):
            which = snapshots.c.kind == kind, snapshots.c.link.in_(some)
            connection.execute(snapshots.update().where(*which).values(at_ms=at_ms))

    @writes
    def remove(self, connection: Connection, kind: SnapshotKind, subjects: Iterable[str]) -> None:
        for some in sql.chunks(map(digest_of, subjects)):
            connection.execute(delete(snapshots).where(snapshots.c.kind == kind, snapshots.c.subject_digest.in_(some)))

    @reads
    def of(self, connection: Connection, kind: SnapshotKind, subject: str) -> SnapshotRow | None:
        query = select(snapshots).where(snapshots.c.kind == kind, snapshots.c.subject_digest == digest_of(subject))
        return sql.read_row(connection, SnapshotRow, query)

    @reads
    def all(self, connection: Connection, kind: SnapshotKind) -> tuple[SnapshotRow, ...]:
        return sql.read_rows(connection, SnapshotRow, select(snapshots).where(snapshots.c.kind == kind))

    @reads
    def page(self, connection: Connection, wanted: SnapshotFilter, *, limit: int = 50) -> tuple[SnapshotRow, ...]:
        """Returns matching snapshots, the worst first."""
        columns = snapshots.c
        query = sql.narrowed(select(snapshots), snapshots, wanted, "kind", "link", "state")
        query = query.order_by(columns.rank.desc(), columns.lag.desc(), columns.subject_digest).limit(limit)
        if wanted.search:
            query = query.where(columns.subject.contains(wanted.search, autoescape=True))
        if wanted.after is not None:
            rank, lag, digest = wanted.after
            later = or_(
                columns.rank < rank,
                and_(columns.rank == rank, columns.lag < lag),
                and_(columns.rank == rank, columns.lag == lag, columns.subject_digest > digest),
            )
            query = query.where(later)
        return sql.read_rows(connection, SnapshotRow, query)

    @writes
    def note(self, connection: Connection, points: Sequence[SeriesPoint]) -> None:
        """Saves points of links' series, and removes those that are a day older."""
        sql.upsert(connection, series, [sql.values_of(point) for point in points])
        if points:
            oldest = max(point.minute for point in points) - SERIES_MINUTES
            connection.execute(delete(series).where(series.c.minute < oldest))

    @reads
    def series(self, connection: Connection, link: str, since_minute: int) -> tuple[SeriesPoint, ...]:
        query = select(series).where(series.c.link == link, series.c.minute >= since_minute)
        return sql.read_rows(connection, SeriesPoint, query.order_by(series.c.minute))
