"""Topics of a link with a fresh queue: their twins are mapped, and what may not be dropped is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.replication.test_plan import KNOWN, LINK, SOURCE, TARGET
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import QueuePolicy, QueueRules
from twinshore.replication.core.model import CarryTopic, Create, Refuse
from twinshore.replication.core.planner import KnownTwin, SourceTopic, plan_topic

FRESH = replace(LINK, queue=QueueRules(QueuePolicy.DROP_OLDEST))


def test_a_twin_that_holds_nothing_is_mapped_and_keeps_its_own_settings() -> None:
    (step,) = plan_topic(FRESH, SOURCE, replace(TARGET, settings=()), None, target_brokers=1)
    assert isinstance(step, CarryTopic)
    assert step.mapped
    (kept,) = plan_topic(LINK, SOURCE, TARGET, None, target_brokers=1)
    assert isinstance(kept, CarryTopic)
    assert not kept.mapped


def test_a_new_twin_forgets_as_its_source_does() -> None:
    source = replace(SOURCE, settings=(("retention.ms", "60000"),))
    (made,) = plan_topic(FRESH, source, None, None, target_brokers=1)
    assert isinstance(made, Create)
    assert dict(made.settings)["retention.ms"] == "60000"
    assert "retention.bytes" not in dict(made.settings), (
        "nobody cuts a mapped twin, so it is as the target's brokers say"
    )


@pytest.mark.parametrize(
    ("source", "known", "said"),
    [
        (replace(SOURCE, settings=(("cleanup.policy", "compact"),)), None, "is compacted"),
        (SOURCE, KNOWN, "is exact, and stays so"),
    ],
)
def test_what_may_not_be_dropped_is_refused(source: SourceTopic, known: KnownTwin | None, said: str) -> None:
    (refusal,) = plan_topic(FRESH, source, TARGET, known, target_brokers=1)
    assert isinstance(refusal, Refuse)
    assert refusal.kind is IncidentKind.REFUSED
    assert said in refusal.sentence
    assert 'policy = "keep"' in refusal.hint
    assert ("`twinshore mirror forget orders`, delete the twin on west" in refusal.hint) is (known is not None)


def test_heartbeats_are_no_affair_of_the_queue() -> None:
    beats = replace(SOURCE, name="twinshore.heartbeats")
    (step,) = plan_topic(FRESH, beats, replace(TARGET, name="east.twinshore.heartbeats"), KNOWN, target_brokers=1)
    assert isinstance(step, CarryTopic)
    assert not step.mapped
