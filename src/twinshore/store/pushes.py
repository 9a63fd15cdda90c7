"""What applications' clients are told, in SQL: a row for each application, and the digests of tokens."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, replace

from sqlalchemy import Boolean, Column, Connection, Table, select

from twinshore.store import audit
from twinshore.store.dialects import insert_absent, storable
from twinshore.store.engine import StorePart, reads, writes
from twinshore.store.tables import ACTOR_LENGTH, exact_name, long_text, metadata, number
from twinshore.store.values import AuditRow

APP_LENGTH = 64
DIGEST_LENGTH = 64

# `revision` never falls: a row stays, with an empty text, where its push was taken away. `digest` is of `text`.
pushes = Table(
    "pushes",
    metadata,
    Column("app", exact_name(APP_LENGTH), primary_key=True),
    number("revision"),
    Column("digest", exact_name(DIGEST_LENGTH), nullable=False),
    Column("text", long_text(), nullable=False),
    Column("set_by", exact_name(ACTOR_LENGTH), nullable=False),
    number("changed_ms"),
)

# Of a token only its digest is kept: whoever reads the store cannot use it.
push_tokens = Table(
    "push_tokens",
    metadata,
    Column("digest", exact_name(DIGEST_LENGTH), primary_key=True),
    Column("app", exact_name(APP_LENGTH), nullable=False),
    Column("may_push", Boolean(), nullable=False),
    Column("made_by", exact_name(ACTOR_LENGTH), nullable=False),
    number("made_ms"),
)


@dataclass(frozen=True, slots=True)
class PushRow:
    """`revision`: how often the application was pushed to, which never falls; `digest`: of `text`, which is empty where
    the push was taken away."""

    app: str
    revision: int
    digest: str
    text: str
    set_by: str
    changed_ms: int


@dataclass(frozen=True, slots=True)
class TokenRow:
    """Who shows the token of this digest may ask for the application's push, and with `may_push` change it."""

    digest: str
    app: str
    may_push: bool
    made_by: str
    made_ms: int


class PushStore(StorePart):
    """Pushes and tokens, of all applications."""

    @reads
    def revisions(self, connection: Connection) -> dict[str, int]:
        """Of each application's push."""
        return {row.app: row.revision for row in connection.execute(select(pushes.c.app, pushes.c.revision))}

    @reads
    def of(self, connection: Connection, apps: Collection[str] | None = None) -> dict[str, PushRow]:
        """The pushes of these applications, or of all."""
        query = select(pushes).order_by(pushes.c.app)
        if apps is not None:
            query = query.where(pushes.c.app.in_(list(apps)))
        return {row["app"]: PushRow(**row) for row in connection.execute(query).mappings()}

    @writes
    def save(self, connection: Connection, row: PushRow, told: AuditRow) -> bool:
        """Puts the row there, if its revision is the next one; else False, and nothing is done: somebody else has
        pushed meanwhile."""
        kept = replace(row, text=storable(row.text), set_by=storable(row.set_by)[:ACTOR_LENGTH])
        if row.revision == 1:
            insert_absent(connection, pushes, [asdict(kept)])
            found = connection.execute(select(pushes).where(pushes.c.app == row.app)).mappings().one_or_none()
            taken = found is not None and PushRow(**found) == kept
        else:
            before = (pushes.c.app == row.app, pushes.c.revision == row.revision - 1)
            taken = connection.execute(pushes.update().where(*before).values(asdict(kept))).rowcount == 1
        audit.add(connection, [told] if taken else [])
        return taken

    @reads
    def tokens(self, connection: Connection) -> tuple[TokenRow, ...]:
        """All of them, the oldest of each application first."""
        query = select(push_tokens).order_by(push_tokens.c.app, push_tokens.c.made_ms, push_tokens.c.digest)
        return tuple(TokenRow(**row) for row in connection.execute(query).mappings())

    @writes
    def add_token(self, connection: Connection, row: TokenRow, told: AuditRow) -> None:
        """The token counts from now on."""
        values = asdict(replace(row, made_by=storable(row.made_by)[:ACTOR_LENGTH]))
        insert_absent(connection, push_tokens, [values])
        audit.add(connection, [told])

    @writes
    def revoke(self, connection: Connection, digest: str, told: AuditRow) -> bool:
        """The token counts no more; False where it did not."""
        taken = connection.execute(push_tokens.delete().where(push_tokens.c.digest == digest)).rowcount == 1
        audit.add(connection, [told] if taken else [])
        return taken
