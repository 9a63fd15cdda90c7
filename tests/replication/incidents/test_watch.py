"""The watch's rows open and close, though the store fails it once at each, or another mirror wrote them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testkit.log_lines import LogLines
from twinshore.config.errors import KafkaError, StoreError
from twinshore.config.incident_policy import POLICY_RETRY, POLICY_WAIT, IncidentKind, IncidentSide
from twinshore.config.sections import mirror
from twinshore.config.settings import parse_settings
from twinshore.kafka.brokers import LogDir
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.error_codes import Code
from twinshore.replication import incident_watch as watching
from twinshore.replication.core import incident_rules
from twinshore.replication.core.model import ActiveLink
from twinshore.replication.incident_watch import AvailabilityWatch
from twinshore.replication.recorder import ProgressRecorder
from twinshore.runtime.logging import OutageLog
from twinshore.state.core.values import Incident
from twinshore.state.store import Store, open_store

pytestmark = pytest.mark.claim(
    "topics",
    "both-refuse",
    "where both clusters turn the mirror away, the ledger names each until its own is mended",
)

LINK = "east->west"
SETTINGS = """
[clusters.east]
bootstrap = ["127.0.0.1:1"]
[clusters.west]
bootstrap = ["127.0.0.1:2"]
[links."east->west"]
topics = ["orders"]
"""


class Place:
    """A watch whose clusters answer what a test says: `trouble` of the source (`some`: with part of it), free per cent
    of the target's disk."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, said: LogLines) -> None:
        self.said = said
        self.trouble, self.some = "", False
        self.free_percent = 50
        self.active = True
        self.store: Store = open_store(f"sqlite:///{folder}/store.db")
        self.recorder = ProgressRecorder(self.store, "first", 60)
        answer = SimpleNamespace(brokers={1: None}, topics={})
        monkeypatch.setattr(watching, "POLL_INTERVAL_S", 0.02)
        monkeypatch.setattr(incident_rules, "BACK_AFTER_S", 0.0)
        monkeypatch.setattr(KafkaCluster, "metadata", lambda *_, **__: answer)
        monkeypatch.setattr(
            watching, "read_log_dirs", lambda *_: [LogDir(1, "/data", 100_000, self.free_percent * 1_000)]
        )
        monkeypatch.setattr(
            AvailabilityWatch, "_leaderless", lambda _, side: (self.trouble * (side.side == "source"), self.some)
        )
        settings = parse_settings(SETTINGS, name="settings.toml", env={})
        settings = settings.having(mirror.SECTION, replace(settings.mirror, away_after_s=0.0, disk_check_s=0.05))
        self.watch = AvailabilityWatch(
            settings.links[0], settings, self.store, self.recorder, active=lambda: self.active, outages=OutageLog()
        )

    def open(self) -> list[str]:
        return [row.incident.kind.value for row in self.store.incidents.rows(LINK, open_only=True)]

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 15
        while not holds():
            assert time.monotonic() < deadline, (self.open(), self.said)
            time.sleep(0.01)

    def close(self) -> None:
        self.watch.close()
        self.recorder.close()
        self.store.close()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines) -> Iterator[Place]:
    made = Place(tmp_path, monkeypatch, log_lines)
    yield made
    made.close()


def fail_once(place: Place, monkeypatch: pytest.MonkeyPatch, name: str) -> list[str]:
    asked, failed = getattr(place.store.incidents, name), list[str]()

    def first_fails(*args: Any, **more: Any) -> Any:
        if not failed:
            failed.append(name)
            raise StoreError("the store does not answer")
        return asked(*args, **more)

    monkeypatch.setattr(place.store.incidents, name, first_fails)
    return failed


