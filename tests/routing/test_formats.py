"""Lines and files of before there were versions are read as ever; what is written now is the same with a version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testkit.log_lines import LogLines
from tests.fixtures.formats import samples
from twinshore.client.core.spool_format import read_frame, read_header, read_marks
from twinshore.client.discovery.config_service import RememberedHomes, load_last_push
from twinshore.replication.core.claim_records import LinkClaimState
from twinshore.replication.core.lineage import LineageRecords
from twinshore.replication.core.topology_view import beat_ms
from twinshore.routing.core.home_records import HomeLog, HomeRecord, TwinLog
from twinshore.routing.core.subscribers import SubscriberLog
from twinshore.switch.core.unreplicated import RescueCopies, RescueCopy, read_lines
from twinshore.switch.core.unreplicated import read_header as read_rescue_header

pytestmark = pytest.mark.claim("nouns", "formats", "lines and files of before there were versions are read as ever")

FORMATS = Path(__file__).parents[1] / "fixtures" / "formats"
OLD = FORMATS / "unversioned"
RAW = {one["name"]: one for one in json.loads((OLD / "lines.json").read_text(encoding="utf-8"))}
UNVERSIONED = {name: (one["topic"], one["key"].encode(), one["value"].encode()) for name, one in RAW.items()}
VERSIONED = samples.lines()
BOTH = pytest.mark.parametrize("lines", [UNVERSIONED, VERSIONED], ids=["unversioned", "now"])
# Pieces of a record: its head has the version.
WITHOUT = {"switch, part"}
CASES = json.loads((FORMATS / "home_lines.json").read_text(encoding="utf-8"))

Lined = dict[str, tuple[str, bytes, bytes]]


def home_of(lines: Lined, name: str) -> HomeRecord:
    log = HomeLog()
    log.take(*lines[name][1:])
    (line,) = log.homes.values()
    return line


def test_what_is_written_now_is_what_was_written_before_and_a_version() -> None:
    assert VERSIONED.keys() == UNVERSIONED.keys()
    for name, (topic, key, value) in VERSIONED.items():
        old_topic, old_key, old = UNVERSIONED[name]
        assert (topic, key) == (old_topic, old_key), "keys have one form in every version"
        version = {} if name in WITHOUT else {"v": 1}
        assert json.loads(value) == {**version, **json.loads(old)}, name


@BOTH
def test_home_lines(lines: Lined) -> None:
    names = ("home, moved", "home, first word", "home, held", "home, by force")
    assert [home_of(lines, name) for name in names] == [samples.MOVED, samples.FIRST, samples.HELD, samples.TORN]


@BOTH
def test_claims_and_records_of_switches(lines: Lined) -> None:
    log = HomeLog()
    for name in ("claim of a topic", "switch, part", "switch, head"):
        log.take(*lines[name][1:])
    assert log.holder("orders") == samples.TOPIC_CLAIM
    assert log.records.record(samples.SWITCH) == samples.RECORD


@BOTH
def test_followers(lines: Lined) -> None:
    log = SubscriberLog()
    log.take(*lines["follower"][1:], 0.0)
    assert log.living(4.9) == [samples.FOLLOWER]


@BOTH
def test_notes_of_a_link(lines: Lined) -> None:
    told, twins, descents = LinkClaimState("east->west", samples.EAST), TwinLog(), LineageRecords()
    for name in ("claim of a link", "writer of a link", "twin", "descent"):
        for log in (told, twins, descents):
            log.take(*lines[name][1:])
    assert (told.holder(), told.writer, told.of_topic("orders")) == (samples.CLAIM, samples.WRITER, [samples.TWIN])
    assert twins.twins() == {samples.TARGET_ID}
    assert descents.claim("east.orders", samples.TARGET_ID) == samples.DESCENT
    assert descents.written() == {(samples.EAST, samples.TARGET_ID)}
    assert told.twin_lines(samples.EXACT, ()) == [], "nothing is written again for the version alone"


@BOTH
def test_heartbeats(lines: Lined) -> None:
    assert beat_ms(lines["heartbeat"][2]) == samples.AT_MS


@BOTH
def test_rescued_records(lines: Lined) -> None:
    tail = [line for name, line in lines.items() if name.startswith("rescued")]
    copies = RescueCopies()
    for offset, (_, key, value) in enumerate(tail, 10):
        copies.take(offset, key, value)
    assert copies.whole == {samples.ORIGIN: (RescueCopy(10, samples.RESCUED_KEY), samples.COUNT)}
    head, *rest = (value.decode() for _, _, value in tail)
    assert read_rescue_header(head, "a copy") == samples.ORIGIN
    assert tuple(read_lines(rest, "a copy")) == samples.SAVED


def test_a_file_of_rescued_records() -> None:
    head, *rest = (OLD / samples.ORIGIN.file_name()).read_text(encoding="utf-8").splitlines()
    assert read_rescue_header(head, "a file") == samples.ORIGIN
    assert tuple(read_lines(rest, "a file")) == samples.SAVED


def test_a_spool() -> None:
    text = (OLD / "0000000000000001-00005eed.spool").read_bytes()
    assert text == samples.files()["0000000000000001-00005eed.spool"]
    first = samples.header_bytes(samples.SEGMENT)
    assert read_header(text[: len(first)]) == samples.SEGMENT
    found, at = [], len(first)
    for call in samples.CALLS:
        size = len(samples.frame_bytes(samples.body_bytes(call), len(first), samples.SEGMENT.salt))
        frame = read_frame(text[at : at + size], at, samples.SEGMENT.salt)
        found.append(frame.record if frame else None)
        at += size
    assert tuple(found) == samples.CALLS
    assert (OLD / "done").read_bytes() == samples.MARKS.text()
    assert read_marks((OLD / "done").read_bytes()) == samples.MARKS


def test_files_of_a_client_that_remembers(log_lines: LogLines) -> None:
    assert load_last_push(OLD / "push") == samples.PUSH
    assert (OLD / "push").read_bytes() == samples.files()["push"]
    lines = RememberedHomes(OLD / "homes").lines()
    assert (lines, log_lines) == ({"orders": samples.MOVED, "pay.in": samples.TORN}, [])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_each_line_is_read_as_the_others_read_it(case: dict[str, Any]) -> None:
    """The clients in Java and C++ read the same ones."""
    log = HomeLog()
    log.take(case["key"].encode(), case["value"].encode())
    read = "none"
    for line in log.homes.values():
        said = f"{line.home} {line.cluster_id} {line.term}.{line.step} {line.state} {list(line.points)} {line.hold_ms}"
        read = "unknown" if line.newer else f"{line.topic} on {said}"
    assert read == case["reads"]
