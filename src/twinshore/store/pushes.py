"""What applications' clients are told, in SQL: a row for each application, and the digests of tokens."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, replace

from sqlalchemy import Connection, select

from twinshore.store import audit
from twinshore.store.dialects import insert_absent, storable
from twinshore.store.engine import Database
from twinshore.store.push_tables import push_tokens, pushes
from twinshore.store.tables import ACTOR_LENGTH
from twinshore.store.values import AuditRow


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


class PushStore:
    """Pushes and tokens, of all applications."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def revisions(self) -> dict[str, int]:
        """Of each application's push."""

        def ask(connection: Connection) -> dict[str, int]:
            return {row.app: row.revision for row in connection.execute(select(pushes.c.app, pushes.c.revision))}

        return self._database.read(ask)

    def of(self, apps: Collection[str] | None = None) -> dict[str, PushRow]:
        """The pushes of these applications, or of all."""
        query = select(pushes).order_by(pushes.c.app)
        if apps is not None:
            query = query.where(pushes.c.app.in_(list(apps)))

        def ask(connection: Connection) -> dict[str, PushRow]:
            return {row["app"]: PushRow(**row) for row in connection.execute(query).mappings()}

        return self._database.read(ask)

    def save(self, row: PushRow, told: AuditRow) -> bool:
        """Puts the row there, if its revision is the next one; else False, and nothing is done: somebody else has
        pushed meanwhile."""
        kept = replace(row, text=storable(row.text), set_by=storable(row.set_by)[:ACTOR_LENGTH])
        values = asdict(kept)

        def write(connection: Connection) -> bool:
            if row.revision == 1:
                insert_absent(connection, pushes, [values])
                found = connection.execute(select(pushes).where(pushes.c.app == row.app)).mappings().one_or_none()
                taken = found is not None and PushRow(**found) == kept
            else:
                before = (pushes.c.app == row.app, pushes.c.revision == row.revision - 1)
                taken = connection.execute(pushes.update().where(*before).values(**values)).rowcount == 1
            if taken:
                audit.add(connection, [told])
            return taken

        return self._database.write(write)

    def tokens(self) -> tuple[TokenRow, ...]:
        """All of them, the oldest of each application first."""
        query = select(push_tokens).order_by(push_tokens.c.app, push_tokens.c.made_ms, push_tokens.c.digest)

        def ask(connection: Connection) -> tuple[TokenRow, ...]:
            return tuple(TokenRow(**row) for row in connection.execute(query).mappings())

        return self._database.read(ask)

    def add_token(self, row: TokenRow, told: AuditRow) -> None:
        """The token counts from now on."""
        values = asdict(replace(row, made_by=storable(row.made_by)[:ACTOR_LENGTH]))

        def write(connection: Connection) -> None:
            insert_absent(connection, push_tokens, [values])
            audit.add(connection, [told])

        self._database.write(write)

    def revoke(self, digest: str, told: AuditRow) -> bool:
        """The token counts no more; False where it did not."""

        def write(connection: Connection) -> bool:
            taken = connection.execute(push_tokens.delete().where(push_tokens.c.digest == digest)).rowcount == 1
            if taken:
                audit.add(connection, [told])
            return taken

        return self._database.write(write)