def test_a_side_that_is_away_has_its_row_and_loses_it_though_the_store_fails(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = fail_once(place, monkeypatch, "add")
    place.trouble = "nobody leads orders-0"
    place.until(lambda: place.open() == ["source away"])
    assert failed
    failed = fail_once(place, monkeypatch, "close")
    place.trouble = ""
    place.until(lambda: place.open() == [])
    assert failed
    assert len(place.store.incidents.rows(LINK)) == 1


def test_an_outage_is_as_long_by_its_row_as_by_its_sentence_and_the_log(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row began with the incident, ten seconds late, and ended two seconds late; the log began in between."""
    dead, away_after_s = [True], 1.5
    place.watch._sides[0].away.tracker.after_s = away_after_s
    monkeypatch.setattr(watching, "WAITING_AFTER_S", 0.5)
    monkeypatch.setattr(incident_rules, "BACK_AFTER_S", 1.5)

    def ask(_: AvailabilityWatch, side: watching.WatchedCluster) -> tuple[str, bool]:
        if side.side == "source" and dead:
            error = KafkaError("east: no broker answers")
            error.silent, error.cause = "east", "no broker answers"
            raise error
        return "", True

    began_ms = time.time() * 1000
    monkeypatch.setattr(AvailabilityWatch, "_leaderless", ask)
    place.until(lambda: place.open() == ["source away"])
    (row,) = place.store.incidents.rows(LINK)
    assert abs(row.opened_ms - began_ms) < 700
    time.sleep(0.7)
    dead.clear()
    answered_ms = time.time() * 1000
    place.until(lambda: place.open() == [])
    (row,) = place.store.incidents.rows(LINK)
    assert row.closed_ms is not None and abs(row.closed_ms - answered_ms) < 700
    (logged,) = [line for line in place.said if line.startswith("east answers again")]
    for sentence in (row.incident.sentence, logged):
        told = re.search(r"(?:back|again,) after (\d+) s", sentence)
        assert told and abs(int(told[1]) - (row.closed_ms - row.opened_ms) / 1000) < 0.7, sentence


def test_a_link_waits_for_a_side_by_which_nothing_can_cross(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "WAITING_AFTER_S", 0.2)
    place.recorder.say(LINK, ActiveLink(2, 1), 1)

    def state() -> str:
        return place.recorder.words()[LINK]["state"]

    place.trouble = "the source east does not answer"
    place.until(lambda: state() == "waiting")
    assert place.trouble in place.recorder.words()[LINK]["says"]
    place.some = True
    place.until(lambda: state() == "flowing")
    place.some = False
    place.until(lambda: state() == "waiting")
    place.active = False
    place.until(lambda: state() == "flowing")


def test_a_full_disk_has_its_row_and_loses_it_though_the_store_fails(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = fail_once(place, monkeypatch, "add")
    place.free_percent = 8
    place.until(lambda: place.open() == ["disk near full"])
    assert failed
    failed = fail_once(place, monkeypatch, "close")
    place.free_percent = 50
    place.until(lambda: place.open() == [])
    assert failed


def test_what_another_mirror_told_meanwhile_closes_here(place: Place) -> None:
    place.until(lambda: place.watch._adopted)
    place.active = False
    place.until(lambda: not place.watch._adopted)
    for kind in (IncidentKind.TARGET_AWAY, IncidentKind.DISK_NEAR_FULL):
        place.store.incidents.add(
            Incident(LINK, "", -1, kind, -1, -1, POLICY_WAIT, "the target west is away"), now_ms=1
        )
    time.sleep(0.1)
    assert len(place.open()) == 2, "the link is not ours to speak of"
    place.active = True
    place.until(lambda: place.open() == [])


@pytest.mark.parametrize("side", [IncidentSide.SOURCE, IncidentSide.TARGET])
def test_a_row_of_another_mirror_says_by_its_side_who_turned_it_away(place: Place, side: IncidentSide) -> None:
    place.until(lambda: place.watch._adopted)
    place.active = False
    place.until(lambda: not place.watch._adopted)
    kind = IncidentKind.RIGHTS_LOST
    place.store.incidents.add(Incident(LINK, "", -1, kind, -1, -1, POLICY_RETRY, "in words of its own", side), now_ms=1)
    place.active = True
    place.until(lambda: place.open() == [])


def refusing(monkeypatch: pytest.MonkeyPatch, sides: set[str]) -> None:
    """These sides refuse the mirror's password from now on, as far as they stay in the set."""

    def ask(_: AvailabilityWatch, side: watching.WatchedCluster) -> tuple[str, bool]:
        if side.side in sides:
            code = Code.sasl_authentication_failed
            raise KafkaError(f"{side.cluster.name}: the password of user mirror is refused", code=code)
        return "", True

    monkeypatch.setattr(AvailabilityWatch, "_leaderless", ask)


def test_of_two_sides_that_refuse_the_mirror_each_is_told_until_its_own_is_mended(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = {"source", "target"}
    refusing(monkeypatch, sides)

    east, west = (
        (side, f"the {side} refuses the mirror's access: {name}: the password of user mirror is refused")
        for side, name in ((IncidentSide.SOURCE, "east"), (IncidentSide.TARGET, "west"))
    )
    place.until(lambda: told(place) == {east, west})
    failed = fail_once(place, monkeypatch, "close")
    sides.discard("source")
    place.until(lambda: told(place) == {west})
    assert failed
    failed = fail_once(place, monkeypatch, "add")
    sides.add("source")
    place.until(lambda: told(place) == {east, west})
    assert failed
    place.active = False
    place.until(lambda: not place.watch._adopted)
    sides.clear()
    place.active = True
    place.until(lambda: not told(place))
    assert len(place.store.incidents.rows(LINK)) == 3, "each once, and the source's once more"


def told(place: Place) -> set[tuple[IncidentSide, str]]:
    rows = place.store.incidents.rows(LINK, open_only=True)
    return {(row.incident.side, row.incident.sentence) for row in rows}
