"""Rounds of one link: which groups follow is what operators say now, not what the settings said at the start."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli import asking
from tests.cli.asking import LINK, opened, write_settings
from tests.groups.test_direction import PARTS, TWINS, Stage
from twinshore.config.errors import KafkaError, StoreError
from twinshore.config.frozen import COMMIT_MARK
from twinshore.config.model import GroupRules, TopicPartition
from twinshore.config.settings import Settings, parse_settings
from twinshore.groups.core.commit_rules import GroupSyncStatus
from twinshore.groups.sync import ALL_GROUPS, UNMARKED_GROUPS_KIND, GroupSync, group_names_row
from twinshore.kafka.protocol.offsets import CommittedOffset
from twinshore.replication.core.ownership import pair_name
from twinshore.state.core.values import MirrorRequest, TopicInSwitch, TwinRow
from twinshore.state.store import Store


def test_a_filter_for_groups_holds_from_the_next_round_on_without_a_restart(tmp_path: Path) -> None:
    file = write_settings(tmp_path, f'[links."{LINK}"]\n')
    settings = parse_settings(file.read_text(), name=file.name, env={})
    with (
        opened(file) as store,
        contextlib.closing(GroupSync(settings.links[0], settings, store, retention_s=1.0)) as rounds,
    ):
        names = ("billing", "billing-test", "console-consumer-7")

        def admitted(now_s: float) -> list[str]:
            rounds.begin(now_s)
            return [name for name in names if rounds.admits(name)]

        assert admitted(0.0) == list(names)
        asking.run(file, "link", "filter", LINK, "--groups", "billing.*", "--exclude-groups", ".*-test")
        assert admitted(1.0) == ["billing"]
        asking.run(file, "link", "reset", LINK)
        assert admitted(2.0) == list(names)


def test_once_a_topic_changed_homes_no_round_goes_by_what_was_before_until_both_sides_have_answered(
    tmp_path: Path,
) -> None:
    """Nobody answers at either address. Between two tries no time passes, as far as a round can tell."""
    file = write_settings(tmp_path, f'[links."{LINK}"]\n')
    settings = parse_settings(file.read_text(), name=file.name, env={})
    with (
        opened(file) as store,
        contextlib.closing(GroupSync(settings.links[0], settings, store, retention_s=1.0, leaves=True)) as rounds,
    ):
        rounds.begin(0.0)
        assert rounds._holds()
        store.twins.save([TwinRow(LINK, "orders", 0, "aa" * 16, "bb" * 16, 0, 0, 1)])
        rounds.begin(0.1)  # looked a moment ago
        store.topics_in_switch.begin(
            [TopicInSwitch(pair_name(settings.links[0]), "orders", "id", LINK, MirrorRequest.ANNOUNCED, 1)]
        )
        assert not rounds._holds()
        for _ in range(3):
            with pytest.raises(KafkaError):
                rounds.begin(0.2)


def test_nothing_is_committed_once_a_topic_has_changed_homes_and_that_is_asked_when_the_ends_are_known() -> None:
    stage = Stage()
    seen = []

    def holds() -> bool:
        seen.append(stage.west.asked["ListOffsets"])
        return False

    stage.holds = holds
    stage.commit("g", 70)
    assert stage.turn().commits == 0
    assert (stage.there("g"), seen) == (None, [1])
    stage.holds = lambda: True
    assert (stage.turn().commits, stage.there("g")) == (1, 70)


def test_a_filter_that_could_not_be_read_once_is_heard_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_settings(tmp_path, f'[links."{LINK}"]\n')
    settings = parse_settings(file.read_text(), name=file.name, env={})
    with (
        opened(file) as store,
        contextlib.closing(GroupSync(settings.links[0], settings, store, retention_s=1.0)) as rounds,
    ):
        asking.run(file, "link", "filter", LINK, "--exclude-groups", "audit")

        def away(link: str) -> object:
            raise StoreError(f"the store does not say what is in force on {link}")

        with monkeypatch.context() as patched, pytest.raises(StoreError):
            patched.setattr(store.controls, "of", away)
            rounds.begin(0.0)
        rounds.begin(1.0)
        assert not rounds.admits("audit")


class Owing:
    """A link's rounds, one process after the other, against a model of two clusters."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self.settings, self.store = settings, store
        self.stage = Stage()

    def process(self, *, marks: bool = True) -> None:
        """The next one begins."""
        link = replace(self.settings.links[0], groups=GroupRules(marks=marks))
        with contextlib.closing(GroupSync(link, self.settings, self.store, retention_s=1.0)) as rounds:
            self.rounds = rounds
            rounds.begin(0.0)
        assert rounds._forward is not None
        self.stage.direction.sync_state, self.stage.direction.rules = rounds._forward.sync_state, rounds._forward.rules

    def turn(self) -> None:
        self.rounds._keep_names(self.stage.direction.sync_state, self.stage.turn())

    def found(self, group: str) -> None:
        """At 50 on the target, without a mark, and at 95 on the source."""
        self.stage.commit(group, 95)
        self.stage.west.groups[group] = {TWINS[PARTS[0]]: CommittedOffset(50)}


