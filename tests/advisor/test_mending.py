"""What is safe is shown, set when somebody says so, and read back."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from testkit.clients import alter_topic
from testkit.errors import raises
from tests.advisor.seen_kit import having, part, topic
from tests.pages.shell import kafka_tools, play
from tests.scenarios.mirror_rig import settings_text
from twinshore.advisor.core.advice_report import Advice, ClusterAddress, build_advice, build_set_topic_command
from twinshore.advisor.core.model import MIN_ISR_CONFIG, OFFSETS_TOPIC, AdvisorPolicy, ConfigValue
from twinshore.advisor.operations.advice_on_cluster import (
    RULES,
    AdviceRequest,
    MendStep,
    act_fixes,
    advise_on_cluster,
    explain_refusal,
    find_unmended,
    plan_fixes,
)
from twinshore.config.errors import KafkaError, RefusedError
from twinshore.config.settings import parse_settings
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.metadata import PartitionMetadata, TopicMetadata
from twinshore.lab.cluster import LabCluster

UNCLEAN = "unclean.leader.election.enable"


def advice_on(east: LabCluster, name: str, folder: Path) -> Advice:
    settings = parse_settings(settings_text(folder, [east.cluster], {}), name="settings", env={})
    return advise_on_cluster(AdviceRequest("east", (name,), apart_s=0), settings, clock=wall_ms, wait=time.sleep).advice


@pytest.fixture
def unclean(east: LabCluster, unique_topic: str) -> str:
    east.create_topic(unique_topic, settings={UNCLEAN: "true"})
    return unique_topic


def value_of(east: LabCluster, name: str, setting: str = UNCLEAN) -> str | None:
    kafka = KafkaCluster(east.cluster)
    try:
        return kafka.admin.readable_settings([name], [setting])[0][name][setting].value
    finally:
        kafka.close()


def test_a_plan_changes_nothing_and_its_act_is_read_back(east: LabCluster, unclean: str, tmp_path: Path) -> None:
    advice = advice_on(east, unclean, tmp_path)
    planned = plan_fixes(advice, east.cluster)
    (step,) = [one for one in planned.steps if one.topic == unclean]
    assert step.sentence(done=False) == f"topic {unclean}: {UNCLEAN}=false (it was true) would be set"
    assert value_of(east, unclean) == "true"
    done = list(act_fixes(replace(planned, steps=(step,)), advice, east.cluster))
    assert value_of(east, unclean) == "false"
    assert {one.rule for one in find_unmended(advice, done) if one.subject == f"topic {unclean}"} == {"single-copy"}
    assert not any(one.rule == "unclean-election" for one in advice_on(east, unclean, tmp_path).findings)


def test_what_somebody_else_has_changed_meanwhile_is_left_alone(east: LabCluster, unclean: str, tmp_path: Path) -> None:
    advice = advice_on(east, unclean, tmp_path)
    planned = plan_fixes(advice, east.cluster)
    alter_topic(east.cluster, unclean, {UNCLEAN: "false"})
    deadline = time.monotonic() + 30
    while value_of(east, unclean) != "false":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    mine = replace(planned, steps=tuple(one for one in planned.steps if one.topic == unclean))
    with raises(RefusedError, "advisor.topic-changed", topic=unclean):
        list(act_fixes(mine, advice, east.cluster))


def test_a_value_with_a_comma_is_set_as_it_is(east: LabCluster, unclean: str, tmp_path: Path) -> None:
    """Kafka's tool parts settings at commas."""
    line = build_set_topic_command(
        ClusterAddress(east.cluster.bootstrap, False), unclean, {"cleanup.policy": "compact,delete", UNCLEAN: "false"}
    )
    play(line, tmp_path, kafka_tools(tmp_path / "tools"))
    assert value_of(east, unclean, "cleanup.policy") == "compact,delete"
    assert value_of(east, unclean) == "false"


def test_no_other_cluster_is_mended(east: LabCluster, unclean: str, tmp_path: Path) -> None:
    advice = replace(advice_on(east, unclean, tmp_path), cluster_id="another")
    with pytest.raises(KafkaError, match="lead to another cluster"):
        plan_fixes(advice, east.cluster)


def test_a_topic_that_was_deleted_meanwhile_hinders_no_other(east: LabCluster, unclean: str, tmp_path: Path) -> None:
    gone = f"{unclean}-gone"
    seen = having(*(topic(name, part(0, 1), also={UNCLEAN: "true"}) for name in (unclean, gone)))
    advice = replace(
        build_advice(seen, AdvisorPolicy(), RULES),
        cluster_id=advice_on(east, unclean, tmp_path).cluster_id,
        cluster="east",
    )
    planned = plan_fixes(advice, east.cluster)
    assert [one.topic for one in planned.steps] == [unclean]
    assert any(gone in line for line in planned.remarks)


def test_a_change_waits_until_its_topic_stands_as_it_must() -> None:
    """Where min.insync.replicas changes, the cluster forgets which replicas beside those in sync could lead."""

    def stands(leader: int, *isr: int, error: int = 0) -> TopicMetadata:
        return TopicMetadata("orders", b"", False, error, (PartitionMetadata(0, leader, 0, (1, 2, 3), isr, 0),))

    assert explain_refusal(None, {UNCLEAN: "false"}) == explain_refusal(stands(1, error=3), {}) != ""
    assert explain_refusal(stands(-1, 1), {UNCLEAN: "false"}) == "partition 0 has no leader now"
    assert "partition 0 " in explain_refusal(stands(1, 1, 2), {MIN_ISR_CONFIG: "2"})
    assert explain_refusal(stands(1, 1, 2), {UNCLEAN: "false"}) == ""
    assert explain_refusal(stands(1, 3, 2, 1), {MIN_ISR_CONFIG: "2"}) == ""


@pytest.mark.parametrize("copies", [1, 2, 3, 5])
@pytest.mark.parametrize("minimum", ["1", "2", "3"])
@pytest.mark.parametrize("own", [True, False])
def test_what_is_safe_mends_the_whole_finding(copies: int, minimum: str, own: bool) -> None:
    """So what `--fix` has done needs no other hand, and the exit code says so."""
    policy = AdvisorPolicy(limits={("", "copies"): copies})
    weak = {MIN_ISR_CONFIG: minimum, UNCLEAN: "true"}
    for name in ("orders", OFFSETS_TOPIC):
        seen = having(topic(name, own=own, also=weak, internal=name != "orders"))
        advice = build_advice(seen, policy, RULES)
        asked_for = own and minimum == "1" and name == "orders"
        assert any(one.safe for one in advice.findings) is not asked_for
        for one in advice.findings:
            if one.safe is None:
                continue
            (old,) = [row for row in seen.topics if row.name == one.safe.topic]
            settings = {**(old.settings or {}), **{key: ConfigValue(value, True) for key, value in one.safe.settings}}
            after = build_advice(having(replace(old, settings=settings), seen=seen), policy, RULES)
            assert one.key not in {left.key for left in after.findings}, one
            step = MendStep(one.safe.topic, b"", (), one.safe.settings)
            assert one not in find_unmended(advice, [step])
            assert one in find_unmended(advice, [replace(step, wanted=())])


def test_where_nothing_is_safe_the_plan_says_so(east: LabCluster) -> None:
    seen = having(topic("orders", part(0, 1, 2)))
    planned = plan_fixes(build_advice(seen, AdvisorPolicy(), RULES), east.cluster)
    assert planned.steps == ()
    assert planned.remarks
