"""Threads that must not end: each tells a trouble of any kind once, and goes on."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testkit.errors import mentions
from testkit.log_lines import LogLines
from twinshore.config.errors import ConfigError
from twinshore.config.repeat_filter import RepeatFilter, describe_error
from twinshore.config.sections import mirror
from twinshore.config.settings import parse_settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.replication import heartbeat as hearts
from twinshore.replication import incident_watch as watching
from twinshore.replication.core.coordinator import TaskReport
from twinshore.replication.heartbeat import HeartbeatTask
from twinshore.replication.incident_watch import AvailabilityWatch
from twinshore.replication.recorder import ProgressRecorder
from twinshore.replication.sync.deletion_guard import SafetyPolicy
from twinshore.replication.sync.syncer import ConfigSync
from twinshore.replication.task.core.messages import PartitionProgress
from twinshore.runtime.lease_keeper import LeaseKeeper
from twinshore.runtime.logging import OutageLog
from twinshore.state.store import Store, open_store

LINK = "east->west"
SETTINGS = """
[clusters.east]
bootstrap = ["127.0.0.1:1"]
[clusters.east.security]
tls = true
ca_file = "/nowhere/ca.pem"
[clusters.west]
bootstrap = ["127.0.0.1:2"]
[links."east->west"]
topics = ["orders"]
[mirror]
away_after_s = 1
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/store.db") as opened:
        yield opened


def failing(monkeypatch: pytest.MonkeyPatch, part: object, name: str, times: int) -> list[int]:
    """This part of the store raises what nobody expects, so many times; what is returned counts down."""
    asked, left = getattr(part, name), [times]

    def first_fails(*args: Any, **more: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise IndexError("bytes that nobody understands")
        return asked(*args, **more)

    monkeypatch.setattr(part, name, first_fails)
    return left


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 15
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_same_trouble_is_told_once_until_all_was_well(log_lines: LogLines) -> None:
    once = RepeatFilter(logging.getLogger("twinshore"))
    for sentence in ("a", "a", "b", "b", "a"):
        once.say(sentence)
    once.well()
    once.say("a")
    assert log_lines == ["a", "b", "a", "a"]
    assert describe_error(ConfigError("no such file", hint="make it")) == "no such file (make it)"
    assert describe_error(IndexError("too far")) == "IndexError: too far"


def test_the_recorder_writes_on(store: Store, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines) -> None:
    failing(monkeypatch, store.progress, "record", 3)
    recorder = ProgressRecorder(store, "first", 0.01)
    recorder.take(TaskReport(LINK, 0, (PartitionProgress("orders", 0, 0, 5, 5, 50, 1, 9, 2, 1, 2),), (), {}))
    until(lambda: bool(store.progress.positions(LINK)))
    recorder.close()
    assert log_lines == ["IndexError: bytes that nobody understands"]


def test_the_lease_is_kept_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    left = failing(monkeypatch, store.leases, "read_each", 3)
    keeper = LeaseKeeper(store, f"link {LINK}", "first", 0.5, 0.1).begin()
    until(lambda: left[0] < 3)
    until(lambda: keeper.sentence() == "IndexError: bytes that nobody understands" or keeper.generation() > 0)
    until(lambda: keeper.generation() > 0)
    beats = failing(monkeypatch, store.leases, "renew_each", 1)
    until(lambda: beats[0] == 0)
    until(lambda: keeper.generation() > 0)
    keeper.close(release=True)


def test_others_wait_while_what_was_sent_may_still_land(store: Store) -> None:
    lands_s = 40.0
    keeper = LeaseKeeper(store, f"link {LINK}", "first", 0.5, 0.1, lambda: lands_s).begin()
    until(lambda: keeper.generation() > 0)
    until(lambda: (row := store.leases.read(keeper.name)) is not None and row.ttl_ms == 40_000)
    second = LeaseKeeper(store, keeper.name, "second", 0.5, 0.1).begin()
    until(lambda: "to take over 40.1 s after its last sign of life" in second.sentence())
    lands_s = 0.0
    until(lambda: "to take over 0.6 s after its last sign of life" in second.sentence())
    for one in (keeper, second):
        one.close(release=True)


def test_the_watch_looks_on_and_names_a_side_that_it_cannot_ask(
    store: Store, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines
) -> None:
    monkeypatch.setattr(watching, "POLL_INTERVAL_S", 0.02)
    failing(monkeypatch, store.twins, "of", 3)
    settings = parse_settings(SETTINGS, name="settings.toml", env={})
    settings = settings.having(mirror.SECTION, replace(settings.mirror, away_after_s=0.05))
    recorder = ProgressRecorder(store, "first", 60)
    watch = AvailabilityWatch(settings.links[0], settings, store, recorder, active=lambda: True, outages=OutageLog())
    until(lambda: len(store.incidents.rows(LINK, open_only=True)) == 2)
    watch.close()
    recorder.close()
    assert log_lines[0] == f"{LINK}: IndexError: bytes that nobody understands"
    rows = {row.incident.kind.value: row.incident.sentence for row in store.incidents.rows(LINK)}
    assert mentions(rows["source away"], "source east", "ca_file /nowhere/ca.pem")
    assert mentions(rows["target away"], "target west")
    assert len(log_lines) == 3


def test_the_heart_tries_on(monkeypatch: pytest.MonkeyPatch, log_lines: LogLines) -> None:
    asked = threading.Semaphore(0)

    def may_beat() -> bool:
        asked.release()
        return True

    monkeypatch.setattr(hearts, "REFUSED_PAUSE_S", 0.02)
    settings = parse_settings(SETTINGS, name="settings.toml", env={})
    heart = HeartbeatTask(settings.links[0], KafkaCluster(settings.cluster("east")), 0.02, may_beat)
    assert all(asked.acquire(timeout=10) for _ in range(3)), "it beats no more"
    heart.close()
    (sentence,) = log_lines
    assert sentence.startswith(
        f"{LINK}: no heartbeat on east, so `twinshore topology` does not see the link: ca_file /nowhere"
    )


def test_a_trouble_that_is_over_is_said_to_be_over_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines
) -> None:
    settings = parse_settings(SETTINGS + '[links."east->west".follow]\nacls = false\n', name="test", env={})
    (link,) = settings.links
    follower = ConfigSync(
        lambda: link, settings, store, SafetyPolicy(settings, LINK), active=lambda: True, outages=OutageLog()
    )
    try:
        failing(monkeypatch, store.twins, "of", 1)
        for _ in range(3):
            follower.look()
    finally:
        follower.close()
    failed = f"{LINK}: topics do not follow now: IndexError: bytes that nobody understands"
    assert log_lines == [failed, f"{LINK}: topics follow again"]
