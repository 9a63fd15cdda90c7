"""Writers behind proxies of a protected topic: what they are told is written is on both sides."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.plain_clients import PlainWriter, records_there
from tests.scenarios.switch_rig import SwitchRig, carried
from tests.scenarios.test_following_writers import until
from tests.scenarios.test_proxy_switch import proxies
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.cluster import LabCluster
from twinshore.protection.core.model import ProtectionLevel
from twinshore.protection.core.records import TopicProtection, level_line
from twinshore.protection.topic import ProtectionTopic

AWAY_S = 8.0


def protect(rig: SwitchRig, level: ProtectionLevel, number: int = 1) -> None:
    for lab in (rig.east, rig.west):
        kafka = KafkaCluster(lab.cluster)
        topic = ProtectionTopic(kafka)
        topic.make()
        topic.say([level_line(rig.topic, TopicProtection(level, number, alone_after_s=4.0))])
        kafka.close()


@pytest.mark.parametrize("idempotent", [True, False])
def test_what_a_writer_was_told_is_on_the_twin_when_the_mirror_dies(
    east: LabCluster, west: LabCluster, tmp_path: Path, idempotent: bool
) -> None:
    topic = f"protected-{'once' if idempotent else 'plain'}"
    with carried(east, west, topic, tmp_path) as rig:
        protect(rig, ProtectionLevel.STRICT)
        with proxies(rig, 1) as (proxy,):
            settings: dict[str, Any] = {"enable.idempotence": idempotent, "acks": -1 if idempotent else 1}
            writer = PlainWriter(proxy.bootstrap, topic, 200.0, **settings)
            try:
                until(lambda: len(writer.acked) >= 400, 60, "writes are confirmed")
                rig.rig.process.kill()
                told = len(writer.acked)
                time.sleep(AWAY_S)
                assert len(writer.acked) - told <= 100, "what was on its way is still confirmed, and no more"
                acked = list(writer.acked)
                there = {(place, key, number) for place, key, number in records_there(west, topic, 3)}
                lost = [one for one in acked if (one.place, one.key, one.number) not in there]
                assert not lost, f"{len(lost)} of {len(acked)}: {lost[:3]}"
                rig.rig.process.start()
                until(lambda: len(writer.acked) >= told + 1_000, 120, "writes go on by themselves")
            finally:
                writer.stop()
            assert writer.failed == [], "the application is told of no error"


def test_sync_goes_on_alone_and_comes_back_by_itself(east: LabCluster, west: LabCluster, tmp_path: Path) -> None:
    with carried(east, west, "protected-sync", tmp_path) as rig:
        protect(rig, ProtectionLevel.SYNC)
        with proxies(rig, 1) as (proxy,):
            writer = PlainWriter(proxy.bootstrap, rig.topic, 200.0)
            try:
                until(lambda: len(writer.acked) >= 400, 60, "writes are confirmed")
                rig.rig.process.kill()
                told = len(writer.acked)
                until(lambda: len(writer.acked) >= told + 1_000, 60, "the home alone acknowledges")
                kafka = KafkaCluster(west.cluster)
                gates = ProtectionTopic(kafka).read().gates
                assert any(record.alone for (topic, _), record in gates.items() if topic == rig.topic), gates
                rig.rig.process.start()
                reader = ProtectionTopic(kafka)
                until(lambda: not any(record.alone for record in reader.read().gates.values()), 120, "both again")
                kafka.close()
            finally:
                writer.stop()
            assert writer.failed == []
