"""What stands in the way of moving groups is said; where a mover was killed, another one ends what it began."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from testkit.errors import mentions, raises
from testkit.log_lines import LogLines
from tests.scenarios.mirror_rig import settings_text
from twinshore.config.errors import ConfigError, RefusedError
from twinshore.config.frozen import GROUPS_HOME
from twinshore.config.model import Cluster
from twinshore.config.settings import Settings, parse_settings
from twinshore.groups.core.goals import GroupOnBothSides
from twinshore.groups.sync import GroupsHomeAnnouncer
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.cluster import LabCluster
from twinshore.lab.ports import free_port
from twinshore.proxy.core.model import HomeRoute, build_routes
from twinshore.proxy.operations import groups_move
from twinshore.proxy.operations.groups_move import GroupsHomeRecords, GroupsMoveStage, MoveGroups, act, plan
from twinshore.routing.core.home_records import HomeRecord, HomeState
from twinshore.routing.core.subscribers import HomeSubscription
from twinshore.routing.homes_topic import HomesTopic
from twinshore.state.store import open_store
from twinshore.switch.operations.plan import SwitchPlan
from twinshore.switch.operations.run import SwitchCaller
from twinshore.switch.operations.waves import WavesPlan

pytestmark = pytest.mark.usefixtures("no_topics_before")

SWITCH = "7" * 32


def settings(folder: Path, *clusters: Cluster) -> Settings:
    return parse_settings(settings_text(folder, clusters, {}), name="test", env={})


def stages(asked: MoveGroups, known: Settings) -> list[GroupsMoveStage]:
    with open_store(known.store.url) as store:
        meant = plan(asked, known, store)
        if meant.refusal:
            raise meant.refusal
        return [step.stage for step in meant.steps]


def done(asked: MoveGroups, known: Settings) -> list[tuple[GroupsMoveStage, str]]:
    with open_store(known.store.url) as store:
        return [(step.stage, step.to) for step in act(asked, plan(asked, known, store), known, store, "test")]


def test_groups_move_there_and_back_and_what_was_begun_is_ended(
    east: LabCluster, west: LabCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinshore.proxy.operations.groups_move.GATHER_MIN_S", 0.0)
    known = settings(tmp_path, east.cluster, west.cluster)
    with raises(ConfigError, "proxy.cluster-not-behind", cluster="north", clusters="east, west"):
        stages(MoveGroups("north"), known)
    assert stages(MoveGroups(), known) == []
    assert plan(MoveGroups("west"), known, None).refusal is not None, "nobody knows where they would stand"
    with raises(RefusedError, "proxy.groups-home-answers", home="east"):
        stages(MoveGroups("west", force=True), known)
    whole = [GroupsMoveStage.GATHER, GroupsMoveStage.HOLD, GroupsMoveStage.COPY, GroupsMoveStage.MOVE]
    assert stages(MoveGroups("west"), known) == whole
    assert done(MoveGroups("west"), known)[-1] == (GroupsMoveStage.MOVE, "west")
    assert stages(MoveGroups("west"), known) == [], "they are there"
    with ExitStack() as stack:
        words = words_of(stack, east, west)
        held = words.next(words.told()[0], HomeState.HELD, SWITCH, "killed")
        words.say(held, ["east", "west"])
        assert mentions(plan(MoveGroups(), known, None).shown[0], "killed")
        assert stages(MoveGroups("east"), known) == whole
        assert done(MoveGroups("west"), known) == [(GroupsMoveStage.STAY, "west")]
        told, _ = words.told()
        assert isinstance(told, HomeRecord)
        assert (told.state, told.home, told.term) == (HomeState.SETTLED, "west", 2)
        with raises(RefusedError, "proxy.groups-record-changed", cluster="east"):
            words.say(words.next(held, HomeState.HELD, SWITCH, "one that was paused"), ["east"])
    assert done(MoveGroups("east"), known)[-1] == (GroupsMoveStage.MOVE, "east")


@pytest.mark.parametrize("state", [HomeState.ANNOUNCED, HomeState.HELD])
def test_proxies_end_a_hold_of_groups_whose_mover_is_gone_and_a_late_mover_moves_nothing(
    east: LabCluster, west: LabCluster, state: HomeState
) -> None:
    with ExitStack() as stack:
        words, names = words_of(stack, east, west), ["east", "west"]
        said = words.next(words.told()[0], state, SWITCH, "a mover that dies", hold_s=3.2)
        words.say(said, names)
        proxy = HomeSubscription("a" * 32, "proxy", ["*"], names, "east")
        clusters = {lab.cluster.name: stack.enter_context(closing(KafkaCluster(lab.cluster))) for lab in (east, west)}
        ids = {one.cluster_id(): name for name, one in clusters.items()}
        lines = {name: HomesTopic(one).read() for name, one in clusters.items()}

        def lead_at(now_s: float) -> HomeRoute:
            for name in names:
                proxy.read(name, lines[name], now_s)
            return build_routes(proxy.told(), ids, {}, 0)[GROUPS_HOME]

        for now_s, waits in ((0.0, True), (3.1, True), (3.3, False), (9.9, False)):
            lead = lead_at(now_s)
            assert (lead.moves, lead.held) == (waits, waits and state is HomeState.HELD)
        time.sleep(0.3)
        with raises(RefusedError, "proxy.move-too-slow"):
            words.move(words.moved(said, "west", SWITCH, "a mover that was paused"), "west", names)
        told, _ = words.told()
        assert isinstance(told, HomeRecord)
        assert (told.home, told.word) == ("east", said.word)


def test_members_of_before_are_told_apart_from_those_who_came_past_the_proxies() -> None:
    """A cluster that is back still knows who was a member as it died."""
    why, _ = groups_move._judged({"g": GroupOnBothSides(new_live=True)}, "east", "west")
    assert why is not None and (why.code, why.values) == (
        "proxy.target-has-members",
        {"cluster": "west", "groups": "g"},
    )


def words_of(stack: ExitStack, *labs: LabCluster) -> GroupsHomeRecords:
    return GroupsHomeRecords([stack.enter_context(closing(KafkaCluster(lab.cluster))) for lab in labs], "east")


def test_away_from_a_home_that_is_gone_they_go_by_force_alone(
    west: LabCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinshore.proxy.operations.groups_move.CLUSTER_TIMEOUT_S", 1.0)
    gone = Cluster("gone", (f"127.0.0.1:{free_port()}",))
    known = settings(tmp_path, gone, west.cluster)
    with raises(RefusedError, "proxy.groups-home-silent", home="gone"):
        stages(MoveGroups("west"), known)
    assert done(MoveGroups("west", force=True), known) == [(GroupsMoveStage.MOVE, "west")]
    back = plan(MoveGroups("gone", force=True), known, None).refusal
    assert back is not None and "gone does not answer" in str(back)


@pytest.mark.claim(
    "proxy",
    "groups-home-known",
    "Behind a forced move of groups the old home hears of it once it is back, and the next failure moves them again",
)
def test_a_home_that_is_back_hears_where_groups_are_and_they_move_again_from_one_that_dies(
    east: LabCluster, west: LabCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines
) -> None:
    monkeypatch.setattr("twinshore.proxy.operations.groups_move.CLUSTER_TIMEOUT_S", 1.0)
    with ExitStack() as stack:
        words = words_of(stack, east, west)
        words.say(words.next(None, HomeState.SETTLED, SWITCH, "test"), ["east", "west"])
    east_down = settings(tmp_path, Cluster("east", (f"127.0.0.1:{free_port()}",)), west.cluster)
    west_down = settings(tmp_path, east.cluster, Cluster("west", (f"127.0.0.1:{free_port()}",)))
    assert done(MoveGroups("west", force=True), east_down) == [(GroupsMoveStage.MOVE, "west")]
    assert plan(MoveGroups("east", force=True), west_down, None).steps, "east alone says that they are there, in term 1"
    assert stages(MoveGroups("east", force=True), west_down) == [GroupsMoveStage.MOVE], "the store knows better"
    with open_store(east_down.store.url) as store, ExitStack() as stack:
        both = [stack.enter_context(closing(KafkaCluster(lab.cluster))) for lab in (east, west)]
        relay = GroupsHomeAnnouncer(store, both)
        relay.turn(0.0)
        assert [mentions(one, "east", "west", "term 2") for one in log_lines] == [True]
        told, _ = words_of(stack, east).told()
        assert isinstance(told, HomeRecord)
        assert (told.home, told.term) == ("west", 2)
        relay.again()
        relay.turn(10.0)
        assert len(log_lines) == 1, "it knows by now"
    assert done(MoveGroups("east", force=True), west_down) == [(GroupsMoveStage.MOVE, "east")]
    with ExitStack() as stack:
        told, _ = words_of(stack, east).told()
        assert isinstance(told, HomeRecord)
        assert (told.home, told.term) == ("east", 3)
    assert stages(MoveGroups("east"), settings(tmp_path, east.cluster, west.cluster)) == [GroupsMoveStage.STAY], (
        "west has not heard"
    )


def test_groups_that_have_gathered_go_along_or_stay(
    east: LabCluster, west: LabCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinshore.proxy.operations.groups_move.GATHER_MIN_S", 0.0)
    known, said = settings(tmp_path, east.cluster, west.cluster), list[str]()
    with open_store(known.store.url) as store:
        asking = SwitchCaller("test", said.append, threading.Event())
        meant = groups_move.plan_with_switch("west", known, store, SwitchPlan())
        assert groups_move.plan_with_switch("west", known, store, WavesPlan()).refusal, (
            "consumers would wait for all waves"
        )
        with groups_move.GroupsWithSwitch(meant, "west", known, store, asking, SwitchPlan()) as gathering:
            assert said == [], "consumers go on until the switch is announced"
            gathering.begin()
            assert said == ["members have committed, and wait"]
        assert stages(MoveGroups(), known) == [], "the switch turned back: they stay"
        assert "at home on east, in term 1" in plan(MoveGroups(), known, store).shown[0]
        with groups_move.GroupsWithSwitch(meant, "west", known, store, asking, SwitchPlan()) as gathering:
            gathering.begin()
            gathering.go_on()
        assert mentions(said[-1], "at home on west")
        groups_move.move_groups_by_force("east", known, store, "test", said.append)
        assert mentions(said[-1], "at home on east"), "it answers, so nothing is forced"
