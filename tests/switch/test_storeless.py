"""A forced switch without its store, before any cluster is asked: what is gone on with, and what is refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from testkit.errors import has_code, raises
from tests.switch.test_decision import record
from tests.switch.test_left_there import line, seen
from twinshore.config.errors import ConfigError, KafkaError, RefusedError
from twinshore.config.settings import Settings, load_settings
from twinshore.lab.ports import free_port
from twinshore.routing.core.home_records import HomeLog
from twinshore.state.store import Store, temporary_store
from twinshore.switch.core.steps import STEPS, SwitchKind, SwitchState, SwitchStatus, SwitchStep
from twinshore.switch.operations import dispatch, storeless
from twinshore.switch.operations.plan import SwitchPlan, SwitchPlanRequest
from twinshore.switch.operations.run import ClusterSwitchRecord, SwitchCaller, read_switch_records, switch_state_values
from twinshore.switch.operations.storeless import LastWriters, WithoutStore

pytestmark = pytest.mark.usefixtures("short_patience")

FORCED = replace(record(SwitchKind.FORCED), kept="west", step=SwitchStep.FENCE)
ASKED = SwitchPlanRequest(["orders"], "west", force=True)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    path = tmp_path / "twinshore.toml"
    names = "".join(f'[clusters.{name}]\nbootstrap = ["127.0.0.1:{free_port()}"]\n' for name in ("east", "west"))
    url = f"postgresql://somebody@127.0.0.1:{free_port()}/twinshore"
    path.write_text(f'[store]\nurl = "{url}"\n{names}[links."east->west"]\ntopics = ["orders"]\n')
    return load_settings(path, {})


@pytest.fixture
def store() -> Iterator[Store]:
    with temporary_store("of a test") as opened:
        yield opened


def log_of(*records: SwitchState) -> HomeLog:
    found = HomeLog()
    for one in records:
        for said in found.records.lines(one.id, switch_state_values(one)):
            found.take(*said)
    return found


def test_a_store_and_a_new_home_that_are_both_dead_are_told(settings: Settings) -> None:
    with pytest.raises(KafkaError, match="west"), storeless.open_store_or_cluster(ASKED, settings):
        raise AssertionError("nothing was there to plan with")


@pytest.mark.parametrize("step", STEPS[SwitchKind.FORCED])
def test_a_record_comes_back_from_the_cluster_at_each_step(step: SwitchStep) -> None:
    for state in SwitchStatus:
        one = replace(FORCED, step=step, state=state)
        (found,) = read_switch_records(log_of(one)).values()
        assert found.state == one


def test_what_is_no_record_of_such_a_switch_is_passed_over() -> None:
    planned = replace(record(), id="e" * 32)
    other = HomeLog()
    for said in other.records.lines("d" * 32, switch_state_values(FORCED)):
        other.take(*said)
    assert read_switch_records(other) == {}, "of another switch than its key says"
    assert read_switch_records(log_of(planned, replace(FORCED, kept=""))) == {}
    strange = HomeLog()
    for said in strange.records.lines(FORCED.id, {"id": FORCED.id}):
        strange.take(*said)
    assert read_switch_records(strange) == {}


def test_a_switch_that_was_begun_is_gone_on_with_from_its_step(settings: Settings, store: Store) -> None:
    where = WithoutStore(store, "the store is away", (), ClusterSwitchRecord(FORCED, "x"), {})
    planned = storeless.plan(ASKED, settings, where, by="bob")
    assert planned.state == FORCED
    assert planned.steps[0] is SwitchStep.FENCE
    assert planned.shown[0] == "the store is away"
    assert "resumed: ffffffff" in planned.shown[1]


def test_where_the_new_home_says_nothing_of_the_link_nobody_can_be_shut_out(settings: Settings, store: Store) -> None:
    planned = storeless.plan(ASKED, settings, WithoutStore(store, "", (), None, {}), by="bob")
    assert has_code(planned.refusal, "switch.no-claims", cluster="west")
    with pytest.raises(RefusedError):
        storeless.run_switch(
            planned,
            settings,
            WithoutStore(store, "", (), None, {}),
            SwitchCaller("bob", lambda _: None, threading.Event()),
        )


@pytest.mark.parametrize(
    ("topics", "claims", "code"),
    [("mixed", {}, "switch.mapped-twins"), ("orders", {"orders": "e" * 32}, "switch.claimed-in-store")],
)
def test_what_stands_in_the_way_is_refused(
    settings: Settings, store: Store, topics: str, claims: dict[str, str], code: str
) -> None:
    where = WithoutStore(store, "the store is away", (seen({}),), None, claims)
    planned = storeless.plan(SwitchPlanRequest([topics], "west", force=True), settings, where, by="bob")
    assert has_code(planned.refusal, code)
    assert planned.state is None


def test_whom_the_notes_name_must_have_written_there(settings: Settings, store: Store) -> None:
    """A note may be older than the link's last records: a fence for whoever it names would shut out nobody."""
    last = LastWriters(("orders-0",), ours=False)
    where = WithoutStore(store, "the store is away", (seen({}),), None, {}, last)
    planned = storeless.plan(ASKED, settings, where, by="bob")
    assert has_code(planned.refusal, "switch.foreign-writer", partitions="orders-0", cluster="west")
    assert not replace(last, ours=True).refused, "one stranger's record keeps nobody from switching"


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (replace(ASKED, producer="anna"), "switch.store-needed"),
        (replace(ASKED, group="billing"), "switch.store-needed"),
        (replace(ASKED, topics=()), "switch.nothing-to-switch"),
    ],
)
def test_what_is_asked_for_besides_topics_is_refused(
    settings: Settings, store: Store, asked: SwitchPlanRequest, code: str
) -> None:
    where = WithoutStore(store, "", (seen({}),), None, {})
    if asked.topics:
        assert has_code(storeless.plan(asked, settings, where, by="bob").refusal, code)
        return
    with raises(ConfigError, code):
        storeless.plan(asked, settings, where, by="bob")


