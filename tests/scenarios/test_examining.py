"""`twinshore mirror examine` on twins that were spoilt while nobody looked: each trace is found, and nothing else."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from tests.scenarios.incident_stage import QUICK, cut_to, down_and_up, log_file
from tests.scenarios.mirror_rig import Rig, read_all, same_ends, settings_text, until
from twinshore.cli.entry import app, gather
from twinshore.fleet import HEARTBEATS, NamedPartition
from twinshore.lab import LabCluster
from twinshore.lab.clients import client_settings, delete_records
from twinshore.lab.stages.log_kinds import COMPACTED, SOURCE_SETTINGS

pytestmark = pytest.mark.claim(
    "topics",
    "traces",
    "one look finds in twins that were spoilt unseen another history, a lost beginning, owed "
    "deletions, a foreign write, and nothing else, and changes nothing",
)

LINK = "east->west"
COUNT, CUT = 20, 12
TOPICS = {"history": {}, "begins": {}, "keys": {**COMPACTED, "segment.ms": "300"}, "written": {}, "well": {}}


def put(side: LabCluster, topic: str, word: str, count: int = COUNT) -> None:
    """Each record a batch of its own, so that a log can be cut between any two."""
    producer = Producer({**client_settings(side.cluster), "linger.ms": 0})
    for number in range(count):
        producer.produce(topic, f"{word} {number}", f"key {number}")
        assert producer.flush(30) == 0


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A mirror that carried all topics and has ended; then each was spoilt in its own way."""
    folder = tmp_path_factory.mktemp("examined")
    source = LabCluster("east", jvm_flags=QUICK, settings=SOURCE_SETTINGS)
    target = LabCluster("west", jvm_flags=QUICK)
    with source, target:
        for topic, settings in TOPICS.items():
            source.create_topic(topic, settings=settings)
            put(source, topic, "first")
        made = Rig(folder, settings_text(folder, [source.cluster, target.cluster], {LINK: "[a-z].*"}))
        made.process.start()
        try:
            for topic in TOPICS:
                until(lambda topic=topic: same_ends(source.cluster, target.cluster, topic, 1), 180, topic, made)  # type: ignore[misc]
        finally:
            made.process.end()
        assert examine(made)[:2] == (0, []), "all is well so far"
        spoil(source, target)
        yield made


def spoil(source: LabCluster, target: LabCluster) -> None:
    # As after an unclean election: the source lost its end, and grew beyond it again.
    down_and_up(source.brokers[0], lambda: cut_to(log_file(source, "history", 0), CUT))
    put(source, "history", "another")
    delete_records(target.cluster, {NamedPartition("begins", 0): 7})
    put(target, "written", "by somebody else", 3)
    put(source, "written", "by its own producer", 5)
    producer = Producer(client_settings(source.cluster))
    producer.produce("keys", None, "key 3")
    assert producer.flush(30) == 0
    deadline = time.monotonic() + 180
    while any(key == b"key 3" for _, key, _, _, _ in read_all(source.cluster, "keys", 0)):
        assert time.monotonic() < deadline, "never cleaned"
        put(source, "keys", "filler", 1)
        time.sleep(0.4)


def examine(rig: Rig, *words: str) -> tuple[int, list[dict[str, Any]], str]:
    """Exit code, findings, and all that was said."""
    gather()
    command = ["mirror", "examine", "--here", "--settings", str(rig.process.settings), *words]
    done = CliRunner().invoke(app, [*command, "--json"], catch_exceptions=False)
    values = json.loads(done.stdout)
    # The link's own heartbeats may have been written when it had already ended.
    assert {one["topic"] for one in values["not_examined"]} <= {HEARTBEATS} and values["partitions"] >= 1
    return done.exit_code, values["findings"], CliRunner().invoke(app, command, catch_exceptions=False).stdout


def test_each_trace_is_found_where_it_is_and_what_to_do_is_said(rig: Rig) -> None:
    code, findings, words = examine(rig)
    assert code == 1
    found = {one["topic"]: (one["trace"], one["from_offset"], one["to_offset"]) for one in findings}
    assert found == {
        "history": ("other history", CUT, -1),
        "begins": ("lost beginning", 0, 7),
        "keys": ("deletions owed", 3, 4),
        "written": ("foreign write", COUNT, -1),
    }
    (history,) = [one for one in findings if one["topic"] == "history"]
    shown = history["difference"]
    assert (shown["source"]["value"], shown["target"]["value"]) == ("another 0", f"first {CUT}")
    assert words.startswith("FOUND traces in 4 partitions")
    assert "offset 3, key key 3" in words and words.count("what to do: ") == 4
    assert rig.ledger(LINK) == (), "it only looks"


def test_one_topic_can_be_examined_alone(rig: Rig) -> None:
    code, findings, words = examine(rig, "--topic", "well")
    assert (code, findings) == (0, []) and words.startswith("nothing found: 1 partitions read whole")
