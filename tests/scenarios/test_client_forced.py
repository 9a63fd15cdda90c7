"""The old home of an application is killed under load: what was never acknowledged arrives at the new one."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from testkit.switch_under_load import records_of
from tests.conftest import ClusterFactory
from tests.scenarios.mirror_rig import Rig, settings_text, spans, until
from tests.scenarios.switch_rig import SwitchRig
from tests.scenarios.test_client_switch import Application, settings
from tests.scenarios.test_mirror_basic import fill

TOPIC = "client-forced"


@pytest.mark.claim(
    "client",
    "forced",
    "the old home is killed, the switch is forced: what was never acknowledged arrives in order; no error surfaces",
)
@pytest.mark.long
def test_what_a_dead_home_never_acknowledged_arrives_at_the_new_one(
    cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    """Nobody restarts the application, and it is told of no error. Acknowledged records that had not crossed stay on
    the dead home; whatever it was told of since is on the new one, and what is there twice was on its way."""
    east, west = (cluster_factory(name, heap_mb=256) for name in ("east", "west"))
    east.create_topic(TOPIC, partitions=3)
    for number in range(3):
        fill(east, TOPIC, 10, partition=number)
    links = {"east->west": TOPIC, "west->east": TOPIC}
    rig = Rig(tmp_path, settings_text(tmp_path, [east.cluster, west.cluster], links, mirror={"tasks_per_link": 1}))
    rig.process.start()
    try:
        until(lambda: spans(west.cluster, TOPIC, 3) == [(0, 10)] * 3, 120, "carried", rig)
        stage = SwitchRig(rig, TOPIC, east, west)
        ours = Application("shop", {"east": settings(east), "west": settings(west)}, TOPIC)
        try:
            until(lambda: len(ours.acked) > 300 and len(ours.read) > 100, 90, "it writes and reads", rig)
            for broker in east.brokers:
                broker.kill()
            seen: list[int] = []

            def quiet() -> bool:
                seen.append(len(ours.acked))
                time.sleep(0.5)
                return seen[-1] == len(ours.acked)

            until(quiet, 60, "a dead home acknowledges nothing", rig)
            before = len(ours.acked)
            said = stage.move("west", "--force")
            assert said.code == 0, said.text
            until(lambda: len(ours.acked) > before + 300, 90, "it writes on", rig)
            assert ours.producer.where(TOPIC) == "west"
            until(lambda: ours.consumer.where(TOPIC) == "west", 90, "it joins there", rig)
            read = len(ours.read)
            until(lambda: len(ours.read) > read + 100, 90, "it reads on", rig)
        finally:
            ours.stop()
        assert not ours.errors
        found = [(key, int(value)) for _, _, key, value in records_of(west.cluster, TOPIC) if key[:5] == b"shop-"]
        there = Counter(found)
        assert set(ours.acked[before:]) <= set(there), "what was acknowledged behind the kill is there"
        twice = sum(count - 1 for count in there.values())
        lost = len(set(ours.acked) - set(there))
        print(f"told: {lost} acknowledged records had not crossed; {twice} are there twice, as their answer was lost")
        for key in {key for key, _ in found}:
            numbers = [number for one, number in found if one == key]
            once = list(dict.fromkeys(numbers))
            assert once == sorted(once), f"{key!r} in order"
        assert max(there.values()) <= 2
    finally:
        rig.process.end()
