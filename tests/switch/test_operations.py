"""What operators may ask of switches, without a command line: refused in time, and told from the store alone."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from testkit.errors import has_code, mentions, raises
from tests.switch.flips import flip_of
from tests.switch.test_decision import NOW_MS, record
from twinshore.config.errors import ConfigError, RefusedError
from twinshore.config.model import TERM_MAX, Link, OffsetMode, OffsetRun, SourceOffset, TargetOffset
from twinshore.config.settings import Settings, load_settings
from twinshore.kafka.protocol.access_control import Acl, AclOperation, AclPermission, PatternType, ResourceType
from twinshore.lab.ports import free_port
from twinshore.replication.core.lag import LagStatus, TopicLag, lag_row
from twinshore.runtime.lease_keeper import exclusive
from twinshore.state.core.values import ControlRow, MirrorRequest, SwitchRow, TopicInSwitch, TwinRow
from twinshore.state.store import Store, open_store
from twinshore.switch.core.acl_rules import RulesPlan
from twinshore.switch.core.steps import SwitchKind, SwitchState, SwitchStatus, SwitchStep
from twinshore.switch.core.takeover import UnreplicatedOffsets, estimate_unreplicated
from twinshore.switch.drain import describe_drill_failure, describe_drill_writes, find_paused_topics
from twinshore.switch.operations.dispatch import plan_switch
from twinshore.switch.operations.one_client import plan_group, plan_producer, writers_by_rule
from twinshore.switch.operations.plan import (
    DiskShortage,
    SwitchPlanRequest,
    find_conflicting_switches,
    find_link,
    no_link_error,
    plan,
)
from twinshore.switch.operations.run import SwitchCaller, keep_own_topics, resume, roll_back, run_switch
from twinshore.switch.operations.show import SwitchView, find_switch, list_switches, mark_lifeless

pytestmark = pytest.mark.usefixtures("short_patience")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
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
        opened.twins.save(
            [TwinRow(link, "orders", 0, "a" * 32, "b" * 32, 0, 0, 1) for link in ("east->west", "east->north")]
        )
        yield opened


def asking() -> SwitchCaller:
    return SwitchCaller("anna", lambda _: None, threading.Event())


def saved(store: Store, one: SwitchState) -> SwitchState:
    row = SwitchRow(one.id, one.kind, one.old, one.new, one.state, one.to_json(), one.by, one.begun_ms, one.begun_ms)
    store.switches.save(replace(row, ended_ms=NOW_MS) if one.ended else row)
    return one


@pytest.mark.parametrize(
    ("topics", "to", "words"),
    [
        (["orders"], "wset", "wset"),
        (["("], "west", "TOPIC"),
        (["orders"], "east", "no link leads to east"),
        (["ordres"], "west", "did you mean"),
    ],
)
def test_what_nobody_can_mean_is_told(settings: Settings, store: Store, topics: list[str], to: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plan(SwitchPlanRequest(topics, to), settings, store)


@pytest.mark.parametrize(
    ("topics", "group", "force", "code"),
    [
        ([], "", False, "switch.nothing-to-switch"),
        (["orders"], "billing", False, "switch.group-or-topics"),
        ([], "bill.*", False, "switch.group-not-a-name"),
        ([], "billing", True, "switch.group-planned-only"),
    ],
)
def test_what_nobody_can_mean_of_a_group_is_told(
    settings: Settings, store: Store, topics: list[str], group: str, force: bool, code: str
) -> None:
    with raises(ConfigError, code):
        plan_switch(SwitchPlanRequest(topics, "west", group=group, force=force), settings, store)
    with pytest.raises(ConfigError, match="wset"):
        plan_group(SwitchPlanRequest([], "wset", group="billing"), settings, store)


def test_one_producer_alone_is_refused_with_what_to_do(settings: Settings, store: Store) -> None:
    """On a same-name link its topic has one home; on a prefix link both sides are written anyway."""
    same = plan_producer(SwitchPlanRequest(["orders"], "west", producer="anna"), settings, store).refusal
    assert same is not None
    assert has_code(same, "switch.producer-not-alone", producer="anna", topics="orders", source="east")
    assert "twinshore switch run 'orders' --to west" in same.hint
    prefix = plan_switch(SwitchPlanRequest(["orders"], "north", producer="anna"), settings, store).refusal
    assert prefix is not None
    assert has_code(prefix, "switch.producer-moves-alone", producer="anna")
    assert "east.orders" in prefix.hint
    for asked in (
        SwitchPlanRequest([], "west", producer="anna"),
        SwitchPlanRequest(["orders"], "west", producer="anna", group="b"),
    ):
        with raises(ConfigError, "switch.producer-needs-topics"):
            plan_switch(asked, settings, store)
    every = ("*", AclOperation.WRITE, AclPermission.ALLOW)
    rules = [Acl(ResourceType.TOPIC, "orders", PatternType.LITERAL, f"User:{who}", *every) for who in ("bob", "anna")]
    rules.append(replace(rules[0], principal="User:eve", permission=AclPermission.DENY))
    rules.append(replace(rules[0], principal="User:zoe", operation=AclOperation.READ))
    assert writers_by_rule(rules, ["orders"]) == {"User:anna", "User:bob"}
    assert writers_by_rule(rules, ["others"]) == set()


def test_where_no_twin_is_mapped_the_links_mode_is_named_and_what_ends_it(settings: Settings, store: Store) -> None:
    """It named mapped twins, and there were none."""
    adopts = settings.with_links([replace(one, mode=OffsetMode.MAPPED) for one in settings.links])
    refused = plan(SwitchPlanRequest(["orders"], "west"), adopts, store).refusal
    assert refused is not None and has_code(refused, "switch.link-adopts", link="east->west")
    assert "`twinshore link set 'east->west' 'mode=\"exact\"'` ends that" in refused.hint
    row = TwinRow("east->west", "orders", 0, "a" * 32, "b" * 32, 0, 0, 1)
    store.offset_runs.adopt([(row, OffsetRun(SourceOffset(0), TargetOffset(5), 0, 0))])
    refused = plan(SwitchPlanRequest(["orders"], "west"), adopts, store).refusal
    assert has_code(refused, "switch.mapped-twins", topics="orders")


def test_what_operators_paused_is_not_held_for_nothing(store: Store) -> None:
    """Its twin would never be level; by force it moves with what has crossed, and the preview says how much has not."""
    link = Link("east", "west", ("orders",))
    assert find_paused_topics(link, ["orders"], store) == []
    row = ControlRow("east->west", "paused_topics", '["ord.*"]', NOW_MS, "anna")
    assert store.controls.change(
        "east->west", {"paused_topics": row}, seen=store.controls.version("east->west"), told=[]
    )
    assert find_paused_topics(link, ["orders"], store) == ["orders"]
    word = LagStatus(NOW_MS, 2_581, 1, 0, {"orders": TopicLag(1, 10, 2_591, 2_581)})
    missing = estimate_unreplicated({"orders": 1}, (), word, every=True)
    assert missing == UnreplicatedOffsets(2_581, NOW_MS), "receipts know only what came with what was carried"


def test_what_a_store_has_never_seen_is_not_called_crossed(settings: Settings, store: Store) -> None:
    asked = SwitchPlanRequest(["orders"], "west", force=True)
    assert not mentions(plan(asked, settings, store).shown[1], "2,581")
    store.link_states.remember([lag_row("east->west", LagStatus(NOW_MS, 2_581, 1, 0))])
    assert mentions(plan(asked, settings, store).shown[1], "not known", "east", "2,581 offsets")


def test_a_switch_whose_process_is_no_more_is_called_so(store: Store) -> None:
    """Whoever is on call reads that writers wait, and what he can do."""
    held = saved(store, replace(record(), step=SwitchStep.DRAIN, held_ms=NOW_MS))
    done = saved(store, replace(record(), id="e" * 32, step=SwitchStep.RELEASE, state=SwitchStatus.DONE))
    one, other = mark_lifeless(store, [find_switch(store, held.id), find_switch(store, done.id)])
    assert "no sign of life; WRITERS WAIT: `twinshore switch resume ffffffff` goes on, `twinshore switch rollback" in (
        one.sentence()
    )
    assert "sign of life" not in other.sentence()
    with exclusive(f"switch {held.id}", store, "anna"):
        (alive,) = mark_lifeless(store, [find_switch(store, held.id)])
    assert not alive.lifeless


def test_a_slip_of_the_pen_beside_topics_that_are_carried_moves_nothing(settings: Settings, store: Store) -> None:
    """By force the old home is not asked for it."""
    with raises(ConfigError, "switch.no-link-for", to="west", topics="ordres", near="; did you mean orders?"):
        plan_switch(SwitchPlanRequest(["orders", "ordres"], "west", force=True), settings, store)
    with raises(ConfigError, "switch.no-link-for", topics="pay.*"):
        plan_switch(SwitchPlanRequest(["orders", "pay.*"], "west", force=True), settings, store)


def test_by_force_a_topic_moves_that_its_link_carries_no_more_also_beside_another(
    settings: Settings, store: Store
) -> None:
    store.twins.save([TwinRow("east->west", "bills", 0, "c" * 32, "d" * 32, 0, 0, 1)])
    links = [link for link in settings.links if link.target == "west"]
    link, rows = find_link(SwitchPlanRequest(["orders", "bills"], "west", force=True), links, store)
    assert (link.name, sorted(row.topic for row in rows)) == ("east->west", ["bills", "orders"])
    with raises(ConfigError, "switch.no-link-for", topics="bills"):
        find_link(SwitchPlanRequest(["orders", "bills"], "west"), links, store)
    with raises(ConfigError, "switch.no-link-for", topics="bllis", near="; did you mean bills?"):
        find_link(SwitchPlanRequest(["bills", "bllis"], "west", force=True), links, store)
    moved_before = replace(SwitchPlanRequest(["orders", "gone"], "west"), of="e" * 32)
    assert [row.topic for row in find_link(moved_before, links, store)[1]] == ["orders"]


def test_only_brokers_without_room_keep_a_planned_switch_from_being_made() -> None:
    assert DiskShortage().refused() is None
    assert DiskShortage("west has little room").refused() is None
    refused = DiskShortage("west has no room", full=True).refused()
    assert refused and "free space there first" in refused.hint


def test_a_topic_without_a_link_is_told_how_it_gets_one(settings: Settings) -> None:
    links = [link for link in settings.links if link.target == "west"]
    told = no_link_error(["invoices"], links, "west", ["orders"])
    assert has_code(told, "switch.no-link-for", to="west", topics="invoices", sources="east")


def test_what_stands_in_the_way_is_refused_before_anything_is_done(settings: Settings, store: Store) -> None:
    away = plan(SwitchPlanRequest(["orders"], "west"), settings, store)
    assert "does not answer" in str(away.refusal)
    assert away.steps == ()
    with pytest.raises(RefusedError):
        run_switch(away, settings, store, asking())
    renamed = plan(SwitchPlanRequest(["orders"], "north"), settings, store)
    assert "other names" in str(renamed.refusal)
    assert list_switches(store) == []


@pytest.mark.parametrize("force", [False, True])
def test_a_topic_that_has_changed_homes_too_often_stays(settings: Settings, store: Store, force: bool) -> None:
    """Its link's next epoch would not fit into a batch's header."""
    store.topics_in_switch.change_homes([flip_of("orders", "west", "east", TERM_MAX, (9,), since_ms=NOW_MS, by="bob")])
    refused = plan(SwitchPlanRequest(["orders"], "west", force=force), settings, store).refusal
    assert has_code(refused, "switch.home-moved-too-often", topics="orders", count=TERM_MAX)


def test_a_switch_is_found_by_the_beginning_of_its_id(store: Store) -> None:
    first = saved(store, record())
    second = saved(store, replace(record(), id="e" * 32, begun_ms=NOW_MS + 1))
    assert [one.id for one in list_switches(store)] == [second.id, first.id]
    assert find_switch(store, "ff").state == first
    with raises(ConfigError, "switch.several-switches", count=2):
        find_switch(store, "")
    with raises(ConfigError, "switch.no-such-switch", switch="abc"):
        find_switch(store, "abc")
    saved(store, replace(first, state=SwitchStatus.ROLLED_BACK, why="no"))
    assert find_switch(store, "").state == second
    assert "turned back: no" in find_switch(store, "ff").sentence()
    assert mentions(find_switch(store, "ff").verdict(), "turned back", "no", "orders", "east")
    assert find_switch(store, "ff").history()[0].endswith("by anna")


@pytest.mark.parametrize(
    ("kind", "called"),
    [
        (SwitchKind.PLANNED, "planned switch of orders from east to west"),
        (SwitchKind.FAILBACK, "fail-back of orders: east is filled from west"),
        (SwitchKind.MAPPED_FAILBACK, "mapped fail-back of orders: east goes on with what west has"),
        (SwitchKind.REBUILD, "rebuild of orders on east from west"),
    ],
)
def test_history_calls_a_switch_by_what_it_does(kind: SwitchKind, called: str) -> None:
    one = replace(record(kind), state=SwitchStatus.DONE)
    assert f"  {called}, by anna: done" in SwitchView(one.id, one).sentence()
    assert one.history[0].sentence == f"{called.replace('orders', '1 topic')}, by anna"


def test_what_moved_says_what_to_do_next() -> None:
    planned, forced, drill = (
        replace(record(kind), state=SwitchStatus.DONE)
        for kind in (SwitchKind.PLANNED, SwitchKind.FORCED, SwitchKind.DRILL)
    )
    clients = "next: point producers and consumers to west; those that follow homes go there by themselves"
    assert SwitchView(planned.id, planned).onward() == (clients,)
    _, once = SwitchView(forced.id, forced).onward()
    assert once == (
        "once east is back, and its mirror runs: `twinshore switch failback orders --old east` saves unreplicated"
        " records"
    )
    dotted = replace(forced, topics=tuple(replace(forced.topics[0], topic=name) for name in ("a.b", "c")))
    assert "failback 'a\\.b' c --old" in SwitchView(dotted.id, dotted).onward()[1]
    many = replace(forced, topics=tuple(replace(forced.topics[0], topic=f"x.{name}") for name in "abcdef"))
    assert "failback 'x\\..*' --old east" in SwitchView(many.id, many).onward()[1], "not all topics of the cluster"
    waves = replace(forced, plan="a" * 32)
    assert "failback '.*' --old east" in SwitchView(waves.id, waves).onward()[1], "each wave has moved some"
    assert SwitchView(drill.id, drill).onward() == ()
    turned = replace(planned, state=SwitchStatus.ROLLED_BACK)
    assert SwitchView(turned.id, turned).onward() == ()
    tails = '[{"topic": "orders", "partition": 0, "first": 5, "end": 9, "records": 4}]'
    back = replace(record(SwitchKind.FAILBACK), state=SwitchStatus.DONE, tails=tails)
    assert "rescue reinject" in SwitchView(back.id, back).onward()[0]


def test_of_a_forced_switch_no_writer_is_said_to_have_waited() -> None:
    """Nobody was held, and the old home was dead before: what counts is when the new one took writes."""
    forced, planned = (
        replace(
            record(kind),
            begun_ms=NOW_MS - 9_000,
            held_ms=NOW_MS + 2_000,
            let_write_ms=NOW_MS + 2_500,
            state=SwitchStatus.DONE,
        )
        for kind in (SwitchKind.FORCED, SwitchKind.PLANNED)
    )
    shown = SwitchView(forced.id, forced)
    assert shown.sentence().endswith(", by anna: done, west writable 2.5 s after the command")
    assert (shown.done, shown.as_values()["held_s"]) == (True, 0.0)
    assert SwitchView(planned.id, planned).sentence().endswith(", by anna: done, writers that follow waited 0.5 s")
    for rules, who in (
        (RulesPlan(), "writers waited"),
        (RulesPlan(open_to_all=("orders",)), "writers that follow waited"),
        (RulesPlan(ruled=False), "writers that follow waited"),
    ):
        held = replace(planned, rights=json.dumps(rules.as_record()))
        assert SwitchView(held.id, held).verdict().endswith(f"; {who} 0.5 s")
    turned = replace(record(SwitchKind.FORCED), held_ms=NOW_MS, state=SwitchStatus.ROLLED_BACK, why="no")
    assert SwitchView(turned.id, turned).sentence().endswith(": turned back: no")


def test_a_drill_that_found_something_in_the_way_has_failed() -> None:
    drill = replace(record(SwitchKind.DRILL), state=SwitchStatus.DONE)
    assert SwitchView(drill.id, drill).sentence().endswith(": done")
    failed = replace(drill, why="the twins are 5 offsets behind")
    assert SwitchView(failed.id, failed).sentence().endswith(": failed: the twins are 5 offsets behind")


def test_behind_its_point_of_no_return_a_switch_is_not_rolled_back(settings: Settings, store: Store) -> None:
    saved(store, replace(record(), step=SwitchStep.FENCE))
    with raises(RefusedError, "switch.committed", switch="f" * 8):
        roll_back("", settings, store, asking())


def test_what_has_ended_is_not_gone_on_with(settings: Settings, store: Store) -> None:
    saved(store, replace(record(), state=SwitchStatus.ROLLED_BACK))
    with raises(ConfigError, "switch.none-open"):
        resume("", settings, store, asking())


def test_a_switch_that_goes_on_is_not_taken_over(store: Store) -> None:
    """What stands on the topics is found by its claim, and by its record where the claim is not there yet."""
    link = Link("east", "west")
    assert find_conflicting_switches(link, ["orders"], store) == ()
    first = saved(store, record())
    assert find_conflicting_switches(link, ["orders"], store) == (first,)
    assert find_conflicting_switches(link, ["bills"], store) == ()
    row = TopicInSwitch("east<>west", "orders", first.id, "east->west", MirrorRequest.ANNOUNCED, NOW_MS)
    store.topics_in_switch.begin([row])
    ended = saved(store, replace(first, state=SwitchStatus.ROLLED_BACK, why="killed before its claim went"))
    assert find_conflicting_switches(link, ["orders"], store) == (ended,)
    saved(store, replace(first, step=SwitchStep.FENCE))
    with raises(RefusedError, "switch.not-taken-over", switch="f" * 8):
        find_conflicting_switches(link, ["orders"], store)


@pytest.mark.parametrize("step", [SwitchStep.AFTER, SwitchStep.START_REVERSE, SwitchStep.RELEASE])
def test_one_that_was_killed_as_it_let_go_is_found_by_a_switch_back(store: Store, step: SwitchStep) -> None:
    """Its rows are gone, its claims on both clusters are not: the switch back would meet them and turn back."""
    flipped = saved(store, replace(record(), step=step))
    assert find_conflicting_switches(Link("west", "east"), ["orders"], store) == (flipped,)
    assert find_conflicting_switches(Link("west", "east"), ["bills"], store) == ()


def test_a_row_that_nobody_can_read_keeps_no_other_topic_from_moving(store: Store) -> None:
    """Whatever a later version, or a stranger, left in the table: who waits for the switch must not wait for that."""
    link, one = Link("east", "west"), record()
    row = SwitchRow(one.id, one.kind, one.old, one.new, one.state, one.to_json(), one.by, one.begun_ms, one.begun_ms)
    store.switches.save(replace(row, switch_state='{"kind": "of a later version"}'))
    assert find_conflicting_switches(link, ["orders"], store) == ()
    store.topics_in_switch.begin(
        [TopicInSwitch("east<>west", "orders", one.id, "east->west", MirrorRequest.ANNOUNCED, NOW_MS)]
    )
    with raises(RefusedError, "switch.record-unreadable", switch=one.id[:8]):
        find_conflicting_switches(link, ["orders"], store)


def test_what_was_decided_without_the_store_does_nothing_to_a_home_of_long_ago(store: Store) -> None:
    """It is owed since; meanwhile bob has moved the topic back, and then again."""
    link, pair = Link("east", "west"), "east<>west"
    owed = saved(
        store,
        replace(record(SwitchKind.FORCED), state=SwitchStatus.DONE, step=SwitchStep.RELEASE, kept="west").as_kept(),
    )
    with raises(RefusedError, "switch.not-taken-over", switch="f" * 8):
        find_conflicting_switches(link, ["orders"], store)
    onward = keep_own_topics(replace(owed, kept="", awaits_store=False), {}, store)
    assert (onward.topics, onward.ended) == (owed.topics, False)
    assert [row.switch_id for row in store.topics_in_switch.of(pair)] == [owed.id], "nobody else moves it meanwhile"
    store.topics_in_switch.end(owed.id)
    there = {"orders": ("west", 2)}
    assert keep_own_topics(owed, there, store).topics == owed.topics
    store.topics_in_switch.end(owed.id)
    assert keep_own_topics(owed, {"orders": ("east", 3)}, store).ended, "the store may be behind the clusters"
    store.topics_in_switch.change_homes([flip_of("orders", "west", "east", 3, (9,), since_ms=NOW_MS, by="bob")])
    assert find_conflicting_switches(link, ["orders"], store) == (), "a forced switch is free again"
    over = keep_own_topics(owed, there, store)
    assert (over.state, over.kept, over.awaits_store) == (SwitchStatus.DONE, "", False)
    assert mentions(over.history[-1].sentence, "orders")
    assert store.topics_in_switch.of(pair) == ()


def test_what_another_switch_has_by_now_waits_for_that(store: Store) -> None:
    owed = replace(record(SwitchKind.FORCED), state=SwitchStatus.DONE, step=SwitchStep.RELEASE, kept="west").as_kept()
    store.topics_in_switch.begin(
        [TopicInSwitch("east<>west", "orders", "e" * 32, "west->east", MirrorRequest.ANNOUNCED, NOW_MS)]
    )
    with raises(RefusedError, "switch.topics-claimed", topics="orders", switch="eeeeeeee"):
        keep_own_topics(owed, {}, store)
    assert [row.switch_id for row in store.topics_in_switch.of("east<>west")] == ["e" * 32]


def test_a_drill_beside_which_somebody_writes_whom_nothing_can_hold_finds_that_in_the_way() -> None:
    quiet = replace(record(SwitchKind.DRILL), state=SwitchStatus.DONE, held_ms=NOW_MS, let_write_ms=NOW_MS + 400)
    shown = SwitchView(quiet.id, quiet)
    assert shown.done
    assert mentions(shown.verdict(), "orders", "west", "0.4 s")
    written = replace(quiet, why=describe_drill_failure(["orders"]))
    shown = SwitchView(written.id, written)
    assert not shown.done
    why = "orders was written during the drill by writers that nothing can hold: a switch would have turned back"
    assert shown.verdict().startswith(f"{why}; ") and mentions(shown.verdict(), "0.4 s")
    assert shown.sentence().endswith(f", by anna: failed: {why}, took 0.4 s")
    assert describe_drill_writes(["orders", "bills"], []) == "no client wrote to bills, orders during the drill"
    assert mentions(describe_drill_writes(["orders", "bills"], ["orders"]), "orders", "clients")
