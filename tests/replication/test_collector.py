"""What a scrape holds, out of pumps' accounts, looks at the source, and a real store."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from twinshore.config.errors import ConfigError
from twinshore.config.incident_policy import POLICY_GAP, POLICY_STOP, POLICY_TOPIC, IncidentKind
from twinshore.config.model import Link, TopicPartition
from twinshore.config.sections.mirror import MirrorSettings
from twinshore.replication.core.coordinator import TaskReport
from twinshore.replication.metrics import METRICS, Meters, MirrorCollector
from twinshore.replication.recorder import ProgressRecorder
from twinshore.replication.task.core.messages import PartitionProgress
from twinshore.replication.task.core.shared_read import JOINED_KEY, QUEUED_KEY, READ_KEY
from twinshore.replication.task.core.throttle import quota_key
from twinshore.runtime import http
from twinshore.runtime.http import MetricsServer
from twinshore.runtime.scheduler import ThreadFailures
from twinshore.state.core.values import ControlRow, Incident, LinkStatus, SwitchRow
from twinshore.state.store import Store, open_store

LINK = Link("east", "west", (".*",))
NAME = LINK.name
LIMITS = MirrorSettings()
RATES = (
    "link_tasks",
    "link_records_per_second",
    "link_bytes_per_second",
    "link_produce_seconds",
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        yield opened


@pytest.fixture
def meters() -> Meters:
    return Meters()


def carried(topic: str, partition: int, begin: int, end: int, source_end: int) -> PartitionProgress:
    return PartitionProgress(topic, partition, begin, end, end - begin, 10 * (end - begin), 1, source_end, 0, 1, 1)


def told(meters: Meters, *entries: PartitionProgress) -> None:
    meters.take(TaskReport(NAME, 0, entries, (), {}))


def collecting(
    meters: Meters,
    store: Store,
    recorder: ProgressRecorder | None = None,
    *,
    limits: MirrorSettings = LIMITS,
    before: Sequence[LinkStatus] = (),
) -> MirrorCollector:
    if recorder is None:
        recorder = ProgressRecorder(store, "somebody", 60.0)
        recorder.close()
    return MirrorCollector([LINK], meters, store, recorder, limits, 60.0, before=before)


def scrape(meters: Meters, store: Store, limits: MirrorSettings = LIMITS) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(collecting(meters, store, limits=limits))
    lines = generate_latest(registry).decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def test_what_tasks_tell_is_counted_for_partition_topic_and_link(meters: Meters, store: Store) -> None:
    told(meters, carried("orders", 0, 0, 5, 5), carried("orders", 1, 0, 2, 6))
    told(meters, carried("orders", 0, 5, 7, 7))
    found = scrape(meters, store)
    assert found['twinshore_partition_records_total{link="east->west",partition="0",topic="orders"}'] == 7
    assert found['twinshore_partition_bytes_total{link="east->west",partition="0",topic="orders"}'] == 70
    assert found['twinshore_topic_batches_total{link="east->west",topic="orders"}'] == 3
    assert found['twinshore_link_records_total{link="east->west"}'] == 9
    assert found['twinshore_partition_lag_records{link="east->west",partition="1",topic="orders"}'] == 4
    assert found['twinshore_link_lag_records{link="east->west"}'] == 4
    assert found['twinshore_partition_recovery_point_seconds{link="east->west",partition="0",topic="orders"}'] == 0
    assert found['twinshore_link_partitions{link="east->west"}'] == 2


def test_a_recovery_point_grows_though_no_task_speaks_of_it(meters: Meters, store: Store) -> None:
    told(meters, carried("orders", 0, 0, 5, 5))
    now_s = time.monotonic()
    meters.looked(NAME, {TopicPartition("orders", 0): 8}, now_s - 60)
    told(meters, carried("bills", 0, 0, 1, 1))
    found = scrape(meters, store)
    assert found['twinshore_link_recovery_point_seconds{link="east->west"}'] == pytest.approx(60, abs=5)
    assert found['twinshore_topic_recovery_point_seconds{link="east->west",topic="bills"}'] == 0
    assert found['twinshore_link_source_age_seconds{link="east->west"}'] < 5
    told(meters, carried("orders", 0, 5, 8, 8))
    assert scrape(meters, store)['twinshore_link_recovery_point_seconds{link="east->west"}'] == 0


def test_a_restart_does_not_make_a_recovery_point_young(meters: Meters) -> None:
    named, now_s = TopicPartition("orders", 0), time.monotonic()
    meters.restore(NAME, named, 5, 9, now_s - 300)
    meters.looked(NAME, {named: 12}, now_s - 300)
    assert meters.readings(NAME, now_s)[named].recovery_point_s == pytest.approx(300)
    told(meters, carried("orders", 0, 5, 12, 12))
    assert meters.readings(NAME, now_s)[named].recovery_point_s == 0
    assert meters.readings(NAME, now_s)[named].lag == 0


def test_the_quota_that_holds_a_link_back_is_the_one_that_status_tells(meters: Meters, store: Store) -> None:
    recorder = ProgressRecorder(store, "somebody", 60.0, lambda _said: None)
    try:
        recorder.take(TaskReport(NAME, 0, (carried("orders", 0, 0, 5, 5),), (), {quota_key("target"): 250_000.0}))
        recorder.settle(NAME)
        registry = CollectorRegistry()
        registry.register(collecting(meters, store, recorder))
        found = generate_latest(registry).decode()
        assert 'quota_bytes_per_second{link="east->west",side="target"} 250000.0' in found
        assert 'quota_bytes_per_second{link="east->west",side="source"} 0.0' in found
        assert "target's quota: 0.25 MB/s" in recorder.stats[NAME].held_back()
    finally:
        recorder.close()


def test_how_a_link_of_a_broadcast_is_read_is_served_and_of_others_nothing(meters: Meters, store: Store) -> None:
    recorder = ProgressRecorder(store, "somebody", 60.0, lambda _said: None)
    shared = ("queue_bytes", "shared_partitions", "read_bytes_total")

    def served() -> list[float]:
        recorder.settle(NAME)
        registry = CollectorRegistry()
        registry.register(collecting(meters, store, recorder))
        lines = generate_latest(registry).decode().splitlines()
        return [
            float(line.split()[-1]) for one in shared for line in lines if line.startswith(f"twinshore_link_{one}{{")
        ]

    try:
        recorder.take(TaskReport(NAME, 0, (carried("orders", 0, 0, 5, 5),), (), {}))
        assert served() == []
        for task in (0, 1):
            recorder.take(TaskReport(NAME, task, (), (), {JOINED_KEY: 2.0, QUEUED_KEY: 500.0, READ_KEY: 7_000.0}))
        assert served() == [1_000.0, 4.0, 14_000.0]
        recorder.take(TaskReport(NAME, 1, (), (), {JOINED_KEY: 1.0, QUEUED_KEY: 0.0, READ_KEY: 1_000.0}))
        assert served() == [500.0, 3.0, 15_000.0]
    finally:
        recorder.close()


def test_a_word_of_a_clock_that_is_far_ahead_is_not_believed(meters: Meters, store: Store) -> None:
    for ahead_ms, believed in ((2_000, 1.0), (60_000, 0.0)):
        store.links.save_status(LinkStatus(NAME, "x", "flowing", "carries", int(time.time() * 1000) + ahead_ms))
        found = scrape(meters, store)
        assert found['twinshore_link_state{link="east->west",state="flowing"}'] == believed
        assert found['twinshore_link_state{link="east->west",state="unknown"}'] == 1.0 - believed


@pytest.mark.parametrize("state", ["flowing", "stopped"])
def test_a_mirror_that_has_just_begun_shows_no_rates_of_the_one_before(
    meters: Meters, store: Store, state: str
) -> None:
    now_ms = int(time.time() * 1000)
    figures = {"tasks": 4, "records_per_s": 900.0, "bytes_per_s": 9e6, "p50_ms": 7.0, "p99_ms": 9.0}

    def says(owner: str, updated_ms: int, state: str) -> LinkStatus:
        word = LinkStatus(NAME, owner, state, "carries", updated_ms, **figures)  # type: ignore[arg-type]
        store.links.save_status(word)
        return word

    before = [says("x", now_ms - 500, state)]

    def shown() -> tuple[str, bool]:
        registry = CollectorRegistry()
        registry.register(collecting(meters, store, before=before))
        found = generate_latest(registry).decode()
        (said,) = re.findall(r'link_state\{link="east->west",state="(\w+)"\} 1.0', found)
        rates = [f'twinshore_{one}{{link="east->west"' in found for one in RATES]
        assert len(set(rates)) == 1, found
        return said, rates[0]

    assert shown() == ("stopped" if state == "stopped" else "unknown", False)
    for owner, said_ms in (("x", now_ms + 1), ("this one, its clock set back", now_ms - 5_000)):
        says(owner, said_ms, "flowing")
        assert shown() == ("flowing", True)


def test_what_is_mirrored_no_more_is_dropped(meters: Meters) -> None:
    told(meters, carried("orders", 0, 0, 5, 5), carried("bills", 0, 0, 5, 5))
    meters.keep_only(NAME, [TopicPartition("bills", 0)])
    assert list(meters.readings(NAME, 0.0)) == [TopicPartition("bills", 0)]
    meters.forget(NAME)
    assert not meters.readings(NAME, 0.0)


def test_the_ledger_is_counted_by_kind_and_says_what_stands(meters: Meters, store: Store) -> None:
    told(meters, carried("orders", 0, 0, 5, 5), carried("orders", 1, 0, 5, 5), carried("bills", 0, 0, 5, 5))
    for topic, partition, kind, policy in (
        ("orders", 0, IncidentKind.RETENTION_GAP, POLICY_GAP),
        ("orders", 1, IncidentKind.RETENTION_GAP, POLICY_STOP),
        ("bills", -1, IncidentKind.RIGHTS_LOST, POLICY_TOPIC),
    ):
        store.incidents.add(Incident(NAME, topic, partition, kind, 1, 2, policy, "why"), now_ms=1)
    old = store.incidents.add(Incident(NAME, "bills", 0, IncidentKind.RIGHTS_LOST, 3, 4, POLICY_STOP, "why"), now_ms=1)
    store.incidents.close(old.id, now_ms=2)
    found = scrape(meters, store)
    assert found['twinshore_incidents_total{kind="rights lost",link="east->west"}'] == 2
    assert found['twinshore_incidents_open{kind="rights lost",link="east->west"}'] == 1
    assert found['twinshore_partition_stopped{link="east->west",partition="1",topic="orders"}'] == 1
    assert found['twinshore_partition_stopped{link="east->west",partition="0",topic="orders"}'] == 0
    assert found['twinshore_topic_stopped_partitions{link="east->west",topic="bills"}'] == 1


def test_states_pauses_and_throttles_are_told(meters: Meters, store: Store) -> None:
    told(meters, carried("orders", 0, 0, 5, 5))
    now_ms = int(time.time() * 1000)
    store.links.save_status(LinkStatus(NAME, "me", "waiting", "why", now_ms - 4000, 2, 1, 3.0, 4.0, 5, 2.0, None))
    rows = [("paused_topics", ["orders"]), ("throttle_bytes_s", 700)]
    control = {name: ControlRow(NAME, name, json.dumps(value), 1, "me") for name, value in rows}
    assert store.controls.change(NAME, control, seen=0, told=())
    found = scrape(meters, store)
    assert found['twinshore_link_state{link="east->west",state="waiting"}'] == 1
    assert found['twinshore_link_state{link="east->west",state="flowing"}'] == 0
    assert found['twinshore_link_status_age_seconds{link="east->west"}'] == pytest.approx(4, abs=3)
    assert found['twinshore_link_produce_seconds{link="east->west",quantile="0.5"}'] == 0.002
    assert found['twinshore_topic_paused{link="east->west",topic="orders"}'] == 1
    assert found['twinshore_link_throttle_bytes_per_second{link="east->west"}'] == 700


def test_switches_that_have_not_come_to_their_end_are_counted(meters: Meters, store: Store) -> None:
    assert scrape(meters, store)["twinshore_switches_open"] == 0
    going = SwitchRow("a", "planned", "east", "west", "going on", "{}", "anna", 1, 1)
    for row in (going, replace(going, id="b", state="done", ended_ms=2)):
        store.switches.save(row)
    assert scrape(meters, store)["twinshore_switches_open"] == 1


def test_beyond_the_bounds_only_links_count(meters: Meters, store: Store) -> None:
    told(meters, *(carried(f"t{number}", part, 0, 1, 1) for number in range(4) for part in range(3)))
    found = scrape(meters, store, MirrorSettings(metrics_topics_max=2, metrics_partitions_max=5))
    assert sum(name.startswith("twinshore_topic_records_total") for name in found) == 2
    assert sum(name.startswith("twinshore_partition_records_total") for name in found) == 5
    assert found['twinshore_metrics_omitted{level="topic"}'] == 2
    assert found['twinshore_metrics_omitted{level="partition"}'] == 7
    assert found['twinshore_link_records_total{link="east->west"}'] == 12


def test_a_store_that_is_away_takes_its_own_metrics_along_and_no_others(
    meters: Meters, tmp_path: Path, store: Store
) -> None:
    told(meters, carried("orders", 0, 0, 5, 5))
    (tmp_path / "store.db").rename(tmp_path / "away.db")
    (tmp_path / "store.db").mkdir()
    store.close()
    found = scrape(meters, store)
    assert found["twinshore_store_up"] == 0
    assert found['twinshore_link_records_total{link="east->west"}'] == 5
    assert not any(name.startswith("twinshore_link_state") for name in found)


def test_every_metric_of_the_table_is_served_and_no_other(meters: Meters, store: Store) -> None:
    told(meters, carried("orders", 0, 0, 5, 5))
    registry = CollectorRegistry()
    registry.register(collecting(meters, store))
    served = set(re.findall(r"^# TYPE (\S+)", generate_latest(registry).decode(), re.MULTILINE))
    assert served == {one.served for one in METRICS.values()}
    assert len(served) == len(METRICS)


def test_health_speaks_of_links_and_fails_when_the_loop_stands(
    meters: Meters, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What tests before this one had threads of this process raise is not about this server.
    monkeypatch.setattr(http, "thread_failures", ThreadFailures())
    collector = collecting(meters, store)
    served = MetricsServer("127.0.0.1", 0, collector, lambda: {NAME: {"state": "waiting", "says": "why"}})
    try:
        well, body = answer(served.port, "/health")
        assert (well, json.loads(body)["links"][NAME]["state"]) == (200, "waiting"), body
        assert "twinshore_store_up 1.0" in answer(served.port, "/metrics")[1]
        assert answer(served.port, "/else")[0] == 404
        monkeypatch.setattr(http, "HEALTH_TIMEOUT_S", 0.0)
        code, body = answer(served.port, "/health")
        assert (code, json.loads(body)["ok"]) == (503, False)
        served.beat()
        monkeypatch.setattr(http, "HEALTH_TIMEOUT_S", 30.0)
        assert answer(served.port, "/health")[0] == 200
        with pytest.raises(ConfigError, match="cannot be served"):
            MetricsServer("127.0.0.1", served.port, collector, dict)
    finally:
        served.close()


def test_guests_who_ask_nothing_keep_nobody_out(meters: Meters, store: Store) -> None:
    served = MetricsServer("127.0.0.1", 0, collecting(meters, store), dict)
    guests = [socket.create_connection(("127.0.0.1", served.port), timeout=3) for _ in range(200)]
    try:
        assert answer(served.port, "/metrics")[0] == 200
        assert threading.active_count() < 100
    finally:
        for guest in guests:
            guest.close()
        served.close()


def answer(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
