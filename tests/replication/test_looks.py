"""Looks at a real source's ends, beside a store in which twins appear."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tests.scenarios.test_mirror_basic import fill
from twinshore.config.incident_policy import POLICY_TOPIC, IncidentKind
from twinshore.config.model import Link, LinkControl, TopicPartition
from twinshore.kafka.clock import wall_ms
from twinshore.lab.cluster import LabCluster
from twinshore.replication.core.lag import BACKLOG_KIND, ArrivalMark, backlog_row, parse_backlog
from twinshore.replication.metrics import TWINS_INTERVAL_S, EndOffsetPoller, Meters
from twinshore.state.core.values import Incident, TwinRow
from twinshore.state.store import open_store

LINK = Link("east", "west")
EVERY_S = 0.2


def test_a_twin_made_between_two_readings_has_its_lag_at_once(
    east: LabCluster, unique_topic: str, tmp_path: Path
) -> None:
    """Nothing was ever carried to it: a link that is paused, or whose target is down, says so all the same."""
    topic = unique_topic[-40:]
    east.create_topic(topic)
    fill(east, topic, 5)
    meters = Meters(EVERY_S)
    with (
        open_store(f"sqlite:///{tmp_path / 'store.db'}") as store,
        closing(EndOffsetPoller(lambda: LINK, east.cluster, store, meters, EVERY_S, lambda: True)),
    ):
        _until(meters, 0)
        store.twins.save([TwinRow(LINK.name, topic, 0, "aa", "bb", 0, 0, 5)])
        made_s = time.monotonic()
        _until(meters, 5)
        assert time.monotonic() - made_s < TWINS_INTERVAL_S / 2


def test_the_end_of_a_topic_that_was_made_again_is_not_its_twins(
    east: LabCluster, unique_topic: str, tmp_path: Path
) -> None:
    """Its lag was 0 once the new topic was shorter than the old one, while nothing of it crossed."""
    again, other = f"{unique_topic[-40:]}.a", f"{unique_topic[-40:]}.o"
    for topic in (again, other):
        east.create_topic(topic)
        fill(east, topic, 5)
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        store.twins.save([TwinRow(LINK.name, topic, 0, "aa", "bb", 0, 0, 5) for topic in (again, other)])
        row = Incident(LINK.name, again, -1, IncidentKind.RECREATED_TOPIC, -1, -1, POLICY_TOPIC, "another one")
        found = store.incidents.add(row, now_ms=1)
        meters = Meters(EVERY_S)
        with closing(EndOffsetPoller(lambda: LINK, east.cluster, store, meters, EVERY_S, lambda: True)):
            _until(meters, 5)
            word = meters.word(LINK.name)
            assert word is not None
            assert (word.topics[other].lag, word.topics[again].unseen) == (5, 1)
            store.incidents.close(found.id, now_ms=2)
            _until(meters, 10)


def test_a_restart_makes_no_recovery_point_young(east: LabCluster, unique_topic: str, tmp_path: Path) -> None:
    """A topic that had been paused for hours was seconds behind after each restart, and its alarm ended."""
    topic = unique_topic[-40:]
    east.create_topic(topic)
    fill(east, topic, 5)
    named = TopicPartition(topic, 0)
    meters = Meters(EVERY_S)
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        store.twins.save([TwinRow(LINK.name, topic, 0, "aa", "bb", 0, 0, 5)])
        hours_ago_ms = wall_ms() - 2 * 3_600_000
        store.link_states.remember([backlog_row(LINK.name, {named: [ArrivalMark(hours_ago_ms, 3)]}, wall_ms())])
        with closing(EndOffsetPoller(lambda: LINK, east.cluster, store, meters, EVERY_S, lambda: True)):
            _until(meters, 5)
            _until_so(lambda: (meters.readings(LINK.name, time.monotonic())[named].recovery_point_s or 0) >= 7_200)
            _until_so(lambda: store.link_states.of(LINK.name, BACKLOG_KIND)[0].since_ms > hours_ago_ms + 7_200_000)
            kept, *_ = parse_backlog(store.link_states.of(LINK.name, BACKLOG_KIND))[named]
            assert kept.end == 3, "what came since is younger"
            assert abs(kept.at_ms - hours_ago_ms) < 2_000


def test_what_the_source_does_not_tell_of_at_first_grows_no_younger_by_a_restart(
    east: LabCluster, unique_topic: str, tmp_path: Path
) -> None:
    """All that the store had of one partition was of before it waited; it was taken for what the source had lost."""
    topic, other = f"{unique_topic[-40:]}.mute", f"{unique_topic[-40:]}.told"
    for name in (topic, other):
        east.create_topic(name)
        fill(east, name, 5)
    named = TopicPartition(topic, 0)
    meters = Meters(EVERY_S)

    def age_s() -> float:
        return meters.readings(LINK.name, time.monotonic())[named].recovery_point_s or 0.0

    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        store.twins.save([TwinRow(LINK.name, name, 0, "aa", "bb", 0, 0, 5) for name in (topic, other)])
        # Nothing is asked about a topic that was made again, as if its leader were mute.
        row = Incident(LINK.name, topic, -1, IncidentKind.RECREATED_TOPIC, -1, -1, POLICY_TOPIC, "another one")
        mute = store.incidents.add(row, now_ms=1)
        hours_ago_ms = wall_ms() - 2 * 3_600_000
        store.link_states.remember([backlog_row(LINK.name, {named: [ArrivalMark(hours_ago_ms, 3)]}, wall_ms())])
        for _ in range(2):
            with closing(EndOffsetPoller(lambda: LINK, east.cluster, store, meters, EVERY_S, lambda: True)):
                _until(meters, 5)
                _until_so(lambda: age_s() >= 7_200)
                assert meters.readings(LINK.name, time.monotonic())[named].unseen == 1
                _until_so(lambda: store.link_states.of(LINK.name, BACKLOG_KIND)[0].since_ms > hours_ago_ms + 7_200_000)
            meters = Meters(EVERY_S)
        store.incidents.close(mute.id, now_ms=2)
        with closing(EndOffsetPoller(lambda: LINK, east.cluster, store, meters, EVERY_S, lambda: True)):
            _until(meters, 10)
            assert age_s() >= 7_200


def test_what_the_filters_leave_out_now_is_not_missing(east: LabCluster, unique_topic: str, tmp_path: Path) -> None:
    """It was carried until then, and its lag and recovery point stood for ever. A pause is no exclusion."""
    out, paused = f"{unique_topic[-40:]}.out", f"{unique_topic[-40:]}.paused"
    for topic, records in ((out, 5), (paused, 3)):
        east.create_topic(topic)
        fill(east, topic, records)
    holds = [replace(LINK, control=LinkControl(paused_topics=(re.escape(paused),)))]
    meters = Meters(EVERY_S)
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        store.twins.save([TwinRow(LINK.name, topic, 0, "aa", "bb", 0, 0, 5) for topic in (out, paused)])
        with closing(EndOffsetPoller(lambda: holds[-1], east.cluster, store, meters, EVERY_S, lambda: True)):
            _until(meters, 8)
            holds.append(replace(holds[0], exclude=(re.escape(out),)))
            changed_s = time.monotonic()
            _until(meters, 3)
            assert time.monotonic() - changed_s < TWINS_INTERVAL_S / 2
            assert [named.topic for named in meters.readings(LINK.name, time.monotonic())] == [paused]
            holds.append(holds[0])
            _until(meters, 8)


def _until_so(holds: Callable[[], bool]) -> None:
    until_s = time.monotonic() + TWINS_INTERVAL_S
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.05)


def _until(meters: Meters, lag: int) -> None:
    until_s = time.monotonic() + 3 * TWINS_INTERVAL_S
    while (now := meters.lag(LINK.name)) != lag:
        assert time.monotonic() < until_s, f"lag is {now}, not {lag}"
        time.sleep(0.05)
