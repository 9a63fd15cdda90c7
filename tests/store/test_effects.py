"""What a row of the ledger does is a column: rows of versions that knew sentences alone do what they did."""

from __future__ import annotations

from dataclasses import replace

import pytest
from alembic import command
from sqlalchemy import Connection, column, insert, table, text, update

from tests.store.older import open_upgraded
from twinshore.fleet import Secret, StoreError
from twinshore.fleet.incidents import POLICY_STOP, Effect, IncidentKind, IncidentSide
from twinshore.store import Incident, open_store
from twinshore.store.engine import Database
from twinshore.store.ledger import Wanted
from twinshore.store.migrate import scripts
from twinshore.store.schema import VERSION_TABLE, schema_of
from twinshore.store.tables import incidents, metadata

STOP = "stop the partition, go on with its neighbours"
RETRY = "rest the partition, try again every few seconds, go on with its neighbours"
GAP = "go on behind the gap, whose offsets nobody sees on the twin either"
HEAL = "carry it once more from the source"
WAIT = "wait, and go on where it was left"
UNCUT = "carry it all the same, try to cut its twin every 30 s"
AWAY = "the {} turns the mirror away: SASL authentication failed"
HOLDS = "offsets 5 to 9 of twin orders-3 hold records without a value, which readers see"

# Each policy that a version before wrote; kind, policy, sentence, then what the row did and where.
WRITTEN = (
    *(
        (kind, STOP, "why", "stops", side)
        for kind, side in (
            ("truncation", "source"),
            ("foreign write", "target"),
            ("corrupt batch", "source"),
            ("old format", "source"),
            ("too large unpacked", "source"),
            ("position disagreement", "target"),
            ("retention gap", "source"),
        )
    ),
    ("oversize batch", RETRY, "why", "retries", "target"),
    ("oversize batch", STOP, "of a version that knew no retries", "retries", "target"),
    ("rights lost", RETRY, "the source refuses to be read: no right", "retries", "source"),
    ("rights lost", RETRY, "the twin refuses offsets 5 to 6: no right", "retries", "target"),
    ("rights lost", RETRY, "the target refuses markers for offsets 5 to 6", "retries", "target"),
    ("rights lost", RETRY, "user mirror may not do this", "retries", "none"),
    ("refused", STOP, "the twin refuses offsets 5 to 6: CORRUPT_MESSAGE", "stops", "target"),
    ("refused", STOP, "the source refuses to be read at offset 5", "stops", "source"),
    ("rights lost", "stop the topic", "the target does not show topic orders", "topic", "target"),
    ("partition removed", "stop the topic", "topic orders has 3 partitions", "topic", "target"),
    ("source away", "stop the topic", "east-3 has no leader", "topic", "source"),
    ("recreated topic", "stop the topic", "topic orders was deleted and made again", "topic", "source"),
    ("recreated topic", "stop the topic", "the twin orders has been deleted on the target", "topic", "target"),
    ("recreated topic", "stop the topic", "the mapped twin orders was deleted", "topic", "target"),
    ("recreated topic", "begin again after 3600 s", "topic orders was made again", "twin", "source"),
    ("deleted topic", "keep the twin", "why", "twin", "source"),
    ("deleted topic", "archive the twin", "why", "twin", "source"),
    ("deleted topic", "delete the twin after 86400 s", "why", "twin", "source"),
    ("foreign write", "keep the twin", "of a version that told so of what was not carried", "twin", "target"),
    ("deletion held", "keep the twin", "why", "twin", "target"),
    ("deletion held", "try again every 60 s", "the twin orders cannot be deleted", "twin", "target"),
    ("retention gap", GAP, "why", "passes", "source"),
    ("lost by target", HEAL, "why", "passes", "target"),
    ("source away", WAIT, "why", "passes", "source"),
    ("target away", WAIT, "why", "passes", "target"),
    ("rights lost", RETRY, AWAY.format("source"), "retries", "source"),
    ("rights lost", RETRY, AWAY.format("target"), "retries", "target"),
    ("rights lost", RETRY, f"{AWAY.format('source')}; and {AWAY.format('target')}", "retries", "both"),
    ("rights lost", UNCUT, "the log of twin orders cannot be cut to its source's start", "uncut", "target"),
    ("refused", UNCUT, "the log of twin orders cannot be cut to its source's start", "uncut", "target"),
    ("refused", "carry it all the same, leave what never_delete keeps", HOLDS, "filler", "target"),
    *(
        (kind, policy, "why", "tells", side)
        for kind, policy, side in (
            ("partition added", "give the twin as many, and carry the new ones from their first offset", "source"),
            ("hanging transaction", "wait below it, as every consumer that reads committed data does", "source"),
            ("content differs", "tell it, and change nothing", "both"),
            ("deletions owed", "tell it, and change nothing", "target"),
            ("lost beginning", "go on at the end, and tell what is missing at the beginning", "target"),
            ("doubtful note", "do not believe it, and carry the topics as before", "source"),
            ("group refused", "try again within `verify_s`, go on with all other groups and places", "both"),
            ("clashing filters", "go on with the filters that clash with none; pauses and throttles hold", "none"),
            ("disk near full", "tell below `disk_warn_percent`", "target"),
        )
    ),
)


