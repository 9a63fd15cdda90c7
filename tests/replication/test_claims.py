"""What strangers write of a topic is believed only where something else bears it out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testkit.log_lines import LogLines
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import Link
from twinshore.replication import stopped_partitions
from twinshore.replication.core import lineage
from twinshore.replication.core.claim_records import LinkClaimState, TwinAnchors
from twinshore.replication.core.filters import admits
from twinshore.replication.core.lineage import (
    NO_LINEAGE,
    Hop,
    Lineage,
    LineageRecords,
    LineageVerdict,
    describe_doubtful_lineage,
    explain_not_replicated,
    is_confirmed,
    judge_lineage,
)
from twinshore.state.core.values import TwinRow
from twinshore.state.store import open_store

EAST, WEST = Hop("id-e", "east"), Hop("id-w", "west")
TOPIC, OTHER, SOURCE = "aa" * 16, "bb" * 16, "cc" * 16
FROM_EAST = Lineage(TOPIC, (EAST,))
ANNOUNCED = Lineage("", (EAST,))


def lines_of(link: str, source_id: str, target_topic_id: str) -> list[tuple[bytes, bytes | None]]:
    """What a mirror writes of a twin that it carries."""
    row = TwinRow(link, "orders", 0, SOURCE, target_topic_id, 0, 0, 1)
    return LinkClaimState(link, source_id).twin_lines([row], ())


def told(*lines: tuple[bytes, bytes | None]) -> LineageRecords:
    found = LineageRecords()
    for key, value in lines:
        found.take(key, value)
    return found


def test_a_link_that_writes_the_topic_bears_out_what_is_said_of_it() -> None:
    said = (b"east.orders", FROM_EAST.to_json("east->west"))
    for source_id, topic_id, borne_out in (("id-e", TOPIC, True), ("id-n", TOPIC, False), ("id-e", OTHER, False)):
        lines = told(said, *lines_of("east->west", source_id, topic_id))
        assert is_confirmed(lines.written(), lines.claim("east.orders", TOPIC)) is borne_out
    made = lines_of("east->west", "id-e", TOPIC)
    gone = told(said, *made, *((key, None) for key, _ in made))
    assert not is_confirmed(gone.written(), gone.claim("east.orders", TOPIC))
    assert not is_confirmed(told(*made).written(), ANNOUNCED), "it names no topic"


@pytest.mark.parametrize(
    ("claim", "own", "before", "borne_out", "waited", "found"),
    [
        (NO_LINEAGE, None, None, False, False, (LineageVerdict.SURE, NO_LINEAGE)),
        (FROM_EAST, None, None, True, False, (LineageVerdict.SURE, FROM_EAST)),
        (FROM_EAST, None, None, False, False, (LineageVerdict.WAITING, NO_LINEAGE)),
        (FROM_EAST, None, None, False, True, (LineageVerdict.DOUBTED, NO_LINEAGE)),
        (ANNOUNCED, None, None, False, False, (LineageVerdict.WAITING, NO_LINEAGE)),
        (ANNOUNCED, None, None, False, True, (LineageVerdict.DOUBTED, NO_LINEAGE)),
        # What this link told the target when it began to carry the topic.
        (FROM_EAST, None, NO_LINEAGE, True, True, (LineageVerdict.DOUBTED, NO_LINEAGE)),
        (FROM_EAST, None, FROM_EAST, False, False, (LineageVerdict.SURE, FROM_EAST)),
        (NO_LINEAGE, None, FROM_EAST, False, False, (LineageVerdict.DOUBTED, FROM_EAST)),
        # What this mirror's store knows.
        (NO_LINEAGE, FROM_EAST, None, False, False, (LineageVerdict.SURE, FROM_EAST)),
        (Lineage(TOPIC, (WEST,)), FROM_EAST, None, True, True, (LineageVerdict.SURE, FROM_EAST)),
        (
            Lineage(TOPIC, (WEST, EAST)),
            FROM_EAST,
            None,
            False,
            False,
            (LineageVerdict.SURE, Lineage(TOPIC, (WEST, EAST))),
        ),
    ],
)
def test_what_is_known_goes_before_what_is_said(
    claim: Lineage,
    own: Lineage | None,
    before: Lineage | None,
    borne_out: bool,
    waited: bool,
    found: tuple[LineageVerdict, Lineage],
) -> None:
    assert judge_lineage(claim, own=own, before=before, borne_out=borne_out, waited=waited) == found


deep = st.integers(1, 3000).map(lambda depth: b"[" * depth + b"]" * depth)
words = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
)
values = st.binary(max_size=80) | deep | words.map(lambda one: json.dumps(one).encode())
paths = values.map(lambda raw: b'{"topic_id":"","path":[[%s,"x"]],"link":"x"}' % raw)
keys = st.sampled_from([b"orders", b'["twin","a","b","c",0]', b'["claim","l","s","x"]', b'["link","l","s"]']) | values


@given(st.lists(st.tuples(keys, values | paths | st.none()), max_size=8))
def test_no_line_of_a_stranger_ends_anything(found: list[tuple[bytes, bytes | None]]) -> None:
    lines, notes = LineageRecords(), LinkClaimState("l", "s")
    for key, value in found:
        lines.take(key, value)
        notes.take(key, value)
    for name in lines.descents:
        assert len(explain_not_replicated(Link("west", "north"), name, lines.claim(name, TOPIC), "id-n")) < 10_000


def test_so_many_lines_and_no_more_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage, "LINEAGE_RECORDS_MAX", 3)
    lines = told(*((f"t{number}".encode(), FROM_EAST.to_json("x")) for number in range(9)))
    assert set(lines.descents) == {"t0", "t1", "t2"}
    lines.take(b"t1", None)
    lines.take(b"t8", FROM_EAST.to_json("x"))
    assert set(lines.descents) == {"t0", "t2", "t8"}


@pytest.mark.parametrize(
    "value",
    [
        Lineage("a\nb", (EAST,)).to_json("x"),
        Lineage("", (Hop("id", "two\nlines"),)).to_json("x"),
        Lineage("", (Hop("id", "x" * 200),)).to_json("x"),
        Lineage("", (EAST,) * 33).to_json("x"),
    ],
    ids=["an id of two lines", "a name of two lines", "a long name", "a long way"],
)
def test_what_would_forge_a_line_of_a_log_is_no_line(value: bytes) -> None:
    assert Lineage.from_json(value) is None


def test_doubts_are_one_sentence_however_many() -> None:
    said = describe_doubtful_lineage("east", [f"t{number}" for number in range(900)])
    assert "t0, t1, t10, t100, t101 and 895 more" in said


def test_a_twin_of_many_partitions_is_written_once() -> None:
    note = TwinAnchors(SOURCE, TOPIC, mapped=False, runs=())
    lines = told(*((json.dumps(["twin", "l", "id-e", "orders", part]).encode(), note.text()) for part in range(3)))
    assert lines.written() == {("id-e", TOPIC)}


@pytest.mark.parametrize(
    ("link", "topic", "passes"),
    [
        (Link("east", "west", topics=("orders",)), "twinshore.heartbeats", True),
        (Link("east", "west", topics=("orders",)), "evil.twinshore.heartbeats", False),
        (Link("east", "west", topics=(".*",), exclude=("evil.*",)), "evil.twinshore.heartbeats", False),
        (Link("east", "west", topics=("orders",), chain=True), "north.twinshore.heartbeats", True),
        (Link("east", "west", topics=("orders",), chain=True), "twinshore.twins", False),
    ],
)
def test_a_name_alone_passes_no_filter(link: Link, topic: str, passes: bool) -> None:
    assert admits(link, topic) is passes


def test_heartbeats_of_others_go_on_where_they_are_twins() -> None:
    link = Link("west", "north", topics=("orders",), chain=True)
    assert "no twin" in explain_not_replicated(link, "evil.twinshore.heartbeats", NO_LINEAGE, "id-n")
    assert explain_not_replicated(link, "east.twinshore.heartbeats", FROM_EAST, "id-n") == ""


def test_doubts_are_one_row_that_says_what_is_so_now(tmp_path: Path, log_lines: LogLines) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        for topics in ((), ("orders",), ("orders",), ("orders", "bills"), ()):
            sentence = describe_doubtful_lineage("east", topics)
            stopped_partitions.report_link_incident(store, "east->west", IncidentKind.DOUBTFUL_NOTE, sentence)
        rows = store.incidents.rows("east->west")
    assert [row.incident.topic for row in rows] == ["", ""]
    assert ["bills" in row.incident.sentence for row in rows] == [False, True]
    assert all(row.closed_ms for row in rows)
    assert len(log_lines) == 2
