"""A compacted source that cleans its tombstones away before they cross: what the twin owes is found and told."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from testkit.log_kinds import COMPACTED, SOURCE_SETTINGS
from tests.scenarios.incident_stage import QUICK
from tests.scenarios.mirror_rig import Rig, read_all, same_ends, settings_text, until
from twinshore.cli.app import app, register_verbs
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster

pytestmark = pytest.mark.claim(
    "topics",
    "deletions-owed",
    "keys whose tombstones were cleaned away before they crossed are found, told and never called identical",
)

LINK = "east->west"
OWING, KEPT = "owing", "kept"
Put = tuple[bytes, bytes | None]


class Stage:
    """A source that cleans within a second, and a mirror of two compacted topics: one is paused for too long, the other
    never."""

    def __init__(self, folder: Path) -> None:
        self.source = LabCluster("east", jvm_flags=QUICK, settings=SOURCE_SETTINGS)
        self.target = LabCluster("west", jvm_flags=QUICK, settings=SOURCE_SETTINGS)
        self._folder = folder
        self._rig: Rig | None = None

    @property
    def rig(self) -> Rig:
        assert self._rig is not None
        return self._rig

    def up(self) -> None:
        for side in (self.source, self.target):
            side.start()
        for topic in (OWING, KEPT):
            self.source.create_topic(topic, settings={**COMPACTED, "segment.ms": "300"})
            self.put(topic, [(b"gone", b"a"), (b"gone too", b"b"), (b"stays", b"c"), (b"comes back", b"d")])
        clusters = [self.source.cluster, self.target.cluster]
        self._rig = Rig(self._folder, settings_text(self._folder, clusters, {LINK: f"{OWING}|{KEPT}"}))
        self.rig.process.start()
        for topic in (OWING, KEPT):
            self.crossed(topic, within_s=180)

    def close(self) -> None:
        if self._rig:
            self._rig.process.end()
        self.source.stop()
        self.target.stop()

    def put(self, topic: str, records: list[Put]) -> None:
        producer = Producer({**client_settings(self.source.cluster), "linger.ms": 5})
        for key, value in records:
            producer.produce(topic, value, key)
        assert producer.flush(30) == 0

    def crossed(self, topic: str, within_s: float = 30.0) -> None:
        def there() -> bool:
            return same_ends(self.source.cluster, self.target.cluster, topic, 1)

        until(there, within_s, f"{topic} crossed", self.rig)

    def keys(self, side: LabCluster, topic: str) -> set[object]:
        """Keys of which a reader from the beginning finds a record."""
        return {key for _, key, _, _, _ in read_all(side.cluster, topic, 0)}

    def forget(self, topic: str, keys: set[bytes]) -> None:
        """Goes on writing until the source's cleaner has left no record of these keys."""
        number = 0

        def cleaned() -> bool:
            nonlocal number
            number += 1
            # A segment is cleaned when it is no more the last one, and the last one is what was just written.
            self.put(topic, [(b"filler", b"%d" % number)])
            time.sleep(0.4)
            return not keys & self.keys(self.source, topic)

        until(cleaned, 180, f"{topic} is cleaned", self.rig)

    def prove(self, *words: str) -> tuple[int, dict[str, dict[str, object]], str]:
        """Exit code, what was found of each topic, and all that was said."""
        register_verbs()
        command = ["prove", "--here", "--json", "--settings", str(self.rig.process.settings), *words]
        done = CliRunner().invoke(app, command, catch_exceptions=False)
        values = json.loads(done.stdout)
        topics = {one["topic"]: one for one in values["partitions"] if one["topic"] in (OWING, KEPT)}
        return done.exit_code, topics, done.stdout

    def rows(self, topic: str) -> list[tuple[int, int, bool]]:
        """Where deletions are said to be owed, and whether they still are."""
        found = [row for row in self.rig.ledger(LINK) if row.incident.topic == topic]
        assert {row.incident.kind for row in found} <= {"deletions owed"}, found
        return [(row.incident.from_offset, row.incident.to_offset, row.closed_ms is None) for row in found]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    made = Stage(tmp_path_factory.mktemp("owed"))
    try:
        made.up()
        yield made
    finally:
        made.close()


def test_keys_that_were_deleted_while_their_topic_was_paused_are_owed_and_told(stage: Stage) -> None:
    assert stage.prove("--topic", OWING, "--topic", KEPT)[0] == 0
    stage.rig.verb("link", "pause", LINK, "--topic", OWING)
    stage.rig.until_said(f"topic {OWING} is paused")
    deleted = {b"gone", b"gone too", b"comes back"}
    for topic in (OWING, KEPT):
        stage.put(topic, [(key, None) for key in sorted(deleted)])
        stage.forget(topic, deleted)
    stage.rig.verb("link", "resume", LINK, "--topic", OWING)
    for topic in (OWING, KEPT):
        stage.put(topic, [(b"last", b"one")])
        stage.crossed(topic)
    assert deleted <= stage.keys(stage.target, OWING), "or there is nothing to find"

    code, found, said = stage.prove("--topic", OWING, "--topic", KEPT)
    assert (code, found[OWING]["missing_tombstones"], found[KEPT]["missing_tombstones"]) == (1, 3, 0), said
    assert found[OWING]["missing_tombstone_keys"] == [
        {"offset": 0, "key": "gone"},
        {"offset": 1, "key": "gone too"},
        {"offset": 3, "key": "comes back"},
    ]
    assert stage.rows(OWING) == [(0, 4, True)] and stage.rows(KEPT) == []
    code, found, said = stage.prove("--topic", KEPT, "--again")
    assert (code, found[KEPT]["state"]) == (0, "identical"), said


def test_what_is_owed_holds_no_proof_up_and_is_said_each_time(stage: Stage) -> None:
    for words in ((), ("--again",)):
        stage.put(OWING, [(b"more", b"1")])
        stage.crossed(OWING)
        code, found, said = stage.prove("--topic", OWING, *words)
        one = found[OWING]
        assert (code, one["missing_tombstones"], one["behind"], one["difference"]) == (1, 3, 0, None), said
    assert stage.rows(OWING) == [(0, 4, True)]


def test_a_key_that_is_written_again_is_owed_no_more(stage: Stage) -> None:
    stage.put(OWING, [(b"comes back", b"new"), (b"gone", b"new"), (b"gone too", None)])
    stage.crossed(OWING)
    code, found, said = stage.prove("--topic", OWING, "--again")
    assert (code, found[OWING]["missing_tombstones"]) == (0, 0), said
    assert stage.rows(OWING) == [(0, 4, False)]
