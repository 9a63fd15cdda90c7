"""Settings that are generated for stated needs hold on real brokers under the faults that they promise to survive.

The next weaker ones, for a need that asks for one thing less, do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testkit.cluster import RigCluster
from tests.scenarios.loss_stage import SETTINGS, Reading, Sent, Stage
from twinshore.advisor.core.settings_advice import SettingOwner, SettingsChoice
from twinshore.advisor.operations.settings_advice import choose_for_needs

HOLDS = pytest.mark.claim(
    "advisor",
    "advice-holds",
    "settings generated for stated needs survive the staged faults that they promise to, on real brokers, and the next"
    " weaker ones do not",
)
NEEDS = {"loss": "none", "order": "key", "duplicates": "few", "latency": "normal", "availability": "one", "replicas": 3}
ONE_WAY_MS = 1200
Staged = Callable[[SettingsChoice], Stage]


def settings_for(**needs: Any) -> SettingsChoice:
    return choose_for_needs(**{**NEEDS, **needs})


def of(choice: SettingsChoice, side: SettingOwner) -> dict[str, str]:
    """The settings as a client of librdkafka takes them."""
    return {one.name: one.librdkafka or one.value for one in choice.settings if one.side is side}


@pytest.fixture(scope="module")
def lab() -> Iterator[RigCluster]:
    with RigCluster("holds", brokers=3, heap_mb=256, settings=SETTINGS, via_proxy=True) as cluster:
        yield cluster


@pytest.fixture
def staged(lab: RigCluster, unique_topic: str) -> Iterator[Staged]:
    made: list[Stage] = []

    def make(choice: SettingsChoice) -> Stage:
        settings = of(choice, SettingOwner.TOPIC)
        copies = int(settings.pop("replication.factor"))
        made.append(Stage(lab, f"{unique_topic}-{len(made)}", copies, settings))
        return made[-1]

    yield make
    for stage in made:
        stage.whole_again()


def writer(stage: Stage, choice: SettingsChoice, **more: Any) -> Sent:
    """Without its transaction, which the application opens: what knows a record again are the producer's numbers."""
    ours = {
        name: value for name, value in of(choice, SettingOwner.PRODUCER).items() if not name.startswith("transaction")
    }
    return Sent(stage.cluster, stage.topic, {**ours, **more})


@HOLDS
@pytest.mark.long
@pytest.mark.parametrize(("loss", "kept"), [("none", [1]), ("few", [])])
def test_followers_stand_still_then_the_leader_is_killed(staged: Staged, loss: str, kept: list[int]) -> None:
    """No loss: what no follower has is not acknowledged, and is sent again to the new leader."""
    choice = settings_for(loss=loss)
    stage = staged(choice)
    sent = writer(stage, choice)
    with stage.standing_still(stage.followers):
        sent.send(1)
        # With acks=all nobody can answer it; with acks=1 the leader does.
        sent.producer.flush(1.5)
        early = list(sent.acknowledged)
        stage.leader.kill()
    stage.led_by_another(stage.leader)
    sent.settle()
    stage.leader.restart()
    stage.in_sync(3)
    assert (early, sent.acknowledged, stage.log()) == ([] if kept else [1], [1], kept)
    print(f"told: --loss {loss}: acknowledged 1, there {len(kept)}")


@HOLDS
@pytest.mark.long
@pytest.mark.parametrize("duplicates", ["none", "few"])
def test_answers_come_too_late(lab: RigCluster, staged: Staged, duplicates: str) -> None:
    """No duplicates: what was sent again is known by its number."""
    choice = settings_for(loss="few", duplicates=duplicates)
    stage = staged(choice)
    late = {"socket.timeout.ms": 1000, "request.timeout.ms": 1000, "bootstrap.servers": ",".join(lab.wan_bootstrap)}
    sent = writer(stage, choice, **late)
    sent.send(0)
    sent.settle()
    line = lab.proxies[lab.brokers.index(stage.leader)]
    # A request gets there in time, and its answer does not.
    line.set_delay_ms(ONE_WAY_MS)
    sent.send(1)
    sent.producer.flush(4.0)
    unanswered = sent.acknowledged == [0]
    line.set_delay_ms(0)
    sent.settle()
    there = stage.log()
    assert unanswered and sent.acknowledged == [0, 1]
    assert there == [0, 1] if duplicates == "none" else there[:3] == [0, 1, 1]
    print(f"told: --duplicates {duplicates}: acknowledged once, there {there.count(1)} times")


@HOLDS
@pytest.mark.long
@pytest.mark.parametrize(("loss", "handled"), [("none", [1, 2]), ("any", [2])])
def test_a_consumer_dies_at_work(staged: Staged, tmp_path: Path, loss: str, handled: list[int]) -> None:
    """No loss: a place is committed behind what was handled."""
    choice = settings_for(loss=loss, latency="low")
    stage = staged(choice)
    sent = writer(stage, choice)
    # It is there already when the record comes: latest would pass it otherwise, and that is another trap.
    reading = Reading(stage, **of(choice, SettingOwner.CONSUMER))
    got = reading.dies_at_work(tmp_path, after_s=1.5, once_placed=lambda: sent.send(1))
    sent.settle()
    assert got == 1
    reading.reads(len(handled), meanwhile=lambda: sent.send(2))
    assert (reading.handled, stage.log()) == (handled, [1, 2])
    print(f"told: --loss {loss}: read 2, handled {len(handled)}")


@HOLDS
@pytest.mark.long
@pytest.mark.parametrize(("replicas", "written"), [(3, [1, 2]), (2, [1])])
def test_a_follower_is_stopped_first_then_the_leader_killed(staged: Staged, replicas: int, written: list[int]) -> None:
    """With three replicas writing goes on, and nothing is lost; with two no loss is kept, and writers are refused."""
    choice = settings_for(replicas=replicas)
    assert bool(choice.against) is (replicas == 2), "that both cannot be had is said"
    stage = staged(choice)
    sent = writer(stage, choice)
    sent.send(1)
    sent.settle()
    follower = stage.followers[0]
    follower.kill()
    stage.in_sync(replicas - 1)
    late = writer(stage, choice, **{"delivery.timeout.ms": 3000, "request.timeout.ms": 1000})
    late.send(2)
    late.settle()
    stage.leader.kill()
    follower.restart()
    if replicas == 2:
        # Of two the other one lacks what came since, and may not lead.
        stage.leader.restart()
    stage.led()
    assert (sent.acknowledged + late.acknowledged, stage.log()) == (written, written)
    print(f"told: --availability one --replicas {replicas}: {len(written)} of 2 taken, all of them kept")
