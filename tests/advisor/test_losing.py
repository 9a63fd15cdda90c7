"""The settings of a topic as it is now, what faults lose a record of it, and how that is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from testkit.errors import raises
from tests.advisor.seen_kit import SOUND, broker, having, part, topic
from tests.scenarios.mirror_rig import settings_text
from twinshore.advisor.core.model import NO_LEADER, BlindSpot, ClusterSnapshot
from twinshore.advisor.core.settings_advice import LossInputs, build_loss_inputs, describe_loss_inputs
from twinshore.advisor.core.simulator import explore
from twinshore.advisor.core.simulator.explore import ExplorationRequest
from twinshore.advisor.core.simulator.model import Anomaly, ProducerAcks
from twinshore.advisor.operations.settings_advice import (
    LossResult,
    describe_losses,
    exit_code,
    find_losses,
    losses_as_values,
    render_losses,
    search_losses,
)
from twinshore.config.errors import ConfigError
from twinshore.config.settings import Settings, parse_settings
from twinshore.lab.cluster import LabCluster

CRASHES = ("crash", "slow")


def asked(seen: ClusterSnapshot, kinds: tuple[str, ...] = CRASHES, **words: Any) -> LossResult:
    client = ExplorationRequest(**{"acks": "", "kinds": kinds, **words})
    return search_losses(build_loss_inputs(seen, "orders"), seen.cluster, client)


def lost(found: LossResult) -> dict[ProducerAcks, int]:
    """With which acks a record is lost, and by how many faults."""
    return {one.config.acks: one.found[Anomaly.LOST].faults for one in found.answers if one.found}


def test_what_a_topic_is_set_to_reaches_the_model() -> None:
    stake = build_loss_inputs(replace(SOUND, eligible=True), "orders")
    assert stake == LossInputs("orders", 0, 2, 3, 0, True, 2, False, False, True, True)
    weak = topic("orders", also={"flush.messages": "1"}, unclean_leader_election_enable="true", min_insync_replicas="1")
    found = asked(having(weak), acks="all", idempotent=False, retries=False, in_flight=False, commit="after")
    setup = found.answers[0].config
    assert (setup.replicas, setup.min_insync, setup.unclean, setup.flush, setup.elr) == (3, 1, True, "each", False)
    assert (setup.idempotent, setup.retries, setup.in_flight, setup.commit) == (False, False, False, "after")


def test_without_acks_each_is_answered() -> None:
    assert lost(asked(SOUND)) == {ProducerAcks.LEADER: 1, ProducerAcks.NONE: 1}
    unclean = having(topic("orders", unclean_leader_election_enable="true", min_insync_replicas="1"))
    assert lost(asked(unclean)) == {ProducerAcks.ALL: 2, ProducerAcks.LEADER: 1, ProducerAcks.NONE: 1}
    assert [one.config.idempotent for one in asked(SOUND, idempotent=True).answers] == [True, False, False]
    assert lost(asked(SOUND, acks="all")) == {}


def test_the_partition_that_is_worst_off_counts_as_it_is_now() -> None:
    parts = part(0, 1, 2, 3), part(1, 2, 3, 1, isr=(2,)), part(2, 3, 1, 2)
    seen = having(topic("orders", *parts, min_insync_replicas="1"))
    stake = build_loss_inputs(seen, "orders")
    assert (stake.partition, stake.away) == (1, 2)
    assert sum("2 replicas of partition 1" in line for line in describe_loss_inputs(stake, "east")) == 1
    # Nobody is there who could be in sync: with flushed logs and no power lost one fault is enough no more.
    assert lost(asked(seen, acks="all", faults_max=1, kinds=("power",))) == {ProducerAcks.ALL: 1}
    whole = having(topic("orders", min_insync_replicas="1"))
    assert lost(asked(whole, acks="all", faults_max=1, kinds=("power",))) == {}


def test_what_was_acknowledged_before_is_at_stake_where_replicas_are_away() -> None:
    """Nothing more is acknowledged with one of three in sync, and what was is on one disk."""
    seen = having(topic("orders", part(0, 1, 2, 3, isr=(1,)), min_insync_replicas="2"))
    (answer,) = asked(seen, acks="all", kinds=(), faults_max=1).answers
    schedule = answer.found[Anomaly.LOST]
    assert (schedule.damage.record, schedule.faults) == (1, 1)
    assert lost(asked(having(topic("orders", min_insync_replicas="2")), acks="all", kinds=(), faults_max=1)) == {}


def test_the_fewest_in_sync_are_worse_off_than_the_fewest_replicas() -> None:
    seen = having(topic("orders", part(0, 1, 2), part(1, 1, 2, 3, isr=(1,)), part(2, 1, 2, isr=(1,))))
    assert build_loss_inputs(seen, "orders").partition == 2
    assert (
        build_loss_inputs(having(topic("orders", part(0, 1, 2), part(1, 1, 2, 3, isr=(1,)))), "orders").partition == 1
    )


def of_versions(seen: ClusterSnapshot, *supports: int) -> ClusterSnapshot:
    return replace(seen, brokers=tuple(broker(node, supports=one) for node, one in enumerate(supports, 1)))


def test_one_without_a_leader_or_that_nobody_can_write_to_is_told() -> None:
    dead = having(topic("orders", part(0, 1, 2, isr=(1,), leader=NO_LEADER), min_insync_replicas="3"))
    old = of_versions(dead, 14, 14)
    said = " ".join(describe_loss_inputs(build_loss_inputs(old, "orders"), "east"))
    assert "Partition 0 has no leader" in said and "acks=all" in said
    assert lost(asked(old, acks="all")) == {}


def test_of_more_in_sync_than_there_are_kafka_takes_all_since_3_7() -> None:
    """One replica, and the brokers' default of two: it is written to, and lost by one loss of power."""
    alone = having(topic("orders", part(0, 1), min_insync_replicas="2"))
    power: dict[str, Any] = {"faults_max": 1, "kinds": ("power",)}
    stake = build_loss_inputs(alone, "orders")
    asks = "min.insync.replicas asks for 2 in sync of 1: Kafka takes 1, and acknowledges with acks=all what one has."
    assert (stake.min_insync, stake.capped) == (2, True) and asks in list(describe_loss_inputs(stake, "east"))
    assert lost(asked(alone, acks="all", **power)) == {ProducerAcks.ALL: 1}
    assert lost(asked(of_versions(alone, 14, 19), acks="all", **power)) == {ProducerAcks.ALL: 1}, (
        "the newer one may lead"
    )
    assert lost(asked(of_versions(alone, 14, 14), acks="all", **power)) == {}
    many = having(topic("orders", part(0, 1), min_insync_replicas="99"))
    assert lost(asked(many, acks="all", **power)) == {ProducerAcks.ALL: 1}