@pytest.fixture
def owing(tmp_path: Path) -> Iterator[Owing]:
    file = write_settings(tmp_path, f'[links."{LINK}"]\n')
    with opened(file) as store:
        yield Owing(parse_settings(file.read_text(), name=file.name, env={}), store)


def no_marks_were_left(owing: Owing) -> None:
    owing.store.link_states.remember([group_names_row(LINK, UNMARKED_GROUPS_KIND, [ALL_GROUPS], 5)])


def test_places_without_a_mark_are_the_links_own_only_after_the_link_left_none(owing: Owing) -> None:
    owing.found("g")
    owing.process()
    owing.turn()
    assert (owing.stage.there("g"), owing.stage.state("g")[0]) == (50, GroupSyncStatus.OWN)


def test_each_group_is_trusted_until_it_was_settled_and_no_group_that_comes_later_is(owing: Owing) -> None:
    no_marks_were_left(owing)
    owing.stage.east.groups["elsewhere"] = {("not-mirrored", 0): CommittedOffset(5)}
    owing.found("g")
    owing.process()
    owing.turn()
    assert owing.stage.there("g") == 95
    owing.found("flink")
    for _ in range(2):
        for _ in range(3):
            owing.turn()
        assert (owing.stage.there("flink"), owing.stage.state("flink")[0]) == (50, GroupSyncStatus.OWN)
        owing.process()


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("hindered", ["source away", "no leader", "elsewhere", "no answer"])
def test_a_group_that_could_not_be_settled_stays_trusted(owing: Owing, hindered: str, *, restarts: bool) -> None:
    """Nothing could be compared, or committed: also the next process takes its place for the link's."""
    no_marks_were_left(owing)
    owing.found("g")
    owing.process()
    stage, twin = owing.stage, TWINS[PARTS[0]]
    commit = stage.west.commit
    stage.east.away = hindered == "source away"
    if hindered == "no leader":
        stage.west.leaderless.add(TopicPartition(*twin))
    if hindered in ("elsewhere", "no answer"):
        answer = {"g": {twin: 16}} if hindered == "elsewhere" else {}
        stage.west.commit = lambda *_: answer  # type: ignore[method-assign]
    owing.turn()
    assert stage.there("g") == 50
    stage.east.away = False
    stage.west.leaderless.clear()
    stage.west.commit = commit  # type: ignore[method-assign]
    stage.clock_s += 60
    if restarts:
        owing.process()
    for _ in range(3):
        owing.turn()
    assert (stage.there("g"), stage.state("g")[0]) == (95, GroupSyncStatus.SAME)


def test_a_link_that_left_no_marks_for_a_while_knows_its_places_when_it_leaves_them_again(owing: Owing) -> None:
    owing.process()
    owing.turn()
    owing.process(marks=False)
    owing.found("g")
    owing.turn()
    twin = TWINS[PARTS[0]]
    assert owing.stage.west.groups["g"][twin] == CommittedOffset(95, "")
    owing.stage.commit("g", 97)
    owing.process()
    owing.turn()
    assert owing.stage.west.groups["g"][twin] == CommittedOffset(97, COMMIT_MARK)


def test_the_next_process_knows_which_groups_leave_notes(owing: Owing) -> None:
    twin = TWINS[PARTS[0]]
    owing.process()
    owing.stage.east.groups["g"] = {PARTS[0]: CommittedOffset(50, "open: 48, 49")}
    owing.turn()
    owing.stage.commit("g", 60)
    owing.turn()
    assert owing.stage.west.groups["g"][twin] == CommittedOffset(60, "")
    owing.stage.commit("g", 70)
    owing.process()
    owing.turn()
    assert owing.stage.west.groups["g"][twin] == CommittedOffset(70, "")
