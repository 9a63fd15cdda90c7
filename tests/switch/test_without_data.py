"""A switch without data, on two real clusters: what its plan refuses and lists, and logs that begin at an end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from confluent_kafka import TopicPartition as ClientTopicPartition

from testkit.clients import commit_group_offsets, topic_id
from testkit.errors import has_code, mentions, raises
from tests.scenarios.mirror_rig import settings_text, spans
from tests.scenarios.test_mirror_basic import fill
from twinshore.config.errors import ConfigError, RefusedError
from twinshore.config.model import TopicPartition
from twinshore.config.settings import Settings, load_settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.transactions import FILLER_RECORDS_MAX
from twinshore.lab.cluster import LabCluster
from twinshore.routing.homes_topic import HomesTopic
from twinshore.state.store import Store, open_store
from twinshore.switch.core.steps import (
    STEPS,
    StepDone,
    StepFailed,
    StepOutcome,
    StepPending,
    SwitchKind,
    SwitchState,
    SwitchStep,
    TopicMove,
)
from twinshore.switch.operations import run, without_data
from twinshore.switch.operations.dispatch import plan_switch
from twinshore.switch.operations.plan import SwitchPlan, SwitchPlanRequest
from twinshore.switch.operations.run import SwitchCaller
from twinshore.switch.operations.without_data import SwitchWithoutDataSteps, plan


@pytest.fixture
def settings(east: LabCluster, west: LabCluster, tmp_path: Path) -> Settings:
    path = tmp_path / "twinshore.toml"
    path.write_text(settings_text(tmp_path, [east.cluster, west.cluster], {"east->west": "carried-.*"}))
    return load_settings(path, {})


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with open_store(settings.store.url) as opened:
        yield opened


@pytest.fixture
def topic(east: LabCluster, unique_topic: str) -> str:
    """Of two partitions on east, with five records in the first."""
    east.create_topic(unique_topic, partitions=2)
    fill(east, unique_topic, 5)
    return unique_topic


def planned(settings: Settings, store: Store, *topics: str, to: str = "west") -> SwitchPlan:
    return plan_switch(SwitchPlanRequest(topics, to, bare=True), settings, store, by="anna")


def refused(settings: Settings, store: Store, *topics: str, to: str = "west") -> RefusedError:
    found = planned(settings, store, *topics, to=to)
    assert isinstance(found.refusal, RefusedError) and found.state is None
    return found.refusal


def moved(found: SwitchPlan, settings: Settings, store: Store) -> tuple[str, list[str]]:
    told: list[str] = []
    ended = run.run_switch(found, settings, store, SwitchCaller("anna", told.append, Event()))
    return ended.verdict(), told


def test_it_takes_topics_by_their_whole_names_and_nothing_else(settings: Settings, store: Store) -> None:
    for topics in ((), ("bare.*",), ("bills", "pay+")):
        with raises(ConfigError, "switch.whole-names-only"):
            planned(settings, store, *topics)
    for one in (
        SwitchPlanRequest(["bills"], "west", force=True, bare=True),
        SwitchPlanRequest(["bills"], "west", group="g", bare=True),
        SwitchPlanRequest([], "west", wave=5, bare=True),
    ):
        with raises(ConfigError, "switch.whole-names-only"):
            plan(one, settings, store)


def test_a_topic_that_nobody_has_and_one_that_a_link_carries(
    settings: Settings, store: Store, east: LabCluster, topic: str
) -> None:
    with raises(ConfigError, "switch.no-such-topic", near=f"; did you mean {topic}?"):
        planned(settings, store, f"{topic}x")
    east.create_topic("carried-one")
    why = refused(settings, store, "carried-one")
    assert has_code(why, "switch.data-is-replicated", link="east->west", topics="carried-one", source="east")


def test_what_stays_is_listed_and_nothing_is_changed(
    settings: Settings, store: Store, east: LabCluster, west: LabCluster, topic: str
) -> None:
    for group, places in (("behind", (2, 0)), ("level", (5, 0))):
        commit_group_offsets(
            east.cluster, group, *(ClientTopicPartition(topic, number, at) for number, at in enumerate(places))
        )
    found = planned(settings, store, topic)
    assert found.refusal is None and found.state is not None
    assert "without the 5 offsets that east holds" in found.shown[0]
    assert found.shown[2:] == ("stays unread: 3 offsets by group behind",)
    ours = [step for step in STEPS[SwitchKind.DATALESS] if step not in (SwitchStep.BEFORE, SwitchStep.AFTER)]
    assert list(found.steps) == ours
    with closing(KafkaCluster(west.cluster)) as kafka:
        assert topic not in kafka.metadata().topics


def test_a_new_home_with_records_of_its_own_or_other_partitions_is_refused(
    settings: Settings, store: Store, west: LabCluster, topic: str
) -> None:
    west.create_topic(topic, partitions=3)
    why = refused(settings, store, topic)
    assert has_code(why, "switch.partition-counts-differ", partitions=3, cluster="west", source_partitions=2)
    with closing(KafkaCluster(west.cluster)) as kafka:
        kafka.admin.delete_topic(topic, topic_id=topic_id(west.cluster, topic))
    west.create_topic(topic, partitions=2)
    fill(west, topic, 1, partition=1)
    assert has_code(refused(settings, store, topic), "switch.target-not-empty", cluster="west", topics=topic)


def test_it_moves_and_does_not_come_back_so(
    settings: Settings, store: Store, east: LabCluster, west: LabCluster, topic: str
) -> None:
    """An empty topic that a switch has left there, or somebody made, is taken."""
    west.create_topic(topic, partitions=2)
    verdict, told = moved(planned(settings, store, topic), settings, store)
    assert mentions(verdict, "done", topic, "west"), told
    assert spans(west.cluster, topic, 2) == [(5, 5), (0, 0)]
    for lab in (east, west):
        with closing(KafkaCluster(lab.cluster)) as kafka:
            notes = HomesTopic(kafka)
            line = notes.read()[topic]
            assert (line.home, line.term, line.state, line.how, line.points) == (
                "west",
                2,
                "settled",
                "planned",
                (5, 0),
            )
            assert notes.log.holder(topic) is None
    assert store.homes.of("east<>west")[topic].home == "west"
    fill(west, topic, 2)
    assert spans(west.cluster, topic, 2) == [(5, 7), (0, 0)]
    assert has_code(refused(settings, store, topic), "switch.not-at-home", topics=topic, cluster="east")
    assert has_code(refused(settings, store, topic, to="east"), "switch.target-not-empty", cluster="east")


def record(topic: str, old_id: str, new_id: str = "") -> SwitchState:
    one = TopicMove(topic=topic, old_id=old_id, new_id=new_id, term=0, partitions=2)
    return SwitchState(
        id="f" * 32,
        kind=SwitchKind.DATALESS,
        old="east",
        new="west",
        link="",
        back="",
        topics=(one,),
        by="anna",
        begun_ms=1,
        hold_s_max=10.0,
        step=STEPS[SwitchKind.DATALESS][0],
    )


def done(filling: without_data.LogFiller, one: SwitchState, ends: tuple[int, int]) -> StepOutcome:
    outcome: StepOutcome = StepFailed("")
    for _ in range(20):
        outcome = without_data.fill_logs(filling, one, {one.names()[0]: ends})
        if isinstance(outcome, StepDone | StepFailed):
            break
    return outcome


def test_a_log_is_filled_in_parts_and_nothing_of_that_is_left(east: LabCluster, west: LabCluster, topic: str) -> None:
    """It goes on where somebody was killed, whatever was done by then."""
    one = record(topic, topic_id(east.cluster, topic).hex())
    with closing(KafkaCluster(west.cluster)) as kafka:
        while not isinstance(made := without_data.create_topics(kafka, one), StepDone):
            assert not isinstance(made, StepFailed), made
        one = made.state
        assert one.topics[0].new_id == topic_id(west.cluster, topic).hex()
        far = 2 * FILLER_RECORDS_MAX + 7
        near = [
            without_data.is_nearly_filled(kafka, {topic: ends})
            for ends in ((3, 0), (3, without_data.NEAR_OFFSETS_MAX + 1))
        ]
        assert near == [True, False]
        filling = without_data.LogFiller(kafka)
        for ends in ((3, 0), (3, 0), (far, 1)):
            assert isinstance(done(filling, one, ends), StepDone)
            assert spans(west.cluster, topic, 2) == [(end, end) for end in ends]
        beyond = done(filling, one, (far - 1, 1))
        assert isinstance(beyond, StepFailed) and mentions(beyond.sentence, topic, "west")
        again = record(topic, "", "ab" * 16)
        assert isinstance(without_data.create_topics(kafka, again), StepFailed), "it was deleted and made again"


@pytest.mark.claim("switch", "filled-once", "a switch without data: filler that lands late is not there twice")
def test_filler_whose_answer_was_lost_is_there_once_at_the_next_try(west: LabCluster, topic: str) -> None:
    """The next try sees the log as it was, and what was sent before lands behind its look."""
    named = TopicPartition(topic, 0)
    west.create_topic(topic, partitions=2)
    ids = {topic: topic_id(west.cluster, topic)}
    with closing(KafkaCluster(west.cluster)) as kafka:
        filling = without_data.LogFiller(kafka)
        for _ in range(2):
            filling.take({named: (0, 9)}, ids)
        filling.take({named: (9, 12)}, ids)
    assert spans(west.cluster, topic, 2)[0] == (0, 12)


def test_what_others_wrote_there_meanwhile_is_never_cut_off(east: LabCluster, west: LabCluster, topic: str) -> None:
    """Before the topic is made, and while it is filled."""
    one = record(topic, topic_id(east.cluster, topic).hex())
    west.create_topic(topic, partitions=2)
    fill(west, topic, 1, partition=1)
    with closing(KafkaCluster(west.cluster)) as kafka:
        made = without_data.create_topics(kafka, one)
        assert isinstance(made, StepFailed) and mentions(made.sentence, f"{topic}-1", "west")
        known = record(topic, topic_id(east.cluster, topic).hex(), topic_id(west.cluster, topic).hex())
        filled = done(without_data.LogFiller(kafka), known, (3, 2))
        assert isinstance(filled, StepFailed) and mentions(filled.sentence, f"{topic}-1", "west")
    assert spans(west.cluster, topic, 2)[1][0] == 0, "it is there still"


def test_the_id_of_the_new_topic_is_kept_before_anything_is_filled_in(
    settings: Settings, store: Store, east: LabCluster, west: LabCluster, topic: str
) -> None:
    """Else who is killed after the first filler takes it for records of others, and can never go on."""
    one = replace(record(topic, topic_id(east.cluster, topic).hex()), given="{}")
    with closing(KafkaCluster(east.cluster)) as old, closing(KafkaCluster(west.cluster)) as new:
        link = settings.links[0]
        fill(east, topic, without_data.NEAR_OFFSETS_MAX + 1)
        unused: Any = None
        hands = SwitchWithoutDataSteps(link, link, settings, store, old, new, lambda: 1, unused)
        for _ in range(50):
            outcome = hands.do_create_topics(one)
            if isinstance(outcome, StepPending) and outcome.state is not None:
                break
            assert isinstance(outcome, StepPending), outcome
        assert spans(west.cluster, topic, 2) == [(0, 0), (0, 0)], "nothing is filled before the id is kept"