def as_before(connection: Connection) -> None:
    """The tables of the version before the columns, with a row of each kind that it wrote."""
    metadata.drop_all(connection)
    connection.execute(text(f"DROP TABLE IF EXISTS {VERSION_TABLE}"))
    config = scripts()
    config.attributes["connection"] = connection
    command.upgrade(config, "0011")
    write_as_before(connection)


def write_as_before(connection: Connection, keys: str = "key") -> None:
    """A row of each kind, as a version wrote it that knew no columns for what it does."""
    names = ("open_key", "link", "topic", "partition", "kind", "from_offset", "to_offset", "policy", "sentence")
    ledger = table("incidents", *(column(name) for name in (*names, "opened_ms", "closed_ms")))
    for number, (kind, policy, sentence, *_) in enumerate(WRITTEN):
        row = (f"{keys} {number}", "east->west", "orders", 3, kind, number, number + 1, policy, sentence)
        closed_ms = 7 if number % 5 == 0 else None
        connection.execute(
            insert(ledger).values(**dict(zip(names, row, strict=True)), opened_ms=5, closed_ms=closed_ms)
        )


def test_rows_of_a_store_before_do_what_their_sentences_meant(store_url: str) -> None:
    database = Database(store_url, Secret())
    database.write(as_before)
    assert database.read(schema_of) == "0011"
    database.close()
    with open_upgraded(store_url) as store:
        rows = [row.incident for row in store.ledger.rows()]
    found = [(one.kind, one.policy.words, one.sentence, one.policy.effect, one.side) for one in rows]
    assert found == list(WRITTEN)
    assert {one.policy.effect for one in rows} == set(Effect), "each effect is written by some version"
    assert {one.side for one in rows} == set(IncidentSide)


def test_rows_that_an_old_mirror_writes_behind_the_change_of_the_store_do_what_their_words_mean(store_url: str) -> None:
    """A mirror of the earlier version that the operator has not stopped."""
    database = Database(store_url, Secret())
    database.write(as_before)
    with open_upgraded(store_url) as store:
        database.write(lambda connection: write_as_before(connection, "late"))
        rows = store.ledger.rows()
        found = [(row.incident.kind, row.incident.policy.effect, row.incident.side) for row in rows[len(WRITTEN) :]]
        assert found == [(kind, effect, side) for kind, _, _, effect, side in WRITTEN]
        stops = store.ledger.page(Wanted(effect=Effect.STOPS, side=IncidentSide.TARGET), limit=1000)
        assert len(stops) == 2 * sum(row[3:] == ("stops", "target") for row in WRITTEN)
        again = store.ledger.add(rows[-1].incident, now_ms=9)
        assert again.incident == rows[-1].incident
    database.close()


def test_a_row_whose_effect_nobody_knows_is_named(store_url: str) -> None:
    incident = Incident("east->west", "orders", 3, IncidentKind.CORRUPT_BATCH, 5, 7, POLICY_STOP, "its CRC is wrong")
    with open_store(store_url) as store:
        row = store.ledger.add(replace(incident, side=IncidentSide.SOURCE), now_ms=1)
        assert store.ledger.rows()[0].incident.side is IncidentSide.SOURCE
        database = Database(store_url, Secret())
        database.write(lambda connection: connection.execute(update(incidents).values(effect="explodes")))
        database.close()
        with pytest.raises(StoreError, match=f"table incidents, row {row.id}: 'explodes' is not a valid Effect"):
            store.ledger.rows()
