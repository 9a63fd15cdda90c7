"""Which places on twins follow their home once a fail-back or a rebuild has ended, and which are left alone."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from testkit.errors import mentions
from tests.switch.test_decision import NOW_MS, record
from tests.switch.test_hands import hands
from twinshore.config.errors import KafkaError, WireError
from twinshore.config.frozen import COMMIT_MARK
from twinshore.config.model import Link
from twinshore.groups.core.commit_rules import GroupSyncStatus
from twinshore.groups.offset_move import DONE, NOT_DONE, WantedOffsets, build_wanted_offsets
from twinshore.groups.view import GroupView, PartitionView
from twinshore.kafka.protocol.offsets import CommittedOffset
from twinshore.state.store import temporary_store
from twinshore.switch import drain, handover, rescue_steps
from twinshore.switch.core.steps import (
    STEPS,
    StepDone,
    StepPending,
    SwitchKind,
    SwitchState,
    SwitchStep,
    find_topics_left_by_force,
)
from twinshore.switch.core.steps import SwitchStatus as Ended
from twinshore.switch.core.unreplicated import UnreplicatedRange, ranges_to_json
from twinshore.switch.handover import SavedOffset
from twinshore.switch.rescue_steps import OFFSETS_STABLE_MS
from twinshore.switch.write_access import UNREACHABLE_MS_MAX

# The topics were at home on east, and are on west now: the link back fills the twins on east.
BACK = Link("west", "east")
BOUND = replace(BACK, groups=replace(BACK.groups, outputs=(("count.*", ("out",)),)))


def part(topic: str, state: GroupSyncStatus, target: int, source: int = 9_000) -> PartitionView:
    return PartitionView(topic, 0, source, topic, source, target, state.value, 9_000)


def view(group: str, *parts: PartitionView, target: str = "Empty", why: str = "") -> GroupView:
    return GroupView("west->east", group, "classic", "Stable", target, parts[0].state, 0, 0, 0.0, parts, why=why)


def forced(*topics: str, **other: Any) -> SwitchState:
    moved = tuple(replace(record().topics[0], topic=topic) for topic in topics)
    return replace(
        record(SwitchKind.FORCED), topics=moved, **{"state": Ended.DONE, "step": SwitchStep.RELEASE, **other}
    )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Says what was committed, and the sentence, by what both clusters show."""

    def follow(
        *views: GroupView, link: Link = BACK, left: tuple[SwitchState, ...] = (), **ends: int
    ) -> tuple[dict[str, WantedOffsets], str]:
        done: dict[str, WantedOffsets] = {}

        def commit(links: list[Link], *args: Any, **how: bool) -> dict[str, list[Any]]:
            wanted = args[2]
            assert (links, how) == ([link], {"mark": True, "notes": False})
            done.update({name: build_wanted_offsets(goals, COMMIT_MARK) for name, goals in wanted.items()})
            return {name: [SimpleNamespace(outcome=NOT_DONE if name == "gone-on" else DONE)] for name in wanted}

        monkeypatch.setattr(handover, "view_groups", lambda *_: list(views))
        monkeypatch.setattr(handover, "set_offsets", commit)
        settings: Any = None
        with temporary_store("east") as store:
            for number, one in enumerate(left):
                store.switches.save(replace(one, id=f"{number:032x}").row(NOW_MS + number))
            upto = {(topic, 0): end for topic, end in ends.items()}
            return done, handover.let_offsets_follow_home(link, settings, store, ["in", "out"], "anna", upto)

    return follow


def test_a_place_that_waits_for_outputs_is_the_mirrors(asked: Any) -> None:
    """The group's readers made something of what lies between, which has not crossed yet."""
    waits = view("counter", part("in", GroupSyncStatus.WAITS, 4_000))
    for left in ((), (forced("in", "out"),)):
        assert asked(waits, link=BOUND, left=left) == ({}, "")


def test_a_group_bound_by_outputs_gets_the_mark_where_it_stands(asked: Any) -> None:
    """The mirror's own round moves it then, with all places of one moment."""
    seen = view("counter", part("in", GroupSyncStatus.OWN, 4_000), part("out", GroupSyncStatus.WAITS, 3))
    done, said = asked(seen, link=BOUND, left=(forced("in"),))
    assert done == {"counter": {("in", 0): (4_000, CommittedOffset(4_000, COMMIT_MARK))}}
    assert mentions(said, "counter", "west")


def test_what_a_forced_switch_left_there_follows(asked: Any) -> None:
    seen = view("billing", part("in", GroupSyncStatus.OWN, 7), part("out", GroupSyncStatus.AHEAD, 9_001))
    done, said = asked(seen, left=(forced("in", "out"),))
    assert done == {"billing": {("in", 0): (7, CommittedOffset(9_000, COMMIT_MARK))}}
    assert mentions(said, "billing", "west")
    level = view("billing", replace(part("in", GroupSyncStatus.OWN, 5_000), end=5_000))
    done, _ = asked(level, left=(forced("in"),))
    assert done == {"billing": {("in", 0): (5_000, CommittedOffset(5_000, COMMIT_MARK))}}, (
        "it stands at the twin's end, and is not its"
    )


