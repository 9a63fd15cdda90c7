"""A forced switch without its store, before any cluster is asked: what is gone on with, and what is refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.switch.test_decision import record
from tests.switch.test_left_there import line, seen
from twinshore.config.errors import ConfigError, KafkaError, RefusedError
from twinshore.config.settings import Settings, load_settings
from twinshore.lab.ports import free_port
from twinshore.routing.core.records import HomeLog
from twinshore.state.store import Store, passing_store
from twinshore.switch.core.steps import DEEDS, Deed, Kind, State, SwitchState
from twinshore.switch.forced import LastWritten
from twinshore.switch.operations import dispatch, storeless
from twinshore.switch.operations.plan import Switch, SwitchPlan, asked_of
from twinshore.switch.operations.run import Asking, Open, records_of, values_of
from twinshore.switch.operations.storeless import Without

FORCED = replace(record(Kind.FORCED), kept="west", deed=Deed.FENCE)
ASKED = asked_of(["orders"], "west", force=True)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    path = tmp_path / "twinshore.toml"
    names = "".join(f'[clusters.{name}]\nbootstrap = ["127.0.0.1:{free_port()}"]\n' for name in ("east", "west"))
    url = f"postgresql://somebody@127.0.0.1:{free_port()}/twinshore"
    path.write_text(f'[store]\nurl = "{url}"\n{names}[links."east->west"]\ntopics = ["orders"]\n')
    return load_settings(path, {})


@pytest.fixture
def store() -> Iterator[Store]:
    with passing_store("of a test") as opened:
        yield opened


def log_of(*records: SwitchState) -> HomeLog:
    found = HomeLog()
    for one in records:
        for said in found.records.lines(one.id, values_of(one)):
            found.take(*said)
    return found


def test_a_store_and_a_new_home_that_are_both_dead_are_told(settings: Settings) -> None:
    with pytest.raises(KafkaError, match="west"), storeless.reached(ASKED, settings):
        raise AssertionError("nothing was there to plan with")


@pytest.mark.parametrize("deed", DEEDS[Kind.FORCED])
def test_a_record_comes_back_from_the_cluster_at_each_deed(deed: Deed) -> None:
    for state in State:
        one = replace(FORCED, deed=deed, state=state)
        (found,) = records_of(log_of(one)).values()
        assert found.record == one


def test_what_is_no_record_of_such_a_switch_is_passed_over() -> None:
    planned = replace(record(), id="e" * 32)
    other = HomeLog()
    for said in other.records.lines("d" * 32, values_of(FORCED)):
        other.take(*said)
    assert records_of(other) == {}, "of another switch than its key says"
    assert records_of(log_of(planned, replace(FORCED, kept=""))) == {}
    strange = HomeLog()
    for said in strange.records.lines(FORCED.id, {"id": FORCED.id}):
        strange.take(*said)
    assert records_of(strange) == {}


def test_a_switch_that_was_begun_is_gone_on_with_from_its_deed(settings: Settings, store: Store) -> None:
    where = Without(store, "the store is away", (), Open(FORCED, "x"), {})
    planned = storeless.plan(ASKED, settings, where, by="bob")
    assert planned.record == FORCED
    assert planned.steps[0].deed is Deed.FENCE
    assert planned.shown[0] == "the store is away"
    assert "gone on with: ffffffff" in planned.shown[1]


def test_where_the_new_home_says_nothing_of_the_link_nobody_can_be_shut_out(settings: Settings, store: Store) -> None:
    planned = storeless.plan(ASKED, settings, Without(store, "", (), None, {}), by="bob")
    assert "nothing on west says who writes its twins" in str(planned.refused)
    with pytest.raises(RefusedError):
        storeless.run_switch(
            planned, settings, Without(store, "", (), None, {}), Asking("bob", lambda _: None, threading.Event())
        )


@pytest.mark.parametrize(
    ("topics", "claims", "why"),
    [("mixed", {}, "mapped twins"), ("orders", {"orders": "e" * 32}, "orders is in switch eeeeeeee already")],
)
def test_what_stands_in_the_way_is_refused(
    settings: Settings, store: Store, topics: str, claims: dict[str, str], why: str
) -> None:
    where = Without(store, "the store is away", (seen({}),), None, claims)
    planned = storeless.plan(asked_of([topics], "west", force=True), settings, where, by="bob")
    assert why in str(planned.refused)
    assert planned.record is None


def test_whom_the_notes_name_must_have_written_there(settings: Settings, store: Store) -> None:
    """A note may be older than the link's last records: a fence for whoever it names would shut out nobody."""
    last = LastWritten(("orders-0",), ours=False)
    where = Without(store, "the store is away", (seen({}),), None, {}, last)
    planned = storeless.plan(ASKED, settings, where, by="bob")
    assert "orders-0 on west ends with records of another writer" in str(planned.refused)
    assert not replace(last, ours=True).refused, "one stranger's record keeps nobody from switching"


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (replace(ASKED, producer="anna"), "without the store topics alone are switched"),
        (replace(ASKED, group="billing"), "without the store topics alone are switched"),
        (replace(ASKED, topics=()), "nothing is to be switched"),
    ],
)
def test_what_is_asked_for_besides_topics_is_refused(settings: Settings, store: Store, asked: Switch, why: str) -> None:
    where = Without(store, "", (seen({}),), None, {})
    if asked.topics:
        assert why in str(storeless.plan(asked, settings, where, by="bob").refused)
        return
    with pytest.raises(ConfigError, match=why):
        storeless.plan(asked, settings, where, by="bob")


def test_a_word_that_is_no_expression_is_told_before_anything_is_asked(settings: Settings) -> None:
    asked = replace(ASKED, topics=("[",))
    with pytest.raises(ConfigError, match="TOPIC"), storeless.reached(asked, settings):
        raise AssertionError("it was looked for")


def test_the_lines_of_the_new_home_count_for_where_topics_are() -> None:
    assert seen({"orders": line("orders", "id-west", 2)}).elsewhere() == {"orders": "west"}


def test_a_plan_says_which_commands_are_run_and_is_refused_where_one_could_not_be(tmp_path: Path) -> None:
    path = tmp_path / "twinshore.toml"
    for program, why in (("/bin/true", ""), (str(path), "cannot be run on this host")):
        path.write_text(f'[switch]\nbefore = ["{program}"]\n')
        planned = dispatch.with_commands(SwitchPlan(record=FORCED), load_settings(path, {}))
        assert why in str(planned.refused)
        assert (planned.record is None, len(planned.remarks)) == (bool(why), not why)


@pytest.mark.parametrize("deed", [Deed.BEFORE, Deed.AFTER])
def test_nobody_takes_over_a_switch_while_its_command_may_run(deed: Deed) -> None:
    runs = replace(FORCED, deed=deed, command=deed.value)
    assert storeless.alive_s(runs, 30.0) > 30.0, "its record is not written meanwhile"
    assert storeless.alive_s(replace(runs, command=""), 30.0) == storeless.ALIVE_S, "none was begun"
    assert storeless.alive_s(replace(runs, deed=Deed.FENCE), 30.0) == storeless.ALIVE_S, "it has ended"
