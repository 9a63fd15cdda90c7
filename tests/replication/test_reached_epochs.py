"""What a mirror says beside a link of two clusters: levels of the settings, and what a home alone acknowledged."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.mirror_rig import settings_text, until
from tests.scenarios.test_mirror_basic import fill
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.settings import parse_settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.cluster import LabCluster
from twinshore.protection.core.model import ProtectionLevel
from twinshore.protection.core.records import (
    GateRecord,
    PromotedTwin,
    TopicProtection,
    gate_line,
    level_line,
    promoted_line,
)
from twinshore.protection.topic import GatesTopic, ProtectionTopic
from twinshore.replication.core.ownership import pair_name
from twinshore.replication.reached_epochs import CALL_TIMEOUT_S, start_reached_epochs
from twinshore.runtime.endpoints import LinkContext
from twinshore.runtime.logging import OutageLog
from twinshore.state.core.values import HomeRow, LinkIdentity, ProgressRecord, TwinRow
from twinshore.state.store import Store, open_store

LINK, TOPIC, BEHIND = "east->west", "reached-orders", "reached-behind"
WITHIN_S = 60.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as found:
        yield found


def test_a_topic_gets_its_level_once_level_and_the_incident_ends_with_the_protection(
    east: LabCluster, west: LabCluster, store: Store, tmp_path: Path
) -> None:
    home, target = KafkaCluster(east.cluster), KafkaCluster(west.cluster)
    for topic, lag in ((TOPIC, 0), (BEHIND, 1_000_000)):
        east.create_topic(topic)
        west.create_topic(topic)
        store.twins.save([TwinRow(LINK, topic, 0, "aa" * 16, "bb" * 16, 0, 0, 1)])
        spot: dict[str, Any] = {"link": LINK, "topic": topic, "partition": 0, "from_offset": 0, "to_offset": 0}
        counts: dict[str, Any] = {
            "records": 0,
            "bytes": 0,
            "batches": 0,
            "source_end": lag,
            "first_ms": 0,
            "last_ms": 1,
        }
        store.progress.record([ProgressRecord(**spot, **counts, lag_records=lag)])
    store.links.save_identity(LinkIdentity(LINK, 1, 0, home.cluster_id(), target.cluster_id()))
    text = settings_text(tmp_path, [east.cluster, west.cluster], {LINK: "reached-.*"})
    settings = parse_settings(f'{text}[protection."reached-.*"]\n', name="settings", env={})
    levels, gates = ProtectionTopic(target), GatesTopic(target)

    def open_incidents() -> int:
        rows = store.incidents.rows(LINK, open_only=True)
        return sum(row.incident.kind is IncidentKind.ACKNOWLEDGED_ALONE for row in rows)

    service = start_reached_epochs(LinkContext(settings.links[0], settings, store, lambda: True, OutageLog()))
    try:
        until(lambda: TOPIC in levels.read().levels, WITHIN_S, "the topic gets its level")
        assert levels.read().levels[TOPIC] == TopicProtection(ProtectionLevel.SYNC, 0)
        assert BEHIND not in levels.read().levels
        gates.say([gate_line(TOPIC, "proxy", GateRecord(0, {}, {0: 0}, ttl_ms=600_000))])
        until(lambda: open_incidents() == 1, WITHIN_S, "what was acknowledged alone is reported")
        levels.say([level_line(TOPIC, TopicProtection(ProtectionLevel.ASYNC, 1))])
        until(lambda: open_incidents() == 0, WITHIN_S, "the last protected topic is lowered")
        assert levels.read().levels[TOPIC].number == 1, "an operator's level stays"
        at_home = ProtectionTopic(home)
        until(lambda: at_home.read().levels[TOPIC].number == 1, WITHIN_S, "the other end gets it")
        at_home.say([level_line(TOPIC, TopicProtection(ProtectionLevel.STRICT, 2))])
        until(lambda: levels.read().levels[TOPIC].number == 2, WITHIN_S, "and this end")
        # The twin lacks what was acknowledged alone, and the topic comes here by a forced switch.
        fill(east, TOPIC, 1)
        promoted = PromotedTwin(2)
        levels.say([promoted_line(home.cluster_id(), TOPIC, promoted)])
        store.homes.settle([HomeRow(pair_name(settings.links[0]), TOPIC, "west", 2, 0, "anna")])
        gates.say([gate_line(TOPIC, "proxy", GateRecord(2, {}, {0: 0}))])
        until(lambda: open_incidents() == 1, WITHIN_S, "it is reported")
        time.sleep(CALL_TIMEOUT_S + 3)
        assert gates.read().alone(), "no twin is there yet"
        levels.say([promoted_line(home.cluster_id(), TOPIC, replace(promoted, is_over=True))])
        until(lambda: not gates.read().alone(), WITHIN_S, "the record of the earlier term goes")
        until(lambda: open_incidents() == 0, WITHIN_S, "and its incident")
    finally:
        service.close()
        gates.say([gate_line(TOPIC, "proxy", None)])
        home.close()
        target.close()
