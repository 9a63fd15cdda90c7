"""What is safe is shown, set when somebody says so, and read back."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.advisor.seen_kit import having, part, topic
from tests.scenarios.mirror_rig import settings_text
from twinshore.advisor import RULES, Advice, Policy, advise
from twinshore.advisor.operations.advise import Advise, advised
from twinshore.advisor.operations.mend import act, left_of, plan
from twinshore.fleet import KafkaError, RefusedError
from twinshore.fleet.settings import parse_settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab import LabCluster
from twinshore.lab.clients import alter_topic
from twinshore.service.clock import wall_ms

UNCLEAN = "unclean.leader.election.enable"


def advice_on(east: LabCluster, name: str, folder: Path) -> Advice:
    settings = parse_settings(settings_text(folder, [east.cluster], {}), name="settings", env={})
    return advised(Advise("east", (name,), apart_s=0), settings, clock=wall_ms, wait=time.sleep).advice


@pytest.fixture
def unclean(east: LabCluster, unique_topic: str) -> str:
    east.create_topic(unique_topic, settings={UNCLEAN: "true"})
    return unique_topic


def value_of(east: LabCluster, name: str) -> str | None:
    kafka = KafkaCluster(east.cluster)
    try:
        return kafka.admin.readable_settings([name], [UNCLEAN])[0][name][UNCLEAN].value
    finally:
        kafka.close()


def test_a_plan_changes_nothing_and_its_act_is_read_back(east: LabCluster, unclean: str, tmp_path: Path) -> None:
    advice = advice_on(east, unclean, tmp_path)
    planned = plan(advice, east.cluster)
    (step,) = [one for one in planned.steps if one.topic == unclean]
    assert step.sentence(done=False) == f"topic {unclean}: {UNCLEAN}=false (it was true) would be set"
    assert value_of(east, unclean) == "true"
    done = list(act(replace(planned, steps=(step,)), advice, east.cluster))
    assert value_of(east, unclean) == "false"
    assert {one.rule for one in left_of(advice, done) if one.subject == f"topic {unclean}"} == {"single-copy"}
    assert not any(one.rule == "unclean-election" for one in advice_on(east, unclean, tmp_path).findings)


def test_what_somebody_else_has_changed_meanwhile_is_left_alone(east: LabCluster, unclean: str, tmp_path: Path) -> None:
    advice = advice_on(east, unclean, tmp_path)
    planned = plan(advice, east.cluster)
    alter_topic(east.cluster, unclean, {UNCLEAN: "false"})
    deadline = time.monotonic() + 30
    while value_of(east, unclean) != "false":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    mine = replace(planned, steps=tuple(one for one in planned.steps if one.topic == unclean))
    with pytest.raises(RefusedError, match="somebody has changed it meanwhile"):
        list(act(mine, advice, east.cluster))


def test_no_other_cluster_is_mended(east: LabCluster, unclean: str, tmp_path: Path) -> None:
    advice = replace(advice_on(east, unclean, tmp_path), cluster_id="another")
    with pytest.raises(KafkaError, match="lead to another cluster"):
        plan(advice, east.cluster)


def test_where_nothing_is_safe_the_plan_says_so(east: LabCluster) -> None:
    seen = having(topic("orders", part(0, 1, 2)))
    planned = plan(advise(seen, Policy(), RULES), east.cluster)
    assert planned.steps == ()
    assert planned.remarks[0] == "nothing that was found is safe to mend by itself"