def test_who_reads_the_twin_on_his_own_is_left_alone_and_named(asked: Any) -> None:
    done, said = asked(view("nightly", part("in", GroupSyncStatus.OWN, 100)))
    assert done == {}
    assert said == (
        "group nightly has offsets of its own on east, which are left unchanged; `twinshore groups move` for nightly "
        "where it should follow"
    )


def test_who_has_members_there_or_is_not_told_of_or_went_on_is_named(asked: Any) -> None:
    busy = view("busy", part("in", GroupSyncStatus.OWN, 7), target="Stable")
    silent = view("silent", part("in", GroupSyncStatus.AWAY, 7), why="nobody answers")
    gone_on = view("gone-on", part("in", GroupSyncStatus.OWN, 7))
    done, said = asked(busy, silent, gone_on, left=(forced("in"),))
    assert list(done) == ["gone-on"]
    assert said == "`twinshore groups move` for busy, gone-on, silent"
    away = replace(view("billing", part("in", GroupSyncStatus.OWN, 7)), said_s_ago=3.0)
    with pytest.raises(KafkaError, match="west does not answer"):
        asked(away, left=(forced("in"),))


def test_who_has_not_read_there_what_never_crossed_is_left_where_it_is(asked: Any) -> None:
    """Its twin goes on mapped, behind that."""
    seen = [view(group, part("in", GroupSyncStatus.OWN, at)) for group, at in (("read", 97), ("has-not", 96))]
    for one in (*seen, view("both", part("in", GroupSyncStatus.OWN, 96), part("out", GroupSyncStatus.OWN, 7))):
        done, said = asked(one, left=(forced("in", "out"),), **{"in": 97})
        wanted = {"read": [("in", 0)], "both": [("out", 0)]}
        assert list(done.get(one.group, {})) == wanted.get(one.group, [])
        assert ("unreplicated" in said) is (one.group != "read"), said
    theirs = view("nightly", part("in", GroupSyncStatus.OWN, 7))
    assert mentions(asked(theirs, **{"in": 97})[1], "nightly", "east", "of its own")
    assert "unreplicated" not in asked(theirs, **{"in": 97})[1]


def test_a_place_is_left_by_force_until_its_topic_moves_or_is_a_twin() -> None:
    left = forced("in", "out")
    assert find_topics_left_by_force([left], ["in", "others"], "east", "west") == {"in"}
    assert find_topics_left_by_force([left], ["in"], "west", "east") == frozenset()
    assert find_topics_left_by_force([replace(left, kind=SwitchKind.PLANNED)], ["in"], "east", "west") == frozenset()
    going = replace(left, state=Ended.RUNNING, step=STEPS[SwitchKind.FORCED][0])
    assert find_topics_left_by_force([going], ["in"], "east", "west") == frozenset(), "nothing has moved yet"
    assert find_topics_left_by_force([replace(going, step=SwitchStep.APPLY_SETTINGS)], ["in"], "east", "west") == {
        "in"
    }, "the store is owed it"
    for kind in (SwitchKind.FAILBACK, SwitchKind.MAPPED_FAILBACK, SwitchKind.REBUILD, SwitchKind.PLANNED):
        since = forced("out", kind=kind)
        assert find_topics_left_by_force([since, left], ["in", "out"], "east", "west") == {"in"}
    unseen = forced("out", kind=SwitchKind.FAILBACK, unfollowed=True)
    assert find_topics_left_by_force([unseen, left], ["in", "out"], "east", "west") == {"in", "out"}, (
        "nobody had it follow"
    )
    died = replace(left, kind=SwitchKind.PLANNED, unfollowed=True)
    assert find_topics_left_by_force([died], ["in"], "east", "west") == {"in"}, (
        "its old home died before groups were copied"
    )
    assert (
        find_topics_left_by_force([forced("in", kind=SwitchKind.FAILBACK), died], ["in"], "east", "west") == frozenset()
    )
    now = forced("in", kind=SwitchKind.FAILBACK, state=Ended.RUNNING, step=SwitchStep.RESTORE_OFFSETS)
    assert find_topics_left_by_force([now, left], ["in"], "east", "west") == {"in"}, "the one that asks counts not"


