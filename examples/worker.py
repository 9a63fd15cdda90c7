"""The other half of `exactly_once.py`: does the work of what lies in the table `inbox`, and marks it as done, in one
transaction. Here the work is a number for each word. One worker for each partition at most, as the order counts.

    python worker.py sqlite:///billing.db
"""

from __future__ import annotations

import sys
import time

from exactly_once import INBOX, TABLES, create, opened
from sqlalchemy import Column, Connection, Integer, String, Table, select

AT_ONCE = 200
IDLE_S = 0.2
WORDS = Table("words", TABLES, Column("word", String(64), primary_key=True), Column("times", Integer))


def main(database: str) -> None:
    engine = opened(database)
    create(TABLES, engine)
    while True:
        with engine.begin() as connection:
            done = work(connection)
        if not done:
            time.sleep(IDLE_S)


def work(connection: Connection) -> int:
    """How many records were done."""
    columns = [INBOX.c.topic, INBOX.c.part, INBOX.c.term, INBOX.c.place]
    waiting = select(*columns, INBOX.c.body).where(INBOX.c.done == 0).order_by(*columns).limit(AT_ONCE)
    rows = connection.execute(waiting).all()
    for row in rows:
        mine = (*(column == row._mapping[column.name] for column in columns), INBOX.c.done == 0)
        if connection.execute(INBOX.update().where(*mine).values(done=1)).rowcount != 1:
            raise SystemExit("another worker is at the same partition")
        count(connection, row.body)
    return len(rows)


def count(connection: Connection, body: bytes | None) -> None:
    """The work itself: whatever it changes in this database counts once."""
    word = (body or b"").decode("utf-8", "replace")[:64]
    if connection.execute(WORDS.update().where(WORDS.c.word == word).values(times=WORDS.c.times + 1)).rowcount == 0:
        connection.execute(WORDS.insert(), {"word": word, "times": 1})


if __name__ == "__main__":
    main(*sys.argv[1:])
