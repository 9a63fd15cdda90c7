"""Values that the store keeps of the platform: people, sessions, tokens, jobs, and snapshots for its pages."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class JobState(StrEnum):
    """PLANNING, QUEUED: for a worker to take. PLANNED: for a person to confirm. ASKED: for another person to approve.
    UNKNOWN: its process died, and nothing tells what it had done.
    """

    PLANNING = "planning"
    PLANNED = "planned"
    ASKED = "asked"
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


FOR_WORKERS = (JobState.PLANNING, JobState.QUEUED, JobState.RUNNING)
ENDED = (JobState.DONE, JobState.FAILED, JobState.CANCELLED, JobState.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A verb that a worker runs. `arguments`: JSON. `plan`: what would change, as JSON; `digest`: of its decisions.

    `subject`: what the verb has begun and can go on with, such as a switch's id; empty before. `revision` grows with
    each change. `key`: the requester's, so that a request that is
    sent again makes no second job.
    """

    id: str
    operation: str
    arguments: str
    state: JobState
    requested_by: str
    created_ms: int
    updated_ms: int
    revision: int = 0
    plan: str = ""
    digest: str = ""
    subject: str = ""
    reason: str = ""
    approved_by: str = ""
    cancelled_by: str = ""
    worker: str = ""
    exit_code: int | None = None
    sentence: str = ""
    key: str | None = None


@dataclass(frozen=True, slots=True)
class JobLine:
    """A line that a job printed."""

    job: str
    number: int
    at_ms: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonRow:
    """Somebody who may log in. `password`: its hash, empty for people of an identity provider. `failures`: wrong
    passwords since the last right one. `identity`: digest of issuer and subject at an identity provider.
    """

    name: str
    role: str
    password: str
    made_by: str
    made_ms: int
    disabled_ms: int = 0
    failures: int = 0
    failed_ms: int = 0
    identity: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """A login of a browser. `digest`: of its secret. `role`: at most this, whatever the person's is."""

    digest: str
    person: str
    role: str
    csrf: str
    made_ms: int
    ends_ms: int


class TokenKind(StrEnum):
    """BEARER: for programs. FIRST_ADMIN: makes the first admin, once; one with a role works beside another admin.
    DEVICE: a command line's login, until a person confirms its code. PROVIDER: a browser's login at an identity
    provider, until it comes back; `name`: where it leads.
    """

    BEARER = "bearer"
    FIRST_ADMIN = "first admin"
    DEVICE = "device"
    PROVIDER = "provider"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """A secret, by its digest. `role`: at most this, and never more than the person's when it is used."""

    digest: str
    kind: TokenKind
    name: str
    person: str
    role: str
    made_ms: int
    ends_ms: int


class SnapshotKind(StrEnum):
    OVERVIEW = "overview"
    LINK = "link"
    TOPIC = "topic"
    GROUP = "group"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRow:
    """What a page shows of one thing. `value`: JSON. `rank`: how bad it is, the worst highest. `lag`: in records, -1:
    unknown. `at_ms`: when it was last looked at and found so.
    """

    kind: SnapshotKind
    subject: str
    link: str
    state: str
    rank: int
    lag: int
    value: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class SeriesPoint:
    """The rate of a link within one minute."""

    link: str
    minute: int
    records_per_s: float
