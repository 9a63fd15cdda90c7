"""Rounds of one link: which groups follow is what operators say now, not what the settings said at the start."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli import asking
from tests.cli.asking import LINK, opened, write_settings
from tests.groups.test_direction import PARTS, TWINS, Stage
from twinshore.config.errors import KafkaError, StoreError
from twinshore.config.settings import Settings, parse_settings
from twinshore.groups.core.commit_rules import GroupSyncStatus
from twinshore.groups.sync import GroupSync
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


class Processes:
    """A link's rounds, one process after the other, against a model of two clusters."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self.settings, self.store = settings, store
        self.stage = Stage()

    def process(self) -> None:
        """The next one begins."""
        with contextlib.closing(
            GroupSync(self.settings.links[0], self.settings, self.store, retention_s=1.0)
        ) as rounds:
            self.rounds = rounds
            rounds.begin(0.0)
        assert rounds._forward is not None
        self.stage.direction.sync_state, self.stage.direction.rules = rounds._forward.sync_state, rounds._forward.rules

    def turn(self) -> None:
        self.stage.turn()
        self.rounds._keep_names(self.stage.direction.sync_state)

    def found(self, group: str) -> None:
        """At 50 on the target, without a mark, and at 95 on the source."""
        self.stage.commit(group, 95)
        self.stage.west.groups[group] = {TWINS[PARTS[0]]: CommittedOffset(50)}


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    file = write_settings(tmp_path, f'[links."{LINK}"]\n')
    with opened(file) as store:
        yield Processes(parse_settings(file.read_text(), name=file.name, env={}), store)


def test_places_without_a_mark_are_not_the_links_own(processes: Processes) -> None:
    processes.found("g")
    processes.process()
    processes.turn()
    assert (processes.stage.there("g"), processes.stage.state("g")[0]) == (50, GroupSyncStatus.OWN)


def test_the_next_process_knows_which_groups_leave_notes(processes: Processes) -> None:
    twin = TWINS[PARTS[0]]
    processes.process()
    processes.stage.east.groups["g"] = {PARTS[0]: CommittedOffset(50, "open: 48, 49")}
    processes.turn()
    processes.stage.commit("g", 60)
    processes.turn()
    assert processes.stage.west.groups["g"][twin] == CommittedOffset(60, "")
    processes.stage.commit("g", 70)
    processes.process()
    processes.turn()
    assert processes.stage.west.groups["g"][twin] == CommittedOffset(70, "")
