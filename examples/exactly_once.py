"""The third of three habits: records and the place behind them go into a database in one transaction.

Each record is there once, whoever is killed, and whichever cluster its topic is read from: a place is kept with the
term under which it was read, so that after a forced switch it is taken for no more than it is worth. `worker.py` does
the work of what is in the table `inbox`, in transactions of its own. What Kafka knows of the group is not needed.

    pip install ./client sqlalchemy
    python exactly_once.py clusters.json orders billing sqlite:///billing.db
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Message, TopicPartition
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    create_engine,
    select,
)
from sqlalchemy.exc import DBAPIError

from twinshore.client import FailoverConsumer

Where = tuple[str, int]

TABLES = MetaData()
INBOX = Table(
    "inbox",
    TABLES,
    Column("topic", String(249), primary_key=True),
    Column("part", Integer, primary_key=True, autoincrement=False),
    Column("term", Integer, primary_key=True, autoincrement=False),
    Column("place", BigInteger, primary_key=True, autoincrement=False),
    Column("body", LargeBinary),
    Column("done", Integer, nullable=False, index=True),
)
PLACES = Table(
    "places",
    TABLES,
    Column("topic", String(249), primary_key=True),
    Column("part", Integer, primary_key=True, autoincrement=False),
    Column("term", Integer, nullable=False),
    Column("next", BigInteger, nullable=False),
)


def opened(database: str) -> Engine:
    """SQLite lets one write at a time: reader and worker wait for each other, and not only for its five seconds."""
    waits = {"timeout": 120} if database.startswith("sqlite") else {}
    return create_engine(database, connect_args=waits)


def create(tables: MetaData, engine: Engine) -> None:
    """Reader and worker begin side by side: what the other one has just made is looked for again, and is no error."""
    for _ in range(5):
        try:
            tables.create_all(engine)
        except DBAPIError:
            time.sleep(0.1)
        else:
            return
    tables.create_all(engine)


class Passed(Exception):
    """Somebody else has gone on with this partition, as after a pause in which the group took us for dead."""


class Inbox:
    """One application's; another one has a database of its own."""

    def __init__(self, engine: Engine, reader: FailoverConsumer) -> None:
        self._engine, self._reader = engine, reader
        self._stands: dict[Where, tuple[int, int]] = {}  # what the database says of the partitions that are ours

    def begin(self, _: FailoverConsumer, partitions: list[TopicPartition]) -> None:
        """Partitions are dealt to us: we read on where the database says."""
        for one in partitions:
            one.offset = self.place_of(one.topic, one.partition, one.offset)

    def place_of(self, topic: str, part: int, otherwise: int) -> int:
        wanted = select(PLACES.c.next, PLACES.c.term).where(PLACES.c.topic == topic, PLACES.c.part == part)
        with self._engine.connect() as connection:
            row = connection.execute(wanted).one_or_none()
        if row is None:
            self._stands.pop((topic, part), None)
            return otherwise
        self._stands[topic, part] = row.next, row.term
        place = self._reader.place_now(topic, part, row.next, row.term)
        if place is None:
            raise SystemExit(f"{topic}-{part} has changed homes more than once since {row.next}: set its place by hand")
        return place

    def take(self, messages: Sequence[Message]) -> None:
        """All of them, and how far they reach, in one transaction."""
        read: dict[Where, int] = {}
        rows = []
        for one in messages:
            topic, part, place = one.topic() or "", one.partition() or 0, one.offset() or 0
            term = self._reader.term(topic)
            rows.append({"topic": topic, "part": part, "term": term, "place": place, "body": one.value(), "done": 0})
            read[topic, part] = place + 1
        stands = {where: (place, self._reader.term(where[0])) for where, place in read.items()}
        with self._engine.begin() as connection:
            connection.execute(INBOX.insert(), rows)
            for where, to in stands.items():
                self._move(connection, where, to)
        self._stands |= stands

    def _move(self, connection: Connection, where: Where, to: tuple[int, int]) -> None:
        """Only from where we found it, or left it."""
        topic, part = where
        was = self._stands.get(where)
        if was is None:
            connection.execute(PLACES.insert(), {"topic": topic, "part": part, "next": to[0], "term": to[1]})
            return
        mine = (PLACES.c.topic == topic, PLACES.c.part == part, PLACES.c.next == was[0], PLACES.c.term == was[1])
        if connection.execute(PLACES.update().where(*mine).values(next=to[0], term=to[1])).rowcount != 1:
            raise Passed(f"{topic}-{part} is no more at {was[0]}")


def main(clusters: str, topic: str, group: str, database: str) -> None:
    engine = opened(database)
    create(TABLES, engine)
    config = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    with FailoverConsumer(config, clusters=json.loads(Path(clusters).read_text())) as reader:
        inbox = Inbox(engine, reader)
        reader.subscribe([topic], on_assign=inbox.begin)
        while True:
            if messages := [one for one in reader.consume(500, 1.0) if not one.error()]:
                inbox.take(messages)
                print(f"{len(messages)} records", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
