"""Which topics a switch would have carried first: those that are named by their whole names, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from testkit.errors import has_code, mentions, raises
from tests.switch.flips import flip_of
from tests.switch.test_decision import record
from twinshore.config.errors import ConfigError, KafkaError, RefusedError
from twinshore.config.incident_policy import POLICY_TOPIC, IncidentKind
from twinshore.config.model import Link
from twinshore.config.settings import Settings, load_settings
from twinshore.lab.ports import free_port
from twinshore.runtime.endpoints import LinkClients
from twinshore.state.core.values import Incident, TwinRow
from twinshore.state.store import Store, open_store
from twinshore.switch.operations.carrying import CarryFirstPlan, describe_twin_lag, plan, refuse_other_topics
from twinshore.switch.operations.dispatch import plan_switch
from twinshore.switch.operations.plan import (
    SwitchPlan,
    SwitchPlanRequest,
    find_link,
    match_topics,
    match_topics_without_twins,
)

pytestmark = pytest.mark.usefixtures("short_patience")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """No broker runs: whoever asks one is told so."""
    path = tmp_path / "twinshore.toml"
    clusters = "".join(
        f'[clusters.{name}]\nbootstrap = ["127.0.0.1:{free_port()}"]\n' for name in ("east", "west", "north")
    )
    links = '[links."east->west"]\ntopics = ["orders"]\n[links."east->north"]\nnaming = "prefix"\n'
    path.write_text(f'[store]\nurl = "sqlite:///{tmp_path / "store.db"}"\n{clusters}{links}')
    return load_settings(path, {})


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with open_store(settings.store.url) as opened:
        opened.twins.save([TwinRow("east->west", "orders", 0, "a" * 32, "b" * 32, 0, 0, 1)])
        yield opened


@pytest.mark.parametrize("topics", [["orders"], ["ord.*"], ["bill.*"], ["bills|pay"]])
def test_what_is_carried_and_what_is_no_name_is_left_to_the_plan_of_the_switch(
    settings: Settings, store: Store, topics: list[str]
) -> None:
    assert plan(SwitchPlanRequest(topics, "west"), settings, store) is None


def test_a_drill_and_a_switch_by_force_have_nothing_carried(settings: Settings, store: Store) -> None:
    for asked in (
        SwitchPlanRequest(["bills"], "west", force=True),
        SwitchPlanRequest(["bills"], "west", drill=True),
    ):
        assert plan(asked, settings, store) is None
    assert plan(SwitchPlanRequest(["bills"], "north"), settings, store) is None, "twins there have other names"


@pytest.mark.parametrize("name", ["bills", "pay.ments", r"pay\.ments"])
def test_whether_the_source_has_a_topic_of_this_name_is_asked(settings: Settings, store: Store, name: str) -> None:
    with pytest.raises(KafkaError, match="east"):
        plan(SwitchPlanRequest([name], "west"), settings, store)


def test_a_name_with_a_dot_does_not_move_another_topic_unasked(store: Store) -> None:
    """`orders.v1` is a whole name, and as an expression it fits `orders-v1`: the source is asked whether it has it."""
    store.twins.save([TwinRow("east->west", "orders-v1", 0, "c" * 32, "d" * 32, 0, 0, 1)])
    links = [Link("east", "west", ("orders.*",))]
    assert match_topics(SwitchPlanRequest(["orders.v1"], "west"), links, store).dotted == {"orders.v1": ["orders-v1"]}
    store.twins.save([TwinRow("east->west", "orders.v1", 0, "e" * 32, "f" * 32, 0, 0, 1)])
    found = match_topics(SwitchPlanRequest(["orders.v1"], "west"), links, store)
    assert ([row.topic for row in found.rows["east->west"]], found.dotted) == (["orders.v1"], {})
    assert match_topics(SwitchPlanRequest([r"orders\.v1", "orders"], "west"), links, store).dotted == {}


def test_a_topic_that_nobody_has_switched_yet_is_at_home_where_its_link_begins(
    settings: Settings, store: Store
) -> None:
    """A hint to delete it there would have deleted the topic itself."""
    links = [*settings.links, Link("west", "east", ("bills",))]
    store.twins.save([TwinRow("west->east", "bills", 0, "c" * 32, "d" * 32, 0, 0, 1)])
    asked = SwitchPlanRequest(["bills"], "west")
    assert match_topics(asked, links, store).lacking == []
    assert plan(asked, settings.with_links(links), store) is None
    with raises(RefusedError, "switch.at-home-already", topics="bills", cluster="west"):
        find_link(asked, links, store)


def test_what_is_planned_behind_the_wait_moves_nothing_that_came_meanwhile() -> None:
    first, one = CarryFirstPlan(topics=("orders",)), record()
    assert refuse_other_topics(first, SwitchPlan(state=one)).state == one
    (topic,) = one.topics
    late = refuse_other_topics(first, SwitchPlan(state=replace(one, topics=(topic, replace(topic, topic="bills")))))
    assert late.state is None and has_code(late.refusal, "switch.more-topics", topics="bills")


def test_what_the_link_leaves_out_on_purpose_stays_left_out(settings: Settings, store: Store) -> None:
    assert plan(SwitchPlanRequest(["__secrets"], "west"), settings, store) is None


def test_a_topic_that_is_at_home_there_is_not_carried_back_to_it(settings: Settings, store: Store) -> None:
    store.topics_in_switch.change_homes([flip_of("bills", "east", "west", 2, (9,), by="bob")])
    assert plan(SwitchPlanRequest(["bills"], "west"), settings, store) is None


def test_a_slip_of_the_pen_beside_what_is_carried_is_told(settings: Settings, store: Store) -> None:
    with raises(ConfigError, "switch.no-link-for", to="west", topics="pay.*"):
        plan_switch(SwitchPlanRequest(["orders", "pay.*"], "west"), settings, store)


def test_a_twin_that_waits_for_a_slow_cluster_is_waited_for_and_one_that_stopped_is_not(
    settings: Settings, store: Store
) -> None:
    carrier = next(one for one in settings.links if one.name == "east->west")

    def told(kind: IncidentKind) -> int:
        return store.incidents.add(Incident(carrier.name, "bills", -1, kind, -1, -1, POLICY_TOPIC, "."), now_ms=1).id

    with LinkClients(carrier, settings, patience_s=1.0) as ends:
        row = told(IncidentKind.TARGET_AWAY)
        assert mentions(describe_twin_lag(carrier, ["bills"], ends, store), "bills", carrier.name, "target away")
        store.incidents.close(row, now_ms=2, came_to="made")
        assert mentions(describe_twin_lag(carrier, ["bills"], ends, store), "bills", "no twin", "west")
        told(IncidentKind.RECREATED_TOPIC)
        with raises(RefusedError, "switch.link-stopped", link=carrier.name, partitions="bills (recreated topic)"):
            describe_twin_lag(carrier, ["bills"], ends, store)


def test_a_topic_that_is_admitted_and_has_no_twin_yet_is_meant_by_whatever_word_fits_it(store: Store) -> None:
    """Not what is at home there, what a link brought, nor Twinshore's own."""
    links = [Link("east", "west", (".*",), exclude=("pay-not",)), Link("west", "east"), Link("north", "east")]
    store.twins.save([TwinRow("west->east", "pay-back", 0, "c" * 32, "d" * 32, 0, 0, 1)])
    store.twins.save([TwinRow("north->east", "pay-north", 0, "e" * 32, "f" * 32, 0, 0, 1)])
    on_east = ["orders", "pay-new", "pay-not", "pay-back", "pay-north", "bills", "twinshore.homes"]
    asked = SwitchPlanRequest(["orders", "pay-.*", "twinshore.*"], "west")
    words = match_topics(asked, links, store)
    assert match_topics_without_twins(asked, links[0], words, on_east) == ["pay-new"]
    assert match_topics_without_twins(SwitchPlanRequest(["orders"], "west"), links[0], words, on_east) == []