def test_a_word_that_is_no_expression_is_told_before_anything_is_asked(settings: Settings) -> None:
    asked = replace(ASKED, topics=("[",))
    with pytest.raises(ConfigError, match="TOPIC"), storeless.open_store_or_cluster(asked, settings):
        raise AssertionError("it was looked for")


def test_the_lines_of_the_new_home_count_for_where_topics_are() -> None:
    assert seen({"orders": line("orders", "id-west", 2)}).elsewhere() == {"orders": "west"}


def test_a_plan_says_which_commands_are_run_and_is_refused_where_one_could_not_be(tmp_path: Path) -> None:
    path = tmp_path / "twinshore.toml"
    for program, why in (("/bin/true", ""), (str(path), "cannot be run on this host")):
        path.write_text(f'[switch]\nbefore = ["{program}"]\n')
        planned = dispatch.add_commands(SwitchPlan(state=FORCED), load_settings(path, {}))
        assert why in str(planned.refusal)
        assert (planned.state is None, len(planned.remarks)) == (bool(why), not why)


@pytest.mark.parametrize("step", [SwitchStep.BEFORE, SwitchStep.AFTER])
def test_nobody_takes_over_a_switch_while_its_command_may_run(step: SwitchStep) -> None:
    runs = replace(FORCED, step=step, command=step.value)
    assert storeless.record_idle_limit_s(runs, 30.0) > 30.0, "its record is not written meanwhile"
    assert storeless.record_idle_limit_s(replace(runs, command=""), 30.0) == storeless.RECORD_IDLE_S_MAX, (
        "none was begun"
    )
    assert storeless.record_idle_limit_s(replace(runs, step=SwitchStep.FENCE), 30.0) == storeless.RECORD_IDLE_S_MAX, (
        "it has ended"
    )