def test_where_it_matters_and_no_version_could_be_seen_that_is_no_answer() -> None:
    alone = having(topic("orders", part(0, 1), min_insync_replicas="2"))
    blind = replace(of_versions(alone, 0, 14), unseen=(BlindSpot("the version of broker 1", "it is silent"),))
    with raises(ConfigError, "advisor.version-not-read", topic="orders", what="the version of broker 1"):
        build_loss_inputs(blind, "orders")
    assert build_loss_inputs(replace(blind, topics=SOUND.topics), "orders").capped is False


def test_what_cannot_be_seen_is_refused() -> None:
    with raises(ConfigError, "kafka.unknown-topic", topic="clicks", clusters="east"):
        build_loss_inputs(SOUND, "clicks")
    blind = replace(having(replace(topic("orders"), settings=None)), unseen=(BlindSpot("settings", "no right"),))
    with raises(ConfigError, "advisor.settings-not-read", topic="orders", cause="settings: no right"):
        build_loss_inputs(blind, "orders")
    many = having(topic("orders", part(0, 1, 2, 3, 4, 5, 6)))
    with raises(ConfigError, "advisor.too-many-replicas", replicas=6, most=5):
        asked(many)


def test_it_is_told_with_the_logs_after_each_step_and_as_values() -> None:
    found = asked(SOUND)
    lines = list(describe_losses(found))
    assert lines[0].startswith("orders on east: 3 replicas, min.insync.replicas=2, unclean election off")
    assert "LOST by 1 fault in 3 steps:" in lines and any("broker 2 | records - " in line for line in lines)
    assert exit_code(found) == 1
    assert exit_code(asked(SOUND, acks="all")) == 0
    assert exit_code(asked(SOUND, acks="all", kinds=(), states_max=5)) == 2
    values = json.loads(json.dumps(losses_as_values(found)))
    assert (values["topic"]["min_insync"], [one["settings"]["acks"] for one in values["answers"]]) == (
        2,
        ["all", "1", "0"],
    )
    text = render_losses(found)
    assert "<h1>" in text and "orders on east: 3 replicas" in text
    assert '<section class=play id="acks-1-lost">' in text and '<section class=play id="acks-all-lost">' not in text
    assert explore.exit_code(found.answers[0]) == 0


def settings_of(folder: Path, cluster: LabCluster) -> Settings:
    return parse_settings(settings_text(folder, [cluster.cluster], {}), name="settings", env={})


def test_a_live_topic_is_asked(east: LabCluster, unique_topic: str, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, east)
    with raises(ConfigError, "kafka.unknown-topic", topic=unique_topic, clusters="east"):
        find_losses("east", unique_topic, ExplorationRequest(acks=""), settings)
    with raises(ConfigError, "config.unknown-choice", near="; did you mean all?"):
        find_losses("east", unique_topic, ExplorationRequest(acks="al"), settings)
    east.create_topic(unique_topic, settings={"flush.messages": "1"})
    found = find_losses("", unique_topic, ExplorationRequest(acks="", kinds=CRASHES), settings)
    assert (found.loss_inputs.copies, found.loss_inputs.flushed, found.loss_inputs.min_insync) == (1, True, 1)
    assert lost(found) == {ProducerAcks.NONE: 1}
    assert found.loss_inputs.eligible, "the newest Kafka begins so"