@pytest.mark.parametrize(
    ("saved", "there", "lacks"),
    [
        (CommittedOffset(40, ""), None, True),
        (CommittedOffset(40, COMMIT_MARK), None, True),
        (CommittedOffset(40, ""), CommittedOffset(200, COMMIT_MARK), True),
        (CommittedOffset(40, ""), CommittedOffset(200, ""), False),
        (CommittedOffset(40, COMMIT_MARK), CommittedOffset(200, COMMIT_MARK), False),
        (CommittedOffset(40, ""), CommittedOffset(60, ""), True),
        (CommittedOffset(40, ""), CommittedOffset(40, ""), False),
    ],
    ids=[
        "forgotten",
        "forgotten of the link",
        "filled by the link",
        "gone on",
        "the link's",
        "the old topic's",
        "put back",
    ],
)
def test_who_read_a_twin_on_his_own_reads_on_there_though_the_link_has_given_him_its_homes_place(
    saved: CommittedOffset, there: CommittedOffset | None, lacks: bool
) -> None:
    assert handover.needs_restore(SavedOffset(saved._replace(offset=60), saved), there) is lacks


def test_a_group_is_put_back_only_once_it_has_stood_for_a_while_since_it_last_did_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The link's round may have found no place right before, and give it its home's afterwards."""
    lacks, clock = iter([(), ("billing",), (), ("billing",), (), ()]), [NOW_MS]
    monkeypatch.setattr(rescue_steps, "restore_group_offsets", lambda *_: next(lacks))
    monkeypatch.setattr(rescue_steps, "find_topics_with_own_offsets", lambda *_: frozenset())
    monkeypatch.setattr(rescue_steps, "let_offsets_follow_home", lambda *_: "")
    saved = handover.offsets_to_json({"billing": {("in", 0): CommittedOffset(40, "")}})
    one = replace(
        forced("in", kind=SwitchKind.FAILBACK, state=Ended.RUNNING), step=SwitchStep.RESTORE_OFFSETS, places=saved
    )
    nobody: Any = SimpleNamespace(name="east")
    put_back = rescue_steps.RestoreGroupOffsets(nobody, BACK, nobody, nobody, lambda: clock[0])
    half_ms = OFFSETS_STABLE_MS // 2
    for passed_ms in (0, half_ms, half_ms, half_ms, half_ms):
        clock[0] += passed_ms
        assert isinstance(put_back(one), StepPending), passed_ms
    clock[0] += half_ms
    assert isinstance(put_back(one), StepDone)


def test_a_planned_switch_whose_old_home_has_died_says_so_of_its_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "why_unreachable", lambda _: "east is away")
    ended = hands(SwitchKind.PLANNED).do_copy_offsets(record())
    assert (ended.state.unfollowed, SwitchState.from_json(ended.state.to_json()).unfollowed) == (True, True)


@pytest.mark.parametrize("kind", [SwitchKind.FAILBACK, SwitchKind.MAPPED_FAILBACK])
def test_a_look_at_groups_that_fails_is_tried_again_and_not_for_ever(
    kind: SwitchKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given up, it leaves the groups to the next fail-back."""
    tail = UnreplicatedRange("in", 0, 81, 97), UnreplicatedRange("in", 1, 5, 5)
    one = replace(
        forced("in", kind=kind, state=Ended.RUNNING),
        step=SwitchStep.RELEASE,
        step_ms=NOW_MS,
        tails=ranges_to_json(tail),
    )
    asked: list[Any] = []
    fails = True

    def follow(*args: Any) -> str:
        asked.append(args[-1])
        if fails:
            raise KafkaError("west does not answer", retriable=True)
        return "billing follows"

    nobody: Any = None

    def at(now_ms: int) -> StepDone:
        return rescue_steps.let_groups_follow_home(one, BACK, nobody, nobody, now_ms)

    monkeypatch.setattr(rescue_steps, "let_offsets_follow_home", follow)
    with pytest.raises(KafkaError):
        at(NOW_MS + 1)
    given_up = at(NOW_MS + UNREACHABLE_MS_MAX)
    assert (given_up.state.unfollowed, "fail back again" in given_up.sentence) == (True, True)
    fails = False
    assert at(NOW_MS + 1) == StepDone(one, "billing follows")
    assert asked[0] == ({("in", 0): 97} if kind is SwitchKind.MAPPED_FAILBACK else {})


def test_mapped_its_groups_follow_as_well() -> None:
    steps = STEPS[SwitchKind.MAPPED_FAILBACK]
    assert (
        steps.index(SwitchStep.CONTINUE_MAPPED)
        < steps.index(SwitchStep.LET_OFFSETS_FOLLOW)
        < steps.index(SwitchStep.RELEASE)
    )


def test_a_place_that_was_the_links_is_put_back_as_the_links() -> None:
    """Without its mark a rebuild would make each group stand on its own, and none would follow."""
    saved = {"billing": {("in", 0): CommittedOffset(40, COMMIT_MARK), ("out", 1): CommittedOffset(7, "")}}
    assert handover.offsets_from_json(handover.offsets_to_json(saved)) == saved
    assert handover.offsets_from_json('{"billing":[["in",0,40]]}') == {"billing": {("in", 0): CommittedOffset(40, "")}}
    for text in ("{", "[1]", '{"billing":[["in",0]]}'):
        with pytest.raises(WireError):
            handover.offsets_from_json(text)
